"""What ``rostam run`` says of how sure its time is: error bar, sensitivities, steps of fleets that vary."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from rostam_py.cli.schema import RunConfig
from rostam_py.graph import OperatorGraph
from rostam_py.plan.plan import Plan
from rostam_py.simulation import JobResult, SimulationOptions, TaskGraph
from rostam_py.spread import compute_by_basis, error_bar, outages, sensitivity, variability
from rostam_py.spread.lost_time import cause_words, lost_words, part_words
from rostam_py.units import format_number_of, format_time

_STEPS = {"p50_s": "p50", "p95_s": "p95", "mean_s": "mean"}
_SHOWN = 20  # rows of sensitivities
_LEAST = 5e-5  # share of the time from which on an input is shown


class Spread(NamedTuple):
    """What a run is told besides its result. documents: of result.json, by key. with_failures: the simulation behind
    "outages", None without one."""

    documents: dict[str, Any]
    with_failures: JobResult | None = None


def spread_of(
    result: JobResult,
    source: Plan | TaskGraph,
    config: RunConfig,
    options: SimulationOptions,
    progress: Callable[[str], None],
    *,
    graph: OperatorGraph | None = None,
    cost_config: dict[str, Any] | None = None,
) -> Spread:
    """Return what result.json holds besides the result, by key: "error_bar", "compute_by_basis_s" where kernels
    say what their times rest on, and where asked for "sensitivity", "variability" and "outages".

    Args: source: what was simulated. options: how. progress: called with a line of text at each stage. graph,
        cost_config: that a plan whose job may shrink was placed from, and with.
    """
    found = sensitivity(source, options=options, progress=progress) if config.sensitivity else None
    documents: dict[str, Any] = {"error_bar": error_bar(result, found).to_dict()}
    bases = compute_by_basis(result)
    if bases:
        documents["compute_by_basis_s"] = bases
    if found is not None:
        documents["sensitivity"] = found.to_dict()
    if not config.variability.is_none:
        steps = variability(source, options=options, progress=progress, **dataclasses.asdict(config.variability))
        documents["variability"] = steps.to_dict()
    unread = config.outages.unread_keys()
    if unread:
        documents["notes"] = [*result.notes, *unread]
    if not config.outages.is_none:
        lost = outages(
            source, graph=graph, cost_config=cost_config, options=options.but(timeline=config.timeline),
            progress=progress, **dataclasses.asdict(config.outages),
        )  # fmt: skip
        documents["outages"] = lost.to_dict()
        return Spread(documents, lost.result)
    return Spread(documents)


def range_words(documents: Mapping[str, Any]) -> str:
    """Return what stands behind an iteration's time: " (11.6 s to 12.7 s)", "" without an error bar."""
    bar = documents.get("error_bar") or {}
    return f" ({format_time(bar['low_s'])} to {format_time(bar['high_s'])})" if "low_s" in bar else ""


def step_rows(documents: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of a run's table on steps of fleets that vary, and on failures."""
    return [*_varied_rows(documents.get("variability")), *_outage_rows(documents.get("outages"))]


def _outage_rows(found: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if not found:
        return []
    take = "takes" if found["iterations"] == 1 else "take"
    words = (
        f"{format_number_of(found['iterations'], 'iteration')} {take} {format_time(found['total_s'])}, without failures"
    )
    words += f" {format_time(found['without_s'])}"
    counts = ", ".join(format_number_of(len(found[key]), key.removesuffix("s")) for key in ("failures", "restarts"))
    if found["num_later"]:
        counts += f"; {found['num_later']:,} given for after the end"
    shrunk = ", ".join(
        f"{format_number_of(one['dp'], 'replica')} from iteration {one['from_iteration'] + 1} on, global batch"
        f" {one['global_batch']:,}"
        for one in found.get("shrunk", ())
    )
    return [
        ("outages", words),
        ("time lost", f"{lost_words(found['lost_s'])}: {counts}"),
        *((f"of it {name}", causes) for name, causes in cause_words(found["lost_s"]).items()),
        *((f"lost to {part}", causes) for part, causes in part_words(found).items()),
        *([("shrunk", shrunk)] if shrunk else []),
    ]


def _varied_rows(found: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if not found:
        return []
    varied = ", ".join(f"{key} {found[key]:.1%}" for key in ("devices", "links", "kernels") if found[key])
    times = ", ".join(f"{words} {format_time(found[key])}" for key, words in _STEPS.items())
    slowest = f"{found['slowest_share']:.1%} of it is waiting for the slowest accelerator"
    return [("step that varies", f"{times}; {slowest}"), ("varied", f"{varied}: {found['samples']:,} fleets")]


def print_sensitivities(console: Console, total_s: float, documents: Mapping[str, Any]) -> None:
    """Print the table of sensitivities, where they were asked for. Args: total_s: the iteration's time."""
    if "sensitivity" in documents:
        console.print(_sensitivities(total_s, documents["sensitivity"]))


def spread_notes(total_s: float, documents: Mapping[str, Any]) -> list[str]:
    """Return what a reader should know of the figures, in sentences."""
    bar, bases = documents.get("error_bar") or {}, documents.get("compute_by_basis_s") or {}
    if "absent" in bar:
        return [f"no error bar: {bar['absent']}"]
    if "low_s" not in bar:
        return []
    shares = "; ".join(f"{seconds / sum(bases.values()):.1%} {basis}" for basis, seconds in bases.items())
    parts = ", ".join(f"{part['family']} {_signed(part, total_s)}" for part in bar["parts"][:3])
    return [
        f"error bar: covers {bar['covered']:.0%} of the step, whose kernels and collectives have known errors; the rest"
        f" counts as exact; largest contributions: {parts}",
        *([f"kernels' times, as shares of compute: {shares}"] if bases else []),
    ]


def _signed(part: Mapping[str, float], total_s: float) -> str:
    return f"-{part['low_s'] / total_s:.1%}/+{part['high_s'] / total_s:.1%}"


def _sensitivities(total_s: float, document: Mapping[str, Any]) -> Table:
    step = document["step"]
    table = Table(title=f"change of the iteration time if an input is {step:.0%} better or worse", min_width=70)
    table.add_column("input")
    for column in (f"{step:.0%} better", "", f"{step:.0%} worse", ""):
        table.add_column(column, justify="right")
    shown = [row for row in document["rows"] if max(abs(row["better_s"]), abs(row["worse_s"])) >= _LEAST * total_s]
    for row in shown[:_SHOWN]:
        cells = []
        for change in (row["better_s"], row["worse_s"]):
            cells += [f"{change / total_s:+.2%}", f"{'-' if change < 0 else '+'}{format_time(abs(change))}"]
        table.add_row(row["name"], *cells)
    table.caption = f"held fixed: {document['held_fixed']}"
    return table
