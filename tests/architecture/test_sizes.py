"""Classes and calls that a reader can hold: STYLE 1's limits, and the lists of what still exceeds them.

A list may only shrink: a new entry is a fault of the change that needs it, and an entry that no longer exceeds its
limit fails too, so that it is struck off.
"""

import ast
import functools
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("rostam", "rostam_py", "models")
MOST_LINES = 400
MOST_METHODS = 25  # properties are none
MOST_PARAMETERS = 10  # of a written constructor; a dataclass with more fields takes them by keyword alone
MOST_BY_POSITION = 6

# "file class: limit" of the classes that exceed it.
LARGE_CLASSES = {
    "rostam_py/fabrics/fabric.py Fabric: lines",
    "rostam_py/fabrics/fabric.py Fabric: methods",
    "rostam_py/graph/ops.py Op: keyword only",
}
# "file callee": calls with more arguments by position.
LONG_CALLS = {
    "rostam_py/cli/demo.py table.add_row": 1,
    "rostam_py/cli/run.py write_folder": 1,
    "rostam_py/cli/tables.py table.add_row": 1,
    "rostam_py/cli/validate.py grid.add_row": 1,
    "rostam_py/collectives/closed_forms.py _core.collective_time_ps": 1,
    "rostam_py/collectives/pieces.py PipelineCosts": 1,
    "rostam_py/costs/kernel_shapes.py Convolution": 1,
    "rostam_py/costs/profile_neutral.py backward": 1,
    "rostam_py/fabrics/optimal.py _Network": 1,
    "rostam_py/fabrics/sip_ring.py self._switching": 1,
    "rostam_py/fleet/mix.py JobOutcome": 1,
    "rostam_py/graph/storage.py Op": 1,
    "rostam_py/graph/storage.py Tensor": 1,
    "rostam_py/placement/context/attention.py Attention": 1,
    "rostam_py/placement/convolution_norms.py ConvolutionNorm": 1,
    "rostam_py/placement/experts/hops.py ExpertHops": 1,
    "rostam_py/placement/megatron/context_parallel.py OpStep": 1,
    "rostam_py/placement/megatron/estimate.py _Row": 1,
    "rostam_py/placement/megatron/placer.py spread_tables": 1,
    "rostam_py/placement/megatron/torch_context.py OpStep": 1,
    "rostam_py/placement/sip_ml/estimate.py CompiledGroup": 1,
    "rostam_py/placement/sip_ml/estimate.py _Burst": 1,
    "rostam_py/placement/sip_ml/placer.py _notes": 1,
    "rostam_py/placement/sip_ml/placer.py write_templates": 1,
    "rostam_py/placement/sip_ml/sub_op_templates.py self._message": 3,
    "rostam_py/plan/host.py HostCosts": 1,
    "rostam_py/plan/table_ids.py IdFrequencies": 1,
    "rostam_py/report/sinks/wandb_sink.py _open": 3,
    "rostam_py/report/sweep/time_figure.py reading.figure_table": 1,
    "rostam_py/simulation/collective.py graph.add_template": 1,
    "rostam_py/simulation/compile.py GraphNames": 1,
    "rostam_py/simulation/compile.py self._add_tasks": 1,
    "rostam_py/simulation/compile.py self.core.add_template": 1,
    "rostam_py/simulation/flows.py FlowsResult": 1,
    "rostam_py/simulation/flows.py _core.run_flows": 1,
    "rostam_py/simulation/graph_job.py cls": 1,
    "rostam_py/simulation/graph_storage.py ScheduleKey": 1,
    "rostam_py/simulation/job_result.py write_perfetto": 1,
    "rostam_py/simulation/messages.py AxisMessages": 1,
    "rostam_py/simulation/phase_spans.py PhaseSpan": 1,
    "rostam_py/simulation/restarts.py Restart": 1,
    "rostam_py/simulation/simulate.py _result": 1,
    "rostam_py/spread/error_bars.py BarPart": 2,
    "rostam_py/spread/outages.py OutageTimes": 1,
    "rostam_py/spread/outages.py run_shrinking": 1,
    "rostam_py/sweep/run_sweep.py self._evaluate": 1,
    "rostam_py/tracing/dispatch.py Call": 1,
    "rostam_py/tracing/neutral.py attention": 1,
    "rostam_py/tracing/neutral.py backward": 1,
    "rostam_py/validation/tables.py Table": 1,
}


def is_property(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a method is a property's getter, setter or deleter."""
    names = {ast.unparse(one).split(".")[-1] for one in method.decorator_list}
    return bool(names & {"property", "cached_property", "setter", "deleter"})


def is_field(statement: ast.stmt) -> bool:
    """Return whether a statement of a dataclass's body declares a field."""
    if not isinstance(statement, ast.AnnAssign):
        return False
    declared = ast.unparse(statement.annotation)
    return not declared.startswith(("ClassVar", "KW_ONLY", "dataclasses.KW_ONLY", "typing.ClassVar"))


def positional_fields(body: list[ast.stmt]) -> int:
    """Return how many fields a dataclass takes by position: those before a KW_ONLY that are not keyword only."""
    taken = 0
    for statement in body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.annotation).endswith("KW_ONLY"):
            break
        taken += is_field(statement) and "kw_only=True" not in ast.unparse(statement)
    return taken


def excesses(owner: ast.ClassDef) -> list[str]:
    """Return which limits a class exceeds: lines, methods, parameters, keyword only."""
    methods = [one for one in owner.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    found = []
    if owner.end_lineno - owner.lineno + 1 > MOST_LINES:
        found.append("lines")
    if sum(not is_property(one) for one in methods) > MOST_METHODS:
        found.append("methods")
    for one in methods:
        taken = [*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs]
        if one.name == "__init__" and len(taken) - 1 > MOST_PARAMETERS:
            found.append("parameters")
    how = [ast.unparse(one) for one in owner.decorator_list]
    data = [one for one in how if one.split("(")[0].split(".")[-1] == "dataclass"]
    if data and "kw_only=True" not in data[0]:
        fields = sum(is_field(one) for one in owner.body)
        if fields > MOST_PARAMETERS and positional_fields(owner.body):
            found.append("keyword only")
    return found


@dataclass
class Found:
    """classes: "path class: limit" for each limit that one exceeds. calls: "path callee" for each long call."""

    classes: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def scan(self, source: str, path: str) -> "Found":
        """Add what exceeds the limits in one file; ``*these`` counts as one argument."""
        for one in ast.walk(ast.parse(source, path)):
            if isinstance(one, ast.ClassDef):
                self.classes += [f"{path} {one.name}: {what}" for what in excesses(one)]
            elif isinstance(one, ast.Call) and len(one.args) > MOST_BY_POSITION:
                self.calls.append(f"{path} {ast.unparse(one.func)}")
        return self


@functools.cache
def in_package() -> Found:
    """Return what exceeds the limits in the package's files."""
    found = Found()
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        found.scan(path.read_text(), path.relative_to(ROOT).as_posix())
    return found


def test_classes_are_small_but_for_a_list_that_shrinks():
    found = set(in_package().classes)
    assert sorted(found - LARGE_CLASSES) == [], "split the class, or give its constructor a dataclass"
    assert sorted(LARGE_CLASSES - found) == [], "strike these off LARGE_CLASSES"


def test_calls_name_their_arguments_but_for_a_list_that_shrinks():
    found = Counter(in_package().calls)
    assert sorted((found - Counter(LONG_CALLS)).items()) == [], "name the arguments"
    assert sorted((Counter(LONG_CALLS) - found).items()) == [], "strike these off LONG_CALLS"


def some_fields(number: int) -> str:
    return "".join(f"    x{k}: int = 0\n" for k in range(number))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class A:\n" + "    x = 0\n" * 399, []),
        ("class A:\n" + "    x = 0\n" * 400, ["lines"]),
        ("class A:\n" + "".join(f"    def f{k}(self): ...\n" for k in range(25)), []),
        ("class A:\n" + "".join(f"    def f{k}(self): ...\n" for k in range(26)), ["methods"]),
        ("class A:\n" + "".join(f"    @property\n    def f{k}(self): ...\n" for k in range(26)), []),
        ("class A:\n    def __init__(self, a, b, c, d, e, /, f, g, h, *, i, j): ...", []),
        ("class A:\n    def __init__(self, a, b, c, d, e, /, f, g, h, *, i, j, k): ...", ["parameters"]),
        ("@dataclass\nclass A:\n" + some_fields(10), []),
        ("@dataclass\nclass A:\n" + some_fields(11), ["keyword only"]),
        ("@dataclass\nclass A:\n    y: ClassVar[int] = 0\n" + some_fields(10), []),
        ("@dataclasses.dataclass(frozen=True)\nclass A:\n" + some_fields(11), ["keyword only"]),
        ("@dataclass(frozen=True, kw_only=True)\nclass A:\n" + some_fields(11), []),
        ("@dataclass\nclass A:\n    _: KW_ONLY\n" + some_fields(11), []),
        ("@dataclass\nclass A:\n    y: int\n    _: KW_ONLY\n" + some_fields(10), ["keyword only"]),
    ],
)
def test_scanner_counts_lines_methods_and_parameters(source, found):
    assert Found().scan(source, "a.py").classes == [f"a.py A: {one}" for one in found]


def test_scanner_counts_arguments_by_position():
    assert Found().scan("f(1, 2, 3, 4, 5, 6, g=7)", "a.py").calls == []
    assert Found().scan("f(1, 2, 3, 4, 5, *rest)", "a.py").calls == []
    assert Found().scan("x.f(1, 2, 3, 4, 5, 6, 7)", "a.py").calls == ["a.py x.f"]
    assert Found().scan("f(g(1, 2, 3, 4, 5, 6, *rest))", "a.py").calls == ["a.py g"]
