"""Which repeated blocks of a graph are alike, so that what is found of one serves the others.

Model: two blocks are alike if their ops are equal, one by one, in what they do, in the tensors that they make and in
where these come from and go to: to the same place of the same block, of one as many blocks before or behind, or to the
same tensor outside all blocks. Of one kind are those whose neighbours are alike as well, up to a reach before and
behind them, so that what looks a few ops around itself finds the same.

Example: of 80 equal blocks 72 in the middle are of one kind at a reach of three. The first, which reads what no block
makes, and the last are alike no other, nor are the three next to either.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from rostam_py.graph.ops import Op, Tensor

REACH = 3  # blocks: a walk of six ops along sums of residuals, two in a block, goes so far
_OUTSIDE = -1

_OP_FIELDS = (
    "op_type", "role", "phase", "is_metadata", "is_elementwise", "is_accumulation", "is_recomputed", "flops",
    "bytes_read", "bytes_written", "repeated_flops", "linear_in", "splits", "arguments",
)  # fmt: skip
_of_op = attrgetter(*_OP_FIELDS)
_of_tensor = attrgetter("shape", "dtype", "kind", "is_saved")


@dataclass(frozen=True, slots=True)
class Likeness:
    """The blocks of a graph.

    alike: of every block the first of those that it is alike. ops, tensors: of every block, in order; tensors are those
    that it makes and those, made by no op, that it alone reads. op_places, tensor_places: of every op and tensor the
    place there, homes: of every tensor the block; _OUTSIDE where there is none. near: of every block those that it
    reads from or is read by, as distances.
    """

    alike: tuple[int, ...]
    ops: tuple[tuple[int, ...], ...]
    tensors: tuple[tuple[int, ...], ...]
    op_places: tuple[int, ...]
    tensor_places: tuple[int, ...]
    homes: tuple[int, ...]
    near: tuple[tuple[int, ...], ...]

    def reference(self, block: int, tensor: int) -> int:
        """Return what names a tensor from a block: equal for tensors at the same place seen from alike blocks."""
        home = self.homes[tensor]
        if home == _OUTSIDE:
            return -1 - tensor
        return (home - block + len(self.ops)) * len(self.homes) + self.tensor_places[tensor]

    def referred(self, block: int, reference: int) -> int:
        """Return the tensor that a reference names, seen from a block."""
        if reference < 0:
            return -1 - reference
        distance, place = divmod(reference, len(self.homes))
        return self.tensors[block + distance - len(self.ops)][place]

    def kinds(self, property_of: Callable[[int], Any], reach: int = REACH) -> tuple[int, ...]:
        """Return the kind of every block: the first of those that it is alike, as are the blocks around them.

        Args:
            property_of: what else tells blocks apart; equal ones compare equal.
            reach: blocks before and behind.
        """
        return _spread(_told_apart(self.alike, property_of), self.near, reach)


def likeness_of(
    ops: Sequence[Op], tensors: Sequence[Tensor], consumers: Sequence[Sequence[int]], block_names: Sequence[str]
) -> Likeness:
    """Return which blocks are alike. Args: consumers: as of the graph. Cost: linear in ops and edges."""
    return _Finder(ops, tensors, consumers, block_names).run()


def runs_of(ops: Iterable[Op]) -> list[list[Op]]:
    """Return the ops as runs of one block each."""
    runs: list[list[Op]] = []
    for op in ops:
        if not runs or runs[-1][-1].block != op.block:
            runs.append([])
        runs[-1].append(op)
    return runs


class _Finder:
    def __init__(
        self, ops: Sequence[Op], tensors: Sequence[Tensor], consumers: Sequence[Sequence[int]],
        block_names: Sequence[str],
    ) -> None:  # fmt: skip
        self.all_ops, self.all_tensors, self.consumers, self.names = ops, tensors, consumers, block_names
        self.ops: list[list[int]] = [[] for _ in block_names]
        self.tensors: list[list[int]] = [[] for _ in block_names]
        self.op_places, self.tensor_places = [_OUTSIDE] * len(ops), [_OUTSIDE] * len(tensors)
        self.homes = [_OUTSIDE] * len(tensors)
        self.blocks = [op.block for op in ops]
        self.parameters = {t.name: t.id for t in tensors if t.kind == "parameter"}

    def run(self) -> Likeness:
        """Return the blocks."""
        for op in self.all_ops:
            if op.block != _OUTSIDE:
                self.op_places[op.id] = len(self.ops[op.block])
                self.ops[op.block].append(op.id)
                self._take_in(op)
        near: list[set[int]] = [set() for _ in self.ops]
        signatures = [self._signature(block, near[block]) for block in range(len(self.ops))]
        return Likeness(
            alike=_told_apart([len(ops) for ops in self.ops], signatures.__getitem__),
            ops=tuple(map(tuple, self.ops)), tensors=tuple(map(tuple, self.tensors)),
            op_places=tuple(self.op_places), tensor_places=tuple(self.tensor_places), homes=tuple(self.homes),
            near=tuple(tuple(sorted(one)) for one in near),
        )  # fmt: skip

    def _take_in(self, op: Op) -> None:
        """Make what an op makes, and what its block alone reads, tensors of the block."""
        own = self.tensors[op.block]
        for t in op.inputs:
            if self.homes[t] == _OUTSIDE and self.all_tensors[t].producer is None:
                users = self.consumers[t]
                if all(self.blocks[user] == op.block for user in users):
                    self.homes[t], self.tensor_places[t] = op.block, len(own)
                    own.append(t)
        for t in op.outputs:
            self.homes[t], self.tensor_places[t] = op.block, len(own)
            own.append(t)

    def _signature(self, block: int, near: set[int]) -> list[object]:
        """Return what a block's ops do, and where their tensors come from and go to. Args: near: filled."""
        found: list[object] = []
        storages: dict[int, int] = {}
        prefix = self.names[block]
        blocks, places, ops, tensors = self.blocks, self.op_places, self.all_ops, self.all_tensors
        for index in self.ops[block]:
            op = ops[index]
            module = op.module
            forward = op.forward_op
            found.append(_of_op(op))
            found.append(module[len(prefix) :] if module.startswith(prefix) else module)
            found.append(None if forward is None else self._op(block, forward))
            found.append([self._reference(block, t) for t in op.inputs])
        for index in self.tensors[block]:
            t = tensors[index]
            found.append(_of_tensor(t))
            found.append(t.storage if t.storage < 0 else storages.setdefault(t.storage, len(storages)))
            if t.kind == "gradient":
                found.append(self._reference(block, self.parameters.get(t.name, index)))
            users = []
            for user in self.consumers[index]:
                other = blocks[user]
                if other != block:
                    near.add(other)
                users.append((other - block, places[user]) if other != _OUTSIDE else user)
            found.append(users)
        for index in self.ops[block]:
            near.update(self.homes[t] for t in ops[index].inputs)
        distances = {other - block for other in near if other not in (_OUTSIDE, block)}
        near.clear()
        near |= distances
        return found

    def _op(self, block: int, op: int) -> Hashable:
        """Return what names an op from a block."""
        return op if self.blocks[op] == _OUTSIDE else (self.blocks[op] - block, self.op_places[op])

    def _reference(self, block: int, tensor: int) -> Hashable:
        """Return what names a tensor from a block; of one outside, whether the block is the first or the last there."""
        home = self.homes[tensor]
        if home != _OUTSIDE:
            return home - block, self.tensor_places[tensor]
        users = self.consumers[tensor]
        return tensor, bool(users) and self.blocks[users[0]] == block, bool(users) and self.blocks[users[-1]] == block


def _told_apart(kinds: Sequence[int], property_of: Callable[[int], Any]) -> tuple[int, ...]:
    """Return kinds of which each stays one where all of its blocks have equal properties."""
    known: dict[int, list[tuple[Any, int]]] = {}  # kind -> a property, and the first block that has it
    found = []
    for block, kind in enumerate(kinds):
        own, others = property_of(block), known.setdefault(kind, [])
        first = next((first for one, first in reversed(others) if one == own), None)
        if first is None:
            first = block
            others.append((own, block))
        found.append(first)
    return tuple(found)


def _spread(kinds: Iterable[int], near: Sequence[Sequence[int]], reach: int) -> tuple[int, ...]:
    """Return kinds told apart by those of the blocks up to a reach away; each is named by its first block."""
    found = tuple(kinds)
    for _ in range(reach):
        around = [
            (kind, *(found[block + distance] for distance in distances))
            for block, (kind, distances) in enumerate(zip(found, near, strict=True))
        ]
        first: dict[Hashable, int] = {}
        found = tuple(first.setdefault(one, block) for block, one in enumerate(around))
    return found
