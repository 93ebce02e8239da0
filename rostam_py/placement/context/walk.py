"""How far the sequence reaches: which dimension of every tensor it is, and along which axis every op is split by it.

Model: the rows of fused attention's queries, keys and values are the sequence. From there it is followed through every
op's legal splits, to what the op reads and to what it makes. Weights stay whole, so that their gradients end as
summands. What no input reaches, such as positions, is made in parts where all ops can read it so, else whole. An op
that the sequence reaches must be split along it, or pass summands on; what is left is refused. Single numbers that
ranks add up in forward, the loss and its count of tokens, are taken as whole: their few bytes are not counted. A
router's ranks each decide for their own tokens and arrange rows of their own (sharding/own_rows.py).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rostam_py.errors import ConfigError, DegreeError
from rostam_py.graph import PARTIAL, WHOLE, Op, OperatorGraph, passes_partial
from rostam_py.placement.context.attention import Attention, find_attentions
from rostam_py.placement.sharding.layouts import Place, Shard, SplitAxis, State, Stretches
from rostam_py.placement.sharding.own_rows import RowLayouts, decisions_of
from rostam_py.placement.sharding.space import Space

BATCH = 2  # at which dimensions are compared: samples and rows that share one are told apart
Chosen = tuple[SplitAxis, Stretches]


@dataclass(slots=True)
class Walk:
    """What the walk found.

    states: per tensor Shard along the sequence, PARTIAL (every rank holds a summand), or WHOLE. axes: op -> the split
    that it runs with. attentions: op -> its tensors. whole: ops that every rank runs whole although they make, or
    differentiate, what others read in parts.
    """

    space: Space
    states: list[State]
    axes: dict[int, Chosen] = field(default_factory=dict)
    attentions: dict[int, Attention] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)


def follow_sequence(graph: OperatorGraph, degree: int, blocks: int) -> Walk:
    """Return how ``degree`` ranks share the graph's sequences.

    Args: blocks: of a sequence that each rank takes.
    Raises: DegreeError for rows that do not divide; ConfigError for a model without fused attention, or with an op
        that cannot be split along the sequence.
    Cost: linear in ops.
    """
    walk = Walk(Space(graph, degree, BATCH), [WHOLE] * len(graph.tensors))
    walk.attentions = find_attentions(graph, walk.space.shapes)
    if not walk.attentions:
        raise ConfigError(
            f"strategy.cp is {degree}; it must be 1 for {graph.name}, which has no fused attention"
            " (scaled_dot_product_attention) whose rows would be the sequence to split"
        )
    _check_rows(graph, walk, degree, blocks)
    _Follower(graph, degree, walk).run()
    return walk


def _check_rows(graph: OperatorGraph, walk: Walk, degree: int, blocks: int) -> None:
    for attention in walk.attentions.values():
        for name, (tensor, dim) in (("query", attention.query), ("key", attention.key)):
            rows = walk.space.shapes[tensor][dim]
            if rows % (degree * blocks):
                each = f", {blocks} blocks each" if blocks > 1 else ""
                raise DegreeError(
                    f"strategy.cp is {degree}, but {graph.name} has {name} sequences of {rows} rows, which"
                    f" {degree} ranks cannot share{each}: {degree * blocks} must divide {rows}"
                )


class _Follower:
    """Visit ops until nothing changes, then check every one."""

    def __init__(self, graph: OperatorGraph, degree: int, walk: Walk) -> None:
        self.graph, self.degree, self.walk, self.space = graph, degree, walk, walk.space
        self.states = walk.states
        self.decisions = decisions_of(graph)
        self.rows = RowLayouts(graph, degree)
        made = {t.id for t in graph.tensors if t.producer is not None or t.kind == "input"}
        self.is_held_whole = {t.id for t in graph.tensors if t.id not in made} | set(self.space.origin)
        self.from_input = self._behind({t.id for t in graph.tensors if t.kind == "input"})
        self.waiting: deque[int] = deque()
        self.is_waiting = [False] * len(graph.ops)

    def run(self) -> None:
        for attention in self.walk.attentions.values():
            for tensor, dim in attention.rows:
                self._set(tensor, Shard(dim, 1, (self.space.shapes[tensor][dim],)))
        while self.waiting:
            index = self.waiting.popleft()
            self.is_waiting[index] = False
            self._visit(self.graph.ops[index])
        for op in self.graph.ops:
            self._check(op)

    def _behind(self, start: set[int]) -> set[int]:
        found = set(start)
        for op in self.graph.ops:
            if any(t in found for t in op.inputs):
                found.update(op.outputs)
        return found

    def _set(self, tensor: int, state: State) -> None:
        if self.states[tensor] == state or tensor in self.is_held_whole:
            return
        self.states[tensor] = state
        producer = self.graph.tensors[tensor].producer
        for index in (*(() if producer is None else (producer,)), *self.graph.consumers[tensor]):
            if not self.is_waiting[index]:
                self.is_waiting[index] = True
                self.waiting.append(index)

    def _visit(self, op: Op) -> None:
        if op.id in self.walk.attentions or op.id in self.walk.whole:
            return
        held = [self.states[t] for t in op.inputs]
        made = [self.states[t] for t in op.outputs]
        if PARTIAL in held:
            self._pass_on(op, held)
            return
        if not any(isinstance(state, Shard) for state in (*held, *made)):
            return
        chosen = self._axis(op, held, made) or self._own_rows(op, held)
        if chosen is None:
            if self.decisions.isdisjoint(op.inputs):  # else it waits until they are known to be in parts
                self._run_whole(op, held)
            return
        axis, stretches = chosen
        self.walk.axes[op.id] = chosen
        for t, state in zip(op.inputs, axis.wanted(stretches) or (), strict=True):
            if isinstance(state, Shard):
                self._set(t, state)
        for t, state in zip(op.outputs, axis.made(stretches) or (), strict=True):
            if state is not WHOLE and not (state == PARTIAL and self._is_own(op, t)):
                self._set(t, state)

    def _is_own(self, op: Op, tensor: int) -> bool:
        """Tell whether a sum stays each rank's own: a single number in forward, or a count of decisions."""
        return tensor in self.decisions or (op.phase == "forward" and not self.space.shapes[tensor])

    def _own_rows(self, op: Op, held: Sequence[State]) -> Chosen | None:
        """Return how a rank does an op that arranges decisions, or reads by them, for its own rows alone."""
        decided = (isinstance(state, Shard) for t, state in zip(op.inputs, held, strict=True) if t in self.decisions)
        if not any(decided):
            return None
        return self.rows.axis(op, held, [self.space.shapes[t] for t in (*op.inputs, *op.outputs)])

    def _pass_on(self, op: Op, held: Sequence[State]) -> None:
        """Pass summands on where the op is linear in them; where it reads no values there is nothing to pass."""
        if () in op.linear_in:
            return
        places = [place for place, state in enumerate(held) if state == PARTIAL]
        is_sum = op.is_accumulation and all(state in (PARTIAL, WHOLE) for state in held)
        if is_sum or (passes_partial(op, places) and not any(isinstance(state, Shard) for state in held)):
            for t in op.outputs:
                self._set(t, PARTIAL)

    def _run_whole(self, op: Op, held: Sequence[State]) -> None:
        """Let every rank run an op that makes from whole inputs what others read in parts; its gradients follow.

        The gradient of such a tensor is zero outside a rank's part, so that what the op's backward makes of it are
        summands.
        """
        parts = [place for place, state in enumerate(held) if isinstance(state, Shard)]
        if all(op.inputs[place] not in self.from_input for place in parts):
            for t in (op.inputs[place] for place in parts):
                self._hold_whole(t)
            if any(isinstance(self.states[t], Shard) for t in op.outputs) and op.id not in self.walk.axes:
                self.walk.whole.add(op.id)
                for t in op.outputs:
                    self._hold_whole(t)
            return
        if op.forward_op in self.walk.whole and passes_partial(op, parts):
            self.walk.whole.add(op.id)
            for t in op.outputs:
                self._set(t, PARTIAL)

    def _hold_whole(self, tensor: int) -> None:
        """Make a tensor, and all it is made from, whole on every rank; who takes parts of it reads its own."""
        if tensor in self.is_held_whole:
            return
        self.is_held_whole.add(tensor)
        self.states[tensor] = WHOLE
        producer = self.graph.tensors[tensor].producer
        if producer is not None:
            self.walk.whole.add(producer)
            self.walk.axes.pop(producer, None)
            for t in self.graph.ops[producer].inputs:
                if t not in self.from_input:
                    self._hold_whole(t)
        for index in self.graph.consumers[tensor]:
            if not self.is_waiting[index]:
                self.is_waiting[index] = True
                self.waiting.append(index)

    def _axis(self, op: Op, held: Sequence[State], made: Sequence[State]) -> Chosen | None:
        """Return the split that fits all states that are known."""
        for axis in self.space.axes(op):
            if axis.split.halos or (axis.split.comm_kind and self._needs_statistics(axis)):
                continue
            places = (*axis.inputs, *(p if isinstance(p, Place) else None for p in axis.outputs))
            mirror = axis._replace(inputs=places, outputs=())
            for stretches in mirror.driven([state if isinstance(state, Shard) else WHOLE for state in (*held, *made)]):
                if self._fits(axis, stretches, held, made):
                    return axis, stretches
        return None

    def _needs_statistics(self, axis: SplitAxis) -> bool:
        """Tell whether the ranks would have to exchange something for every row while the op runs."""
        return axis.split.comm_bytes.per_sample > 0

    def _fits(self, axis: SplitAxis, stretches: Stretches, held: Sequence[State], made: Sequence[State]) -> bool:
        wanted, results = axis.wanted(stretches), axis.made(stretches)
        if wanted is None or results is None or any(size % self.degree for size in stretches.sizes):
            return False
        is_input_right = all(
            want == have or (have is WHOLE and isinstance(want, Shard)) for want, have in zip(wanted, held, strict=True)
        )
        return is_input_right and all(
            have is WHOLE or result == have for result, have in zip(results, made, strict=True)
        )

    def _check(self, op: Op) -> None:
        """Raise ConfigError for an op that reads parts of a sequence, or summands, and has no way to."""
        if op.id in self.walk.attentions or op.id in self.walk.whole or () in op.linear_in:
            return
        held, made = ([self.states[t] for t in tensors] for tensors in (op.inputs, op.outputs))
        chosen = self.walk.axes.get(op.id)
        if chosen is not None and self._fits(*chosen, held, made):
            return
        is_summand = PARTIAL in held and all(state == PARTIAL for state in made)
        if is_summand or all(state is WHOLE for state in held):
            return
        what = f"op {op.op_type} of {op.module or 'the model'}"
        why = "adds up over it" if PARTIAL in held else "needs all of it at once"
        raise ConfigError(
            f"strategy.cp is {self.degree}; it must be 1 for {self.graph.name}: the sequence cannot be split at {what},"
            f" which {why}"
        )
