"""Searcher: estimates and simulations of strategies for one model, on one machine after another.

Plans are kept (kept_plans.py); routes of process groups are kept a fabric.
"""

import heapq
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rostam_py.convergence import Curve, Target, goal_of, notes_for
from rostam_py.convergence.time_to_accuracy import check_usd_per_hour
from rostam_py.costs import DEFAULT_COST
from rostam_py.errors import ConfigError, DegreeError, InternalError, NoRouteError
from rostam_py.graph import OperatorGraph
from rostam_py.placement.axis_costs import AxisCosts
from rostam_py.placement.placer import Counts, Estimate, StrategyPlanner
from rostam_py.plan import PLACERS, Machine, Plan, Strategy
from rostam_py.plan.ranks import filled, mapping_notes
from rostam_py.plan.searched_axes import Site, Space, fitted, without_axes
from rostam_py.plan.strategy_names import AUTO_MAPPING, BLOCKS_MAPPING, LINEAR_MAPPING
from rostam_py.searching.candidates import (
    check_batches,
    check_placers,
    default_batches,
    facts_of,
    not_searched,
    one_program,
)
from rostam_py.searching.kept_plans import KeptPlans, Placed, ideal_machine, needs_circuits
from rostam_py.searching.result import Candidate, SearchResult
from rostam_py.searching.watch import NOT_TRIED, Progress, Watch, check_budget
from rostam_py.simulation import simulate
from rostam_py.simulation.controllers import check_controllers
from rostam_py.software.names import DEFAULT_SOFTWARE
from rostam_py.software.program import Given

# Estimates that err let more candidates be simulated, at most this many times what was asked for.
_MOST_SIMULATED = 3
# Of strategies that are ranked by quick estimates so many are placed and estimated: the best of all must be among them.
_LEAST_PLACED, _PLACED_PER_SIMULATION = 16, 3
_TOO_LARGE = "pruned by memory, before placing"
_NOT_AMONG_BEST = "not placed: a quick estimate, or a bound of it, is behind the best ones"
UNFINISHED = "not finished: what was found so far"
_TOO_SLOW = "its compute and tensor parallelism alone take longer than the best estimates"

# Plans of this placer, without a pipeline, tell what the kernels of any candidate take at least.
_REFERENCE = Strategy().placer


@dataclass(frozen=True, slots=True)
class _Goal:
    """What one search minimises, and under which limits."""

    curve: Curve | Target | None
    extrapolate: bool
    max_circuit_degree: int | None
    num_simulated: int

    def iterations(self, batch: int) -> float | None:
        """Return the iterations to the target at a batch, None without a curve."""
        return None if self.curve is None else self.curve.iterations(batch, extrapolate=self.extrapolate)


class Searcher:
    """Search strategies of one model; keeps placed plans, so that further machines of one size cost little.

    Plans that one search did not ask for are dropped after it if they were made for a fabric: a plan of a 64-way group
    whose windows pass data on hop by hop takes gigabytes.

    Args: base: precision, optimizer, recompute, algorithms and all else except the degrees, which are searched.
        placers: registered names; None takes all. cost, cost_config, software: as ``place`` takes them, one for all.
        routing, seed, fidelity, controllers: as ``simulate`` takes them; estimates know nothing of controllers.
    Raises: ConfigError for an unknown placer.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        *,
        base: Strategy | None = None,
        placers: Sequence[str] | None = None,
        cost: str = DEFAULT_COST,
        cost_config: dict[str, Any] | None = None,
        software: Given = DEFAULT_SOFTWARE,
        routing: str = "spray",
        fidelity: str = "flow",
        seed: int = 0,
        controllers: Sequence[Any] = (),
    ) -> None:
        self.graph = graph
        self.base = Strategy() if base is None else base
        self._neutral = without_axes(self.base)
        self.placers = check_placers(placers, software=software)
        self._not_searched = () if placers is not None else not_searched(self.placers, software)
        self.routing, self.fidelity, self.seed = routing, fidelity, seed
        self.controllers = check_controllers(controllers)
        self._facts = facts_of(graph)
        self._plans = KeptPlans(graph, cost, dict(cost_config or {}), one_program(software, self.placers))
        self._routed: tuple[Any, dict[Any, Any]] = (None, {})  # costs of the fabric searched last

    def search(
        self,
        machine: Machine,
        *,
        convergence: str | Curve | Target | None = None,
        target: str | None = None,
        batches: Sequence[int] | None = None,
        strategies: Sequence[Strategy] | None = None,
        axes: Any = None,
        max_circuit_degree: int | None = None,
        num_simulated: int = 8,
        extrapolate: bool = False,
        accelerator_usd_per_hour: float | None = None,
        budget: str | float | None = None,
        progress: Progress = lambda text, done, total: None,
        so_far: Callable[[Callable[[], SearchResult]], None] = lambda make: None,
    ) -> SearchResult:
        """Estimate all candidates on a machine and simulate the best few.

        Args and Raises: as ``search``. progress: called with a text, the steps done and their number. so_far: called
            now and then with what makes a result of the candidates known by then.
        """
        begin = time.process_time()
        check_usd_per_hour(accelerator_usd_per_hour)
        self._plans.begin()
        curve = goal_of(convergence, target, self.graph.name)
        if batches is None and not isinstance(curve, Curve):
            raise ConfigError("search needs batches=[...], or a convergence curve, whose measured ones are taken")
        notes = (*notes_for(curve, self.graph.name), *curve.notes) if isinstance(curve, Curve) else ()
        chosen = default_batches(curve) if batches is None and isinstance(curve, Curve) else tuple(batches or ())
        check_batches(chosen, curve, extrapolate)
        if num_simulated < 0:
            raise ConfigError(f"num_simulated is {num_simulated}; it must be >= 0")
        goal = _Goal(curve, extrapolate, max_circuit_degree, num_simulated)
        given = None if strategies is None else [filled(one, machine) for one in strategies]
        space = Space.of(self.base, axes)
        notes = (*notes, *space.words(), *self._not_searched)
        outside = [b for b in chosen if curve is not None and not curve.is_measured(b)]
        if outside:
            notes = (f"extrapolated: batches {outside} lie outside the curve's measured range", *notes)

        def made(candidates: Sequence[Candidate], *more: str) -> SearchResult:
            return SearchResult(
                model=self.graph.name, fabric=machine.fabric.describe(), accelerator=machine.device.name,
                num_accelerators=len(machine.healthy_accelerators), candidates=tuple(candidates),
                convergence=None if curve is None else curve.name, notes=(*notes, *more),
                left_out=tuple(one for one in space.left_out.most_common() if one[1]),
                cpu_s=time.process_time() - begin, prices=machine.prices, network_usd=machine.fabric.network_usd,
                machine_usd=machine.usd, accelerator_usd_per_hour=accelerator_usd_per_hour,
            )  # fmt: skip

        watch = Watch(progress, so_far, check_budget(budget), lambda candidates: made(candidates, UNFINISHED))
        planner = None if given is not None or not space.is_wide else self._planner(machine)
        if planner is not None:
            found = self._estimate_planned(planner, machine, goal, chosen, space, watch)
        else:
            found = self._estimate_all(machine, goal, self._queue(machine, goal, chosen, given, space), watch)
        if not any(c.estimate_s is not None for c in found):
            raise _nothing_fits(found)
        more = list(watch.notes(found))
        if idle := space.idle_keys([one.strategy for one in found]):
            keys = ", ".join(f"strategy.{name}" for name in idle)
            more.append(f"{keys}: held by no candidate, since none has the degrees for it")
        ranked = self._simulate_best(machine, found, goal, watch)
        self._plans.end()
        return made(ranked, *more)

    # Planning

    def _planner(self, machine: Machine) -> StrategyPlanner | None:
        """Return what ranks strategies that are too many to be placed; None for models that it cannot shorten."""
        where = ideal_machine(machine) if needs_circuits(machine) else machine
        placer = self._plans.placer(machine, replace(self._neutral, placer=_REFERENCE))
        return placer.planner(
            self.graph, where, self.routing, self._costs_on(where.fabric),
            lambda strategy: self._plans.program.on(strategy, machine)[0],
        )  # fmt: skip

    def _estimate_planned(
        self, planner: StrategyPlanner, machine: Machine, goal: _Goal, batches: Sequence[int], space: Space,
        watch: Watch,
    ) -> list[Candidate]:  # fmt: skip
        """Place and estimate the strategies with the best quick estimates, until enough of them fit."""
        for name in self.placers:
            if name != _REFERENCE:
                space.leave_out(f"strategy.placer={name} is searched over degrees alone")
        keep = max(_LEAST_PLACED, _PLACED_PER_SIMULATION * goal.num_simulated)
        counts = Counts(is_over=lambda: watch.estimates_are_over)
        queue: list[tuple[float, int, Candidate]] = []
        for batch in batches:
            watch.progress(f"planning batches of {batch:,}", 0, 1)
            site = Site(len(machine.healthy_accelerators), batch, self._facts)
            for one in planner.plan(site, space, keep, counts):
                made = Candidate(
                    strategy=one.strategy,
                    global_batch=batch,
                    micro_batch=one.strategy.micro_batch,
                    iterations=goal.iterations(batch),
                )
                queue.append((made.objective(one.seconds), len(queue), made))
        queue.sort()
        found: list[Candidate] = []
        num_left = len(queue)
        for _, _, candidate in queue:
            if sum(c.estimate_s is not None for c in found) >= keep:
                break
            num_left -= 1
            if watch.estimates_are_over and any(c.estimate_s is not None for c in found):
                found.append(replace(candidate, reason=NOT_TRIED))
                continue
            watch.progress(f"estimating {candidate.describe()}", len(found), keep)
            found.append(self._estimate(machine, goal, candidate, is_fixed=True))
            watch.show(found)
        space.left_out[_TOO_LARGE] += counts.too_large
        space.left_out[NOT_TRIED] += counts.not_tried
        space.left_out[_NOT_AMONG_BEST] += counts.too_slow + num_left
        if not found:
            why = "".join(f"; {count} x {reason}" for reason, count in space.left_out.most_common(3) if count)
            raise DegreeError(f"no strategy fits {site.num_accelerators} accelerators and batches {list(batches)}{why}")
        return found

    # Enumeration and bounds

    def _queue(
        self,
        machine: Machine,
        goal: _Goal,
        batches: Sequence[int],
        strategies: Sequence[Strategy] | None,
        space: Space,
    ) -> list[Candidate]:
        """Return the candidates in the order of what their compute alone allows."""
        size = len(machine.healthy_accelerators)
        reference = max(batches)
        found = []
        known: dict[int, float] = {}
        for batch in batches:
            for strategy in self._strategies(machine, batch, strategies, space, goal.max_circuit_degree):
                if strategy.tp not in known:
                    known[strategy.tp] = self._per_sample_s(machine, strategy.tp, reference)
                seconds = _bound_s(strategy, batch, known[strategy.tp])
                found.append(
                    Candidate(
                        strategy=strategy, global_batch=batch, micro_batch=strategy.micro_batch, bound_s=seconds,
                        iterations=goal.iterations(batch),
                    )
                )  # fmt: skip
        if not found:
            why = "".join(f"; left out: {count} x {reason}" for reason, count in space.left_out.most_common(3))
            raise DegreeError(
                f"no degrees use {size} accelerators and divide a batch of {list(batches)}; name other batches{why}"
            )
        return sorted(found, key=lambda c: c.objective(c.bound_s or 0.0))

    def _strategies(
        self,
        machine: Machine,
        batch: int,
        given: Sequence[Strategy] | None,
        space: Space,
        max_circuit_degree: int | None,
    ) -> list[Strategy]:
        if given is not None:
            return [one for one in given if batch % one.dp == 0]
        size = len(machine.healthy_accelerators)
        degree = self.base.max_circuit_degree if max_circuit_degree is None else max_circuit_degree
        found: list[Strategy] = []
        refused: list[ConfigError] = []
        for name in self.placers:
            has_data_parallel = any(one.num_ranks == one.dp for one in found)  # alike for every placer: once is enough
            unknown = space.unknown_to(PLACERS.get(name).SEARCHED)
            if unknown:
                space.leave_out(f"strategy.placer={name} takes no strategy.{unknown[0]}")
                continue
            try:
                base = replace(self._neutral, placer=name, max_circuit_degree=degree)
            except ConfigError as error:  # settings of the base that another placer has
                refused.append(error)
                space.leave_out(f"strategy.placer={name}: {error}")
                continue
            candidates = self._plans.placer(machine, base).candidates(size, batch, space, self._facts)
            found += [one for one in candidates if one.num_ranks > one.dp or not has_data_parallel]
        if len(refused) == len(self.placers):
            raise refused[0]
        return found

    def _per_sample_s(self, machine: Machine, tp: int, batch: int) -> float:
        """Return seconds per sample on one device of a tp group, forward and backward, whatever its memory.

        With the collectives of the tp group, except where circuits would have to be set for them.
        """
        size = len(machine.healthy_accelerators)
        dp = next(d for d in range(max(1, size // tp), 0, -1) if batch % d == 0)
        base = replace(self._neutral, placer=_REFERENCE, check_memory=False, allow_idle=True)
        fixed = {name: self.base.value(name) for name in ("sequence_parallel", "tp_overlap")}
        strategy = fitted(fixed | {"dp": dp, "tp": tp}, base)
        placed = self._plans.place(machine, strategy, batch)
        if placed.plan is None or placed.estimator is None:
            return 0.0
        plan, costs = placed.plan, None
        if not machine.fabric.is_circuit_switched:
            plan = plan.on(machine)
            costs = AxisCosts(plan, machine.fabric, self.routing, self._costs_on(machine.fabric))
        return placed.estimator.micro_batch_s(plan, costs) / plan.micro_batch

    # Estimates

    def _estimate_all(self, machine: Machine, goal: _Goal, queue: list[Candidate], watch: Watch) -> list[Candidate]:
        """Estimate candidates in the order of their bounds until the next bound exceeds the best estimates.

        Closer bounds come first: the placer's own, and where circuits must be set for each plan its estimate on an
        ideal switch.
        """
        found: list[Candidate] = []
        best: list[float] = []  # a heap of the best objectives, negated
        keep = max(1, goal.num_simulated)
        ideal = ideal_machine(machine) if needs_circuits(machine) else None
        costs: dict[Any, Any] = {}  # on the ideal switch
        waiting = [
            (one.objective(one.bound_s or 0.0), n, self._bounds(machine, one, ideal, costs), one)
            for n, one in enumerate(queue)
        ]
        heapq.heapify(waiting)
        while waiting:
            bound, number, closer_bounds, candidate = heapq.heappop(waiting)
            if len(best) == keep and bound > -best[0]:
                found.append(replace(candidate, reason=_TOO_SLOW))
                continue
            if best and watch.estimates_are_over:
                found.append(replace(candidate, reason=NOT_TRIED))
                continue
            watch.progress(f"estimating {candidate.describe()}", len(queue) - len(waiting), len(queue))
            if closer_bounds:
                seconds = max(candidate.bound_s or 0.0, closer_bounds[0]())
                closer = replace(candidate, bound_s=seconds)
                heapq.heappush(waiting, (closer.objective(seconds), number, closer_bounds[1:], closer))
                continue
            done = self._estimate(machine, goal, candidate)
            found.append(done)
            watch.show(found)
            if done.estimate_s is not None:
                heapq.heappush(best, -done.objective(done.estimate_s))
                if len(best) > keep:
                    heapq.heappop(best)
        return found

    def _bounds(
        self, machine: Machine, candidate: Candidate, ideal: Machine | None, costs: dict[Any, Any]
    ) -> tuple[Callable[[], float], ...]:
        """Return what gives ever closer bounds of a candidate [s], each costlier than the one before."""
        bounds: list[Callable[[], float]] = [lambda: self._placers_bound_s(machine, candidate)]
        if ideal is not None:
            bounds.append(lambda: self._ideal_s(machine, ideal, candidate, costs))
        return tuple(bounds)

    def _placers_bound_s(self, machine: Machine, candidate: Candidate) -> float:
        """Return what the placer knows an iteration takes at least [s]; 0 where it knows nothing."""
        try:
            placer = self._plans.placer(machine, candidate.strategy)
            return placer.lower_bound_s(self.graph, machine, candidate.global_batch) or 0.0
        except ConfigError:
            return 0.0

    def _ideal_s(self, machine: Machine, ideal: Machine, candidate: Candidate, costs: dict[Any, Any]) -> float:
        """Return a candidate's estimate on an ideal switch [s]; 0 where it has no plan that fits."""
        placed = self._plans.fitted(machine, candidate.strategy, candidate.global_batch)
        if placed.plan is None:
            return 0.0
        return self._time(placed.plan.on(ideal), placed, costs).iteration_time_s

    def _estimate(self, machine: Machine, goal: _Goal, candidate: Candidate, is_fixed: bool = False) -> Candidate:
        """Return the candidate with its estimate, or with why it has none. Args: is_fixed: take it as it is."""
        placed = self._plans.fitted(machine, candidate.strategy, candidate.global_batch, is_fixed)
        if placed.plan is None:
            return self._refused(candidate, placed)
        known = candidate
        try:
            plan = placed.plan.on(machine)
            known = replace(
                candidate, strategy=plan.strategy, plan=plan, micro_batch=plan.micro_batch,
                num_microbatches=plan.num_microbatches, memory_bytes=plan.memory_bytes,
            )  # fmt: skip
            limit = goal.max_circuit_degree
            if limit is not None or machine.fabric.is_circuit_switched:
                known = replace(known, circuit_degree=plan.circuit_degree)
                if limit is not None and plan.circuit_degree > limit:
                    return replace(known, reason=f"needs {plan.circuit_degree} circuits an accelerator, not {limit}")
            seconds, plan = self._time_on_ranks(plan, placed)
        except (ConfigError, NoRouteError) as error:
            return replace(known, reason=str(error))
        return replace(known, estimate_s=seconds, plan=plan, strategy=plan.strategy)

    def _refused(self, candidate: Candidate, placed: Placed) -> Candidate:
        """Return a candidate that has no plan, with what it would need where memory is why."""
        if placed.overfull is None:
            return replace(candidate, reason=placed.reason)
        micro_batch, num_microbatches = placed.strategy.batches(candidate.global_batch)
        return replace(
            candidate, strategy=placed.strategy, micro_batch=micro_batch, num_microbatches=num_microbatches,
            memory_bytes=placed.overfull.total, reason=placed.reason,
        )  # fmt: skip

    def _time_on_ranks(self, plan: Plan, placed: Placed) -> tuple[float, Plan]:
        """Return a plan's estimate and the plan, on the mapping of least estimate where it leaves that open."""
        seconds, best = self._time(plan, placed).iteration_time_s, plan
        if plan.strategy.mapping != AUTO_MAPPING or not mapping_notes(plan.strategy, plan.machine):
            return seconds, best
        for name in (LINEAR_MAPPING, BLOCKS_MAPPING):
            other = plan.with_mapping(name)
            if np.array_equal(other.devices, plan.devices):
                continue
            if (others_s := self._time(other, placed).iteration_time_s) < seconds:
                seconds, best = others_s, other
        return seconds, best

    def _time(self, plan: Plan, placed: Placed, known: dict[Any, Any] | None = None) -> Estimate:
        """Estimate a plan on its machine; where circuits carry it they are its own, and so are the costs of routes."""
        fabric = plan.fabric_with_circuits(self.seed)
        if known is None:
            known = self._costs_on(fabric) if fabric is plan.machine.fabric else {}
        costs = AxisCosts(plan, fabric, self.routing, known)
        if placed.estimator is None:
            raise InternalError(f"a plan of placer {plan.strategy.placer!r} has no estimator")
        return placed.estimator.estimate(plan, fabric, costs)

    def _costs_on(self, fabric: Any) -> dict[Any, Any]:
        """Return the costs known on a fabric; those of the fabric before it are dropped."""
        if self._routed[0] is not fabric:
            self._routed = (fabric, {})
        return self._routed[1]

    # Simulations

    def _simulate_best(self, machine: Machine, found: list[Candidate], goal: _Goal, watch: Watch) -> list[Candidate]:
        """Simulate the best estimates, and more while their errors leave the next a chance; rank everything."""
        estimated = [c for c in found if c.estimate_s is not None]
        refused = [c for c in found if c.estimate_s is None]
        estimated.sort(key=lambda c: c.rank)
        best: list[Candidate] = []
        for number, candidate in enumerate(estimated[: _MOST_SIMULATED * goal.num_simulated]):
            if number >= goal.num_simulated and not _may_win(candidate, best):
                break
            if best and watch.is_over:
                break
            watch.progress(f"simulating {candidate.describe()}", number, max(number, goal.num_simulated))
            best.append(self._simulate(candidate))
            watch.show([*best, *estimated[len(best) :], *refused])
        rest = estimated[len(best) :]
        best.sort(key=lambda c: c.rank)
        return [*best, *rest, *refused]

    def _simulate(self, candidate: Candidate) -> Candidate:
        plan = candidate.plan
        if plan is None:
            return candidate
        result = simulate(
            plan, fidelity=self.fidelity, routing=self.routing, seed=self.seed,
            controllers=self.controllers,
        )  # fmt: skip
        exposed = sum(result.exposed.values())
        return replace(candidate, simulated_s=result.iteration_time_s, exposed_s=exposed, result=result)


def _may_win(candidate: Candidate, simulated: list[Candidate]) -> bool:
    """Tell whether a candidate beats those simulated if its estimate errs as much as any of theirs did."""
    times = [(c.simulated_s or 0.0, c.estimate_s or 0.0) for c in simulated]
    least = min(real / guess for real, guess in times)
    best = min(c.objective(c.simulated_s or 0.0) for c in simulated)
    return candidate.objective((candidate.estimate_s or 0.0) * least) < best


def _bound_s(strategy: Strategy, batch: int, per_sample_s: float) -> float:
    """Return what a candidate's kernels and tp collectives take at least [s].

    Model: per-sample time of the unpipelined plan with the same tp at the largest batch, where kernels and messages
        are most efficient, divided over the stages, plus the bubble. Algorithm 1 may split perfectly.
    """
    seconds = per_sample_s * batch * strategy.tp / strategy.num_ranks
    if strategy.pp == 1:
        return seconds
    local = batch // strategy.dp
    return seconds * (1 + (strategy.pp - 1) / max(1, local // (strategy.micro_batch or local)))


def _nothing_fits(found: list[Candidate]) -> ConfigError:
    """Return the error of a search in which every candidate was refused, naming the least bad one's reason."""
    nearest = sorted((c for c in found if c.reason), key=lambda c: c.memory_bytes or math.inf)[:3]
    reasons = "; ".join(f"{c.describe()}: {c.reason}" for c in nearest)
    return ConfigError(f"no strategy fits this machine; those that need least: {reasons}")
