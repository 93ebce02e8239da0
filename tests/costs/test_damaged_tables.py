"""A cost table that is not one is refused at the door: every field dropped, of another type, not a number, negative."""

import copy
import json

import pytest

from rostam_py.costs import KernelCall, get_accelerator
from rostam_py.costs.profiled import ProfiledCost
from rostam_py.costs.table import CostTable, Entry, op_key, optimizer_key
from rostam_py.errors import ConfigError

CPU = get_accelerator("cpu_local")
_HUGE = float("inf")


@pytest.fixture
def document(linear_graph, tmp_path):
    """A whole table as JSON has it."""
    graph = linear_graph()
    table = CostTable({
        "model": "linear", "device": "test", "accelerator": "cpu_local", "torch": "2", "threads": 1,
        "precision": "fp32", "optimizer": "sgd", "batches": [2, 8], "clock": "none", "skipped": ["aten.rand"],
    })  # fmt: skip
    for op in graph.ops:
        if not op.is_metadata:
            table.entries[op_key(op, graph)] = Entry(op.op_type, {2: 1e-3, 8: 4e-3}, [1.0, 2.0], [3.0, 4.0])
    table.entries[optimizer_key("sgd", graph)] = Entry("optimizer.sgd", {1: 1e-4}, num_parameters=2048)
    table.save(tmp_path / "whole.json")
    return json.loads((tmp_path / "whole.json").read_text())


def places(value, path=()):
    """Yield the path of everything inside."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(document, path, value, drop=False):
    """Return a copy with the value at a path replaced, or taken away."""
    found = copy.deepcopy(document)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    if drop:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return found


def mutations(document):
    """Yield (what was done, document, whether it may load) of every place."""
    free = {"model", "optimizer", "clock"}  # printed only
    optional = free | {"torch", "threads", "skipped"}
    for path in places(document):
        old = document
        for key in path:
            old = old[key]
        name = path[1] if path[0] == "provenance" and len(path) > 1 else ""
        if isinstance(path[-1], str):
            may_drop = name in optional or (path[0] == "entries" and len(path) == 2)
            may_drop |= len(path) == 4 and path[2] == "seconds" and len(document["entries"][path[1]]["seconds"]) > 1
            yield ("drop", path), changed(document, path, None, drop=True), may_drop
        for value in (None, "text", [], {}, True, -(10**9), 1.5, float("nan"), _HUGE, -_HUGE):
            is_same = type(value) is type(old) or (isinstance(old, float) and type(value) is int)
            is_legal = is_same and not (isinstance(value, int | float) and not 0 <= value < _HUGE)
            is_legal &= value not in ([], {}) or path[-1] in ("batches", "skipped", "entries")
            is_legal &= value != "text" or name in (*optional, "device", "accelerator", "skipped")
            yield (value, path), changed(document, path, value), name in free or is_legal


def test_no_mutated_table_slips_through(document, linear_graph, tmp_path):
    graph, path = linear_graph(), tmp_path / "mutated.json"
    accepted, crashed, unnamed, num_refused = [], [], [], 0
    for what, mutated, may_load in mutations(document):
        path.write_text(json.dumps(mutated))
        try:
            cost = ProfiledCost(CostTable.load(path), CPU, graph, ProfiledCost.Config(allow_other_accelerator=True))
            times = [
                cost.duration_s(KernelCall(ops=(op,), flops=0, bytes_read=0, bytes_written=0, batch=4))
                for op in graph.ops
            ]
            cost.notes()
        except ConfigError as error:
            num_refused += 1
            unnamed += [] if str(path) in str(error) else [(what, str(error))]
            continue
        except Exception as error:
            crashed.append((what, repr(error)))
            continue
        if not may_load or not all(0 <= time < 1e6 for time in times):
            accepted.append(what)
    assert (crashed, accepted, unnamed) == ([], [], [])
    assert num_refused > 400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seconds": {"2": -1.0}}, r"entries\.aten\.mm\.default:.*: seconds at batch 2 is -1\.0; it must be from 0"),
        ({"seconds": {"0": 1.0}}, "seconds has batch 0; a batch must be >= 1"),
        ({"seconds": {"9" * 5000: 1.0}}, "seconds has batch '999"),
        ({"flops": [1.0]}, r"flops is \[1\.0\]; it must be \[constant, per_sample\]"),
        ({"num_parameters": "many"}, r"num_parameters: input should be a valid integer \(it is 'many'\)"),
    ],
)
def test_the_error_names_file_entry_and_field(document, tmp_path, change, message):
    key = next(key for key in document["entries"] if key.startswith("aten.mm"))
    document["entries"][key] |= change
    (tmp_path / "x.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=rf"x\.json'.*{message}"):
        CostTable.load(tmp_path / "x.json")
