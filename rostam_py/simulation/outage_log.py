"""OutageLog: when a job with failures was down, what it waited for, and which failures were behind it, in picoseconds.

Example:
    for one in result.outage_log.downs:
        one.phase, one.begin_ps, one.end_ps, one.failure
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rostam_py.plan.failures import Failure
from rostam_py.simulation.failures import failures_by_part

PHASES = DETECTION, WAITING, RESTARTING = "detection", "waiting", "restarting"  # of a job that is down, as in the core


@dataclass(frozen=True, slots=True)
class RestartSpan:
    """From the cut of a job until it went on with an iteration."""

    cut_ps: int
    start_ps: int
    from_iteration: int


@dataclass(frozen=True, slots=True)
class Down:
    """A phase of a job that is down: until its loss is detected, while it waits for a repair, or its restart.

    failure: that holds it there; None where it is not known.
    """

    phase: str
    begin_ps: int
    end_ps: int
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class Stall:
    """A time in which what decided an iteration's end waited for messages that nothing carried.

    failure: the first of those that they suffered from; None for links without capacity of which no failure is known:
    those of optical parts, circuits that change, events that set a bandwidth of 0.
    """

    iteration: int
    begin_ps: int
    end_ps: int
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class OutageLog:
    """ends_ps: of the iterations that counted, the job's start first. stalls: of these, where they are watched."""

    ends_ps: tuple[int, ...]
    restarts: tuple[RestartSpan, ...] = ()
    downs: tuple[Down, ...] = ()
    stalls: tuple[Stall, ...] = ()

    def part(self, first: int, last: int, shift_ps: int = 0) -> "OutageLog":
        """Return the iterations [first, last), numbered from 0, all times later by a shift; without restarts."""
        stalls = (
            Stall(one.iteration - first, one.begin_ps + shift_ps, one.end_ps + shift_ps, one.failure)
            for one in self.stalls
            if first <= one.iteration < last
        )
        return OutageLog(tuple(end + shift_ps for end in self.ends_ps[first : last + 1]), stalls=tuple(stalls))


def failures_behind(raw: Mapping[str, Any], events: Sequence[Any], router: Any, fabric: Any) -> list[Failure | None]:
    """Return the failures of a run by the number that the core gives them. Args: raw: the core's result."""
    rows = raw["failed"].tolist()
    given = failures_by_part([one for one in events if isinstance(one, Failure)], router, fabric) if rows else {}
    return [given.get(tuple(row)) for row in rows]


def outage_log(
    number: int, raw: Mapping[str, Any], said: Mapping[str, Any] | None, behind: Sequence[Failure | None]
) -> OutageLog:
    """Return the log of a job.

    Args: number: of the job. raw: the core's result. said: the report of its controller of failures, None without one.
        behind: as ``failures_behind`` returns them.
    """
    job = raw["jobs"][number]
    by_number = dict(enumerate(behind))
    downs = []
    if said is not None:
        columns = (said[f"down_{key}"].tolist() for key in ("job", "phase", "begin_ps", "end_ps", "failure"))
        downs = [
            Down(PHASES[phase], begin, end, by_number.get(failure))
            for of_job, phase, begin, end, failure in zip(*columns, strict=True) if of_job == number
        ]  # fmt: skip
    return OutageLog(
        tuple(job["iteration_ends_ps"].tolist()),
        tuple(RestartSpan(one["cut_ps"], one["start_ps"], one["from_iteration"]) for one in job["restarts"]),
        tuple(downs),
        tuple(Stall(iteration, begin, end, by_number.get(of)) for iteration, begin, end, of in job["stalls"].tolist()),
    )
