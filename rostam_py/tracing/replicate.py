"""Grow a stack of equal blocks from a trace of four of them.

Blocks 0, 1, 2, 3 are traced; 1 and 2 must be equal up to a shift by one block, and copies of block 1
go between them. Where kinds of blocks alternate, a block here is one of each. Anything else (skips over blocks, uneven
structure) makes ``replicate`` give up, and the caller traces the whole stack. tests/tracing/test_replicate.py compares
grown and whole traces.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

from rostam_py.graph import WEIGHT_KINDS, Op, Tensor
from rostam_py.tracing.pairing import Draft

NUM_TRACED = 4
_TEMPLATE = 1
Role = tuple[Any, ...]
Home = tuple[int, Role]  # (block, what it is there)


def replicate(draft: Draft, path: str, count: int, period: int = 1) -> Draft | None:
    """Return the draft with the stack at ``path`` grown from four times ``period`` blocks to ``count``.

    Args:
        path: of the stack, whose blocks are numbered.
        count: a multiple of ``period``.
        period: kinds of blocks that alternate.
    Returns: None if the blocks cannot be grown safely.
    Cost: proportional to the ops of the result.
    """
    try:
        grown = _Stack(draft, path, count, period).grow()
    except _Uneven:
        return None
    return grown if is_ordered(grown) else None


class _Uneven(Exception):
    """The blocks are not equal up to a shift."""


def is_ordered(draft: Draft) -> bool:
    """Say whether every op comes behind those that make what it reads."""
    made: set[int] = set()
    produced = {v for op in draft.ops for v in op.outputs}
    for op in draft.ops:
        if any(v in produced and v not in made for v in op.inputs):
            return False
        made.update(op.outputs)
    return True


class _Stack:
    def __init__(self, draft: Draft, path: str, count: int, period: int) -> None:
        self.draft, self.prefix, self.period, self.count = draft, f"{path}.", period, count // period
        self.shift = self.count - NUM_TRACED
        self.next_value = max(draft.tensors) + 1
        self.next_op = max(op.id for op in draft.ops) + 1
        self.blocks: list[list[Op]] = [[] for _ in range(NUM_TRACED)]
        self.op_homes: dict[int, Home] = {}
        self.value_homes: dict[int, Home] = {}
        self.owners: dict[int, int] = {}  # storage -> first value in it
        self.values: dict[Home, int] = {}  # by new block index
        self.op_ids: dict[Home, int] = {}
        self.tensors: dict[int, Tensor] = {}
        self._find_homes()

    def grow(self) -> Draft:
        """Return the grown draft. Raises: _Uneven."""
        self._check_template()
        for block in range(NUM_TRACED):
            for value, (home, role) in self.value_homes.items():
                if home == block:
                    self.values[self._moved(block), role] = value
        template = [value for value, (home, _) in self.value_homes.items() if home == _TEMPLATE]
        for new in range(2, self.count - 2):
            for value in template:
                self.values[new, self.value_homes[value][1]] = self.next_value
                self.next_value += 1
            for op in self.blocks[_TEMPLATE]:
                self.op_ids[new, self.op_homes[op.id][1]] = self.next_op
                self.next_op += 1
        self._grow_tensors(template)
        return Draft(self._grow_ops(), self.tensors, self.draft.notes)

    def _block(self, path: str) -> tuple[int, str]:
        """Return (block index, number of its kind and path inside it), or (-1, "")."""
        if not path.startswith(self.prefix):
            return -1, ""
        index, dot, rest = path[len(self.prefix) :].partition(".")
        block, kind = divmod(int(index), self.period)
        return block, f"{kind}{dot}{rest}"

    def _find_homes(self) -> None:
        seen: Counter[Role] = Counter()
        for op in self.draft.ops:
            block, inner = self._block(op.module)
            if block >= 0:
                kind = (block, op.phase, inner, op.op_type)
                role = (*kind[1:], seen[kind])
                seen[kind] += 1
                self.blocks[block].append(op)
                self.op_homes[op.id] = (block, role)
                for place, value in enumerate(op.outputs):
                    self.value_homes[value] = (block, (role, place))
        for value, tensor in self.draft.tensors.items():
            if tensor.kind in WEIGHT_KINDS:
                block, inner = self._block(tensor.name)
                if block >= 0:
                    self.value_homes[value] = (block, (tensor.kind, inner))
            self.owners.setdefault(tensor.storage, value)

    def _check_template(self) -> None:
        first, second = self.blocks[_TEMPLATE], self.blocks[_TEMPLATE + 1]
        if [self.op_homes[op.id][1] for op in first] != [self.op_homes[op.id][1] for op in second]:
            raise _Uneven
        for a, b in zip(first, second, strict=True):
            if len(a.inputs) != len(b.inputs) or a.arguments != b.arguments or a.flops != b.flops:
                raise _Uneven
            for x, y in zip(a.inputs, b.inputs, strict=True):
                home_x, home_y = self.value_homes.get(x), self.value_homes.get(y)
                if home_x is None or home_y is None:
                    if x != y:
                        raise _Uneven
                elif home_x[0] + 1 != home_y[0] or (home_x[1] != home_y[1] and not self._starts_sum(x, y)):
                    raise _Uneven

    def _starts_sum(self, inner: int, last: int) -> bool:
        """Say whether the last block's value begins a sum that blocks hand on: of gradients of what all of them read.

        The last block has nothing to add to; block 2 reads its gradient where block 1 reads block 2's sum.
        """
        is_last = self.value_homes[last][0] == NUM_TRACED - 1
        a, b = self.draft.tensors[inner], self.draft.tensors[last]
        return is_last and (a.shape, a.dtype) == (b.shape, b.dtype)

    def _moved(self, block: int) -> int:
        """Return the new index of a traced block."""
        return block if block <= _TEMPLATE else block + self.shift

    def _mapped(self, value: int, reader: int, new: int) -> int:
        """Return what stands for ``value`` where it is read by traced block ``reader``, now block ``new``."""
        home = self.value_homes.get(value)
        if home is None:
            return value
        block, role = home
        ends = (0, NUM_TRACED - 1)
        if reader < 0:
            if block not in ends:
                raise _Uneven
            return value
        distance = block - reader
        if reader in ends and abs(distance) > 1:
            raise _Uneven
        key = (new + distance, role)
        if key not in self.values:
            raise _Uneven
        return self.values[key]

    def _renamed(self, name: str, new: int) -> str:
        block, inner = self._block(name)
        kind, dot, rest = inner.partition(".")
        return name if block < 0 else f"{self.prefix}{new * self.period + int(kind)}{dot}{rest}"

    def _grow_tensors(self, template: list[int]) -> None:
        fresh: dict[int, int] = {}  # value -> its own new storage
        for new in range(2, self.count - 2):
            for value in template:
                tensor = self.draft.tensors[value]
                key = self.values[new, self.value_homes[value][1]]
                if self.owners[tensor.storage] == value:
                    fresh[key] = -2 - key
                self.tensors[key] = replace(tensor, id=key, name=self._renamed(tensor.name, new))
        for value, tensor in self.draft.tensors.items():
            block = self.value_homes[value][0] if value in self.value_homes else -1
            self.tensors[value] = replace(tensor, name=self._renamed(tensor.name, self._moved(block)))
        for (new, _), key in self.values.items():
            tensor = self.tensors[key]
            owner = self.owners[tensor.storage]
            if new < 2 or new >= self.count - 2:
                owner_here = self._mapped(owner, self.value_homes[key][0], new)
            else:
                owner_here = self._mapped(owner, _TEMPLATE, new)
            storage = fresh.get(owner_here, self.draft.tensors[owner_here].storage if owner_here not in fresh else 0)
            self.tensors[key] = replace(tensor, storage=storage)

    def _grow_ops(self) -> list[Op]:
        forward_end = max(op.id for op in self.blocks[_TEMPLATE] if op.phase == "forward")
        backward = [op for op in self.blocks[_TEMPLATE] if op.phase == "backward"]
        if not backward:
            raise _Uneven
        ops: list[Op] = []
        for op in self.draft.ops:
            if op is backward[0]:
                for new in reversed(range(2, self.count - 2)):
                    ops.extend(self._copied(new, "backward"))
            block = self.op_homes[op.id][0] if op.id in self.op_homes else -1
            new = self._moved(block)
            inputs = tuple(self._mapped(v, block, new) for v in op.inputs)
            ops.append(replace(op, inputs=inputs, module=self._renamed(op.module, new)))
            if op.id == forward_end and op.phase == "forward":
                for new in range(2, self.count - 2):
                    ops.extend(self._copied(new, "forward"))
        return ops

    def _copied(self, new: int, phase: str) -> list[Op]:
        """Return the template's ops of one phase as block ``new``."""
        copies = []
        for op in self.blocks[_TEMPLATE]:
            if op.phase != phase:
                continue
            forward = op.forward_op
            if forward is not None:
                block, role = self.op_homes.get(forward, (-1, ()))
                if block != _TEMPLATE:
                    raise _Uneven
                forward = self.op_ids[new, role]
            copies.append(
                replace(
                    op,
                    id=self.op_ids[new, self.op_homes[op.id][1]],
                    module=self._renamed(op.module, new),
                    inputs=tuple(self._mapped(v, _TEMPLATE, new) for v in op.inputs),
                    outputs=tuple(self.values[new, self.value_homes[v][1]] for v in op.outputs),
                    forward_op=forward,
                )
            )
        return copies
