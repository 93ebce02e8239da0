"""The head of a run: what it is, what it takes, simulated and expected, and what it needs."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from rostam_py.cli.spread import range_words, step_rows
from rostam_py.convergence import TimeToAccuracy
from rostam_py.placement.micro_batch import NOTE as MICRO_BATCH_NOTE
from rostam_py.plan.algorithms import algorithm_words
from rostam_py.plan.group_kinds import group_kind
from rostam_py.simulation import JobResult, ProgramResult, RunResult
from rostam_py.simulation.controllers import controller_words
from rostam_py.simulation.job_result import steadiness
from rostam_py.simulation.result import judged_utilization, throughput_words
from rostam_py.simulation.utilization import UTILIZATIONS
from rostam_py.software.ratios import expected_of
from rostam_py.units import format_count, format_number_of, format_size, format_time

_KIND_NAMES = {
    "compute": "compute",
    "launch": "launch latency",
    "bubble": "pipeline bubble",
    "host": "waiting for the host",
}
_MOST_ROLES = 8  # of a program, in one line
_ALIKE = 1e-3  # share by which a first iteration may differ from a steady one and is not told apart


def run_head(result: RunResult, answer: TimeToAccuracy | None, spread: Mapping[str, Any]) -> Table:
    """Return the first table of a run; what measured jobs let one expect stands in a column of its own.

    Args: spread: as ``spread_of`` returns it.
    """
    plan, expected = result.plan, result.expected
    table = Table(title=f"{plan.graph_name} on {plan.machine.fabric.describe()}", show_header=expected is not None)
    for name in ("", "simulated", "expected")[: 2 if expected is None else 3]:
        table.add_column(name)
    table.add_row("accelerators", f"{plan.num_devices:,} x {plan.machine.device.name}")
    shard = f", shard {plan.strategy.shard}" if plan.strategy.shard else ""
    table.add_row("strategy", f"{plan.strategy.describe()}{shard}, {plan.precision}")
    table.add_row("software", plan.software.describe() + (" (none was named)" if plan.software.was_chosen else ""))
    batches = f"{plan.global_batch:,} = {plan.num_microbatches} x {plan.micro_batch} x dp {plan.strategy.dp}"
    chosen = next((f"; {note}" for note in plan.notes if note.startswith(MICRO_BATCH_NOTE)), "")
    table.add_row("global batch", f"{batches} (micro-batches x samples x replicas){chosen}")
    add_times(table, result, spread, expected_words(result))
    slowdown = 1.0 if expected is None else expected.ratios.middle
    _add_speeds(table, result, slowdown)
    spent = result.stage_microbatch_s
    if spent is not None:
        parts = " + ".join(f"{format_time(seconds)} {kind_name(kind)}" for kind, seconds in spent.items() if seconds)
        table.add_row("per micro-batch and stage", f"{format_time(sum(spent.values()))} = {parts}")
    if answer is not None:
        _add_answer(table, answer, slowdown)
    _add_circuits(table, result)
    used, has = format_size(plan.memory_bytes), format_size(plan.machine.device.memory_bytes)
    _add(table, "memory", f"{used} of {has} on the fullest device", _memory_words(result))
    _add_upkeep(table, result, answer)
    add_algorithms(table, result)
    return table


def add_ranks(table: Table, result: JobResult) -> None:
    """Add how many accelerators a job has, and of a program their roles and memory."""
    if not isinstance(result, ProgramResult):
        table.add_row("accelerators", f"{result.job.num_devices:,}")
        return
    placed, counts = result.placed, result.ranks_of_roles
    table.add_row("accelerators", f"{placed.num_devices:,} x {placed.machine.device.name}")
    shown = [f"{name} ({format_number_of(count, 'rank')})" for name, count in list(counts.items())[:_MOST_ROLES]]
    left = len(counts) - len(shown)
    table.add_row("roles", ", ".join(shown) + (f" and {left:,} more" if left > 0 else ""))
    table.add_row("memory", result.memory_words)


def add_times(table: Table, result: JobResult, spread: Mapping[str, Any], expected: str = "") -> None:
    """Add what an iteration takes. Args: expected: the same in words, of a table that has a column for it."""
    words = format_time(result.iteration_time_s) + range_words(spread) + steadiness(result)
    _add(table, "iteration time", words, expected)
    if abs(result.first_iteration_s / result.iteration_time_s - 1) > _ALIKE:
        table.add_row("first iteration", format_time(result.first_iteration_s))
    for name, step_words in step_rows(spread):
        table.add_row(name, step_words)


def add_algorithms(table: Table, result: JobResult) -> None:
    """Add the algorithms of collectives, controllers, and how much was simulated."""
    words = algorithm_words(result.algorithms)
    if words:
        table.add_row("algorithms", words)
    acted = controller_words(result.controllers)
    if acted:
        table.add_row("controllers", acted)
    count, size = result.num_simulated_devices, result.job.num_devices
    table.add_row("simulated", f"{count:,} of {size:,} devices" + (", the rest by symmetry" if count < size else ""))


def _add(table: Table, name: str, words: str, expected: str = "") -> None:
    """Add a row; tables without a column of what is expected have two."""
    table.add_row(name, words, *([expected] if expected else ()))


def _add_speeds(table: Table, result: RunResult, slowdown: float) -> None:
    """Add what people compare. Args: slowdown: measured over simulated, 1 where nothing is expected."""
    for name, words in (
        ("throughput", throughput_words), (UTILIZATIONS, judged_utilization), ("model FLOPs", _flops_words),
    ):  # fmt: skip
        _add(table, name, words(result), words(result, slowdown) if slowdown != 1.0 else "")


def _flops_words(result: RunResult, slowdown: float = 1.0) -> str:
    words = f"{format_count(result.model_flops_per_s_per_accelerator / slowdown)}FLOP/s"
    return words if slowdown != 1.0 else f"{words} an accelerator"


def _add_answer(table: Table, answer: TimeToAccuracy, slowdown: float) -> None:
    is_slower = slowdown != 1.0
    name = "time to accuracy" if answer.points else "time to target"
    _add(table, name, describe_answer(answer), format_time(answer.time_s * slowdown) if is_slower else "")
    if answer.usd is not None:
        words = f"{answer.usd:,.0f} USD of accelerator hours"
        _add(table, "price of training", words, f"{answer.usd * slowdown:,.0f} USD" if is_slower else "")


def _add_circuits(table: Table, result: RunResult) -> None:
    circuits = result.fabric.circuits
    if circuits is not None:
        slowest = format_time(1 / circuits.min_ratio_per_s) if circuits.min_ratio_per_s else "-"
        degree = result.plan.circuit_degree
        pairs = f"{circuits.num_circuits:,} for {len(circuits.src):,} pairs, {degree} peers at most"
        relays = circuits.describe_relays()
        words = f"{pairs}; the slowest pair sends an iteration's bytes in {slowest}"
        table.add_row("circuits", f"{words}; {relays}" if relays else words)
    if result.reconfigurations is not None:
        table.add_row("reconfigurations", result.reconfigurations.describe())


def _add_upkeep(table: Table, result: RunResult, answer: TimeToAccuracy | None) -> None:
    machine, energy_j = result.plan.machine, result.energy_j
    for name, words in machine.prices.items():
        table.add_row(name, words)
    if machine.most_watts is not None and energy_j is not None:
        energy = f"{format_count(machine.most_watts)}W at most, {format_count(energy_j)}J an iteration"
        if answer is not None and answer.energy_j is not None:
            energy += f", {answer.energy_j / 3.6e9:.4g} MWh to the target"
        table.add_row("energy", energy)


def expected_words(result: RunResult) -> str:
    """Return the iteration time to expect, with what 80% of measured jobs lie between; "" of the ideal program."""
    seconds = result.expected_iteration_s
    if seconds is None:
        return ""
    middle, low, high = map(format_time, seconds)
    return f"{middle} ({low} to {high})"


def _memory_words(result: RunResult) -> str:
    """Return the memory to expect, and whether it fits; "" of the ideal program."""
    expected = expected_of(result.plan, "memory")
    if expected is None:
        return ""
    used, has = expected.of(result.plan.memory_bytes), result.plan.machine.device.memory_bytes
    fits = "fits" if used.high <= has else "may not fit" if used.low <= has else "does not fit"
    middle, low, high = (format_size(int(one)) for one in used)
    return f"{middle} ({low} to {high}): {fits}"


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


def kind_name(kind: str) -> str:
    """Return what a kind of time is called in tables."""
    return _KIND_NAMES.get(kind) or f"exposed {group_kind(kind).words}"
