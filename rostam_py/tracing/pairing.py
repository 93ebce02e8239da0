"""Pair two raw traces at different batches into ops and tensors whose quantities are Affine."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from rostam_py.errors import TracingError
from rostam_py.graph import Affine, Op, Part, Split, Tensor
from rostam_py.graph.vocabulary import DTYPE_BYTES
from rostam_py.tracing.batches import BatchDependentError
from rostam_py.tracing.custom import find_op
from rostam_py.tracing.op_properties import op_name, row_place
from rostam_py.tracing.raw import RawOp, RawTrace, RawValue, Ref
from rostam_py.tracing.sample_pairs import GrowthError, PairWork, num_growing
from rostam_py.tracing.splits import RawPart, RawSplit, SplitCall, find_splits
from rostam_py.tracing.splits.call import Slot
from rostam_py.units import format_size


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_COPYING = _names("_to_copy native_dropout native_dropout_backward leaky_relu_backward copy")
_METADATA = _names("_unsafe_view lift_fresh detach alias")
_GATHERS = _names("embedding _embedding_bag _embedding_bag_forward_only index_select gather index")


@dataclass(frozen=True)
class Draft:
    """Ops and tensors under construction: tensors by provisional id, ops in execution order."""

    ops: list[Op]
    tensors: dict[int, Tensor]
    notes: list[str] = field(default_factory=list)


def with_notes(draft: Draft, unknown_flops: Collection[str], num_checkpoints: int) -> Draft:
    """Return a finished draft with what a reader should know of its ops. unknown_flops: ops without a formula."""
    unknown: dict[str, float] = {}
    for op in draft.ops:
        if op.op_type in unknown_flops:
            moved = (op.bytes_read + op.bytes_written).at(1)
            unknown[op.op_type] = unknown.get(op.op_type, 0.0) + moved
    notes = list(draft.notes)
    if unknown:
        listed = ", ".join(f"{name} ({format_size(unknown[name])})" for name in sorted(unknown))
        notes.append(f"no FLOP formula, counted by the bytes they move in one sample: {listed}")
    if any(num_growing(t.shape) > 1 for t in draft.tensors.values()):
        notes.append("some work is over all pairs of a micro-batch's samples, and grows with their square")
    if num_checkpoints:
        notes.append(f"{num_checkpoints} checkpointed regions run again in backward")
    return Draft(draft.ops, draft.tensors, notes)


def pair_traces(first: RawTrace, second: RawTrace, batches: tuple[int, int]) -> Draft:
    """Return the ops and tensors both traces agree on, with each quantity Affine in the batch.

    Raises: TracingError where the traces differ in more than sizes.
    """
    if len(first.ops) != len(second.ops):
        raise BatchDependentError(
            f"tracing at batch {batches[0]} gives {len(first.ops)} ops and at batch {batches[1]} {len(second.ops)}: "
            "the module's structure depends on the batch"
        )
    return _Pairing(first, second, batches).run()


class _Pairing:
    def __init__(self, first: RawTrace, second: RawTrace, batches: tuple[int, int]) -> None:
        self.first, self.second, self.batches = first, second, batches
        self.tensors: dict[int, Tensor] = {}
        self.pairs = PairWork(
            first, second, batches, lambda value: self.tensors[value].shape,
            lambda op, values: _bytes(op_name(op.target), op, values),
        )  # fmt: skip

    def run(self) -> Draft:
        self.tensors = {index: self._tensor(index) for index in range(len(self.first.values))}
        ops = []
        for index in range(len(self.first.ops)):
            try:
                ops.append(self._op(index))
            except _Mismatch as mismatch:
                op = self.first.ops[index]
                raise BatchDependentError(
                    f"the traces at batches {self.batches[0]} and {self.batches[1]} do not match at op {op.target} of "
                    f"module {op.module or '(root)'!r}: {mismatch}; the module's structure depends on the batch"
                ) from None
        return Draft(ops, self.tensors)

    def _affine(self, first: float, second: float) -> Affine:
        if first == second:
            return Affine(first, 0)
        slope = (second - first) / (self.batches[1] - self.batches[0])
        slope = int(slope) if slope == int(slope) else slope
        return Affine(first - slope * self.batches[0], slope)

    def _work(self, index: int, name: str) -> tuple[Affine, Affine, Affine]:
        """Return FLOPs, bytes read and bytes written. Raises: _Mismatch where they grow too fast."""
        if self.pairs.is_needed(self.first.ops[index]):
            try:
                return self.pairs.work(index)
            except GrowthError as error:
                raise _Mismatch(f"{error}: one that counts each sample alone stands in for it") from None
        flops, moved = [], []
        for raw in (self.first, self.second):
            op = raw.ops[index]
            flops.append(op.flops)
            moved.append(op.moved or _bytes(name, op, raw.values))
        return self._linear(*flops), self._linear(moved[0][0], moved[1][0]), self._linear(moved[0][1], moved[1][1])

    def _linear(self, first: float, second: float) -> Affine:
        """Return FLOPs or bytes of no pairs of samples. Raises: _Mismatch where they grow faster than the batch."""
        found = self._affine(first, second)
        if found.at(1) < 0:
            raise _Mismatch(
                f"its work or bytes grow from {first:,.0f} to {second:,.0f}, faster than the batch, as those of a loss "
                "over all pairs of samples do: one that counts each sample alone stands in for it"
            )
        return found

    def _tensor(self, index: int) -> Tensor:
        a = self.first.values[index]
        if index >= len(self.second.values):
            raise BatchDependentError("the two traces have different numbers of tensors")
        b = self.second.values[index]
        if len(a.shape) != len(b.shape) or a.dtype != b.dtype:
            raise BatchDependentError(
                f"a tensor has shape {a.shape} ({a.dtype}) at batch {self.batches[0]} and {b.shape} ({b.dtype}) at "
                f"batch {self.batches[1]}: the module's structure depends on the batch"
            )
        if a.dtype not in DTYPE_BYTES:
            raise TracingError(f"tensors of dtype {a.dtype} are not supported; known: {', '.join(DTYPE_BYTES)}")
        return Tensor(
            id=index,
            shape=tuple(self._affine(x, y) for x, y in zip(a.shape, b.shape, strict=True)),
            dtype=a.dtype,
            kind="loss" if index == self.first.loss else a.kind,
            name=a.name,
            producer=a.producer,
            storage=a.storage,
        )

    def _op(self, index: int) -> Op:
        a, b = self.first.ops[index], self.second.ops[index]
        if str(a.target) != str(b.target) or a.inputs != b.inputs or a.outputs != b.outputs:
            raise _Mismatch(f"the second trace has {b.target} there")
        slots = iter(range(len(a.inputs)))
        arguments = {
            "args": [self._argument(x, y, slots) for x, y in zip(a.args, b.args, strict=True)],
            "kwargs": {k: v for k, v in self._keywords(a, b, slots).items() if v is not _DROPPED},
        }
        name = op_name(a.target)
        is_metadata = name in _METADATA or _is_view(a.target)
        is_pointwise = torch.Tag.pointwise in getattr(a.target, "tags", ()) or name in _COPYING
        flops, read, written = self._work(index, name)
        is_adding = a.phase == "backward" and a.module is None and name == "add"
        return Op(
            id=index,
            name=name,
            module=a.module or "",
            phase=a.phase,
            op_type=str(a.target),
            inputs=a.inputs,
            outputs=tuple(value for _, value in a.outputs),
            arguments=arguments,
            flops=flops,
            bytes_read=Affine() if is_metadata else read,
            bytes_written=Affine() if is_metadata else written,
            is_metadata=is_metadata,
            is_elementwise=is_pointwise and not is_metadata,
            is_accumulation=is_adding,
            is_recomputed=a.is_recomputed,
            splits=self._splits(name, index, is_pointwise),
        )

    def _keywords(self, a: RawOp, b: RawOp, slots: Any) -> dict[str, Any]:
        if a.kwargs.keys() != b.kwargs.keys():
            raise _Mismatch("keyword arguments differ")
        return {key: self._argument(a.kwargs[key], b.kwargs[key], slots) for key in a.kwargs}

    def _argument(self, a: Any, b: Any, slots: Any) -> Any:
        """Return the JSON form of an argument (see graph.Op.arguments)."""
        if isinstance(a, Ref):
            return {"tensor": next(slots)}
        if isinstance(a, (list, tuple)):
            if not isinstance(b, (list, tuple)) or len(a) != len(b):
                raise _Mismatch(f"arguments {a} and {b}")
            return [self._argument(x, y, slots) for x, y in zip(a, b, strict=True)]
        if isinstance(a, torch.dtype):
            return {"dtype": str(a).removeprefix("torch.")}
        if isinstance(a, torch.memory_format):
            return {"memory_format": str(a).removeprefix("torch.")}
        if isinstance(a, int) and not isinstance(a, bool) and a != b:
            affine = self._affine(a, b)
            return {"affine": [affine.constant, affine.per_sample]}
        if a is None or isinstance(a, (bool, int, float, str)):
            return a
        return _DROPPED  # devices, layouts, generators: the caller's to choose

    def _splits(self, name: str, index: int, is_pointwise: bool) -> tuple[Split, ...]:
        custom = find_op(str(self.first.ops[index].target))
        find = find_splits if custom is None else custom.find_splits
        found = [find(_split_call(name, raw.ops[index], raw.values, is_pointwise)) for raw in (self.first, self.second)]
        others = {(s.kind, s.input_dims, s.output_dims): s for s in found[1]}
        splits: list[Split] = []
        for a in found[0]:
            b = others.get((a.kind, a.input_dims, a.output_dims))
            if b is not None and _num_parts(a) == _num_parts(b) and a.halos == b.halos:
                splits.append(self._split(a, b))
        return tuple(splits)

    def _split(self, a: RawSplit, b: RawSplit) -> Split:
        size = self._affine(a.size, b.size)
        return Split(
            kind="sample" if size.per_sample else ("feature" if a.kind == "sample" else a.kind),
            input_dims=a.input_dims,
            output_dims=a.output_dims,
            size=size,
            comm_kind=a.comm_kind,
            comm_bytes=self._affine(a.comm_bytes, b.comm_bytes),
            input_parts=self._parts(a.input_parts, b.input_parts),
            output_parts=self._parts(a.output_parts, b.output_parts),
            halos=a.halos,
        )

    def _parts(self, a: tuple[RawPart | None, ...], b: tuple[RawPart | None, ...]) -> tuple[Part | None, ...]:
        return tuple(
            None
            if x is None or y is None
            else Part(self._affine(x.outer, y.outer), self._affine(x.start, y.start), self._affine(x.length, y.length))
            for x, y in zip(a, b, strict=True)
        )


def _num_parts(split: RawSplit) -> tuple[int, int]:
    return len(split.input_parts), len(split.output_parts)


class _Mismatch(Exception):
    """What differs between the two traces."""


class _Dropped:
    """An argument that is not stored."""


_DROPPED = _Dropped()


def _is_view(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    if schema is None or not schema.returns:
        return False
    return all(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)


def _split_call(name: str, op: RawOp, values: list[RawValue], is_pointwise: bool) -> SplitCall:
    slots = iter(range(len(op.inputs)))

    def slotted(argument: Any) -> Any:
        if isinstance(argument, Ref):
            return Slot(next(slots))
        if isinstance(argument, (list, tuple)):
            return [slotted(item) for item in argument]
        return argument

    return SplitCall(
        name=name,
        args=tuple(slotted(a) for a in op.args),
        kwargs={k: slotted(v) for k, v in op.kwargs.items()},
        inputs=tuple(values[i].shape for i in op.inputs),
        outputs=tuple(values[v].shape for _, v in op.outputs),
        positions=tuple(p for p, _ in op.outputs),
        is_pointwise=is_pointwise,
    )


def _bytes(name: str, op: RawOp, values: Mapping[int, RawValue] | Sequence[RawValue]) -> tuple[int, int]:
    """Return (bytes read, bytes written): unique inputs and outputs; a gather reads what it returns, a pick an entry
    for each index."""
    written = sum(prod(values[v].shape) * DTYPE_BYTES[values[v].dtype] for _, v in op.outputs)
    sources = list(dict.fromkeys(op.inputs))
    read = 0
    if name in _GATHERS and len(sources) > 1:
        table, ids = values[sources[0]], values[sources[1]]
        width = table.shape[-1] if name.startswith("_embedding_bag") else 0
        read = (prod(ids.shape) * width or prod(values[op.outputs[0][1]].shape)) * DTYPE_BYTES[table.dtype]
        sources = sources[1:]
    place = row_place(name)
    if place is not None:
        rows, picked = (values[i] for i in op.inputs[place : place + 2])
        sources.remove(op.inputs[place])
        read = 0 if name.endswith("backward") else prod(picked.shape) * DTYPE_BYTES[rows.dtype]
    return read + sum(values[v].num_distinct * DTYPE_BYTES[values[v].dtype] for v in sources), written
