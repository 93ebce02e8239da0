"""``rostam list KIND``: what can be named in a configuration."""

import dataclasses
import inspect
import json
import statistics
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rostam_py.cli.choices import (
    DEFAULT_STRATEGY,
    GROUPS,
    LIST_KINDS,
    describe_preset,
    experiment_command,
    list_kind,
    preset_base,
    presets,
)
from rostam_py.field_words import written
from rostam_py.units import format_count, format_number_of, format_size, format_time

Row = dict[str, str]
_RULES = "habits that may be set by hand (software.rules.KEY=...)"
_FLAGS = "flags (software.KEY=...)"
_BELOW = {
    "hosts": ("of code", "source"),
    "software": (_FLAGS, "measured", "source", _RULES),
}  # columns too long for a table: a paragraph for each row
_LEAST_WIDTH = 120  # of tables with long columns, whatever the terminal's


def list_kinds(kinds: list[str], as_json: bool) -> int:
    """Print the members of each kind. Returns the exit status."""
    listers: dict[str, Callable[[], list[Row]]] = {
        "models": _models, "machines": _machines, "fabrics": _fabrics, "presets": _presets, "experiments": _experiments,
        "accelerators": _accelerators, "costs": _costs, "collectives": _collectives, "routings": _routings,
        "fidelities": _fidelities, "controllers": _controllers, "hosts": _hosts, "strategies": _strategies,
        "placers": _placers, "rules": _rules, "policies": _policies, "allocators": _allocators,
        "assigners": _assigners, "orders": _orders, "job_places": _job_places, "job_sources": _job_sources,
        "circuit_controls": _circuit_controls, "estimators": _estimators,
        "groups": _groups, "convergence": _convergence, "software": _software, "kernels": _kernels,
    }  # fmt: skip
    kinds = list(dict.fromkeys(list_kind(kind) for kind in kinds))
    if not kinds:
        for kind, what in LIST_KINDS.items():
            print(f"  rostam list {kind:<18}{what}")
        return 0
    rows = {kind: listers[kind]() for kind in kinds}
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    for kind, members in rows.items():
        below = _BELOW.get(kind, ())
        columns = [column for column in members[0] if column not in below] if members else []
        table = Table(title=kind)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in members:
            table.add_row(*(row[column] for column in columns))
        console = Console(width=Console().width if below else max(_LEAST_WIDTH, Console().width))
        console.print(table)
        for column in below:
            _print_below(console, columns[0], column, members)
    return 0


def _print_below(console: Console, name: str, column: str, rows: list[Row]) -> None:
    """Print a column as paragraphs: rows of one text together."""
    console.print(f"\n{column}", style="bold", markup=False, highlight=False)
    names: dict[str, list[str]] = {}
    for row in rows:
        if row[column]:
            names.setdefault(row[column], []).append(row[name])
    for text, own in names.items():
        console.print(Padding(Text(f"{', '.join(own)}: {text}"), (0, 0, 0, 2)))


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").splitlines()[0]


def _models() -> list[Row]:
    from rostam_py.convergence.samples import samples_of
    from rostam_py.models import MODELS

    return [{"model": name, "what": model.what, "samples": str(samples_of(name))} for name, model in MODELS.items()]


def _machines() -> list[Row]:
    from rostam_py.machines import MACHINES

    rows = []
    for name in MACHINES:
        schema = MACHINES.get(name)
        figures = "\n".join(
            f"{key} {'not known' if one.value is None else one.value}: {one.source}"
            for key, one in schema.figures.items()
        )
        rows.append({
            "machine": name, "what": _first_line(schema), "accelerator": schema.accelerator,
            "keys (machine.KEY=...)": ", ".join(_with_default(entry) for entry in dataclasses.fields(schema)),
            "figures: source": figures,
        })  # fmt: skip
    return rows


def _fabrics() -> list[Row]:
    from rostam_py.fabrics import FABRICS

    rows = []
    for name in FABRICS:
        schema = FABRICS.get(name)
        keys = ", ".join(_with_default(entry) for entry in dataclasses.fields(schema))
        rows.append({"fabric": name, "what": _first_line(schema), "keys (fabric.KEY=...)": keys})
    return rows


def _with_default(entry: Any) -> str:
    if entry.default is not dataclasses.MISSING:
        return f"{entry.name}={entry.default}"
    return entry.name if entry.default_factory is dataclasses.MISSING else f"{entry.name}={entry.default_factory()}"


def _presets() -> list[Row]:
    groups = [group for group in GROUPS if group != "experiment"]
    return [
        {"key": f"{group}={name}", "what": describe_preset(group, name), "of": _base(group, name)}
        for group in groups
        for name in presets(group)
    ]


def _base(group: str, name: str) -> str:
    base = preset_base(group, name)
    return f"{group}={base}" if base != DEFAULT_STRATEGY else group


def _experiments() -> list[Row]:
    names = presets("experiment")
    return [
        {"command": f"rostam {experiment_command(name)} experiment={name}", "what": describe_preset("experiment", name)}
        for name in names
    ]


def _accelerators() -> list[Row]:
    from rostam_py.costs import ACCELERATORS
    from rostam_py.costs.accelerators import FAMILIES

    families = {name: family for family, name in FAMILIES.items()}
    return [
        {
            "accelerator": a.name,
            "also": families.get(a.name, ""),
            "memory": format_size(a.memory_bytes),
            "memory bandwidth": f"{format_size(a.memory_bandwidth_bytes_per_s)}/s",
            "power limit": f"{a.watts:g} W" if a.watts else "-",
            "peak FLOP/s": ", ".join(f"{kind} {format_count(peak)}" for kind, peak in a.peak_flops_per_s.items()),
            "unverified": ", ".join(a.unverified()) or "-",
        }
        for a in ACCELERATORS.values()
    ]


def _costs() -> list[Row]:
    from rostam_py.costs import COST_MODELS

    rows = []
    for name in COST_MODELS:
        model = COST_MODELS.get(name)
        keys = ", ".join(e.name for e in dataclasses.fields(model.Config))
        rows.append({"cost": name, "what": _first_line(model), "keys (cost.KEY=...)": keys})
    return rows


def _flag(entry: Any) -> str:
    """Return a flag with its default, as the command line takes it."""
    return _with_default(entry).replace("=True", "=true").replace("=False", "=false").replace("=None", "=null")


def _measured(groups: list[tuple[str, str, bool, list[float]]], others: tuple[str, ...]) -> str:
    """Return in words how many times as long as simulated a program's published jobs took."""
    said = []
    for release, accelerator, has_experts, ratios in groups:
        spread = f", {min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else ""
        jobs = format_number_of(len(ratios), "job")
        kind = ", mixtures of experts" if has_experts else ""
        where = f"{release} on {accelerator}{kind}".strip().removeprefix("on ")
        said.append(f"{where}: {statistics.median(ratios):.2f} times simulated ({jobs}{spread})")
    if others:
        said.append(f"jobs of {', '.join(others)} count as well")
    return "; ".join(said) or "no published job: expected by jobs of any program on the same accelerator"


def _software() -> list[Row]:
    from rostam_py.plan.software import IDEAL
    from rostam_py.software.names import AUTO, STACKS
    from rostam_py.software.ratios import Ratios
    from rostam_py.software.stack import RULES

    ratios = Ratios.shipped()
    rows = []
    for name in STACKS:
        stack = STACKS.get(name)
        flags = [_flag(entry) for entry in dataclasses.fields(stack) if entry.name not in ("rules", "ratios")]
        rows.append({
            "software": name, "what": _first_line(stack), _FLAGS: ", ".join(flags) or "none",
            "source": stack.SOURCES,
            _RULES: ", ".join(RULES),
            "measured": _measured(ratios.groups_of(name), stack.RATIOS_OF) if name not in (AUTO, IDEAL) else "",
        })  # fmt: skip
    return rows


def _collectives() -> list[Row]:
    from rostam_py.collectives.rank_groups import needed_ranks
    from rostam_py.simulation import collective_names

    return [
        {"collective": name, "algorithm": algorithm, "ranks": needed_ranks(name, algorithm)}
        for name, algorithm in collective_names()
    ]


def _routings() -> list[Row]:
    from rostam_py.fabrics.routings import routings

    return [{"routing": name, "what": what} for name, what in routings().items()]


def _fidelities() -> list[Row]:
    from rostam_py.simulation import fidelities

    return [{"fidelity": name, "what": what} for name, what in fidelities().items()]


def _assigners() -> list[Row]:
    from rostam_py.simulation import assigners

    return [{"assigner": name, "what": what} for name, what in assigners().items()]


def _controllers() -> list[Row]:
    from rostam_py.simulation import controllers

    return [{"controller": name, "what": what} for name, what in controllers().items()]


def _allocators() -> list[Row]:
    from rostam_py.fleet.allocators import ALLOCATORS

    rows = []
    for name in ALLOCATORS:
        allocator = ALLOCATORS.get(name)
        keys = ", ".join(_with_default(entry) for entry in dataclasses.fields(allocator.Config))
        rows.append({
            "allocator": name, "what": _first_line(allocator), "keys (mix.allocation_options={KEY: ...})": keys,
        })  # fmt: skip
    return rows


def _circuit_controls() -> list[Row]:
    from rostam_py.fabrics.optical import circuit_controls

    return [{"fabric.control": name, "what": what} for name, what in circuit_controls().items()]


def _estimators() -> list[Row]:
    from rostam_py.fabrics.optical import estimators

    return [{"fabric.estimator": name, "what": what} for name, what in estimators().items()]


def _kernels() -> list[Row]:
    from rostam_py.costs.written import OPS

    return [{"op": name, "shapes that it reads": known.shapes} for name, known in OPS.items()]


def _code_s(kind: Any) -> list[tuple[str, float]]:
    """Return what code a HostKind takes of a host of x86 for, in words, and how long [s]."""
    from rostam_py.plan.host_calls import X86_OVER_MEASURED

    found = [(module, call.base_s * X86_OVER_MEASURED) for module, call in kind.calls.items()]
    found += [
        (f"{module} more with ep_overlap", call.base_s * X86_OVER_MEASURED) for module, call in kind.turns.items()
    ]
    if kind.loop is not None:
        loop = kind.loop.times(X86_OVER_MEASURED, 1.0)
        found += [("in front of the step", loop.step_s), ("from it to the replay", loop.turn_s)]
        found += [("replay", loop.replay_s), ("each kernel of it", loop.node_s)]
    return found


def _hosts() -> list[Row]:
    from rostam_py.plan.host import HOSTS

    return [
        {
            "software.rules.host": name,
            "what": one.what,
            "of each launch": one.launch,
            "of code": ", ".join(f"{what} {format_time(seconds)}" for what, seconds in _code_s(one)),
            "source": one.source,
        }
        for name, one in HOSTS.items()
    ]


def _placers() -> list[Row]:
    from rostam_py.plan import PLACERS

    return [{"placer": name, "what": _first_line(PLACERS.get(name))} for name in PLACERS]


def _strategies() -> list[Row]:
    """Return the axes, then all other keys of a strategy, as its schema and docstring have them."""
    from rostam_py.cli.usage import meanings
    from rostam_py.plan import PLACERS, Strategy
    from rostam_py.plan.axes import AXIS_WORDS
    from rostam_py.plan.placing import PLACING_NAMES, Placing
    from rostam_py.spec.lookup import choices_of

    known = {name: (*PLACERS.get(name).AXES, *PLACERS.get(name).INNER_AXES) for name in PLACERS}
    what = meanings(Strategy) | {f"placing.{key}": words for key, words in meanings(Placing).items()} | AXIS_WORDS
    inner = [f"placing.{name}" for name in PLACING_NAMES]
    own = [entry.name for entry in dataclasses.fields(Strategy) if entry.name not in ("rules", "placing", *AXIS_WORDS)]
    return [
        {
            "key": f"strategy.{key}", "what": what[key],
            "values": ", ".join(choices_of(f"strategy.{key}") or ()),
            "placer": ", ".join(name for name in known if key in known[name]) if key in AXIS_WORDS else "",
        }
        for key in (*AXIS_WORDS, *own, *inner)
    ]  # fmt: skip


def _rules() -> list[Row]:
    """Return the habits of training programs, those of an ideal one as defaults."""
    from rostam_py.cli.usage import rules
    from rostam_py.plan.program_rules import WHERE
    from rostam_py.software.stack import choices_of_rule

    return [
        {
            "key": f"{WHERE}.{rule}", "what": what, "values": ", ".join(choices_of_rule(rule)),
            "ideal": "null" if default is None else written(default),
        }
        for rule, default, what in rules()
    ]  # fmt: skip


def _policies() -> list[Row]:
    from rostam_py.fleet.goodput.names import POLICIES

    return [{"policy": name, "what": _first_line(POLICIES.get(name))} for name in POLICIES]


def _orders() -> list[Row]:
    from rostam_py.fleet.queueing.names import ORDERS

    return [{"fleet.order": name, "what": _first_line(ORDERS.get(name))} for name in ORDERS]


def _job_places() -> list[Row]:
    from rostam_py.fleet.queueing.names import PLACES

    return [{"fleet.allocation": name, "what": _first_line(PLACES.get(name))} for name in PLACES]


def _job_sources() -> list[Row]:
    from rostam_py.fleet.queueing.names import SOURCES

    rows = []
    for name in SOURCES:
        source = SOURCES.get(name)
        keys = ", ".join(_with_default(entry) for entry in dataclasses.fields(source.Config))
        rows.append({"fleet.jobs": name, "what": _first_line(source), "keys (fleet.draw={KEY: ...})": keys})
    return rows


def _groups() -> list[Row]:
    from rostam_py.plan.group_kinds import counted_kind, group_kind, kinds_in_order

    return [
        {"group": name, "what": group_kind(name).words, "counted as": counted_kind(name)} for name in kinds_in_order()
    ]


def _convergence() -> list[Row]:
    from rostam_py.convergence import CURVES, DEFAULT_CURVES

    rows = []
    for name in CURVES:
        curve = CURVES.get(name)
        models = [f"{one} (default)" if DEFAULT_CURVES.get(one) == name else one for one in curve.models]
        rows.append({
            "convergence": name, "model": ", ".join(models), "target": curve.target, "iterations": curve.basis,
            "batches": curve.describe(),
            "source": curve.source,
        })  # fmt: skip
    return rows
