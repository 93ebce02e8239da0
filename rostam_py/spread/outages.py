"""Outages: a job over some iterations with and without failures, and the time that is lost to them, by cause.

Example:
    found = rostam.outages(plan, events=[{"time": "2 s", "kind": "accelerators", "number": 3}], spares=[64])
    found.total_s - found.without_s, found.down_s, found.redone_s, found.slower_s

Model: MODEL F19. The same iterations are simulated twice, unfolded with failures. A job is down from its cut until its
restart; what of it had begun since its last checkpoint is done again; and the iterations themselves, from the end of
the one before or a restart to their own, take longer where messages stand still or go other ways. The three sum to the
difference, which is checked. Drawn failures are of a Poisson process: parts / MTBF a second.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError, InternalError
from rostam_py.graph import OperatorGraph
from rostam_py.html import html_pairs
from rostam_py.plan.failures import FAILING_KINDS, Failure, Outages
from rostam_py.plan.plan import Plan
from rostam_py.simulation.job_result import JobResult
from rostam_py.simulation.options import SimulationOptions
from rostam_py.simulation.restarts import Restart
from rostam_py.simulation.simulate import simulate
from rostam_py.simulation.task_graph import TaskGraph
from rostam_py.spread.shrinking import Shrunk, ShrunkTimes, run_shrinking
from rostam_py.units import format_number_of, format_time, parse_time

_ROUNDING = 1e-9  # of sums of picoseconds in seconds, relative
_MOST_DRAWN = 10_000  # failures
_LONGEST = 10  # times as long as without failures a run is expected to take at most; none are drawn later


@dataclass(frozen=True)
class OutageTimes:
    """What failures cost a job.

    without_s, total_s: the iterations without and with them [s]. down_s: from cuts to restarts. redone_s: work that was
    done again. slower_s: that the iterations which counted took longer, for stalls and longer ways; below 0 where
    spares or new routes are better ones. without_s + down_s + redone_s + slower_s = total_s. failures: given and
    drawn, until the end of the run. num_later: given ones after it, which changed nothing. restarts: of the job.
    shrunk: what each left of it, where it goes on with fewer replicas. result: of the simulation with failures, whose
    timeline is recorded as the options say; None where it shrinks, which takes several.
    """

    iterations: int
    without_s: float
    total_s: float
    down_s: float
    redone_s: float
    slower_s: float
    failures: tuple[Failure, ...]
    num_later: int
    restarts: tuple[Restart, ...]
    shrunk: tuple[Shrunk, ...] = ()
    result: JobResult | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready document; equal runs give equal values, to the byte."""
        failures = [
            {"time_s": _seconds(one.time), "kind": one.kind, "number": one.number, "repair_s": _seconds(one.repair)}
            for one in self.failures
        ]
        restarts = [
            {
                "cut_s": one.cut_s, "start_s": one.start_s, "from_iteration": one.from_iteration,
                "bytes_lost": one.bytes_lost,
            }
            for one in self.restarts
        ]  # fmt: skip
        return {
            "iterations": self.iterations, "without_s": self.without_s, "total_s": self.total_s, "down_s": self.down_s,
            "redone_s": self.redone_s, "slower_s": self.slower_s, "failures": failures,
            "num_later": self.num_later, "restarts": restarts,
            **({"shrunk": [asdict(one) for one in self.shrunk]} if self.shrunk else {}),
        }  # fmt: skip

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        pairs = {
            "without failures": self.without_s, "with them": self.total_s, "down": self.down_s, "redone": self.redone_s,
            "slower": self.slower_s,
        }  # fmt: skip
        title = ", ".join(
            (format_number_of(self.iterations, "iteration"), format_number_of(len(self.failures), "failure"))
        )
        return html_pairs(title, {key: format_time(seconds) for key, seconds in pairs.items()})


def outages(
    plan: Plan | TaskGraph,
    *,
    graph: OperatorGraph | None = None,
    cost_config: dict[str, Any] | None = None,
    options: SimulationOptions | None = None,
    progress: Callable[[str], None] = lambda text: None,
    **given: Any,
) -> OutageTimes:
    """Simulate iterations of a job with failures and without, and say where the difference goes.

    Args:
        plan: or a task graph of one job. options: of the simulations. progress: called with a line of text before each.
        graph: that a plan which shrinks was placed from. cost_config: the settings of its cost model.
        given: fields of Outages: events, mtbf_links, ..., repair, iterations, seed, detection, reroute, restart,
        checkpoint_iterations, spares, shrink (spread/shrinking.py).
    Raises: ConfigError for bad values, nothing that fails, several jobs, or a job that is cut with neither spare nor
        repair; NoRouteError where messages are left without a path.
    Cost: a simulation of every device and message of the iterations.
    Source: own; tests/spread/test_outages.py by hand.
    """
    wanted = Outages(**given)
    if wanted.is_none:
        raise ConfigError("outages got nothing that fails; give outages.events or outages.mtbf_links, 100 h say")
    asked = options or SimulationOptions()
    chosen = asked.but(timeline=False, min_iterations=wanted.iterations, max_iterations=wanted.iterations)
    if wanted.shrink is not None and (graph is None or not isinstance(plan, Plan)):
        raise ConfigError(f"outages got shrink={wanted.shrink!r}; it needs a plan, and graph=, what it was placed from")
    tasks = plan if isinstance(plan, TaskGraph) else TaskGraph.of(plan, seed=chosen.seed or 0)
    if len(tasks.jobs) > 1:
        raise ConfigError(f"outages got a task graph of {len(tasks.jobs)} jobs; it takes one")
    iterations = format_number_of(wanted.iterations, "iteration")
    progress(f"{iterations} without failures")
    without: JobResult = simulate(tasks, options=chosen)
    without_s = sum(without.iteration_times_s)
    failures = (*wanted.failures(), *_drawn(wanted, tasks.machine.fabric, _LONGEST * without_s))
    progress(f"{iterations} with {format_number_of(len(failures), 'failure')}")
    if wanted.shrink is not None and graph is not None and isinstance(plan, Plan):
        found = run_shrinking(graph, plan, wanted, failures, chosen, cost_config)
        return _shrinking(found, wanted, failures, without)
    events = [*(chosen.events or ()), *failures]
    recovery = wanted.recovery() if failures else None
    result: JobResult = simulate(tasks, options=chosen.but(events=events, recovery=recovery, timeline=asked.timeline))
    total_s = sum(result.iteration_times_s)
    lost = lost_times(result, without.iteration_times_s)
    return OutageTimes(
        wanted.iterations, without_s, total_s, *lost, *_until(total_s, failures, wanted), result.restarts,
        result=result,
    )  # fmt: skip


def _until(total_s: float, failures: Sequence[Failure], wanted: Outages) -> tuple[tuple[Failure, ...], int]:
    """Return the failures until the end of a run, and how many were given for after it."""
    num_later = sum(parse_time(one.time, "failure.time") > total_s for one in wanted.failures())
    return tuple(one for one in failures if parse_time(one.time, "failure.time") <= total_s), num_later


def _shrinking(found: ShrunkTimes, wanted: Outages, failures: Sequence[Failure], without: JobResult) -> OutageTimes:
    without_s = sum(without.iteration_times_s)
    slower_s = sum(found.iteration_times_s) - without_s
    _check_sum(found.down_s + found.redone_s + slower_s, found.total_s - without_s, found.total_s)
    return OutageTimes(
        wanted.iterations, without_s, found.total_s, found.down_s, found.redone_s, slower_s,
        *_until(found.total_s, failures, wanted), found.restarts, found.shrunk,
    )  # fmt: skip


def _check_sum(lost_s: float, difference_s: float, total_s: float) -> None:
    if abs(lost_s - difference_s) > _ROUNDING * total_s:
        raise InternalError(f"lost times sum to {lost_s} s, but iterations took {difference_s} s longer")


def _seconds(time: str | float | None) -> float | None:
    return None if time is None else parse_time(time, "failure.time")


def lost_times(result: JobResult, without_s: Sequence[float]) -> tuple[float, float, float]:
    """Return for how long a job was down, worked on what it did again later, and took longer for what counted [s].

    Args: without_s: times of the same iterations without failures.
    Raises: InternalError unless they sum to the difference.
    """
    times = result.iteration_times_s
    ends = np.concatenate([[0.0], np.cumsum(times)])  # of each iteration's last run
    begins = ends[:-1].copy()
    down = redone = last_start = 0.0
    for one in result.restarts:
        down += one.start_s - one.cut_s
        redone += one.cut_s - max(float(ends[one.from_iteration]), last_start)
        last_start = one.start_s
        begins[one.from_iteration] = max(begins[one.from_iteration], one.start_s)
    slower = float(np.sum(ends[1:] - begins - np.asarray(without_s)))
    _check_sum(down + redone + slower, sum(times) - sum(without_s), sum(times))
    return down, redone, slower


def _drawn(wanted: Outages, fabric: Any, until_s: float) -> list[Failure]:
    """Return failures drawn until then, in the order of kinds and times."""
    counts = {kind: fabric.num_parts(kind) for kind in FAILING_KINDS}
    found = []
    for kind, mean_s in wanted.mtbf_s().items():
        if not counts[kind]:
            raise ConfigError(f"outages.mtbf_{kind} is {mean_s:g} s; fabric {fabric.name!r} has none")
        expected = counts[kind] * until_s / mean_s
        if expected > _MOST_DRAWN:
            raise ConfigError(
                f"outages.mtbf_{kind} is {mean_s:g} s: about {expected:,.0f} failures in {format_time(until_s)}; at"
                f" most {_MOST_DRAWN:,} can be drawn. Raise it, or lower outages.iterations"
            )
        draw = np.random.default_rng([wanted.seed, *kind.encode()])
        time = draw.exponential(mean_s / counts[kind])
        while time < until_s:
            repair = None if wanted.repair is None else time + parse_time(wanted.repair, "outages.repair")
            found.append(Failure(time, kind, int(draw.integers(counts[kind])), repair=repair))
            time += draw.exponential(mean_s / counts[kind])
    return found
