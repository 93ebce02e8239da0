"""Tables that the commands print."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py.cli.head import add_algorithms, add_ranks, add_times, kind_name, run_head
from rostam_py.cli.notes import all_notes, print_notes
from rostam_py.cli.spread import print_sensitivities
from rostam_py.convergence import TimeToAccuracy
from rostam_py.simulation import JobResult, RunResult
from rostam_py.simulation.messages import COLUMNS, message_rows
from rostam_py.units import format_size, format_time

UNSTEADY = "*"  # behind a time
UNSTEADY_NOTE = f"{UNSTEADY} not steady: the mean of its last iterations"


def print_result(
    console: Console, result: RunResult, folder: str, answer: TimeToAccuracy | None = None,
    spread: Mapping[str, Any] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Print a run: what it is, where the time went, what the network carried, what to know.

    Args: spread: as ``spread_of`` returns it.
    """
    notes = all_notes(result, spread, answer)
    _print_parts(console, result, run_head(result, answer, spread), folder, spread, notes)


def print_job(console: Console, result: JobResult, folder: str, spread: Mapping[str, Any]) -> None:
    """Print a job of a task graph, or a program: as a run, less what only a plan knows."""
    table = Table(title=f"{result.job.name} on {result.fabric.describe()}", show_header=False)
    add_ranks(table, result)
    add_times(table, result, spread)
    add_algorithms(table, result)
    _print_parts(console, result, table, folder, spread, all_notes(result, spread))


def _print_parts(
    console: Console, result: JobResult, summary: Table, folder: str, spread: Mapping[str, Any],
    notes: Sequence[str],
) -> None:  # fmt: skip
    console.print(summary)
    console.print(_breakdown(result))
    if len(result.messages_by_axis) > 1:
        console.print(_messages(result))
    console.print(_critical_tasks(result))
    if result.busiest_links():
        console.print(_links(result))
    print_sensitivities(console, result.iteration_time_s, spread)
    print_notes(console, notes, folder)
    console.print(f"written to {folder}", highlight=False, markup=False)


def _breakdown(result: JobResult) -> Table:
    table = Table(title="where one iteration goes")
    for name in ("kind", "mean device", "share", "critical path", "share", "bytes sent", "messages"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    path = result.critical_path_by_kind()
    total = result.iteration_time_s
    for kind, seconds in result.breakdown.items():
        on_path = path.get(kind, 0.0)
        sent, count = result.bytes_sent.get(kind, 0), result.num_messages.get(kind, 0)
        if not seconds and not on_path and not count:
            continue
        table.add_row(
            kind_name(kind), format_time(seconds), f"{seconds / total:.1%}", format_time(on_path),
            f"{on_path / total:.1%}", format_size(sent) if sent else "", f"{count:,}" if count else "",
        )  # fmt: skip
        if kind == "compute":
            for family, part in result.compute_by_family.items():
                table.add_row(f"  {family}", format_time(part), f"{part / total:.1%}", style="dim")
    table.add_section()
    sums = (sum(result.breakdown.values()), sum(path.values()))
    table.add_row("iteration", format_time(sums[0]), "100.0%", format_time(sums[1]), "100.0%")
    return table


def _messages(result: JobResult) -> Table:
    table = Table(title="communication by axis")
    rows = message_rows([asdict(one) for one in result.messages_by_axis])
    shown = [place for place in range(len(COLUMNS)) if any(row[place] for row in rows)]
    for place in shown:
        table.add_column(COLUMNS[place], justify="left" if place in (0, 2, 3) else "right")
    for row in rows[:-1]:
        table.add_row(*(row[place] for place in shown))
    table.add_section()
    table.add_row(*(rows[-1][place] for place in shown))
    return table


def _critical_tasks(result: JobResult) -> Table:
    table = Table(title="largest parts of the critical path")
    for name in ("kind", "task", "times", "total", "share"):
        table.add_column(name, justify="left" if name in ("kind", "task") else "right")
    for row in result.critical_tasks(8):
        seconds = row["duration_s"]
        share = f"{seconds / result.iteration_time_s:.1%}"
        table.add_row(row["kind"], row["name"], f"{row['count']:,}", format_time(seconds), share)
    return table


def _links(result: JobResult) -> Table:
    table = Table(title="ten busiest links")
    for name in ("link", "bytes", "busy", "utilization"):
        table.add_column(name, justify="left" if name == "link" else "right")
    for load in result.busiest_links():
        table.add_row(load.name, format_size(load.num_bytes), f"{load.busy_fraction:.1%}", f"{load.utilization:.1%}")
    return table
