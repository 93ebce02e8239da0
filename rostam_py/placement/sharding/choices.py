"""How one op may run in a search for splits, from what a hypothesis holds, and what each choice costs.

An op runs whole, takes one of its splits, passes partial sums on, or runs whole inside a region. Choices are charged
what backward will cost: products run twice more, and a tensor that enters split work whole has its gradient all-reduced
once for all its readers in a block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rostam_py.graph import PARTIAL, WHOLE, Op, passes_partial
from rostam_py.graph.vocabulary import WEIGHT_ROLES
from rostam_py.placement.sharding.costs import NotionalCosts
from rostam_py.placement.sharding.facts import ForwardFacts
from rostam_py.placement.sharding.layouts import FREE, Place, Shard, SplitAxis, State, Stretches, plain
from rostam_py.placement.sharding.readers import Readers
from rostam_py.placement.sharding.space import Space

REGION = -3  # in a search: whole, and its gradient is a summand of each member's


class Decision(NamedTuple):
    """How one op runs: by the split at place ``split`` of its list along ``stretches``; or whole (-1).

    mode: "whole", "region", "partial" or "split".
    """

    mode: str
    split: int = -1
    stretches: Stretches | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """Decisions of a run of ops behind those of the runs before."""

    before: "Path | None"
    decisions: tuple[Decision, ...]


@dataclass(slots=True)
class Hypothesis:
    cost: float
    states: dict[int, State]
    gathered: frozenset[int] = frozenset()  # split tensors of which a whole copy exists too
    charged: frozenset[int] = frozenset()  # tensors whose gradient's all-reduce in this block is paid
    path: Path | None = None
    decisions: tuple[Decision, ...] = ()


@dataclass(slots=True)
class Change:
    """What one choice adds to a hypothesis."""

    cost: float = 0.0
    states: dict[int, State] = field(default_factory=dict)
    gathered: set[int] = field(default_factory=set)
    charged: set[int] = field(default_factory=set)


class Choices:
    """The choices of single ops. Args: whole: ops that may only run whole."""

    def __init__(
        self, space: Space, costs: NotionalCosts, facts: ForwardFacts, readers: Readers, whole: frozenset[int]
    ) -> None:
        self.space, self.costs, self.facts, self.readers, self.is_whole = space, costs, facts, readers, whole

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

    def of(self, op: Op, h: Hypothesis) -> Iterator[tuple[Decision, Change]]:
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
        if is_region or (has_product and reads_weight and any(self.facts.gives_gradient(t) for t in op.inputs)):
            yield Decision("region"), self._whole(op, h, held, REGION)
        for place, axis in enumerate(self.space.axes(op)):
            for stretches in self._stretches(op, place, axis, held, has_product):
                if axis.is_legal(stretches, self.space.degree):
                    change = self._split(op, h, held, axis, stretches)
                    if change is not None:
                        yield Decision("split", place, stretches), change

    def _held(self, h: Hypothesis, tensor: int) -> State:
        chain = self.space.origin.get(tensor)
        if chain is None:
            return h.states.get(tensor, WHOLE)
        state = h.states.get(chain[0], WHOLE)
        return self.space.pushed(tensor, state) if isinstance(state, Shard) else state

    def _passing(self, op: Op, held: Sequence[State], partial: frozenset[int]) -> Change | None:
        """Return the cost of passing partial sums on; a whole summand counts on one member only."""
        is_late = False
        if not passes_partial(op, partial):
            if not passes_partial(op, frozenset(range(len(held)))) or any(isinstance(s, Shard) for s in held):
                return None
            is_late = True
        change = Change(self.costs.op_s(op, self.space.work_share(op), 3 if self.facts.is_trained(op) else 1))
        change.cost += self.costs.tie_s if is_late else 0.0
        for place, (t, state) in enumerate(zip(op.inputs, held, strict=True)):
            if place in partial or state is WHOLE or state == REGION:
                continue
            if state != FREE:
                return None
            self._settle(change, t, WHOLE)
        change.states.update(dict.fromkeys(op.outputs, PARTIAL))
        return change

    def _whole(self, op: Op, h: Hypothesis, held: Sequence[State], made: State) -> Change:
        change = Change(self.costs.op_s(op, self.space.work_share(op), 3 if self.facts.is_trained(op) else 1))
        for t, state in zip(op.inputs, held, strict=True):
            if () not in op.linear_in:  # zeros read nothing
                self._convert(change, h, t, state, WHOLE, is_region=made == REGION)
        change.states.update(dict.fromkeys(op.outputs, made))
        return change

    def _split(
        self, op: Op, h: Hypothesis, held: Sequence[State], axis: SplitAxis, stretches: Stretches
    ) -> Change | None:
        wanted, made = axis.wanted(stretches), axis.made(stretches)
        if wanted is None or made is None:
            return None
        share = self.space.work_share(op) / self.space.degree
        change = Change(self.costs.op_s(op, share, 3 if self.facts.is_trained(op) else 1))
        if axis.split.comm_kind:
            size = max(0.0, axis.split.comm_bytes.at(self.space.batch))
            inner_s = self.costs.inner_s(axis.split.kind, axis.split.comm_kind, size)
            change.cost += inner_s * (2 if self.facts.is_trained(op) else 1)
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
        for later in self.facts.backward.get(op.id, ()):
            for split in later.splits:
                if split.kind == axis.split.kind and split.input_dims[0] == axis.split.output_dims[0]:
                    for halo in split.exchanged_halos:
                        size = space.halo_bytes(later.inputs[halo.place], split, halo)
                        total += self.costs.inner_s(split.kind, "halo", size)
        return total

    def _sum_gradients(self, change: Change, h: Hypothesis, op: Op, axis: SplitAxis) -> None:
        """Charge, once for each whole weight, the sum of the gradients that members' parts of the output give it."""
        if not any(isinstance(where, Place) for where in axis.outputs):
            return
        for t, where in zip(op.inputs, axis.inputs, strict=True):
            if where is None and t in self.space.origin and self.facts.is_trained_weight(t):
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
            is_looked_up = any(s != FREE and t in self.facts.from_input for t, s in zip(op.inputs, held, strict=True))
            return [plain(axis.size)] if is_looked_up == (axis.outputs[0] == PARTIAL) else []
        if not has_product and op.role != "gather":  # rows of experts' biases
            return []
        return self.readers.ask(op, place, axis)

    # Conversions

    def _convert(self, change: Change, h: Hypothesis, tensor: int, have: State, want: State, is_region: bool) -> None:
        """Add what an input costs: its collective, and its gradient's.

        Args: is_region: the op's gradient of this input, if wanted whole, is a summand.
        """
        space, costs = self.space, self.costs
        if have == FREE:
            self._settle(change, tensor, want)
            return
        size = space.bytes[tensor]
        if tensor in space.origin:
            if have != want and self.facts.is_trained_weight(tensor):
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
        if have == REGION or tensor not in self.facts.needs_gradient:
            return
        if isinstance(want, Shard):
            change.cost += costs.collective_s("all_gather", size)
        elif is_region and self.facts.root[tensor] not in h.charged | change.charged:
            change.cost += costs.collective_s("all_reduce", min(size, space.bytes[self.facts.root[tensor]]))
            change.charged.add(self.facts.root[tensor])

    def _settle(self, change: Change, tensor: int, want: State) -> None:
        """Fix the split of a weight; holding it costs its part of the optimizer step and its gradients' reduction."""
        weight = self.space.origin[tensor][0]
        state = self.space.pulled(tensor, want) if isinstance(want, Shard) else WHOLE
        change.states[weight] = state
        share = 1 / self.space.degree if isinstance(state, Shard) else 1.0
        if weight not in self.facts.small_tables:
            change.cost += self.costs.holding_s(self.space.graph.tensors[weight].num_elements(1) * share)
