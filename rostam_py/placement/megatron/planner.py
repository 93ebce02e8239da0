"""Plan a search: rank strategies without placing them, from probes of the model with two and three of its blocks.

Legend: L = repeated blocks, n = blocks of a stage, v = chunks of a stage, m = micro-batches, D = dp x cp.

Model: a replica's time and memory are linear in L, exactly so as blocks are equal: what a block adds is the difference
of two placed probes. A probe is placed for every (tp, sequence_parallel, cp, ep, micro-batch, recomputation), its
collectives take their times in the groups of the strategy's own grid. On top come closed forms: the slowest stage's
m + (p - 1) / v turns, messages between stages once through the pipeline and back, gradients and weights of a stage over
D, as far as its backward does not hide them; all stages' share links where each micro-batch moves them. Memory is
pruned first, by bounds: activations over cp, the first stage's micro-batches in flight, or the head on the last. It
ignores other sharing of links, uneven cuts inside blocks, tied weights.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rostam_py.costs.precision import tensor_bytes_factor
from rostam_py.errors import ConfigError
from rostam_py.graph import OperatorGraph
from rostam_py.graph.shortened import shortened, stacks_of
from rostam_py.placement.axis_costs import ALL_STAGES, AxisCosts
from rostam_py.placement.megatron.estimate import CompiledStage, compile_stages, stage_times
from rostam_py.placement.placer import Counts, Planned
from rostam_py.plan.expert_groups import expert_groups
from rostam_py.plan.groups import grid_groups
from rostam_py.plan.machine import Machine
from rostam_py.plan.plan import Plan
from rostam_py.plan.ranks import assign_accelerators
from rostam_py.plan.searched_axes import Site, Space, fitted
from rostam_py.plan.strategy import Strategy

_LEAST_DEPTH = 2  # blocks of a stack in the smallest probe: the first and the last, which may differ from the others
_PROBED = (
    "tp",
    "sequence_parallel",
    "tp_overlap",
    "cp",
    "ep",
    "micro_batch",
    "recompute",
    "recompute_modules",
    "recompute_blocks",
)
_GRID = ("tp", "cp", "pp", "dp", "ep")
# A bound on time is of kernels at this micro-batch, beyond which they hardly gain, or at one sample; what else may make
# it too long is the share below, above every ratio of bound and estimate that tests/searching/test_planner.py draws.
_MOST_EFFICIENT, _FASTER = 16, 0.9
# Of a backward that hides gradient reductions: the first bucket is ready only when some of it has run.
_HIDING = 0.9
_Fields = dict[str, Any]  # the axes' values
_MEMORY = ("parameters", "gradients", "optimizer_state", "activations")


@dataclass(frozen=True, slots=True)
class _Linear:
    """Quantities of a replica: those of each block, and of all that is not in blocks."""

    block: np.ndarray
    rest: np.ndarray


class Planner:
    """Quick estimates of one model's strategies on one machine.

    Args:
        place: (graph, strategy, batch) -> plan, as the placer makes it; each probe's once.
        base: with neutral axes. shared: costs of the fabric's routes, filled and used.
    """

    def __init__(
        self, graph: OperatorGraph, machine: Machine, base: Strategy, routing: str, shared: dict[Any, Any],
        place: Callable[[OperatorGraph, Strategy, int], Plan],
    ) -> None:  # fmt: skip
        self.graph, self.machine, self.routing, self.shared = graph, machine, routing, shared
        self.base = replace(base, check_memory=False)
        self.place = place
        self.size = len(machine.healthy_accelerators)
        stacks = stacks_of(graph)
        self.depths = [end - begin for begin, end in stacks]
        self.num_blocks = sum(self.depths)
        self._graphs = _probes(graph, self.depths)
        self._plans: dict[Any, list[tuple[Plan, CompiledStage]] | ConfigError] = {}
        self._memory: dict[Any, _Linear] = {}
        self._times: dict[Any, _Linear] = {}
        self._costs: dict[Any, AxisCosts] = {}

    @property
    def can_plan(self) -> bool:
        """Whether the model has stacks of equal blocks that can be shortened."""
        return bool(self._graphs)

    def plan(self, site: Site, space: Space, keep: int, counts: Counts) -> list[Planned]:
        """Return the ``keep`` strategies with the best quick estimates, best first."""
        waiting: list[tuple[float, int, dict[str, Any]]] = []
        for number, fields in enumerate(space.fields(site)):
            counts.seen += 1
            if waiting and counts.is_over():
                counts.not_tried += 1
                continue
            try:
                if self.memory_bytes(fields, site.batch) > self.machine.device.memory_bytes:
                    counts.too_large += 1
                    continue
                waiting.append((self._least_s(fields, site.batch), number, fields))
            except ConfigError as error:
                space.leave_out(str(error))
        heapq.heapify(waiting)
        best: list[tuple[float, int]] = []  # a heap of the best estimates, negated
        found: list[Planned] = []
        while waiting:
            least, number, fields = heapq.heappop(waiting)
            if len(best) == keep and least > -best[0][0]:
                counts.too_slow += 1 + len(waiting)
                break
            if found and counts.is_over():
                counts.not_tried += 1 + len(waiting)
                break
            try:
                strategy = space.strategy(replace(self.base, check_memory=True), fields)
                strategy.batches(site.batch)
                seconds = self.seconds(fields, site.batch)
            except ConfigError as error:
                space.leave_out(str(error))
                continue
            counts.estimated += 1
            found.append(Planned(seconds, strategy))
            heapq.heappush(best, (-seconds, number))
            if len(best) > keep:
                heapq.heappop(best)
        return sorted(found, key=lambda one: one.seconds)

    # Memory

    def memory_bytes(self, fields: _Fields, batch: int) -> float:
        """Return what the fullest device needs at least [bytes]."""
        pp, cp, mb, v = fields["pp"], fields["cp"], fields["micro_batch"], fields["virtual_stages"]
        num_microbatches = batch // fields["dp"] // mb
        alone = self._memory_of(fields | {"ep": 1})
        own = alone if fields["ep"] == 1 else self._memory_of(fields | {"recompute": "none"})
        level, ranks = fields["shard"], fields["dp"] * cp
        shared_by = fields["shard_group"] or ranks
        state = []
        for at in ("block", "rest"):
            parts = [
                getattr(alone, at)[k] / shared_by if level >= least else getattr(own, at)[k]
                for k, least in enumerate((3, 2, 1))
            ]
            state.append(sum(parts))
        block, rest = (getattr(alone, at)[3] * mb / cp for at in ("block", "rest"))
        n = self.num_blocks / pp
        if pp == 1:
            return float(n * (state[0] + block) + state[1] + rest)
        ahead = pp - 1 if v == 1 else 2 * (pp - 1) + (v - 1) * pp
        in_flight = min(ahead + 1, num_microbatches * v) / v
        first = n * (state[0] + block * in_flight)
        last = state[1] / 2 + rest + max(0.0, n - 1) * state[0]
        return float(max(first, last))

    def _memory_of(self, fields: _Fields) -> _Linear:
        """Return a device's memory at micro-batches of one whole sequence, with its part of the experts."""
        key = {"cp": 1, "micro_batch": 1, "dp": self.size // fields["tp"]}
        known = _key(fields | key)
        if known not in self._memory:
            plans = self._probed(fields | key)
            rows = [np.array([getattr(p.stages[0].memory, part) for part in _MEMORY], dtype=float) for p, _ in plans]
            self._memory[known] = self._linear(rows)
        return self._memory[known]

    # Time

    def seconds(self, fields: _Fields, batch: int) -> float:
        """Return the quick estimate of an iteration [s]."""
        forward, backward, optimizer = self._stage_times(fields)
        pp, v = fields["pp"], fields["virtual_stages"]
        num_microbatches = batch // fields["dp"] // fields["micro_batch"]
        added, turn = self._of_state(fields, forward, backward, optimizer)
        return float((num_microbatches + (pp - 1) / v) * turn + added + self._messages_s(fields))

    def _stage_times(self, fields: _Fields) -> tuple[float, float, float]:
        """Return what the slowest stage takes for a forward, a backward, and its whole optimizer's step [s]."""
        times = self._times_of(fields)
        forward, backward, optimizer = times.block
        of_block, of_rest = forward + backward, times.rest[0] + times.rest[1]
        n, has_rest = _slowest_stage(
            self.num_blocks, fields["pp"], fields["virtual_stages"], of_block, of_rest
        )  # fmt: skip
        rest = times.rest if has_rest else 0 * times.rest
        return n * forward + rest[0], n * backward + rest[1], n * optimizer + max(0.0, rest[2])

    def _of_state(self, fields: _Fields, forward: float, backward: float, optimizer: float) -> tuple[float, float]:
        """Return (what gradients, weights and the optimizer add to an iteration, a micro-batch's turn with them)."""
        ranks, level = fields["dp"] * fields["cp"], fields["shard"]
        turn = forward + backward
        if ranks == 1:
            return optimizer, turn
        costs, n = self._grid_costs(fields), self.num_blocks / fields["pp"]
        alone = self._memory_of(fields | {"recompute": "none", "ep": 1})
        own = self._memory_of(fields | {"recompute": "none"})
        ep = fields["ep"]

        def moved(collective: str, part: int) -> float:
            whole, mine = alone.block[part], own.block[part]
            of_experts = 0.0 if ep == 1 else (whole - mine) / (ep - 1)
            share = 1.0 if fields["pp"] == 1 else 0.5
            stage = 0 if fields["pp"] == 1 or level < 2 else ALL_STAGES
            dense = n * (mine - of_experts) + share * own.rest[part]
            seconds = costs.collective_s(stage, "dp", collective, max(1, round(dense)))
            if of_experts and ranks > ep:
                seconds += costs.collective_s(stage, "dp_experts", collective, max(1, round(n * of_experts)))
            return seconds

        def tail_of(reduce_s: float) -> float:
            if not self.base.rules.overlap_grad_reduce:
                return reduce_s
            return max(reduce_s - _HIDING * backward, reduce_s / max(1.0, n))

        if not level:
            return optimizer + tail_of(moved("all_reduce", 1)), turn
        reduce_s, gather_s = moved("reduce_scatter", 1), moved("all_gather", 0)
        optimizer /= fields["shard_group"] or ranks
        if level == 1:
            return optimizer + tail_of(reduce_s) + gather_s, turn
        if level == 2:
            return optimizer + gather_s + reduce_s / max(1.0, n), max(turn, reduce_s)
        hidden = max(forward, gather_s) + max(backward, gather_s)
        return optimizer + (gather_s + reduce_s) / max(1.0, n), max(hidden, 2 * gather_s + reduce_s)

    def _messages_s(self, fields: _Fields) -> float:
        if fields["pp"] == 1:
            return 0.0
        alpha, beta = self._grid_costs(fields).message(0, 1)
        parts = fields["cp"] * (fields["tp"] if fields["sequence_parallel"] or self.base.rules.split_p2p else 1)
        num_bytes = self._boundary_bytes * fields["micro_batch"] / parts
        return float(2 * (fields["pp"] * fields["virtual_stages"] - 1) * (alpha + beta * num_bytes))

    @property
    def _boundary_bytes(self) -> float:
        """Bytes of a sample that one block hands on to the next."""
        if "boundary" not in self.shared:
            graph = self._graphs[0]
            precision = self.base.precision or graph.default_precision
            total = 0.0
            for t in graph.tensors:
                maker = None if t.producer is None else graph.ops[t.producer]
                if maker is None or (maker.phase, maker.block) != ("forward", 0):
                    continue
                if any((graph.ops[u].phase, graph.ops[u].block) == ("forward", 1) for u in graph.consumers[t.id]):
                    total += t.num_bytes(1) * tensor_bytes_factor(precision, t.dtype)
            self.shared["boundary"] = total
        return float(self.shared["boundary"])

    def _least_s(self, fields: _Fields, batch: int) -> float:
        """Return what an iteration takes at least [s], from the kernels of whole sequences and experts."""
        micro_batch = 1 if fields["micro_batch"] == 1 else _MOST_EFFICIENT
        alone = fields | {"cp": 1, "ep": 1, "micro_batch": micro_batch, "pp": 1, "dp": self.size // fields["tp"]}
        times = self._times_of(alone)
        work = self.num_blocks * (times.block[0] + times.block[1]) + times.rest[0] + times.rest[1]
        work /= micro_batch
        num_microbatches = batch // fields["dp"] // fields["micro_batch"]
        bubble = 1 + (fields["pp"] - 1) / (num_microbatches * fields["virtual_stages"])
        return float(_FASTER * work * batch / fields["dp"] / (fields["cp"] * fields["pp"]) * bubble)

    def _times_of(self, fields: _Fields) -> _Linear:
        """Return (forward, backward, optimizer) of one micro-batch [s], collectives of tp, cp and ep included."""
        key = (_key(fields), *(fields[name] for name in _GRID))
        if key not in self._times:
            costs = self._grid_costs(fields)
            rows = [np.array(stage_times(plan, costs, stage)) for plan, stage in self._probed(fields)]
            self._times[key] = self._linear(rows)
        return self._times[key]

    # Probes

    def _probed(self, fields: _Fields) -> list[tuple[Plan, CompiledStage]]:
        """Return the plans of the probes: without a pipeline, on all accelerators."""
        key = _key(fields)
        if key not in self._plans:
            chosen = {name: fields[name] for name in _PROBED}
            dp = self.size // (fields["tp"] * fields["cp"])
            strategy = fitted(chosen | {"dp": dp}, self.base)
            try:
                plans = [self.place(graph, strategy, dp * 2 * fields["micro_batch"]) for graph in self._graphs]
                self._plans[key] = [(plan, compile_stages(plan)[0]) for plan in plans]
            except ConfigError as error:  # what the model refuses, it refuses for all strategies with these values
                self._plans[key] = error
        found = self._plans[key]
        if isinstance(found, ConfigError):
            raise found
        return found

    def _linear(self, rows: list[np.ndarray]) -> _Linear:
        """Return what blocks add, on average over the stacks, and what is left. Args: rows: of the probes."""
        least, *others = rows
        of_stack = [row - least for row in others]
        total = sum(depth * one for depth, one in zip(self.depths, of_stack, strict=True))
        rest = least - _LEAST_DEPTH * sum(of_stack)
        return _Linear(total / self.num_blocks, rest)

    def _grid_costs(self, fields: _Fields) -> AxisCosts:
        """Return the costs of collectives in the groups of a strategy's grid."""
        key = tuple(fields[name] for name in _GRID)
        if key not in self._costs:
            self._costs[key] = _GridCosts(self._on_grid(fields), self.machine.fabric, self.routing, self.shared)
        return self._costs[key]

    def _on_grid(self, fields: _Fields) -> Plan:
        """Return a probe's plan in a pipeline: every stage runs what it runs."""
        alike = {"micro_batch": 1, "recompute": "none", "sequence_parallel": False, "tp_overlap": False}
        probe, _ = self._probed(fields | alike | {"cp": 1, "ep": 1})[0]
        strategy = fitted({name: fields[name] for name in _GRID}, self.base)
        accelerators = assign_accelerators(strategy, self.machine)
        shape = accelerators.shape
        ids = np.arange(math.prod(shape)).reshape(shape)
        stage_of = np.broadcast_to(np.arange(shape[1])[None, :, None], shape).reshape(-1)
        levels = [one.num_ranks for one in probe.groups if one.kind == "tp" and one.label != "tp"]
        return replace(
            probe, machine=self.machine, strategy=strategy, devices=accelerators.reshape(-1), stage_of=stage_of,
            stages=probe.stages * shape[1], known_volumes=[],
            groups=grid_groups(shape, (), levels, fields["cp"]) + expert_groups(ids, fields["ep"]),
        )  # fmt: skip


class _GridCosts(AxisCosts):
    """Costs in the groups of a grid whose stages all run the same."""

    def _talking(self, label: str) -> list[int]:
        return list(range(len(self._plan.stages)))


def _key(fields: _Fields) -> tuple[Any, ...]:
    """Return what a probe depends on."""
    values = (fields[name] for name in _PROBED)
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def _probes(graph: OperatorGraph, depths: list[int]) -> list[OperatorGraph]:
    """Return the model with the fewest blocks, and then with one more of each stack; nothing where that cannot be."""
    if not depths or min(depths) <= _LEAST_DEPTH:
        return []
    least = dict.fromkeys(range(len(depths)), _LEAST_DEPTH)
    found = [shortened(graph, least), *(shortened(graph, least | {k: _LEAST_DEPTH + 1}) for k in range(len(depths)))]
    return [] if any(one is None for one in found) else [one for one in found if one is not None]


def _slowest_stage(
    num_blocks: int, num_stages: int, num_chunks: int, of_block: float, of_rest: float
) -> tuple[int, bool]:
    """Return the blocks of the slowest stage, and whether it has what is in no block, cut as evenly as blocks allow.

    Model: the last stage has what is in no block, a block at least in each of its other chunks, and as many more as
        make the slowest stage least.
    """
    if num_stages == 1:
        return num_blocks, True
    found: list[tuple[float, int, bool]] = []
    for last in range(num_chunks - 1, num_blocks // num_stages + 2):
        others = -(-(num_blocks - last) // (num_stages - 1))
        alone, behind = others * of_block, last * of_block + of_rest
        found.append((behind, last, True) if behind > alone else (alone, others, False))
    _, blocks, has_rest = min(found)
    return blocks, has_rest
