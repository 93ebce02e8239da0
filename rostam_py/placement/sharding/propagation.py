"""One walk over the graph that carries out the search's decisions and lets backward follow them.

A backward op takes the split with the least bytes to collect; a partial sum stays one through views, copies and sums
within a block, and through whatever differentiates an op that runs whole inside a region, and is all-reduced
before any other use. The gradient of a whole parameter that ends as a summand is left one: it is added up once an
iteration (``Level.summed``), not once for every micro-batch.
"""

from collections.abc import Mapping, Sequence

from rostam_py.errors import InternalError
from rostam_py.graph import PARTIAL, WHOLE, Op, OperatorGraph, passes_partial
from rostam_py.placement.sharding.layouts import FREE, Place, Shard, SplitAxis, State, Stretches, plain
from rostam_py.placement.sharding.search import Decision
from rostam_py.placement.sharding.space import Level, Space, follows

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
        self.gradients = self._gradients()

    def run(self) -> Level:
        """Return the level."""
        for op in self.graph.ops:
            if not op.outputs or op.outputs[0] not in self.space.origin:
                self._visit(op)
        for t in self.graph.weights:
            if self.level.states[t.id] == FREE:
                self._settle(t.id, WHOLE)
        match_gradients(self.graph, self.level)
        return self.level

    def _visit(self, op: Op) -> None:
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
        """Return the legal split with the least collective bytes, then the most work shared."""
        if all(h is WHOLE for h in held):
            return self._row_gradient_split(op) or self._weight_gradient_split(op)
        best, best_key = None, (self._mismatch_bytes(op, held, (WHOLE,) * len(held)), 1)
        hint = None if op.forward_op is None else self.level.axes[op.forward_op]
        for axis in self.space.axes(op):
            for stretches in axis.driven(held, None if hint is None else hint[1]):
                wanted = axis.wanted(stretches)
                if wanted is None or axis.made(stretches) is None or not axis.is_legal(stretches, self.space.degree):
                    continue
                if any(h == FREE and isinstance(w, Shard) and not isinstance(self.space.pulled(t, w), Shard)
                       for t, h, w in zip(op.inputs, held, wanted, strict=True)):  # fmt: skip
                    continue
                key = (self._mismatch_bytes(op, held, wanted), 0)
                if key < best_key:
                    best, best_key = (axis, stretches), key
        return best

    def _row_gradient_split(self, op: Op) -> Chosen:
        """Return the split of a vocabulary-parallel embedding's backward: each member its own rows."""
        forward = None if op.forward_op is None else self.level.axes[op.forward_op]
        if op.phase != "backward" or forward is None or forward[0].split.kind != "embedding_row":
            return None
        for axis in self.space.axes(op):
            if axis.split.kind == "embedding_row" and all(p is None for p in axis.inputs):
                return axis, plain(axis.size)
        return None

    def _weight_gradient_split(self, op: Op) -> Chosen:
        """Return the split of a gradient that no one reads whole: of a split parameter each member computes its part.

        So behind outputs that were gathered, whose gradients every member has whole.
        """
        if len(op.outputs) != 1 or op.outputs[0] not in self.gradients:
            return None
        parameter, views = self.gradients[op.outputs[0]]
        state = self.level.states[parameter]
        for view in views:
            state = self.space.before(view, 0, state) if isinstance(state, Shard) else WHOLE
        for axis in self.space.axes(op) if isinstance(state, Shard) else ():
            where = axis.outputs[0]
            stretches = where.axis(state) if isinstance(where, Place) else None  # type: ignore[arg-type]
            is_legal = stretches is not None and axis.is_legal(stretches, self.space.degree)
            if is_legal and axis.made(stretches) == (state,) and axis.wanted(stretches) is not None:  # type: ignore[arg-type]
                return axis, stretches  # type: ignore[return-value]
        return None

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
        return op.is_metadata or op.role in _MOVING or self._shrinks(op, [op.inputs[place] for place in places])

    def _shrinks(self, op: Op, partial: Sequence[int]) -> bool:
        """Tell whether less is left to collect behind an op, or behind the one that reads its result, and no one else.

        So the rows of a token's experts are combined before they are all-reduced, and the gradient of their weights is
        taken from summands.
        """
        graph, have = self.graph, sum(self.space.bytes[t] for t in partial)
        is_saved = op.phase == "backward" and all(self._phase(t) == "forward" for t in partial)
        readers = [len([u for u in graph.consumers[t] if () not in graph.ops[u].linear_in]) for t in partial]
        if not is_saved and max(readers) > 1:
            return False
        if sum(self.space.bytes[t] for t in op.outputs) < have:
            return True
        users = graph.consumers[op.outputs[0]] if is_saved and len(op.outputs) == 1 else ()
        behind = [graph.ops[user] for user in users]
        return len(behind) == 1 and sum(self.space.bytes[t] for t in behind[0].outputs) < have

    def _phase(self, tensor: int) -> str:
        producer = self.graph.tensors[tensor].producer
        return "" if producer is None else self.graph.ops[producer].phase

    def _block(self, tensor: int) -> int:
        producer = self.graph.tensors[tensor].producer
        return -1 if producer is None else self.graph.ops[producer].block

    # Weights and gradients

    def _gradients(self) -> dict[int, tuple[int, tuple[Op, ...]]]:
        """Return, per tensor that becomes a parameter's gradient, the parameter and the views between, last first."""
        graph = self.graph
        parameters = {t.name: t.id for t in graph.parameters}
        found: dict[int, tuple[int, tuple[Op, ...]]] = {}
        for t in graph.tensors:
            if t.kind != "gradient" or t.name not in parameters:
                continue
            tensor = t.id
            views: tuple[Op, ...] = ()
            found[tensor] = (parameters[t.name], views)
            while (producer := graph.tensors[tensor].producer) is not None and follows(op := graph.ops[producer]):
                if len(op.inputs) != 1 or len(op.outputs) != 1 or len(graph.consumers[op.inputs[0]]) != 1:
                    break
                tensor, views = op.inputs[0], (*views, op)
                found[tensor] = (parameters[t.name], views)
        return found

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
