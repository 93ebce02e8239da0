"""How often a controller held a job at the start of an iteration, in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rostam_py.simulation.picoseconds import PS
from rostam_py.units import format_number_of, format_time

_NAME = "iteration_shift"


def hold_notes(
    acting: Sequence[tuple[str, Mapping[str, Any]]], reports: Sequence[Mapping[str, Any]], job: int
) -> Iterator[str]:
    """Yield a note of each controller that may hold a job. Args: acting, reports: in the same order."""
    for (name, _), report in zip(acting, reports, strict=False):
        if name != _NAME:
            continue
        own = [held for held, held_job in zip(report["held_ps"], report["job"], strict=True) if held_job == job]
        if not own:
            yield f"{_NAME} never held this job"
            continue
        yield (
            f"{_NAME} held this job at the start of {format_number_of(len(own), 'iteration')}, for"
            f" {format_time(sum(own) * PS)} in all; iteration times include that"
        )
