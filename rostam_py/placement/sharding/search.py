"""The forward pass split for least time: a shortest path over its ops, each repeated block solved once (MODEL D13).

A hypothesis holds the states of all live tensors and the seconds so far; hypotheses with equal states merge. An op runs
whole, takes one of its splits, passes partial sums on, or runs whole inside a region: the gradient that reaches
it is then a summand of each member's, as that of a key head is that several members read. Backward is not walked; every
choice is charged its own: products run twice more, and a tensor that enters split work whole has its gradient
all-reduced once for all its readers in a block (Megatron's conjugate operators f and g).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rostam_py.errors import InternalError
from rostam_py.graph import PARTIAL, WHOLE, Op, passes_partial
from rostam_py.graph.likeness import runs_of
from rostam_py.graph.vocabulary import WEIGHT_ROLES
from rostam_py.placement.sharding.costs import NotionalCosts
from rostam_py.placement.sharding.layouts import (
    FREE,
    Place,
    Shard,
    SplitAxis,
    State,
    Stretches,
    plain,
)
from rostam_py.placement.sharding.readers import Readers
from rostam_py.placement.sharding.space import Space, follows

REGION = -3  # in a search: whole, and its gradient is a summand of each member's
_BEAM = 48  # hypotheses kept, a choice for speed


class Decision(NamedTuple):
    """How one op runs: by the split at place ``split`` of its list along ``stretches``; or whole (-1).

    mode: "whole", "region", "partial" or "split".
    """

    mode: str
    split: int = -1
    stretches: Stretches | None = None


class _Run(NamedTuple):
    """A run of ops. kind: equal ones have the same. externals: what it reads. outs: tensors that live on behind it."""

    kind: int
    externals: list[int]
    outs: list[int]


@dataclass(frozen=True, slots=True)
class _Path:
    """Decisions of a run of ops behind those of the runs before."""

    before: "_Path | None"
    decisions: tuple[Decision, ...]


@dataclass(slots=True)
class _Hypothesis:
    cost: float
    states: dict[int, State]
    gathered: frozenset[int] = frozenset()  # split tensors of which a whole copy exists too
    charged: frozenset[int] = frozenset()  # tensors whose gradient's all-reduce in this block is paid
    path: _Path | None = None
    decisions: tuple[Decision, ...] = ()


@dataclass(slots=True)
class _Change:
    """What one choice adds to a hypothesis."""

    cost: float = 0.0
    states: dict[int, State] = field(default_factory=dict)
    gathered: set[int] = field(default_factory=set)
    charged: set[int] = field(default_factory=set)


class ForwardSearch:
    """Find the decisions of all forward ops on one level. ``run`` returns op id -> Decision.

    Args: whole: ops that may only run whole.
    """

    def __init__(self, space: Space, costs: NotionalCosts, whole: frozenset[int] = frozenset()) -> None:
        self.space, self.costs, self.graph, self.is_whole = space, costs, space.graph, whole
        graph = self.graph
        self.ops = [op for op in graph.ops if op.phase == "forward" and not self._is_weight_view(op)]
        self.needs_gradient = self._reach({t.id for t in graph.parameters})
        self.from_input = self._reach({t.id for t in graph.tensors if t.kind == "input"})
        self.root = self._roots()
        self.backward = self._backward()
        self.small_tables = self._small_tables()
        self.last_use = self._last_uses()
        self.readers = Readers(space)
        self.readers.ask_pieces()
        self._interned: dict[object, int] = {}
        self._split_ids: dict[int, int] = {}
        self._kinds: dict[object, int] = {}
        self._runs: dict[int, _Run] = {}  # by first op
        self._solved: dict[object, list[tuple[float, tuple[Decision, ...], list[State], list[bool]]]] = {}

    def run(self) -> dict[int, Decision]:
        front = [_Hypothesis(0.0, {t.id: FREE for t in self.graph.weights})]
        runs = runs_of(self.ops)
        for run in runs:
            behind = [h for start in front for h in self._through(run, start)]
            front = self._pruned([h for h in behind if REGION not in h.states.values()] or behind, run[-1].id)
        path = min(front, key=lambda h: h.cost).path
        found: dict[int, Decision] = {}
        for run in reversed(runs):
            if path is None:
                raise InternalError("the search has fewer decisions than the graph has runs of ops")
            found.update((op.id, d) for op, d in zip(run, path.decisions, strict=True))
            path = path.before
        return found

    # Graph facts

    def _is_weight_view(self, op: Op) -> bool:
        return bool(op.outputs) and op.outputs[0] in self.space.origin

    def _reach(self, start: set[int]) -> set[int]:
        """Return the tensors that depend on some of ``start``."""
        found = set(start)
        for op in self.graph.ops:
            if op.phase == "forward" and any(t in found for t in op.inputs):
                found.update(op.outputs)
        return found

    def _small_tables(self) -> set[int]:
        """Return the tables that positions look up, not the model's inputs: holding them whole counts as nothing."""
        found: set[int] = set()
        for op in self.graph.ops:
            if op.phase == "forward" and op.role == "embedding":
                tables = {self.space.origin[t][0] for t in op.inputs if t in self.space.origin}
                others = [t for t in op.inputs if t not in self.space.origin]
                found = found - tables if any(t in self.from_input for t in others) else found | tables
        return found

    def _backward(self) -> dict[int, list[Op]]:
        """Return, per forward op that is split along space, the ops that differentiate it."""
        found: dict[int, list[Op]] = {}
        for op in self.graph.ops:
            if op.forward_op is not None and any(split.halos for split in op.splits):
                found.setdefault(op.forward_op, []).append(op)
        return found

    def _roots(self) -> list[int]:
        """Return, per tensor, what it is a view, a cast or rows of: what its gradient is summed at."""
        roots = list(range(len(self.graph.tensors)))
        for op in self.graph.ops:
            if (len(op.inputs) == 1 and follows(op)) or (op.role == "gather" and op.inputs[0] not in self.space.origin):
                for t in op.outputs:
                    roots[t] = roots[op.inputs[0]]
        return roots

    def _last_uses(self) -> list[int]:
        """Return, per tensor, the last forward op that reads it or a view of it."""
        last = [-1] * len(self.graph.tensors)
        for op in self.ops:
            for t in op.inputs:
                weight = self.space.origin[t][0] if t in self.space.origin else t
                last[t] = last[self.root[t]] = last[weight] = op.id
        return last

    # Runs of ops and what is known of equal ones

    def _through(self, run: Sequence[Op], start: _Hypothesis) -> list[_Hypothesis]:
        """Return the hypotheses behind a run; equal runs from equal states are solved once."""
        about = self._about(run)
        externals, outs = about.externals, about.outs
        key = (about.kind, *((start.states.get(t, WHOLE), t in start.gathered) for t in externals))
        if key not in self._solved:
            read = {t: start.states[t] for t in externals if t in start.states}  # no other state matters inside
            begin = _Hypothesis(0.0, read, start.gathered)
            self._solved[key] = [
                (h.cost, h.decisions, [h.states.get(t, WHOLE) for t in outs], [t in h.gathered for t in outs])
                for h in self._solve(run, begin)
            ]
        made = []
        for cost, decisions, states, gathered in self._solved[key]:
            new = dict(start.states)
            for t in externals:
                if self.last_use[t] <= run[-1].id:
                    new.pop(t, None)
            new.update(zip(outs, states, strict=True))
            whole = start.gathered.difference(externals) | {t for t, g in zip(outs, gathered, strict=True) if g}
            made.append(_Hypothesis(start.cost + cost, new, frozenset(whole), path=_Path(start.path, decisions)))
        return made

    def _about(self, run: Sequence[Op]) -> _Run:
        """Return what of a run does not depend on the hypothesis it starts from."""
        if run[0].id in self._runs:
            return self._runs[run[0].id]
        local: dict[int, int] = {}
        externals: dict[int, int] = {}
        outside: dict[int, int] = {}
        shape: list[object] = []
        end = run[-1].id
        for op in run:
            refs = []
            for t in op.inputs:
                if t in local:
                    refs.append(local[t])
                    continue
                if t not in externals:
                    externals[t] = len(externals)
                    chain = self.space.origin.get(t)
                    owner = t if chain is None else chain[0]
                    outside.setdefault(owner, len(outside))
                    about = (t in self.needs_gradient, owner in self.space.origin, self.last_use[owner] > end,
                             t in self.from_input, outside[owner], self.space.shape_ids[t],
                             () if chain is None else tuple(self._split_id(o) for o, _ in chain[1]))  # fmt: skip
                    shape.append(about)
                refs.append(-1 - externals[t])
            above = tuple(level.axes[op.id] for level in self.space.above)
            shape.append(
                (
                    op.op_type,
                    self._split_id(op),
                    tuple(refs),
                    op.is_metadata,
                    op.flops,
                    len(op.outputs),
                    above,
                    op.id in self.is_whole,
                )
            )
            for t in op.outputs:
                local[t] = len(local)
        outs = [t for t in outside if self.last_use[t] > end]
        outs += [t for t in local if self.last_use[t] > end]
        shape.append(tuple(local.get(t, -1) for t in outs))
        kind = self._kinds.setdefault(tuple(shape), len(self._kinds))
        found = self._runs[run[0].id] = _Run(kind, list(outside), outs)
        return found

    def _split_id(self, op: Op) -> int:
        if id(op.splits) not in self._split_ids:
            self._split_ids[id(op.splits)] = self._interned.setdefault(op.splits, len(self._interned))
        return self._split_ids[id(op.splits)]

    def _solve(self, run: Sequence[Op], start: _Hypothesis) -> list[_Hypothesis]:
        front = [start]
        for op in run:
            front = self._pruned(
                [self._changed(h, op, *choice) for h in front for choice in self._choices(op, h)], op.id
            )
        return front

    def _changed(self, before: _Hypothesis, op: Op, decision: Decision, change: _Change) -> _Hypothesis:
        states = {**before.states, **change.states}
        for t in op.inputs:
            for dead in (t, self.space.origin[t][0] if t in self.space.origin else t):
                if self.last_use[dead] <= op.id:
                    states.pop(dead, None)
        return _Hypothesis(
            before.cost + change.cost, states, before.gathered | change.gathered, before.charged | change.charged,
            before.path, (*before.decisions, decision),
        )  # fmt: skip

    def _pruned(self, front: list[_Hypothesis], done: int) -> list[_Hypothesis]:
        """Return the best hypothesis of each set of live states, the best of all first, at most _BEAM.

        One that costs no less than the best of all with its states converted is of no use.
        """
        best: dict[object, _Hypothesis] = {}
        first: _Hypothesis | None = None
        last_use = self.last_use
        for h in sorted(front, key=lambda h: h.cost):
            live = frozenset([(t, s) for t, s in h.states.items() if s is not WHOLE and last_use[t] > done])
            gathered = frozenset([t for t in h.gathered if last_use[t] > done])
            charged = frozenset([t for t in h.charged if last_use[t] > done])
            key = (live, gathered, charged)
            if key in best:
                continue
            if first is None:
                first, of_first = h, key
            elif h.cost >= first.cost + self._distance_s(of_first, key):
                continue
            best[key] = h
            if len(best) == _BEAM:
                break
        return list(best.values())

    def _distance_s(self, have: Any, want: Any) -> float:
        """Return the most it costs to go on from one set of live states as if from another."""
        states, wanted = dict(have[0]), dict(want[0])
        total = 0.0
        for t in {t for t, _ in have[0] ^ want[0]}:
            if t in self.space.origin:
                return math.inf
            a, b, size = states.get(t, WHOLE), wanted.get(t, WHOLE), self.space.bytes[t]
            if a == PARTIAL or b == REGION:
                total += self.costs.collective_s("all_reduce", size)
            if isinstance(a, Shard) or isinstance(b, Shard):
                total += self.costs.collective_s("all_gather", size) * (isinstance(a, Shard) + isinstance(b, Shard))
        total += sum(self.costs.collective_s("all_gather", self.space.bytes[t]) for t in want[1] - have[1])
        return total + sum(self.costs.collective_s("all_reduce", self.space.bytes[t]) for t in want[2] - have[2])

    # Choices of one op

    def _is_of_vocabulary(self, op: Op, held: list[State]) -> bool:
        """Tell whether an op looks up a table that can be split by its vocabulary, as all programs do.

        Model: whole ones may be faster in a step of many tokens, and are in no program: Megatron-Core's
            VocabParallelEmbedding, the RowwiseParallel of torchtitan's tok_embeddings.
        """
        return op.role == "embedding" and any(
            axis.outputs[0] == PARTIAL and axis.is_legal(stretches, self.space.degree)
            for place, axis in enumerate(self.space.axes(op))
            for stretches in self._stretches(op, place, axis, held, False)
        )

    def _choices(self, op: Op, h: _Hypothesis) -> Iterator[tuple[Decision, _Change]]:
        held = [self._held(h, t) for t in op.inputs]
        if op.id in self.is_whole:
            yield Decision("whole"), self._whole(op, h, held, WHOLE)
            return
        partial = frozenset(i for i, s in enumerate(held) if s == PARTIAL)
        has_product = op.role in WEIGHT_ROLES and op.role != "embedding"  # whose gradient needs the operands whole
        if partial and not has_product and (passes := self._passing(op, held, partial)) is not None:
            yield Decision("partial"), passes
        is_region = REGION in held
        reads_weight = any(t in self.space.origin for t in op.inputs)
        if not is_region and not self._is_of_vocabulary(op, held):
            yield Decision("whole"), self._whole(op, h, held, WHOLE)
        if is_region or (has_product and reads_weight and any(self._gives_gradient(t) for t in op.inputs)):
            yield Decision("region"), self._whole(op, h, held, REGION)
        for place, axis in enumerate(self.space.axes(op)):
            for stretches in self._stretches(op, place, axis, held, has_product):
                if axis.is_legal(stretches, self.space.degree):
                    change = self._split(op, h, held, axis, stretches)
                    if change is not None:
                        yield Decision("split", place, stretches), change

    def _gives_gradient(self, tensor: int) -> bool:
        return tensor in self.needs_gradient and tensor not in self.space.origin

    def _held(self, h: _Hypothesis, tensor: int) -> State:
        chain = self.space.origin.get(tensor)
        if chain is None:
            return h.states.get(tensor, WHOLE)
        state = h.states.get(chain[0], WHOLE)
        return self.space.pushed(tensor, state) if isinstance(state, Shard) else state

    def _passing(self, op: Op, held: Sequence[State], partial: frozenset[int]) -> _Change | None:
        """Return the cost of passing partial sums on; a whole summand counts on one member only."""
        is_late = False
        if not passes_partial(op, partial):
            if not passes_partial(op, frozenset(range(len(held)))) or any(isinstance(s, Shard) for s in held):
                return None
            is_late = True
        change = _Change(self.costs.op_s(op, self.space.work_share(op), 3 if self._is_trained(op) else 1))
        change.cost += self.costs.tie_s if is_late else 0.0
        for place, (t, state) in enumerate(zip(op.inputs, held, strict=True)):
            if place in partial or state is WHOLE or state == REGION:
                continue
            if state != FREE:
                return None
            self._settle(change, t, WHOLE)
        change.states.update(dict.fromkeys(op.outputs, PARTIAL))
        return change

    def _whole(self, op: Op, h: _Hypothesis, held: Sequence[State], made: State) -> _Change:
        change = _Change(self.costs.op_s(op, self.space.work_share(op), 3 if self._is_trained(op) else 1))
        for t, state in zip(op.inputs, held, strict=True):
            if () not in op.linear_in:  # zeros read nothing
                self._convert(change, h, t, state, WHOLE, is_region=made == REGION)
        change.states.update(dict.fromkeys(op.outputs, made))
        return change

    def _is_trained(self, op: Op) -> bool:
        return any(t in self.needs_gradient for t in op.inputs)

    def _split(
        self, op: Op, h: _Hypothesis, held: Sequence[State], axis: SplitAxis, stretches: Stretches
    ) -> _Change | None:
        wanted, made = axis.wanted(stretches), axis.made(stretches)
        if wanted is None or made is None:
            return None
        share = self.space.work_share(op) / self.space.degree
        change = _Change(self.costs.op_s(op, share, 3 if self._is_trained(op) else 1))
        if axis.split.comm_kind:
            size = max(0.0, axis.split.comm_bytes.at(self.space.batch))
            inner_s = self.costs.inner_s(axis.split.kind, axis.split.comm_kind, size)
            change.cost += inner_s * (2 if self._is_trained(op) else 1)
        change.cost += self._halos_s(op, held, axis, wanted)
        self._sum_gradients(change, h, op, axis)
        for t, state, want in zip(op.inputs, held, wanted, strict=True):
            if state == FREE and isinstance(want, Shard) and not isinstance(self.space.pulled(t, want), Shard):
                return None
            self._convert(change, h, t, state, want, is_region=True)
        change.states.update(zip(op.outputs, made, strict=True))
        return change

    def _halos_s(self, op: Op, held: Sequence[State], axis: SplitAxis, wanted: Sequence[State]) -> float:
        """Return the seconds of the halos of an op and of those that its backward will exchange."""
        space = self.space
        total = 0.0
        for halo in axis.split.exchanged_halos:
            if held[halo.place] == wanted[halo.place]:
                size = space.halo_bytes(op.inputs[halo.place], axis.split, halo)
                total += self.costs.inner_s(axis.split.kind, "halo", size)
        for later in self.backward.get(op.id, ()):
            for split in later.splits:
                if split.kind == axis.split.kind and split.input_dims[0] == axis.split.output_dims[0]:
                    for halo in split.exchanged_halos:
                        size = space.halo_bytes(later.inputs[halo.place], split, halo)
                        total += self.costs.inner_s(split.kind, "halo", size)
        return total

    def _sum_gradients(self, change: _Change, h: _Hypothesis, op: Op, axis: SplitAxis) -> None:
        """Charge, once for each whole weight, the sum of the gradients that members' parts of the output give it."""
        if not any(isinstance(where, Place) for where in axis.outputs):
            return
        for t, where in zip(op.inputs, axis.inputs, strict=True):
            if where is None and t in self.space.origin and self._is_trained_weight(t):
                weight = self.space.origin[t][0]
                if weight not in h.charged | change.charged:
                    change.cost += self.costs.summing_s(self.space.bytes[weight])
                    change.charged.add(weight)

    def _stretches(
        self, op: Op, place: int, axis: SplitAxis, held: Sequence[State], has_product: bool
    ) -> list[Stretches]:
        """Return how an axis may be split: as inputs are, or, of a weight without a split yet, as its readers ask."""
        driven = axis.driven(held)
        if driven:
            return driven
        for level in self.space.above:  # inner levels refine the splits of outer ones and start none
            chosen = level.axes[op.id]
            if chosen is None or chosen[0].split != axis.split:
                return []
        if axis.split.kind == "spatial":  # begins where a convolution reads what is not split yet
            return [plain(axis.size)] if has_product and not any(isinstance(s, Shard) for s in held) else []
        asked = [isinstance(p, Place) for p, s in zip(axis.inputs, held, strict=True) if s != FREE]
        is_column = any(s == FREE and isinstance(p, Place) for p, s in zip(axis.inputs, held, strict=True))
        if not is_column or any(asked):
            return []
        if op.role == "embedding":  # rows for what the model is given, Megatron's vocabulary; columns for positions
            is_looked_up = any(s != FREE and t in self.from_input for t, s in zip(op.inputs, held, strict=True))
            return [plain(axis.size)] if is_looked_up == (axis.outputs[0] == PARTIAL) else []
        if not has_product and op.role != "gather":  # rows of experts' biases
            return []
        return self.readers.ask(op, place, axis)

    # Conversions

    def _convert(self, change: _Change, h: _Hypothesis, tensor: int, have: State, want: State, is_region: bool) -> None:
        """Add what an input costs: its collective, and its gradient's.

        Args: is_region: the op's gradient of this input, if wanted whole, is a summand.
        """
        space, costs = self.space, self.costs
        if have == FREE:
            self._settle(change, tensor, want)
            return
        size = space.bytes[tensor]
        if tensor in space.origin:
            if have != want and self._is_trained_weight(tensor):
                change.cost += costs.collective_s("all_reduce", size)
            return
        if have == want and have is not WHOLE:
            return
        if have == PARTIAL:
            change.cost += costs.collective_s("all_reduce", size)
            change.states[tensor] = have = WHOLE
        elif isinstance(have, Shard):
            if tensor not in h.gathered:
                change.cost += costs.collective_s("all_gather", size)
                change.gathered.add(tensor)
            have = WHOLE
        if have == REGION or tensor not in self.needs_gradient:
            return
        if isinstance(want, Shard):
            change.cost += costs.collective_s("all_gather", size)
        elif is_region and self.root[tensor] not in h.charged | change.charged:
            change.cost += costs.collective_s("all_reduce", min(size, space.bytes[self.root[tensor]]))
            change.charged.add(self.root[tensor])

    def _is_trained_weight(self, tensor: int) -> bool:
        return self.graph.tensors[self.space.origin[tensor][0]].kind == "parameter"

    def _settle(self, change: _Change, tensor: int, want: State) -> None:
        """Fix the split of a weight; holding it costs its part of the optimizer step and its gradients' reduction."""
        weight = self.space.origin[tensor][0]
        state = self.space.pulled(tensor, want) if isinstance(want, Shard) else WHOLE
        change.states[weight] = state
        share = 1 / self.space.degree if isinstance(state, Shard) else 1.0
        if weight not in self.small_tables:
            change.cost += self.costs.holding_s(self.graph.tensors[weight].num_elements(1) * share)
