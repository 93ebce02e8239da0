"""Work that grows with the square of the batch: that of losses over all pairs of samples, counted at more batches.

Two traces tell a quantity that is linear in the batch. An op that touches a tensor with two dims that grow, scores of
all texts and images say, is counted again at four batches on tensors of the shapes that its own have there; its
dims are linear, so that no third trace is needed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import torch

from rostam_py.graph import Affine
from rostam_py.tracing.custom import find_op
from rostam_py.tracing.flops import count_flops
from rostam_py.tracing.raw import RawOp, RawTrace, RawValue, Ref

Count = tuple[float, float, float]  # FLOPs, bytes read, bytes written
Shape = tuple[Affine, ...]
_NUM_COUNTS = 4  # three tell a square, the fourth that it is one


class GrowthError(Exception):
    """How an op's work grows, where no Affine says it."""


def num_growing(shape: Shape) -> int:
    """Return how many dims of a tensor grow with the batch."""
    return sum(dim.per_sample != 0 for dim in shape)


@dataclass(frozen=True)
class PairWork:
    """Counts ops of two raw traces again at more batches.

    shape_of: of a value, with dims linear in the batch. bytes_of: (op, its values) -> (bytes read, bytes written).
    """

    first: RawTrace
    second: RawTrace
    batches: tuple[int, int]
    shape_of: Callable[[int], Shape]
    bytes_of: Callable[[RawOp, Any], tuple[float, float]]

    def is_needed(self, op: RawOp) -> bool:
        """Tell whether an op touches pairs of samples."""
        return any(num_growing(self.shape_of(value)) > 1 for value in _touched(op))

    def work(self, index: int) -> tuple[Affine, Affine, Affine]:
        """Return the FLOPs and bytes of an op.

        Raises: GrowthError where they grow faster than the square of the batch.
        """
        begin, end = self.batches
        batches = [begin, end, *(end + k * begin for k in range(1, _NUM_COUNTS - 1))]
        counts = [self._count(index, batch) for batch in batches]
        for batch, count, raw in zip(self.batches, counts, (self.first, self.second), strict=False):
            op = raw.ops[index]
            if count != (op.flops, *(op.moved or self.bytes_of(op, raw.values))):
                raise GrowthError(f"its work at batch {batch} cannot be counted from the shapes of its tensors")
        self._check_merged(index, batches)
        flops, read, written = (_square(batches, [count[k] for count in counts]) for k in range(3))
        return flops, read, written

    def _check_merged(self, index: int, batches: Sequence[int]) -> None:
        """Raise GrowthError if an op merges two dims that grow: the dim that it makes is not linear."""
        op = self.first.ops[index]
        if not op.inputs or not op.outputs:
            return
        pair = op.inputs[0], op.outputs[0][1]
        if any(prod(raw.values[pair[0]].shape) != prod(raw.values[pair[1]].shape) for raw in (self.first, self.second)):
            return
        for batch in batches:
            before, after = (prod(dim.at(batch) for dim in self.shape_of(value)) for value in pair)
            if before != after:
                raise GrowthError("it makes a dim of all pairs of samples, which grows with the square of the batch")

    def _count(self, index: int, batch: int) -> Count:
        op, other = self.first.ops[index], self.second.ops[index]
        values = {value: self._value(value, batch) for value in _touched(op)}
        tensors = {
            value: torch.empty(one.shape, dtype=getattr(torch, one.dtype), device="meta")
            for value, one in values.items()
        }

        def at(a: Any, b: Any) -> Any:
            if isinstance(a, Ref):
                return tensors[a.value]
            if isinstance(a, (list, tuple)):
                return type(a)(at(x, y) for x, y in zip(a, b, strict=True))
            is_size = isinstance(a, int) and not isinstance(a, bool)
            return self._at(a, b, batch) if is_size and a != b else a

        args = tuple(at(a, b) for a, b in zip(op.args, other.args, strict=True))
        kwargs = {key: at(value, other.kwargs[key]) for key, value in op.kwargs.items()}
        places = dict(op.outputs)
        results = [tensors[places[k]] if k in places else None for k in range(max(places) + 1)] if places else []
        result = results[0] if len(results) == 1 else tuple(results)
        custom = find_op(str(op.target))
        moved = None if custom is None else custom.count_bytes(args, kwargs, result)
        read, written = moved or self.bytes_of(op, values)
        return count_flops(op.target, args, kwargs, result) or 0.0, read, written

    def _value(self, value: int, batch: int) -> RawValue:
        a, b = self.first.values[value], self.second.values[value]
        shape = tuple(round(dim.at(batch)) for dim in self.shape_of(value))
        distinct = prod(shape)
        if (a.num_distinct, b.num_distinct) != (prod(a.shape), prod(b.shape)):  # some dims are expanded
            distinct = self._at(a.num_distinct, b.num_distinct, batch)
        return RawValue(shape, a.dtype, a.storage, num_distinct=distinct)

    def _at(self, a: int, b: int, batch: int) -> int:
        """Return what is linear in the batch at another one, of two counts."""
        begin, end = self.batches
        return round(a + Fraction(b - a, end - begin) * (batch - begin))


def _touched(op: RawOp) -> tuple[int, ...]:
    return (*op.inputs, *(value for _, value in op.outputs))


def _square(batches: Sequence[int], counts: Sequence[float]) -> Affine:
    """Return the quantity with these values at these batches."""
    x, y = [Fraction(batch) for batch in batches], [Fraction(count) for count in counts]
    slopes = [(y[k + 1] - y[k]) / (x[k + 1] - x[k]) for k in range(2)]
    square = (slopes[1] - slopes[0]) / (x[2] - x[0])
    linear = slopes[0] - square * (x[0] + x[1])
    constant = y[0] - linear * x[0] - square * x[0] ** 2
    if any(constant + linear * a + square * a**2 != b for a, b in zip(x, y, strict=True)) or square < 0:
        raise GrowthError("its work or bytes grow faster than the square of the batch")
    return Affine(*(int(part) if part.denominator == 1 else float(part) for part in (constant, linear, square)))
