"""Sequence parallelism: what lies between tensor-parallel regions is split along the sequence.

Model: one walk over a finished level. Every all-reduce of an activation becomes a reduce-scatter along its sequence,
the op that runs whole behind it follows with the split that its input drives, and so on through the graph; what a
region, or an op without such a split, reads of a split tensor is gathered before it. Members keep their parts: backward
gathers again what it reads of forward. Gradients of weights that split ops read whole are summands (``Level.summed``).
The sequence is no name and no number: it is the outermost dimension, the samples' apart, along which an op that reads
the all-reduced tensor and runs whole can be split. Features come after it, and a norm has no split along them. In a
dimension that merges samples and positions it is the positions of every sample (a Shard of as many stretches).

With experts spread over ranks members route their own tokens (own_rows.py): the rows that are dispatched are gathered
behind that, for the experts' split products, and stay whole until backward; what those add up is reduce-scattered to
the rows that each member combines. Backward likewise.

Example: x + row(...): reduce-scatter, sum, norm on s/t rows; column(norm) reads what an all-gather returns.
Source: Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.2.
"""

from collections.abc import Collection, Sequence

from rostam_py.errors import InternalError
from rostam_py.graph import PARTIAL, WHOLE, Op, passes_partial
from rostam_py.placement.sharding.block_walk import BlockWalk, Store
from rostam_py.placement.sharding.layouts import Shard, SplitAxis, State, Stretches
from rostam_py.placement.sharding.own_rows import OwnRows
from rostam_py.placement.sharding.propagation import collect, match_gradients
from rostam_py.placement.sharding.sequence_parts import SequenceParts, is_special
from rostam_py.placement.sharding.space import Level, Space

_MOVING = ("copy", "scale", "join", "sum")  # roles of ops that sums of gradients pass


class SequenceSplit:
    """Rewrite a level with sequence parallelism; complete after ``run``.

    Args: regions: ops that run whole inside a region, which their parts of a sequence must not enter.
    Attributes: undivided: all-reduced tensor -> its sequence, which the level's members do not divide.
    """

    def __init__(self, space: Space, level: Level, regions: Collection[int], own: OwnRows) -> None:
        self.space, self.graph, self.old, self.regions, self.own = space, space.graph, level, regions, own
        self.level = Level(
            level.degree, list(level.states), list(level.axes), list(level.uses_whole), dict(level.comms),
            set(level.summed),
        )  # fmt: skip
        self.parts = SequenceParts(space, level, self.level, regions, own)
        self._aliases: dict[int, int] = {}  # view of a split tensor -> what a gather of it gathers

    @property
    def undivided(self) -> dict[int, int]:
        """All-reduced tensor -> its sequence, which the level's members do not divide."""
        return self.parts.undivided

    def run(self) -> Level:
        """Return the level."""
        level, parts = self.level, self.parts
        stores = (
            Store(level.states), Store(level.axes, is_of_ops=True), Store(level.uses_whole, is_of_ops=True),
            Store(level.comms), Store(level.gathers, is_of_ops=True, refers=True), Store(self._aliases, refers=True),
            Store(parts.known), Store(parts.undivided),
        )  # fmt: skip
        kinds = self.graph.likeness.kinds(self._properties)
        BlockWalk(self.graph, kinds, stores, (parts.rows.by_extent,)).run(self._visit)
        match_gradients(self.graph, self.level)
        self._drop_needless_gathers()
        return self.level

    def _properties(self, block: int) -> list[object]:
        """Return what decides a block's outcome besides its ops."""
        ops, tensors = self.graph.likeness.ops[block], self.graph.likeness.tensors[block]
        old, own = self.old, self.own
        of_ops = [(old.axes[op], old.uses_whole[op], op in self.regions, op in own.ops) for op in ops]
        of_tensors = [(old.states[t], old.comms.get(t), t in own.exchanged, t in own.decisions) for t in tensors]
        return [of_ops, of_tensors, *self.space.properties(block)]

    def _visit(self, op: Op) -> None:
        if op.outputs and op.outputs[0] in self.space.origin:
            return
        if self._joins_parts(op):
            self._join(op)
        elif self.parts.is_inside(op):
            self._enter(op)
        else:
            self._follow(op)

    def _joins_parts(self, op: Op) -> bool:
        """Tell whether an op adds, to summands, what members have of their own rows: then the summands are scattered.

        So the gradient that a shared expert gives its input, and that of the rows of routed ones.
        """
        if not self.own.ops or not (op.is_accumulation or op.is_metadata) or self.old.states[op.outputs[0]] != PARTIAL:
            return False
        return any(isinstance(self.level.states[t], Shard) and t not in self.level.comms for t in op.inputs) and all(
            self.level.states[t] == PARTIAL or isinstance(self.level.states[t], Shard) for t in op.inputs
        )

    def _join(self, op: Op) -> None:
        part = next(state for t in op.inputs if isinstance(state := self.level.states[t], Shard))
        for t in op.inputs:
            if self.level.states[t] == PARTIAL:
                self.level.comms[t], self.parts.known[t] = "all_reduce", part
        self._follow(op)
        for t in op.outputs:
            self.level.comms.pop(t, None)

    # Ops

    def _enter(self, op: Op) -> None:
        """Let an op of a region read whole what its region always has read whole."""
        old = self.old
        for place, t in enumerate(op.inputs if () not in op.linear_in else ()):
            if old.states[t] == PARTIAL and not old.uses_whole[op.id][place]:
                continue
            if old.input_state(op, place) is WHOLE or not isinstance(old.states[t], Shard):
                self._read_whole(op, place)

    def _follow(self, op: Op) -> None:
        """Split an op as its inputs are, or let it run whole."""
        if () in op.linear_in:  # zeros: nothing is read
            return
        held = [WHOLE if isinstance(self.old.states[t], Shard) else self.parts.held(t) for t in op.inputs]
        if all(h is WHOLE for h in held):
            return
        if PARTIAL in held and self._passes(op, held):
            self._pass_on(op, held)
            return
        for place, state in enumerate(held):
            if state == PARTIAL:
                self._read_whole(op, place)
                held[place] = self.parts.held(op.inputs[place])
        self._apply(op, held, self._own_rows(op, held) or self._choose(op, held))

    def _own_rows(self, op: Op, held: Sequence[State]) -> tuple[SplitAxis, Stretches] | None:
        """Return how a member does an op that arranges decisions, or reads by them, for its own rows alone."""
        decisions = self.own.decisions
        if not any(t in decisions and isinstance(state, Shard) for t, state in zip(op.inputs, held, strict=True)):
            return None
        chosen = self._choose(op, held)
        if chosen is not None and not self._gathered_bytes(op, held, chosen[0].wanted(chosen[1]) or held):
            return chosen
        return self.parts.rows.axis(op, held, [self.parts.extents(t) for t in (*op.inputs, *op.outputs)])

    def _apply(self, op: Op, held: Sequence[State], chosen: tuple[SplitAxis, Stretches] | None) -> None:
        level = self.level
        level.axes[op.id] = chosen
        wanted = (WHOLE,) * len(held) if chosen is None else chosen[0].wanted(chosen[1])
        made = (WHOLE,) * len(op.outputs) if chosen is None else chosen[0].made(chosen[1])
        if wanted is None or made is None:
            raise InternalError(f"op {op.name} cannot be split along the sequence as chosen")
        for place, (have, want) in enumerate(zip(held, wanted, strict=True)):
            if isinstance(have, Shard) and have == want:
                self._read_part(op, place)
            elif isinstance(have, Shard):
                self._read_whole(op, place)
        for t, state in zip(op.outputs, made, strict=True):
            level.states[t] = WHOLE if state == PARTIAL and t in self.own.decisions else state  # a member's own count
            if op.is_metadata and len(op.inputs) == 1 and isinstance(state, Shard) and self._is_same_size(op):
                self._aliases[t] = self._aliases.get(op.inputs[0], op.inputs[0])

    def _is_same_size(self, op: Op) -> bool:
        """Tell whether a view shows all of its input: a gather of the input serves it, too."""
        tensors = self.graph.tensors
        return tensors[op.outputs[0]].num_elements(1) >= tensors[op.inputs[0]].num_elements(1)

    def _passes(self, op: Op, held: Sequence[State]) -> bool:
        """Tell whether sums of gradients stay partial behind an op: casts, views, and sums of summands alone."""
        places = frozenset(place for place, h in enumerate(held) if h == PARTIAL)
        if op.is_accumulation and all(h in (PARTIAL, WHOLE) for h in held):
            places = frozenset(range(len(held)))  # a whole part counts on one member
        return (op.is_metadata or op.role in _MOVING or op.is_accumulation) and passes_partial(op, places)

    def _pass_on(self, op: Op, held: Sequence[State]) -> None:
        for place, state in enumerate(held):
            if isinstance(state, Shard):
                self._read_whole(op, place)
        for t in op.outputs:
            self.level.states[t] = PARTIAL

    def _choose(self, op: Op, held: Sequence[State]) -> tuple[SplitAxis, Stretches] | None:
        """Return the split that leaves the fewest bytes to gather, None if running whole leaves no more."""
        best, least = None, self._gathered_bytes(op, held, (WHOLE,) * len(held))
        hint = None if op.forward_op is None else self.level.axes[op.forward_op]
        for axis in self.space.axes(op):
            if is_special(axis):
                continue
            for stretches in axis.driven(held, None if hint is None else hint[1]):
                wanted = axis.wanted(stretches)
                if wanted is None or axis.made(stretches) is None or not axis.is_legal(stretches, self.space.degree):
                    continue
                size = self._gathered_bytes(op, held, wanted)
                if size < least:
                    best, least = (axis, stretches), size
        return best

    def _gathered_bytes(self, op: Op, held: Sequence[State], wanted: Sequence[State]) -> float:
        return sum(
            self.space.bytes[t]
            for t, have, want in zip(op.inputs, held, wanted, strict=True)
            if isinstance(have, Shard) and have != want
        )

    # Reads

    def _read_part(self, op: Op, place: int) -> None:
        """Note that an op reads its part: scattered, if it is of an all-reduced tensor."""
        t = op.inputs[place]
        if self.level.comms.get(t) == "all_reduce":
            self.level.comms[t] = "reduce_scatter"
        self._note(op, place, t in self.level.comms)

    def _read_whole(self, op: Op, place: int) -> None:
        """Note that an op reads a whole tensor: what is split is gathered, sums are all-reduced."""
        t, level = op.inputs[place], self.level
        held = self.parts.held(t)
        if held == PARTIAL:
            collect(self.graph, level, t, held)
            self._note(op, place, True)
        elif isinstance(held, Shard) and t not in self.space.origin:
            gathered = level.gathers.get(op.id, ())
            root = self._aliases.get(t, t)
            if root in self.own.exchanged:
                level.comms[root] = "all_gather"
                self._note(op, place, True)
                return
            level.gathers[op.id] = gathered if root in gathered else (*gathered, root)
            self._note(op, place, True)

    def _note(self, op: Op, place: int, is_whole: bool) -> None:
        flags = list(self.level.uses_whole[op.id])
        flags[place] = is_whole
        self.level.uses_whole[op.id] = tuple(flags)

    def _drop_needless_gathers(self) -> None:
        """Gather nothing that is all-reduced still, because no op reads a part of it."""
        level = self.level
        for op, roots in list(level.gathers.items()):
            level.gathers[op] = tuple(root for root in roots if level.comms.get(root) != "all_reduce")
            if not level.gathers[op]:
                del level.gathers[op]
