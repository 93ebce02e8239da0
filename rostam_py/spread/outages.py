"""Outages: a job over some iterations with and without failures, and the time that is lost to them, by cause.

Example:
    found = rostam.outages(plan, events=[{"time": "2 s", "kind": "accelerators", "number": 3}], spares=[64])
    found.total_s - found.without_s, found.down_s, found.redone_s, found.slower_s

Model: MODEL F19. The same iterations are simulated twice, unfolded with failures, and lost_time.py says where the
difference goes. Drawn failures are of a Poisson process: parts / MTBF a second, from the start of the run until its
end, however late failures make that. A run of which more restarts are expected than the core takes is refused.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fabrics.optical import refuse_failures
from rostam_py.graph import OperatorGraph
from rostam_py.html import html_pairs
from rostam_py.plan.failures import Failure, Outages
from rostam_py.plan.plan import Plan
from rostam_py.simulation.failures import check_number, check_spares, check_unused
from rostam_py.simulation.job_result import JobResult
from rostam_py.simulation.options import SimulationOptions
from rostam_py.simulation.picoseconds import PS
from rostam_py.simulation.restarts import Restart
from rostam_py.simulation.simulate import simulate
from rostam_py.simulation.task_graph import TaskGraph
from rostam_py.spread.drawn_failures import DrawnFailures
from rostam_py.spread.lost_time import CAUSES, DOWN_CAUSES, SLOWER_CAUSES, LostTime, lost_time, spans_of
from rostam_py.spread.shrinking import Shrunk, run_shrinking
from rostam_py.units import format_number_of, format_time, parse_time

_MOST_RESTARTS = 2_047  # of a job, by the core
_FIRST = 2  # times as long as without failures, as far as failures are drawn at first


@dataclass(frozen=True)
class OutageTimes:
    """What failures cost a job.

    without_s, total_s: the iterations without and with them [s]; the difference is the sum of all of lost.
    lost: by cause and kind of part. failures: given and drawn, until the end of the run. num_later: given ones after
    it, which changed nothing. restarts: of the job. shrunk: what each left of it, where it goes on with fewer replicas.
    result: of the simulation with failures, whose timeline is recorded as the options say; None where it shrinks, which
    takes several.
    """

    iterations: int
    without_s: float
    total_s: float
    lost: LostTime
    failures: tuple[Failure, ...]
    num_later: int
    restarts: tuple[Restart, ...]
    shrunk: tuple[Shrunk, ...] = ()
    result: JobResult | None = field(default=None, repr=False, compare=False)

    @property
    def down_s(self) -> float:
        """From cuts to restarts: until a loss is detected, for want of a spare, and restarting [s]."""
        return self.lost.total_s(*DOWN_CAUSES)

    @property
    def redone_s(self) -> float:
        """Work that was done again [s]."""
        return self.lost.total_s("redone")

    @property
    def slower_s(self) -> float:
        """That the iterations which counted took longer: stalled, by longer or shared ways, on fewer replicas [s].

        Below 0 where spares or new routes are better ones.
        """
        return self.lost.total_s(*SLOWER_CAUSES)

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
            "redone_s": self.redone_s, "slower_s": self.slower_s,
            "lost_s": {cause: self.lost.total_s(cause) for cause in CAUSES}, "lost_by_part_s": self.lost.by_kind_s(),
            "failures": failures, "num_later": self.num_later, "restarts": restarts,
            **({"shrunk": [asdict(one) for one in self.shrunk]} if self.shrunk else {}),
        }  # fmt: skip

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        pairs = {"without failures": self.without_s, "with them": self.total_s}
        pairs |= {cause: seconds for cause in CAUSES if (seconds := self.lost.total_s(cause))}
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
    Raises: ConfigError for bad values, nothing that fails, several jobs, a job that is cut with neither spare nor
        repair, and one that is cut too often to be expected to end; NoRouteError where messages are left without a
        path.
    Cost: a simulation of every device and message of the iterations; where failures are drawn, one more whenever the
        run outlasts them, about twice that of the last in all.
    Source: own; tests/spread/test_outages.py by hand and by a Monte Carlo method.
    """
    wanted = Outages(**given)
    if wanted.is_none:
        raise ConfigError("outages got no failures; give outages.events or outages.mtbf_links, 100 h say")
    asked = options or SimulationOptions()
    chosen = asked.but(timeline=False, min_iterations=wanted.iterations, max_iterations=wanted.iterations)
    if wanted.shrink is not None and (graph is None or not isinstance(plan, Plan)):
        raise ConfigError(f"outages got shrink={wanted.shrink!r}; it needs a plan, and the placed graph as graph=")
    tasks = plan if isinstance(plan, TaskGraph) else TaskGraph.of(plan, seed=chosen.seed or 0)
    if len(tasks.jobs) > 1:
        raise ConfigError(f"outages got a task graph of {len(tasks.jobs)} jobs; it takes one")
    fabric = tasks.machine.fabric
    check_parts(wanted, fabric, tasks.jobs[0].devices.tolist())
    iterations = format_number_of(wanted.iterations, "iteration")
    progress(f"{iterations} without failures")
    has_light = fabric.is_circuit_switched
    without: JobResult = simulate(tasks, options=chosen, watch_stalls=has_light)
    without_s = sum(without.iteration_times_s)
    drawn = DrawnFailures(wanted, fabric)
    drawn.check(without_s)
    _check_ends(wanted, tasks, without_s)
    until_s = _FIRST * without_s
    reroute_ps = round(wanted.recovery().reroute_s / PS)
    while True:
        failures = (*wanted.failures(), *drawn.until(until_s))
        progress(f"{iterations} with {format_number_of(len(failures), 'failure')}")
        spans = spans_of(failures, reroute_ps)
        if wanted.shrink is not None and graph is not None and isinstance(plan, Plan):
            shrunk = run_shrinking(graph, plan, wanted, failures, chosen, without.outage_log, cost_config)
            end_s, lost, restarts, left, result = *shrunk, None
        else:
            events, recovery = [*(chosen.events or ()), *failures], wanted.recovery() if failures else None
            result = simulate(tasks, options=chosen.but(events=events, recovery=recovery, timeline=asked.timeline))
            end_s, restarts, left = result.outage_log.ends_ps[-1] * PS, result.restarts, ()
            lost = lost_time(result.outage_log, without.outage_log, spans, has_light=has_light)
        if drawn.is_enough(end_s):
            break
        until_s = _FIRST * end_s
    num_later = sum(parse_time(one.time, "failure.time") > end_s for one in wanted.failures())
    before = tuple(one for one in failures if parse_time(one.time, "failure.time") <= end_s)
    total_s = without_s + lost.total_ps * PS
    return OutageTimes(wanted.iterations, without_s, total_s, lost, before, num_later, restarts, left, result)


def check_parts(wanted: Outages, fabric: Any, used: Sequence[int]) -> None:
    """Raise ConfigError for events and spares that the fabric does not have, and spares that the job uses.

    Refused, too, is all that fails where circuits next to a network are set anew.
    Args: used: accelerators of the job.
    """
    given = [f"outages.mtbf_{kind}" for kind in wanted.mtbf_s()]
    refuse_failures(fabric, [*(["outages.events"] if wanted.events else []), *given])
    for number, event in enumerate(wanted.failures()):
        check_number(event, fabric, wanted.place_of(number))
    check_unused(check_spares(wanted.spares, fabric, "outages.spares"), used, "outages.spares")


def _check_ends(wanted: Outages, tasks: TaskGraph, without_s: float) -> None:
    """Raise ConfigError where more restarts are expected before a job ends than can be simulated.

    Model: failures at a rate r cut a stretch of t seconds from one checkpoint to the next exp(r t) - 1 times before it
        is done once in one go.
    """
    used, fabric, means = tasks.jobs[0].devices, tasks.machine.fabric, wanted.mtbf_s()
    size = fabric.num_accelerators // max(1, fabric.num_boards)
    counts = {"accelerators": len(used), "boards": len(np.unique(used // size))}
    rates = {kind: count / means[kind] for kind, count in counts.items() if kind in means}
    if wanted.shrink is not None or not rates:
        return
    every = wanted.checkpoint_iterations or wanted.iterations
    whole, rest = divmod(wanted.iterations, every)
    rate, iteration_s = sum(rates.values()), without_s / wanted.iterations
    expected = sum(
        count * math.expm1(min(500.0, rate * iterations * iteration_s))
        for count, iterations in ((whole, every), (1, rest))
    )
    if expected <= _MOST_RESTARTS:
        return
    most = max(rates, key=lambda kind: rates[kind])
    about = f"about {expected:,.0f}" if expected < 1e9 else "more than 1e9"
    raise ConfigError(
        f"outages.mtbf_{most} is {getattr(wanted, f'mtbf_{most}')!r}: failures cut the job every"
        f" {format_time(1 / rate)}, and from one checkpoint to the next it takes {format_time(every * iteration_s)}"
        f" (outages.checkpoint_iterations is {wanted.checkpoint_iterations}), so that {about}"
        f" restarts are expected before it ends; at most {_MOST_RESTARTS:,} can be simulated. Raise it, set checkpoints"
        " more often, or lower outages.iterations"
    )


def _seconds(time: str | float | None) -> float | None:
    return None if time is None else parse_time(time, "failure.time")
