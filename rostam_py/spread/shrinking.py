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
state to its new places is part of them, and so is setting the circuits of what is left where the fabric has light. A
failure meanwhile of an accelerator that the job would go on with begins both anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rostam_py.costs import COST_MODELS
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.graph import OperatorGraph
from rostam_py.placement.place import place
from rostam_py.plan.failures import BATCHES, Failure, Outages, Recovery
from rostam_py.plan.plan import Plan
from rostam_py.plan.ranks import surviving_accelerators
from rostam_py.simulation.options import SimulationOptions
from rostam_py.simulation.outage_log import DETECTION, RESTARTING, OutageLog
from rostam_py.simulation.picoseconds import PS
from rostam_py.simulation.restarts import Restart
from rostam_py.simulation.simulate import simulate
from rostam_py.spread.lost_time import OTHER, REDONE, REPLICAS, WAYS, LostTime, lost_time, spans_of
from rostam_py.units import parse_time


@dataclass(frozen=True)
class Shrunk:
    """A job on fewer replicas. from_iteration: its first on them. start_s: when that begins [s]."""

    start_s: float
    from_iteration: int
    dp: int
    global_batch: int


class ShrunkTimes(NamedTuple):
    """When the iterations of a job that shrinks are done [s], what was lost, its restarts and what each left of it."""

    end_s: float
    lost: LostTime
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
        return place(
            graph,
            whole,
            global_batch=size,
            strategy=fewer,
            cost=plan.cost,
            cost_config=cost_config,
            software=plan.software.settings,
        )
    except (ConfigError, DegreeError) as error:
        raise type(error)(f"{where}: {error}") from None


def run_shrinking(
    graph: OperatorGraph, plan: Plan, wanted: Outages, failures: Sequence[Failure], options: SimulationOptions,
    without: OutageLog, cost_config: dict[str, Any] | None = None,
) -> ShrunkTimes:  # fmt: skip
    """Simulate the iterations of a job that shrinks, as wanted.shrink says, whenever it loses accelerators.

    Args: without: of the same iterations without failures. cost_config: settings of the cost model that the plan was
        placed with.
    Raises: ConfigError for a plan that the graph and these settings do not give, a job that loses all links of an
        accelerator that works, and as ``shrunk_plan``.
    Cost: a simulation for each restart, and one.
    """
    _check_origin(graph, plan, cost_config)
    asked = wanted.recovery()
    recovery = replace(asked, restart=0.0, detection=0.0, reroute=asked.reroute_s)
    spans = spans_of(failures, _to_ps(asked.reroute_s))
    begin_ps, num_done, present = 0, 0, plan
    lost, has_light = LostTime(), plan.machine.fabric.is_circuit_switched
    restarts: list[Restart] = []
    shrunk: list[Shrunk] = []
    while True:
        left = wanted.iterations - num_done
        own = options.but(min_iterations=left, max_iterations=left)
        events = _from(begin_ps, failures, present)
        result = simulate(
            present, options=own.but(events=[*(own.events or ()), *events], recovery=_only(recovery, events)),
            watch_stalls=has_light,
        )  # fmt: skip
        log = result.outage_log
        cut = log.restarts[0] if log.restarts else None
        counted = left if cut is None else cut.from_iteration
        part, usual = log.part(0, counted, begin_ps), without.part(num_done, num_done + counted)
        lost.add_all(lost_time(part, usual, spans, has_light=has_light, rest=REPLICAS if shrunk else WAYS))
        if cut is None:
            return ShrunkTimes(part.ends_ps[-1] * PS, lost, tuple(restarts), tuple(shrunk))
        cut_ps, kind = begin_ps + cut.cut_ps, log.downs[0].failure.kind if log.downs and log.downs[0].failure else OTHER
        lost.add(REDONE, kind, cut.cut_ps - log.ends_ps[counted])
        num_done += counted
        begin_ps, failed = _next_begin(failures, present, plan, asked, cut_ps)
        restarting_ps = min(begin_ps - cut_ps, _to_ps(asked.restart_s))
        lost.add(DETECTION, kind, begin_ps - cut_ps - restarting_ps)
        lost.add(RESTARTING, kind, restarting_ps)
        if not set(failed) & set(present.devices.tolist()):
            raise ConfigError(
                f"the job lost all links of an accelerator at {cut_ps * PS:g} s; it shrinks only where an accelerator"
                " or a board fails: give outages.spares, or repairs without shrink"
            )
        present = shrunk_plan(graph, plan, failed, wanted.shrink or "keep", cost_config)
        accelerators = tuple(present.devices.tolist())
        restarts.append(
            replace(
                result.restarts[0], cut_s=cut_ps * PS, start_s=begin_ps * PS, from_iteration=num_done,
                accelerators=accelerators,
            )
        )  # fmt: skip
        shrunk.append(Shrunk(begin_ps * PS, num_done, int(present.strategy.dp), present.global_batch))


def _check_origin(graph: OperatorGraph, plan: Plan, cost_config: dict[str, Any] | None) -> None:
    """Raise ConfigError unless the plan is what placing the graph anew gives: what is left is placed so."""
    words = "outages with shrink places the remaining devices again, by the cost model's settings in cost_config"
    if plan.cost not in COST_MODELS:
        raise ConfigError(f"{words}; the plan's cost is {plan.cost!r}, which is no cost model")
    again = place(graph, plan.machine, global_batch=plan.global_batch, strategy=plan.strategy, cost=plan.cost,
                  cost_config=cost_config, software=plan.software.settings)  # fmt: skip
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


def _ends_ps(failure: Failure) -> tuple[int, float]:
    repair = float("inf") if failure.repair is None else _to_ps(parse_time(failure.repair, "failure.repair"))
    return _to_ps(parse_time(failure.time, "failure.time")), repair


def _to_ps(seconds: float) -> int:
    return round(seconds / PS)


def _accelerators_failed(failures: Sequence[Failure], plan: Plan, until_ps: int) -> list[int]:
    """Return the accelerators that failed up to a time: one that was repaired since does not come back."""
    return sorted({a for one in failures if _ends_ps(one)[0] <= until_ps for a in _accelerators_of(one, plan)})


def _accelerators_of(failure: Failure, plan: Plan) -> set[int]:
    fabric = plan.machine.fabric
    size, number = fabric.num_accelerators // max(1, fabric.num_boards), failure.number
    if not _is_device(failure):
        return set()
    return {number} if failure.kind == "accelerators" else set(range(number * size, (number + 1) * size))


def _next_begin(
    failures: Sequence[Failure], present: Plan, plan: Plan, recovery: Recovery, cut_ps: int
) -> tuple[int, list[int]]:
    """Return when a job that is cut goes on [ps], and the accelerators that have failed by then.

    Model: detection and restart from the last failure that takes an accelerator which it would go on with.
    """
    detection, restart = _to_ps(recovery.detection_s), _to_ps(recovery.restart_s)
    begin = cut_ps + detection + restart
    failed = _accelerators_failed(failures, plan, cut_ps)
    for time, one in sorted(((_ends_ps(one)[0], one) for one in failures), key=lambda pair: pair[0]):
        lost = _accelerators_of(one, plan) - set(failed)
        if cut_ps < time <= begin and lost:
            _, kept = surviving_accelerators(plan.strategy, plan.machine, failed)
            if lost & set(kept) & set(present.devices.tolist()):
                begin = time + detection + restart
            failed = sorted({*failed, *lost})
    return begin, failed


def _from(begin_ps: int, failures: Sequence[Failure], plan: Plan) -> list[Failure]:
    """Return the failures of a run that begins then, and knows of accelerators that failed before.

    An accelerator that fails later is repaired only long after the run's end would be: its job is cut, and what comes
    after that is not looked at.
    """
    far = max((_ends_ps(one)[0] for one in failures), default=0) + round(1 / PS)
    found = []
    for one in failures:
        start, repair = _ends_ps(one)
        time_s = max(0, start - begin_ps) * PS
        if _is_device(one):
            if start > begin_ps or not begin_ps:
                found.append(replace(one, time=time_s, repair=(start - begin_ps + far) * PS))
        elif repair > begin_ps:
            found.append(replace(one, time=time_s, repair=None if one.repair is None else (repair - begin_ps) * PS))
    return found
