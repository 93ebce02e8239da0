"""One walk over the graph that carries out the search's decisions and lets backward follow them.

A backward op takes the split with the least bytes to collect; a partial sum stays one through views, copies and sums
within a block, and through whatever differentiates an op that runs whole inside a region, and is all-reduced
before any other use. The gradient of a whole parameter that ends as a summand is left one: it is added up once an
iteration (``Level.summed``), not once for every micro-batch.
"""

from collections.abc import Mapping, Sequence

from rostam_py.errors import InternalError
from rostam_py.graph import PARTIAL, WHOLE, Op, OperatorGraph, passes_partial
from rostam_py.placement.sharding.block_walk import BlockWalk, Store
from rostam_py.placement.sharding.choices import Decision
from rostam_py.placement.sharding.layouts import FREE, Shard, SplitAxis, State, Stretches
from rostam_py.placement.sharding.space import Level, Space
from rostam_py.placement.sharding.summands import Summands
from rostam_py.placement.sharding.weight_gradients import WeightGradients

_MOVING = ("copy", "scale", "join")  # roles of ops that partial sums pass, besides sums
Chosen = tuple[SplitAxis, Stretches] | None


class Propagation:
    """Fill a Level; it is complete after ``run``. Args: whole: ops that pass no summands on."""

    def __init__(self, space: Space, decisions: Mapping[int, Decision], whole: frozenset[int] = frozenset()) -> None:
        self.space, self.graph, self.decisions, self.is_whole = space, space.graph, decisions, whole
        graph = self.graph
        states: list[State] = [WHOLE] * len(graph.tensors)
        for t in space.origin:
            states[t] = FREE
        none_whole = [tuple(False for _ in op.inputs) for op in graph.ops]
        self.level = Level(space.degree, states, [None] * len(graph.ops), none_whole)
        self.views: dict[int, list[int]] = {}  # weight -> ops that only re-shape it, in order
        for op in graph.ops:
            if op.outputs and op.outputs[0] in space.origin:
                self.views.setdefault(space.origin[op.outputs[0]][0], []).append(op.id)
        self.gradients = WeightGradients(space, self.level)
        self.summands = Summands(space)

    def run(self) -> Level:
        """Return the level."""
        level = self.level
        stores = (
            Store(level.states), Store(level.axes, is_of_ops=True), Store(level.uses_whole, is_of_ops=True),
            Store(level.comms),
        )  # fmt: skip
        BlockWalk(self.graph, self.graph.likeness.kinds(self._properties), stores).run(self._visit)
        for t in self.graph.weights:
            if self.level.states[t.id] == FREE:
                self._settle(t.id, WHOLE)
        match_gradients(self.graph, self.level)
        return self.level

    def _properties(self, block: int) -> list[object]:
        """Return what decides a block's outcome besides its ops."""
        ops, tensors = self.graph.likeness.ops[block], self.graph.likeness.tensors[block]
        found: list[object] = [[self.decisions.get(op) for op in ops], [op in self.is_whole for op in ops]]
        found.append([self.space.pieces.get(t) for t in tensors])
        return found + self.space.properties(block)

    def _visit(self, op: Op) -> None:
        if op.outputs and op.outputs[0] in self.space.origin:
            return
        held = [self._held(t) for t in op.inputs]
        decision = self.decisions.get(op.id)
        if () in op.linear_in and (PARTIAL in held if decision is None else decision.mode == "whole"):
            self._pass_on(op, held, WHOLE)  # zeros: nothing is read
            return
        if decision is not None:
            if decision.mode == "partial":
                self._pass_on(op, held)
            elif decision.stretches is not None:
                self._apply(op, held, (self.space.axes(op)[decision.split], decision.stretches))
            else:
                self._apply(op, held, None)
            return
        if PARTIAL in held and op.id not in self.is_whole and self._stays_partial(op, held):
            self._pass_on(op, held)
            return
        self._apply(op, held, self._choose(op, [WHOLE if h == PARTIAL else h for h in held]))

    def _pass_on(self, op: Op, held: Sequence[State], made: State = PARTIAL) -> None:
        for t, state in zip(op.inputs, held, strict=True):
            if state == FREE:
                self._settle(t, WHOLE)
        for t in op.outputs:
            self.level.states[t] = made
        comms = self.level.comms
        self.level.uses_whole[op.id] = tuple(comms.get(t) == "all_reduce" for t in op.inputs)

    def _held(self, tensor: int) -> State:
        """Return the state the next consumer finds: whole once an all_reduce has run."""
        return WHOLE if self.level.comms.get(tensor) == "all_reduce" else self.level.states[tensor]

    def _apply(self, op: Op, held: Sequence[State], chosen: Chosen) -> None:
        level = self.level
        level.axes[op.id] = chosen
        wanted = (WHOLE,) * len(held) if chosen is None else chosen[0].wanted(chosen[1])
        made = (WHOLE,) * len(op.outputs) if chosen is None else chosen[0].made(chosen[1])
        if wanted is None or made is None:
            raise InternalError(f"op {op.name} has no split of kind {chosen and chosen[0].split.kind} as chosen")
        whole = []
        for t, want in zip(op.inputs, wanted, strict=True):
            if self._held(t) == FREE:
                self._settle(t, want)
            have = self._held(t)
            is_mismatch = have is not WHOLE and have != want
            if is_mismatch and t not in level.comms:
                collect(self.graph, level, t, have)
            whole.append(is_mismatch or (t in level.comms and have is WHOLE))
        level.uses_whole[op.id] = tuple(whole)
        for t, state in zip(op.outputs, made, strict=True):
            level.states[t] = state

    # Backward

    def _choose(self, op: Op, held: Sequence[State]) -> Chosen:
        """Return the legal split with the least collective bytes, then the most work shared.

        What a gradient of a parameter leaves to collect counts, too: so, behind outputs that were gathered, each member
        computes the part of its own parameter, and of a table's gradient that of its own rows.
        """
        gradients = self.gradients
        whole = (WHOLE,) * len(held)
        best, best_key = None, (self._mismatch_bytes(op, held, whole), 1)
        for axis, stretches in [*self._driven(op, held), *gradients.splits(op)]:
            wanted, made = axis.wanted(stretches), axis.made(stretches)
            if wanted is None or made is None or not axis.is_legal(stretches, self.space.degree):
                continue
            if any(h == FREE and isinstance(w, Shard) and not isinstance(self.space.pulled(t, w), Shard)
                   for t, h, w in zip(op.inputs, held, wanted, strict=True)):  # fmt: skip
                continue
            key = (self._mismatch_bytes(op, held, wanted) + gradients.left_bytes(op, made), 0)
            if key < best_key:
                best, best_key = (axis, stretches), key
        return best

    def _driven(self, op: Op, held: Sequence[State]) -> list[tuple[SplitAxis, Stretches]]:
        """Return the splits that the inputs ask for."""
        hint = None if op.forward_op is None else self.level.axes[op.forward_op]
        along = None if hint is None else hint[1]
        return [(axis, stretches) for axis in self.space.axes(op) for stretches in axis.driven(held, along)]

    def _mismatch_bytes(self, op: Op, held: Sequence[State], wanted: Sequence[State]) -> float:
        total = 0.0
        for t, have, want in zip(op.inputs, held, wanted, strict=True):
            if have not in (WHOLE, FREE) and have != want and t not in self.level.comms:
                total += self.space.bytes[t]
        return total

    def _stays_partial(self, op: Op, held: Sequence[State]) -> bool:
        """Tell whether a collective may wait until behind this op."""
        places = frozenset(i for i, h in enumerate(held) if h == PARTIAL)
        if op.is_accumulation and all(h in (PARTIAL, WHOLE) for h in held):
            places = frozenset(range(len(held)))  # a whole part counts on one member
        if not passes_partial(op, places):
            return False
        forward = None if op.forward_op is None else self.decisions.get(op.forward_op)
        if forward is not None and forward.mode == "region":
            return True
        if op.role == "sum" or op.is_accumulation:
            return len({self._block(t) for t in op.inputs}) == 1
        return op.is_metadata or op.role in _MOVING or self.summands.shrinks(op, [op.inputs[place] for place in places])

    def _block(self, tensor: int) -> int:
        producer = self.graph.tensors[tensor].producer
        return -1 if producer is None else self.graph.ops[producer].block

    # Weights

    def _settle(self, tensor: int, want: State) -> None:
        """Fix the split of a weight, and with it of all its views."""
        weight = self.space.origin[tensor][0]
        states = self.level.states
        state = self.space.pulled(tensor, want) if isinstance(want, Shard) else WHOLE
        states[weight] = state if isinstance(state, Shard) else WHOLE
        for index in self.views.get(weight, ()):
            op = self.graph.ops[index]
            source = states[op.inputs[0]]
            chosen = self.space.following(op, source) if isinstance(source, Shard) else None
            self._apply(op, [source], chosen)


def collect(graph: OperatorGraph, level: Level, tensor: int, have: State) -> None:
    """Make a tensor whole; a partial sum where it is computed, before any view of it, to start early."""
    while have == PARTIAL and (producer := graph.tensors[tensor].producer) is not None:
        op = graph.ops[producer]
        if not op.is_metadata or len(op.inputs) != 1 or len(graph.consumers[op.inputs[0]]) != 1:
            break
        level.states[tensor] = WHOLE
        tensor = op.inputs[0]
    level.comms[tensor] = "all_reduce" if have == PARTIAL else "all_gather"


def match_gradients(graph: OperatorGraph, level: Level) -> None:
    """Make every final gradient spread like its parameter, and the loss whole."""
    states = {t.name: level.states[t.id] for t in graph.parameters}
    for t in graph.tensors:
        state = level.states[t.id]
        if t.kind == "loss" and state == PARTIAL and t.id not in level.comms:
            collect(graph, level, t.id, state)
        if t.kind != "gradient" or t.name not in states or t.id in level.comms:
            continue
        if state == PARTIAL and states[t.name] is WHOLE:
            level.summed.add(t.name)
        elif state == PARTIAL or (state is not WHOLE and state != states[t.name]):
            collect(graph, level, t.id, state)
