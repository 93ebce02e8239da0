"""Tables that the commands print."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py.cli.notes import all_notes, print_notes
from rostam_py.cli.spread import print_sensitivities, range_words, step_rows
from rostam_py.convergence import TimeToAccuracy
from rostam_py.placement.micro_batch import NOTE as MICRO_BATCH_NOTE
from rostam_py.plan.algorithms import algorithm_words
from rostam_py.plan.group_kinds import group_kind
from rostam_py.simulation import JobResult, RunResult
from rostam_py.simulation.controllers import controller_words
from rostam_py.simulation.job_result import steadiness
from rostam_py.simulation.messages import COLUMNS, message_rows
from rostam_py.simulation.result import throughput_words
from rostam_py.simulation.utilization import UTILIZATIONS, utilization_words
from rostam_py.units import format_count, format_size, format_time

_KIND_NAMES = {
    "compute": "compute",
    "launch": "launch latency",
    "bubble": "pipeline bubble",
    "host": "waiting for the host",
}


_ALIKE = 1e-3  # share by which a first iteration may differ from a steady one and is not told apart
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
    _print_parts(console, result, _summary(result, answer, spread), folder, spread, notes)


def print_job(console: Console, result: JobResult, folder: str, spread: Mapping[str, Any]) -> None:
    """Print a job of a task graph: as a run, less what only a plan knows."""
    table = Table(title=f"{result.job.name} on {result.fabric.describe()}", show_header=False)
    table.add_row("accelerators", f"{result.job.num_devices:,}")
    _add_times(table, result, spread)
    _add_algorithms(table, result)
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


def _add_times(table: Table, result: JobResult, spread: Mapping[str, Any]) -> None:
    words = format_time(result.iteration_time_s) + range_words(spread) + steadiness(result)
    table.add_row("iteration time", words)
    if abs(result.first_iteration_s / result.iteration_time_s - 1) > _ALIKE:
        table.add_row("first iteration", format_time(result.first_iteration_s))
    for name, words in step_rows(spread):
        table.add_row(name, words)


def _add_algorithms(table: Table, result: JobResult) -> None:
    words = algorithm_words(result.algorithms)
    if words:
        table.add_row("algorithms", words)
    acted = controller_words(result.controllers)
    if acted:
        table.add_row("controllers", acted)
    count, size = result.num_simulated_devices, result.job.num_devices
    table.add_row("simulated", f"{count:,} of {size:,} devices" + (", the rest by symmetry" if count < size else ""))


def _summary(result: RunResult, answer: TimeToAccuracy | None, spread: Mapping[str, Any]) -> Table:
    plan = result.plan
    strategy = plan.strategy
    table = Table(title=f"{plan.graph_name} on {plan.machine.fabric.describe()}", show_header=False)
    table.add_row("accelerators", f"{plan.num_devices:,} x {plan.machine.device.name}")
    table.add_row("strategy", strategy.describe())
    batches = f"{plan.global_batch:,} = {plan.num_microbatches} x {plan.micro_batch} x dp {strategy.dp}"
    chosen = next((f"; {note}" for note in plan.notes if note.startswith(MICRO_BATCH_NOTE)), "")
    table.add_row("global batch", f"{batches} (micro-batches x samples x replicas){chosen}")
    _add_times(table, result, spread)
    table.add_row("throughput", throughput_words(result))
    table.add_row(UTILIZATIONS, utilization_words(result))
    table.add_row("model FLOPs", f"{format_count(result.model_flops_per_s_per_accelerator)}FLOP/s an accelerator")
    spent = result.stage_microbatch_s
    if spent is not None:
        parts = " + ".join(f"{format_time(seconds)} {kind_name(kind)}" for kind, seconds in spent.items() if seconds)
        table.add_row("per micro-batch and stage", f"{format_time(sum(spent.values()))} = {parts}")
    if answer is not None:
        table.add_row("time to accuracy" if answer.points else "time to target", describe_answer(answer))
        if answer.usd is not None:
            table.add_row("price of training", f"{answer.usd:,.0f} USD of accelerator hours")
    used, has = plan.memory_bytes, plan.machine.device.memory_bytes
    circuits = result.fabric.circuits
    if circuits is not None:
        slowest = format_time(1 / circuits.min_ratio_per_s) if circuits.min_ratio_per_s else "-"
        pairs = f"{circuits.num_circuits:,} for {len(circuits.src):,} pairs, {plan.circuit_degree} peers at most"
        relays = circuits.describe_relays()
        words = f"{pairs}; the slowest pair sends an iteration's bytes in {slowest}"
        table.add_row("circuits", f"{words}; {relays}" if relays else words)
    if result.reconfigurations is not None:
        table.add_row("reconfigurations", result.reconfigurations.describe())
    table.add_row("memory", f"{format_size(used)} of {format_size(has)} on the fullest device")
    machine, energy_j = plan.machine, result.energy_j
    for name, words in machine.prices.items():
        table.add_row(name, words)
    if machine.most_watts is not None and energy_j is not None:
        energy = f"{format_count(machine.most_watts)}W at most, {format_count(energy_j)}J an iteration"
        if answer is not None and answer.energy_j is not None:
            energy += f", {answer.energy_j / 3.6e9:.4g} MWh to the target"
        table.add_row("energy", energy)
    _add_algorithms(table, result)
    return table


def describe_answer(answer: TimeToAccuracy) -> str:
    """Return time to accuracy in words: time, iterations, target, and the band where there is one."""
    count = f"{answer.iterations:,.0f}"
    text = f"{format_time(answer.time_s)} = {count} iteration{'' if count == '1' else 's'} to {answer.target}"
    if answer.points:
        text += f" ({answer.curve}, {answer.basis})"
    low, high = answer.band_s
    if high - low > 1e-9 * high:
        text += f", {format_time(low)} to {format_time(high)}"
    return text + (", EXTRAPOLATED" if answer.is_extrapolated else "")


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


def kind_name(kind: str) -> str:
    return _KIND_NAMES.get(kind) or f"exposed {group_kind(kind).words}"


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
