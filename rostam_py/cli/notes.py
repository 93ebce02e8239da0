"""Notes of a run: a few are printed, a line each; all of them, whole, stand in its folder."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from rostam_py.cli.spread import spread_notes
from rostam_py.convergence import TimeToAccuracy
from rostam_py.costs import DEFAULT_COST
from rostam_py.placement.micro_batch import NOTE as MICRO_BATCH_NOTE
from rostam_py.simulation import JobResult, RunResult
from rostam_py.software.ratios import expected_of, may_not_fit
from rostam_py.units import format_number_of

FILE = "notes.txt"
MOST_PRINTED = 5
# How they begin that tell how kernels were counted and looked up: for who asks where a figure comes from.
_DETAILS = (
    MICRO_BATCH_NOTE,  # it stands in the head
    "calibrated ", "work on ", "padded for ", "run whole on every member ", "kernels' times, as shares ",
)  # fmt: skip


def all_notes(result: JobResult, spread: Mapping[str, Any], answer: TimeToAccuracy | None = None) -> list[str]:
    """Return the notes of a run: those that change what a figure means, then those on how kernels were counted.

    Args: spread: as ``spread_of`` returns it.
    """
    found = [*spread_notes(result.iteration_time_s, spread), *spread.get("notes", result.notes)]
    found += answer.notes if answer else ()
    expected = result.expected if isinstance(result, RunResult) else None
    first = [] if expected is None else [f"expected: {expected.describe()}"]
    first += _on_memory(result) if isinstance(result, RunResult) else []
    return first + sorted(found, key=_is_detail)


def _on_memory(result: RunResult) -> list[str]:
    """Return notes on the memory to expect, and on a time that cannot be expected."""
    plan, said = result.plan, []
    if result.expected is None and not plan.software.is_ideal:
        said.append(f"no time is expected: published jobs were simulated with cost={DEFAULT_COST}, not {plan.cost}")
    memory = expected_of(plan, "memory")
    if memory is not None:
        words = memory.describe("held {} times as much as simulated")
        advice = "; it may not fit: recompute more, shard more or set a smaller strategy.micro_batch"
        said.append(f"expected memory: {words}{advice if may_not_fit(plan) else ''}")
    return said


def _is_detail(note: str) -> bool:
    return note.startswith(_DETAILS) or "metadata ops vanished" in note


def write_notes(folder: Path, notes: Iterable[str]) -> None:
    """Write all notes, one a line."""
    (folder / FILE).write_text("".join(f"{note}\n" for note in notes), encoding="utf-8")


def print_notes(console: Console, notes: Sequence[str], folder: str) -> None:
    """Print the first notes, each cut to a line, and where the rest stands."""
    room = console.width - len("note: ")
    for note in notes[:MOST_PRINTED]:
        line = textwrap.shorten(note, room, placeholder=" ...")
        console.print(f"note: {line}", style="dim", markup=False, highlight=False)
    if len(notes) > MOST_PRINTED or any(len(note) > room for note in notes):
        left = len(notes) - MOST_PRINTED
        words = f"{format_number_of(left, 'more note')}, and these in full" if left > 0 else "notes in full"
        console.print(f"{words}: {folder}/{FILE}", style="dim", markup=False, highlight=False, soft_wrap=True)
