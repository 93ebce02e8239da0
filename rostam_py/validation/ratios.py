"""Ratios of validated rows: measured over simulated, and how well they foretell rows that they do not hold.

Example:
    ratios = ratios_of(validate(select(["V1", "torchtitan_h100"])))
    judged = judge(ratios.jobs, "source")       # each job foretold without all jobs of its source
    judged.mean, judged.coverage                # 11.6 [%], 0.76
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rostam_py.plan.software import IDEAL, Software
from rostam_py.software.ratios import Expected, Job, Ratios
from rostam_py.validation.outcome import Outcome
from rostam_py.validation.quantities import SPEEDUP
from rostam_py.validation.rows import Table

NEAR = 10.0  # [%]
_OF_RUNS = ("time", "memory")


def ratios_of(found: Iterable[tuple[Table, Outcome]]) -> Ratios:
    """Return the ratios of the runs among predicted rows; rows of speed-ups and of parts of a run have none."""
    jobs = []
    for table, outcome in found:
        measured = {
            what: one.measured / one.predicted
            for what, one in outcome.compared.items()
            if what in _OF_RUNS and one.quantity != SPEEDUP
        }
        if not measured or outcome.row.subject != "run" or outcome.software is None:
            continue
        source = table.source.partition(",")[0].partition(" (")[0]
        jobs.append(
            Job(
                table=table.name, row=outcome.row.name, source=source, software=outcome.software.name,
                release=outcome.software.release, accelerator=outcome.accelerator, has_experts=outcome.has_experts,
                mfu=outcome.mfu / measured["time"] if "time" in measured else None, peak=outcome.peak, **measured,
            )
        )  # fmt: skip
    return Ratios(tuple(jobs))


@dataclass(frozen=True, slots=True)
class Judged:
    """Errors of jobs' times [%], > 0: foretold longer than measured. coverage: share of jobs within their range.

    None as coverage: simulated times alone, which have no range.
    """

    num_jobs: int
    mean: float
    signed: float
    near: float
    coverage: float | None = None


def judge(jobs: Sequence[Job], without: str = "", what: str = "time") -> Judged:
    """Return how near simulated times come to measured ones, or those that ratios of other jobs make of them.

    Args: without: "" judges what is simulated; "row" foretells each job by all others, "source" by those of other
        sources. what: "time" or "memory".
    Raises: ValueError if there are no jobs.
    """
    known = [one for one in jobs if getattr(one, what) is not None]
    if not without:
        return _judged([(1 / getattr(one, what), None) for one in known])
    every, found = Ratios(tuple(known)), []
    for one in known:
        expected = _expected(every.without(_left_out(one, without)), one, what)
        if expected is None:
            continue
        ratio = getattr(one, what)
        found.append((expected.ratios.middle / ratio, expected.ratios.low <= ratio <= expected.ratios.high))
    return _judged(found)


def _left_out(job: Job, without: str) -> Callable[[Job], bool]:
    if without == "row":
        return lambda other: other is job
    return lambda other: other.source == job.source


def _expected(ratios: Ratios, job: Job, what: str) -> Expected | None:
    ask = ratios.time_of if what == "time" else ratios.memory_of
    return ask(Software(name=job.software, release=job.release), job.accelerator, has_experts=job.has_experts)


def _judged(found: Sequence[tuple[float, bool | None]]) -> Judged:
    errors = [100 * (ratio - 1) for ratio, _ in found]
    covered = [is_covered for _, is_covered in found if is_covered is not None]
    return Judged(
        len(errors), statistics.fmean(map(abs, errors)), statistics.fmean(errors),
        sum(abs(one) <= NEAR for one in errors) / len(errors),
        sum(covered) / len(covered) if covered else None,
    )  # fmt: skip


def judged_document(jobs: Sequence[Job]) -> dict[str, Any]:
    """Return what a validation's document says of all its rows together: simulated, and foretold by other rows."""
    timed = [one for one in jobs if one.time is not None]
    if not timed:
        return {}
    found = {"simulated": judge(timed)}
    of_programs = [one for one in timed if one.software != IDEAL]
    if len(of_programs) > 1:
        found["expected_without_row"] = judge(of_programs, "row")
    if len({one.source for one in of_programs}) > 1:
        found["expected_without_source"] = judge(of_programs, "source")
    return {name: asdict(one) for name, one in found.items()}
