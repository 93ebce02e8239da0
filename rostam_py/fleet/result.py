"""MixResult: what each job of a mix took, and what it takes alone."""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rostam_py.html import html_table
from rostam_py.simulation.job_result import CollectiveTimes
from rostam_py.simulation.result import RunResult
from rostam_py.units import format_time

MIX_VERSION = 1


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """One job of a mix.

    name, model, start_s: of the job. num_accelerators: that it uses.
    iteration_times_s: of its iterations in the mix, the first from a cold start included [s].
    alone_times_s: of the same iterations with the same accelerators, routing and seed, but no other job; None without
        baselines. ideal_times_s: alone as well, and sprayed over all shortest paths.
    gradient_times: what its ranks spend in all-reduces of gradients among replicas, by iteration; () without any.
    algorithms: that its collectives ran, in words.
    """

    name: str
    model: str
    num_accelerators: int
    start_s: float
    iteration_times_s: tuple[float, ...]
    alone_times_s: tuple[float, ...] | None = None
    ideal_times_s: tuple[float, ...] | None = None
    gradient_times: tuple[CollectiveTimes, ...] = ()
    algorithms: str = ""

    @property
    def iteration_time_s(self) -> float:
        """Mean over the iterations in the mix [s]: contention differs from one to the next, so the last is not all."""
        return fmean(self.iteration_times_s)

    @property
    def end_s(self) -> float:
        """When its last iteration ended [s]."""
        return self.start_s + sum(self.iteration_times_s)

    @property
    def alone_s(self) -> float | None:
        """Mean over the same iterations alone, same accelerators, routing and seed [s]."""
        return None if self.alone_times_s is None else fmean(self.alone_times_s)

    @property
    def ideal_s(self) -> float | None:
        """Mean over the same iterations alone and sprayed, same accelerators [s]."""
        return None if self.ideal_times_s is None else fmean(self.ideal_times_s)

    @property
    def slowdown(self) -> float | None:
        """What the other jobs cost: iteration_time_s / alone_s; may lie below 1 (MODEL F20)."""
        return None if self.alone_s is None else self.iteration_time_s / self.alone_s

    @property
    def slowdown_ideal(self) -> float | None:
        """What the other jobs and the routing cost: iteration_time_s / ideal_s; may lie below 1 (MODEL F20)."""
        return None if self.ideal_s is None else self.iteration_time_s / self.ideal_s

    @property
    def all_reduce_s(self) -> float | None:
        """The longest that a rank takes for one all-reduce of gradients, mean over iterations [s]."""
        return fmean(one.longest_s for one in self.gradient_times) if self.gradient_times else None

    @property
    def flow_completion_s(self) -> float | None:
        """What a rank takes for one all-reduce of gradients, mean over ranks, all-reduces and iterations [s]."""
        return fmean(one.mean_s for one in self.gradient_times) if self.gradient_times else None

    @property
    def flow_rate_bytes_per_s(self) -> float | None:
        """What a rank sends per second while it all-reduces gradients, mean over iterations [bytes/s]."""
        return fmean(one.rate_bytes_per_s for one in self.gradient_times) if self.gradient_times else None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready row."""
        return {
            "name": self.name,
            "model": self.model,
            "num_accelerators": self.num_accelerators,
            "start_s": self.start_s,
            "iteration_time_s": self.iteration_time_s,
            "iteration_times_s": list(self.iteration_times_s),
            "alone_s": self.alone_s,
            "ideal_s": self.ideal_s,
            "slowdown": self.slowdown,
            "slowdown_ideal": self.slowdown_ideal,
            "all_reduce_s": self.all_reduce_s,
            "flow_completion_s": self.flow_completion_s,
            "flow_rate_bytes_per_s": self.flow_rate_bytes_per_s,
            "algorithms": self.algorithms,
        }


@dataclass(frozen=True)
class MixResult:
    """Jobs that shared a machine.

    jobs: outcomes, in the order given. results: of the shared run, one a job; link loads are the same in all, those
        of the first job's last iteration. num_iterations: of every job.
    """

    jobs: tuple[JobOutcome, ...]
    results: tuple[RunResult, ...]
    routing: str
    seed: int
    num_iterations: int

    @property
    def slowdown_mean(self) -> float | None:
        """Mean slow-down over jobs; None without baselines."""
        found = self._slowdowns()
        return fmean(found) if found else None

    @property
    def slowdown_max(self) -> float | None:
        """Greatest slow-down of a job; None without baselines."""
        found = self._slowdowns()
        return max(found) if found else None

    @property
    def makespan_s(self) -> float:
        """When the last job ended [s]; time 0 is when the earliest start counts from."""
        return max(job.end_s for job in self.jobs)

    def _slowdowns(self) -> list[float]:
        return [job.slowdown for job in self.jobs if job.slowdown is not None]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready summary; equal runs give equal values, to the byte."""
        return {
            "version": MIX_VERSION,
            "fabric": self.results[0].fabric.describe(),
            "routing": self.routing,
            "seed": self.seed,
            "controllers": [dict(one) for one in self.results[0].controllers],
            "num_iterations": self.num_iterations,
            "num_jobs": len(self.jobs),
            "slowdown_mean": self.slowdown_mean,
            "slowdown_max": self.slowdown_max,
            "makespan_s": self.makespan_s,
            "jobs": [job.to_dict() for job in self.jobs],
        }

    def _repr_html_(self) -> str:
        """Return what a notebook shows: each job in the mix and alone."""

        def time(seconds: float | None) -> str | None:
            return None if seconds is None else format_time(seconds)

        rows = [
            {
                "job": job.name, "model": job.model, "accelerators": f"{job.num_accelerators:,}",
                "start": format_time(job.start_s), "iteration": format_time(job.iteration_time_s),
                "all-reduce": time(job.all_reduce_s), "alone": time(job.alone_s), "alone, sprayed": time(job.ideal_s),
                "slow-down": None if job.slowdown is None else f"{job.slowdown:.3f} x", "algorithms": job.algorithms,
            }
            for job in self.jobs
        ]  # fmt: skip
        return html_table(f"{len(self.jobs)} jobs on {self.results[0].fabric.describe()}, routing {self.routing}", rows)
