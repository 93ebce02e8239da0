"""QueueResult: what became of jobs, and where the time of jobs and accelerators went."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rostam_py.errors import InternalError
from rostam_py.fleet.queueing.placements import Placements
from rostam_py.fleet.queueing.run import CAUSES, Run
from rostam_py.fleet.queueing.timeline import STATES, Timeline

HOUR_S = 3_600.0
STATISTICS: dict[str, Callable[[np.ndarray], Any]] = {
    "mean": np.mean, "median": np.median, "p95": lambda values: np.percentile(values, 95),
}  # fmt: skip
SHORT_S = 10.0  # shorter jobs count as so long in slow-downs


@dataclass(frozen=True)
class QueueResult:
    """Jobs over weeks on a cluster.

    runs: jobs that were submitted, by submission. cut_by: cause of a fault -> jobs that it cut. num_faults: of servers.
    num_after: jobs submitted after the window. placements: where each job was, and servers that were down.
    Raises: InternalError where the jobs' time, or the accelerators', is not the sum of its parts.
    """

    runs: Sequence[Run] = field(repr=False)
    timeline: Timeline
    cut_by: dict[str, int]
    num_faults: int
    num_after: int = 0
    placements: Placements = field(default_factory=Placements, repr=False)

    def __post_init__(self) -> None:
        end = self.timeline.end_s
        for run in self.runs:
            wall = (end if run.left_s is None else run.left_s) - run.job.submit_s
            total = math.fsum(run.spent.values())
            if not math.isclose(total, wall, rel_tol=1e-9, abs_tol=1e-6 + 1e-12 * end):
                raise InternalError(f"job {run.job.name}: causes sum to {total!r} s of {wall!r} s")
            if run.left_s is not None and not math.isclose(
                run.spent["useful"], run.job.work_s, rel_tol=1e-9, abs_tol=1e-6 + 1e-12 * end
            ):
                raise InternalError(f"job {run.job.name} did {run.spent['useful']!r} s of {run.job.work_s!r} s of work")
        held = math.fsum(value for cause, value in self.spent.items() if cause != "waiting")
        whole = self.timeline.total * end
        by_state = math.fsum(self.timeline.integral(name) for name in STATES)
        tolerance = 1e-9 * whole + 1e-3
        if not math.isclose(held, self.timeline.integral("held"), rel_tol=0, abs_tol=tolerance):
            raise InternalError(
                f"jobs held {held!r} accelerator-seconds, the cluster gave {self.timeline.integral('held')!r}"
            )
        if not math.isclose(by_state, whole, rel_tol=0, abs_tol=tolerance):
            raise InternalError(f"accelerators' states sum to {by_state!r} of {whole!r} accelerator-seconds")

    @property
    def spent(self) -> dict[str, float]:
        """Accelerator-seconds that jobs asked for, by cause (CAUSES)."""
        return {cause: math.fsum(run.spent[cause] * run.job.accelerators for run in self.runs) for cause in CAUSES}

    # Waiting

    def waits_s(self) -> np.ndarray:
        """Return the time from submission to the first start, by submission [s].

        Model: a job that has not started at the end of the window counts as far as it has waited.
        """
        end = self.timeline.end_s
        return np.array([
            (end if run.first_start_s is None else run.first_start_s) - run.job.submit_s for run in self.runs
        ])  # fmt: skip

    @property
    def mean_wait_s(self) -> float:
        """Mean time from submission to the first start [s]."""
        return _over(STATISTICS["mean"], self.waits_s())

    @property
    def median_wait_s(self) -> float:
        """Median time from submission to the first start [s]."""
        return _over(STATISTICS["median"], self.waits_s())

    @property
    def p95_wait_s(self) -> float:
        """95th percentile of the time from submission to the first start [s]."""
        return _over(STATISTICS["p95"], self.waits_s())

    def slowdowns(self) -> np.ndarray:
        """Return each job's time from submission to end over its time alone, of those that ended.

        Model: bounded: a job of less than 10 s counts as one of 10 s, and no job as less than 1.
        Source: Feitelson, "Metrics for parallel job scheduling and their convergence", JSSPP 2001.
        """
        ended = [run for run in self.runs if run.left_s is not None]
        return np.array([
            max((run.left_s or 0.0) - run.job.submit_s, SHORT_S) / max(run.job.work_s, SHORT_S) for run in ended
        ])  # fmt: skip

    # Goodput

    @property
    def utilisation(self) -> float:
        """Share of the accelerators' time that jobs held: scheduling goodput."""
        return self.timeline.share("held")

    @property
    def runtime_goodput(self) -> float:
        """Share of what jobs held in which work that counts went on; 1 of nothing."""
        spent = self.spent
        held = math.fsum(value for cause, value in spent.items() if cause != "waiting")
        return (spent["useful"] + spent["slower"]) / held if held else 1.0

    @property
    def program_goodput(self) -> float:
        """Pace of that work over the pace of jobs alone; 1 of nothing."""
        spent = self.spent
        running = spent["useful"] + spent["slower"]
        return spent["useful"] / running if running else 1.0

    @property
    def goodput(self) -> float:
        """Share of the accelerators' time that is useful: the product of the three.

        Model: the source's program goodput is over a roofline of the hardware; here it is over the job alone, so that
            it is 1 of jobs without a model.
        Source: Wongpanich et al., "Machine learning fleet efficiency", arXiv 2502.06982.
        """
        return self.utilisation * self.runtime_goodput * self.program_goodput

    @property
    def fragmentation(self) -> float:
        """Share of the accelerators' time in which they were free or spare and the next job had enough of them."""
        return self.timeline.share("scattered") + self.timeline.share("spare")

    @property
    def last_submit_s(self) -> float:
        """When the last job was submitted [s]."""
        return max(run.job.submit_s for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready, without jobs and series."""
        slow, timeline = self.slowdowns(), self.timeline
        return {
            "num_jobs": len(self.runs), "num_after_window": self.num_after,
            "num_ended": sum(run.left_s is not None for run in self.runs),
            "num_not_started": sum(run.first_start_s is None for run in self.runs),
            "accelerators": timeline.total, "window_s": timeline.end_s, "last_submit_s": self.last_submit_s,
            "wait_s": {"mean": self.mean_wait_s, "median": self.median_wait_s, "p95": self.p95_wait_s},
            "slowdown": {
                name: _over(statistic, slow) if len(slow) else None for name, statistic in STATISTICS.items()
            },
            "utilisation": self.utilisation,
            "utilisation_until_last_submit": (
                timeline.share("held", self.last_submit_s) if self.last_submit_s > 0 else None
            ),
            "fragmentation": self.fragmentation,
            "goodput": {
                "whole": self.goodput, "scheduling": self.utilisation, "runtime": self.runtime_goodput,
                "program": self.program_goodput,
            },
            "job_accelerator_hours": {cause: value / HOUR_S for cause, value in self.spent.items()},
            "cluster_accelerator_hours": {name: timeline.integral(name) / HOUR_S for name in STATES},
            "num_faults": self.num_faults, "num_cuts": sum(run.num_cuts for run in self.runs), "cut_by": self.cut_by,
            "num_moves": sum(run.num_moves for run in self.runs),
            "placements": {
                "num_left_out": self.placements.num_left_out,
                "until_s": min(self.placements.until_s, timeline.end_s),
            },
        }  # fmt: skip


def _over(statistic: Callable[[np.ndarray], Any], values: np.ndarray) -> float:
    return float(statistic(values)) if len(values) else 0.0
