"""Which part of a tensor along its sequence a member of a group holds, in a level that is rewritten so.

The sequence is the outermost dimension, the samples' apart, along which an op that reads the all-reduced tensor and
runs whole can be split (sequence.py).
"""

import math
from collections.abc import Collection

from rostam_py.graph import PARTIAL, WHOLE, Op
from rostam_py.placement.sharding.layouts import Place, Shard, SplitAxis, State, Stretches, plain
from rostam_py.placement.sharding.own_rows import OwnRows, RowLayouts
from rostam_py.placement.sharding.space import Level, Space

_REGIONS = ("convolution",)  # roles whose sums lie along space, not along a sequence


class SequenceParts:
    """The parts of tensors in a level that is rewritten with sequence parallelism.

    Args: old: the level before. level: as it is rewritten. regions, own: as of SequenceSplit.
    Attributes:
        known: all-reduced tensor -> its part behind a reduce-scatter instead, None if no op would read it.
        undivided: all-reduced tensor -> its sequence, which the level's members do not divide.
    """

    def __init__(self, space: Space, old: Level, level: Level, regions: Collection[int], own: OwnRows) -> None:
        self.space, self.graph, self.old, self.level = space, space.graph, old, level
        self.regions, self.own = regions, own
        self.rows = RowLayouts(self.graph, space.degree)
        self.known: dict[int, Shard | None] = {}
        self.undivided: dict[int, int] = {}

    def is_inside(self, op: Op) -> bool:
        """Tell whether an op belongs to a region: it is split there, runs whole there, or passes sums on."""
        old = self.old
        return old.axes[op.id] is not None or op.id in self.regions or any(old.states[t] == PARTIAL for t in op.outputs)

    def held(self, tensor: int) -> State:
        """Return what an op outside of regions finds: a part where there is one, whole behind other collectives."""
        kind = self.level.comms.get(tensor)
        if kind in ("all_reduce", "reduce_scatter"):
            return self.part(tensor) or WHOLE
        return WHOLE if kind == "all_gather" else self.level.states[tensor]

    def part(self, tensor: int) -> Shard | None:
        """Return the part of an all-reduced tensor along its sequence, None if no op would read it."""
        if tensor not in self.known:
            self.known[tensor] = None
            if tensor in self.own.exchanged:
                self.known[tensor] = self.rows.part(tensor, self.extents(tensor))
            elif self.graph.tensors[tensor].kind == "activation" and self._source_role(tensor) not in _REGIONS:
                self.known[tensor] = self._along_sequence(tensor)
        return self.known[tensor]

    def _source_role(self, tensor: int) -> str:
        """Return the role of the op whose split makes the partial sums."""
        while (producer := self.graph.tensors[tensor].producer) is not None:
            op = self.graph.ops[producer]
            summands = [t for t in op.inputs if self.level.states[t] == PARTIAL]
            if self.old.axes[producer] is not None or not summands:
                return op.role or ("" if op.forward_op is None else self.graph.ops[op.forward_op].role)
            tensor = summands[0]
        return ""

    def _along_sequence(self, tensor: int) -> Shard | None:
        """Return the plain split along the outermost dimension, the samples' apart, that a reader can be split along.

        Views count only for the ops that read them.
        """
        found: list[tuple[int, int, Stretches, Shard | None]] = []
        features = len(self.space.shapes[tensor]) - 1
        for op in self._readers(tensor):
            if op.is_metadata and not any(self._is_followed(t) for t in op.outputs):
                continue
            place = op.inputs.index(tensor)
            for axis in self.space.axes(op):
                where, rows = axis.inputs[place], self._rows(axis)
                if where is None or rows is None or where.dim == features or is_special(axis):
                    continue
                state = where.state(rows, axis.size)
                found.append((where.dim, where.outer, rows, state if isinstance(state, Shard) else None))
        if not found:
            return None
        *_, rows, part = min(found, key=lambda one: one[:2])
        if any(size % self.space.degree for size in rows.sizes):
            self.undivided[tensor] = rows.sizes[0] * math.prod(level.degree for level in self.space.above)
            return None
        return part

    def _rows(self, axis: SplitAxis) -> Stretches | None:
        """Return an axis as the entries of one sample, None if it has one per sample."""
        if axis.split.kind != "sample":
            return plain(axis.size)
        samples = round(self.space.batch)
        return Stretches(samples, (axis.size // samples,)) if axis.size > samples else None

    def _readers(self, tensor: int) -> list[Op]:
        """Return the ops outside of regions that read a tensor."""
        ops = (self.graph.ops[user] for user in self.graph.consumers[tensor])
        return [op for op in ops if () not in op.linear_in and not self.is_inside(op)]

    def _is_followed(self, tensor: int) -> bool:
        """Tell whether an op that computes can follow a split of a tensor, or of a view of it."""
        return any(
            any(self._is_followed(t) for t in op.outputs)
            if op.is_metadata
            else any(axis.inputs[op.inputs.index(tensor)] is not None for axis in self.space.axes(op))
            for op in self._readers(tensor)
        )

    def extents(self, tensor: int) -> tuple[int, ...]:
        """Return a tensor's shape at a member of the levels above."""
        shape = list(self.space.shapes[tensor])
        for level in self.space.above:
            state = level.states[tensor]
            if isinstance(state, Shard):
                shape[state.dim] //= level.degree
        return tuple(shape)


def is_special(axis: SplitAxis) -> bool:
    """Tell whether a split would exchange more than a sequence's parts."""
    return bool(axis.split.comm_kind or axis.split.halos) or not any(isinstance(p, Place) for p in axis.inputs)
