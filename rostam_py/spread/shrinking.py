"""Shrinking: a job that loses accelerators goes on with the data-parallel replicas that are whole.

Example:
    lost = rostam.Failure("2 s", "accelerators", 3)
    found = rostam.outages(plan, graph=graph, shrink="keep", events=[lost], restart="30 s")
    found.shrunk[0].dp, found.slower_s

Model: a replica with a failed accelerator is given up, its other accelerators idle; the rest keep theirs, and the
strategy except for dp, and go on from the last checkpoint. ``keep`` has the same global batch, by more micro-batches
of strategy.micro_batch on each replica (or a larger one where that is left open and a replica's batch is one), so
that the steps are those of before; ``shrink`` has as many micro-batches on a replica as before, and so a smaller
global batch, x dp left / dp. The job does not grow again. Between cut and restart pass detection and restart; moving
state to its new places is part of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rostam_py.costs import COST_MODELS
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.graph import OperatorGraph
from rostam_py.placement.place import place
from rostam_py.plan.failures import BATCHES, Failure, Outages, Recovery
from rostam_py.plan.plan import Plan
from rostam_py.plan.ranks import surviving_accelerators
from rostam_py.simulation.options import SimulationOptions
from rostam_py.simulation.restarts import Restart
from rostam_py.simulation.simulate import simulate
from rostam_py.units import parse_time


@dataclass(frozen=True)
class Shrunk:
    """A job on fewer replicas. from_iteration: its first on them. start_s: when that begins [s]."""

    start_s: float
    from_iteration: int
    dp: int
    global_batch: int


@dataclass(frozen=True)
class ShrunkTimes:
    """Times of iterations that counted [s], each from its own begin, with restarts and what they cost."""

    iteration_times_s: tuple[float, ...]
    total_s: float
    down_s: float
    redone_s: float
    restarts: tuple[Restart, ...]
    shrunk: tuple[Shrunk, ...]


def shrunk_plan(
    graph: OperatorGraph, plan: Plan, failed: Sequence[int], batch: str = "keep",
    cost_config: dict[str, Any] | None = None,
) -> Plan:  # fmt: skip
    """Return the plan of the same job on the replicas without a failed accelerator.

    Args: plan: placed from the graph. failed: accelerators. batch: of BATCHES. cost_config: of the plan's cost model.
    Raises: ConfigError where no replica is whole, or the strategy's layout does not permit so few: a global batch that
        they do not divide, experts or shards that are spread over more.
    """
    if batch not in BATCHES:
        raise ConfigError(f"shrink is {batch!r}; it must be one of: {', '.join(BATCHES)}")
    strategy, machine = plan.strategy, plan.machine
    left, accelerators = surviving_accelerators(strategy, machine, failed)
    where = f"the job cannot go on with {left} of {strategy.dp} replicas, without accelerators {sorted(failed)}"
    if not left:
        raise ConfigError(f"{where}: none is whole; give recovery.spares, or repairs without shrink")
    whole = machine.with_failures(accelerators=sorted(failed))
    fewer = replace(strategy, dp=left, mapping=accelerators, accelerators=None)
    size = plan.global_batch if batch == "keep" else plan.global_batch * left // strategy.dp
    try:
        return place(graph, whole, global_batch=size, strategy=fewer, cost=plan.cost, cost_config=cost_config)
    except (ConfigError, DegreeError) as error:
        raise type(error)(f"{where}: {error}") from None


def run_shrinking(
    graph: OperatorGraph, plan: Plan, wanted: Outages, failures: Sequence[Failure], options: SimulationOptions,
    cost_config: dict[str, Any] | None = None,
) -> ShrunkTimes:  # fmt: skip
    """Simulate the iterations of a job that shrinks, as wanted.shrink says, whenever it loses accelerators.

    Args: cost_config: settings of the cost model that the plan was placed with.
    Raises: ConfigError for a plan that the graph and these settings do not give, a job that loses all links of an
        accelerator that works, and as ``shrunk_plan``.
    Cost: a simulation for each restart, and one.
    """
    _check_origin(graph, plan, cost_config)
    recovery = replace(wanted.recovery(), restart=0.0, detection=0.0, reroute=wanted.recovery().reroute_s)
    begin_s, num_done, present = 0.0, 0, plan
    times: list[float] = []
    down_s = redone_s = 0.0
    restarts: list[Restart] = []
    shrunk: list[Shrunk] = []
    while True:
        left = wanted.iterations - num_done
        own = options.but(min_iterations=left, max_iterations=left)
        events = _from(begin_s, failures, present)
        result = simulate(
            present, options=own.but(events=[*(own.events or ()), *events], recovery=_only(recovery, events))
        )
        if not result.restarts:
            times += result.iteration_times_s
            end_s = begin_s + sum(result.iteration_times_s)
            return ShrunkTimes(tuple(times), end_s, down_s, redone_s, tuple(restarts), tuple(shrunk))
        cut = result.restarts[0]
        counted = result.iteration_times_s[: cut.from_iteration]
        times += counted
        redone_s += cut.cut_s - sum(counted)
        down_s += wanted.recovery().restart_s
        num_done += cut.from_iteration
        cut_s = begin_s + cut.cut_s
        begin_s = cut_s + wanted.recovery().restart_s
        failed = _accelerators_failed(failures, plan, begin_s)
        if not set(failed) & set(present.devices.tolist()):
            raise ConfigError(f"the job lost all links of an accelerator at {cut_s} s; it shrinks only where one fails")
        present = shrunk_plan(graph, plan, failed, wanted.shrink or "keep", cost_config)
        accelerators = tuple(present.devices.tolist())
        restarts.append(replace(cut, cut_s=cut_s, start_s=begin_s, from_iteration=num_done, accelerators=accelerators))
        shrunk.append(Shrunk(begin_s, num_done, int(present.strategy.dp), present.global_batch))


def _check_origin(graph: OperatorGraph, plan: Plan, cost_config: dict[str, Any] | None) -> None:
    """Raise ConfigError unless the plan is what placing the graph anew gives: what is left is placed so."""
    words = "outages with shrink places what is left anew, by the cost model's settings in cost_config"
    if plan.cost not in COST_MODELS:
        raise ConfigError(f"{words}; the plan's cost is {plan.cost!r}, which is no cost model")
    again = place(graph, plan.machine, global_batch=plan.global_batch, strategy=plan.strategy, cost=plan.cost,
                  cost_config=cost_config)  # fmt: skip
    given_s, placed_s = (
        [sum(k.duration_s for tasks in stage.templates.values() for task in tasks for k in task.kernels)
         for stage in one.stages]
        for one in (plan, again)
    )  # fmt: skip
    if len(given_s) != len(placed_s) or not np.allclose(given_s, placed_s, rtol=1e-9, atol=0):
        raise ConfigError(f"{words}; the plan's kernels take other times: it is of another graph or of other settings")


def _only(recovery: Recovery, events: Sequence[Failure]) -> Recovery | None:
    return recovery if events else None


def _is_device(failure: Failure) -> bool:
    return failure.kind in ("accelerators", "boards")


def _ends_s(failure: Failure) -> tuple[float, float]:
    repair = float("inf") if failure.repair is None else parse_time(failure.repair, "failure.repair")
    return parse_time(failure.time, "failure.time"), repair


def _accelerators_failed(failures: Sequence[Failure], plan: Plan, until_s: float) -> list[int]:
    """Return the accelerators that failed up to a time: one that was repaired since does not come back."""
    fabric = plan.machine.fabric
    size = fabric.num_accelerators // max(1, fabric.num_boards)
    found: set[int] = set()
    for one in failures:
        if not _is_device(one) or _ends_s(one)[0] > until_s:
            continue
        found |= {one.number} if one.kind == "accelerators" else set(range(one.number * size, (one.number + 1) * size))
    return sorted(found)


def _from(begin_s: float, failures: Sequence[Failure], plan: Plan) -> list[Failure]:
    """Return the failures of a run that begins then, and knows of accelerators that failed before.

    An accelerator that fails later is repaired only long after the run's end would be: its job is cut, and what comes
    after that is not looked at.
    """
    far = max((_ends_s(one)[0] for one in failures), default=0.0) + 1.0
    found = []
    for one in failures:
        start, repair = _ends_s(one)
        if _is_device(one):
            if start > begin_s or not begin_s:
                found.append(replace(one, time=max(0.0, start - begin_s), repair=start - begin_s + far))
        elif repair > begin_s:
            end = None if one.repair is None else repair - begin_s
            found.append(replace(one, time=max(0.0, start - begin_s), repair=end))
    return found
