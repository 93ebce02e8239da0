"""Splits of fused attention, forward and backward: samples and heads are independent.

With fewer key than query heads (grouped queries) the query heads split alone too, every member with all keys
and values: what it adds to their gradients is a summand.
"""

from rostam_py.graph import PARTIAL, WHOLE
from rostam_py.tracing.splits.call import RawSplit, Shape, SplitCall

_HEADS = -3  # of query, key and value: (..., heads, rows, size)


def attention(call: SplitCall) -> list[RawSplit]:
    """attention(query, key, value, mask, ...) -> output, log-sum-exp."""
    rank = len(call.inputs[0])
    splits = []
    for dim in range(rank - 2):
        size = min(call.inputs[place][dim] for place in range(3))  # grouped-query attention has fewer key heads
        inputs = {position: _dim(call, position, dim, size) for position in range(3)}
        inputs[3] = _mask_dim(call, 3, dim, rank, size)
        if size > 1 and _ILLEGAL not in inputs.values():
            splits.append(RawSplit(_kind(dim, rank), call.dims(inputs), call.results({0: dim, 1: dim}), size))
    heads, dim = _query_heads(call, 0, 1), rank + _HEADS
    if heads:
        queries = {0: dim, 3: _mask_dim(call, 3, dim, rank, heads)}
        if _ILLEGAL not in queries.values():
            splits.append(RawSplit("head", call.dims(queries), call.results({0: dim, 1: dim}), heads))
    return splits


def _query_heads(call: SplitCall, query: int, key: int) -> int:
    """Return the number of query heads if there are fewer key heads, else 0."""
    shapes = [call.inputs[place] for place in (query, key)]
    if len(shapes[0]) < -_HEADS:
        return 0
    queries, keys = (shape[_HEADS] for shape in shapes)
    return queries if keys < queries else 0


def attention_backward(call: SplitCall) -> list[RawSplit]:
    """(gradient, query, key, value, mask, output, log-sum-exp, ...) -> gradients of query, key, value (and mask)."""
    rank = len(call.inputs[0])
    splits = []
    for dim in range(rank - 2):
        size = min(call.inputs[place][dim] for place in range(4))
        inputs = {position: _dim(call, position, dim, size) for position in (0, 1, 2, 3, 5, 6)}
        inputs[4] = _mask_dim(call, 4, dim, rank, size)
        if size <= 1 or _ILLEGAL in inputs.values():
            continue
        outputs: dict[int, int | None] = {0: dim, 1: dim, 2: dim}
        if len(call.outputs) == 4:  # a mask that all members read has a gradient that is summed
            outputs[3] = PARTIAL if inputs[4] is WHOLE else inputs[4]
        splits.append(RawSplit(_kind(dim, rank), call.dims(inputs), call.results(outputs), size))
    heads, dim = _query_heads(call, 1, 2), rank + _HEADS
    if heads:
        mask = _mask_dim(call, 4, dim, rank, heads)
        gradients: dict[int, int | None] = {0: dim, 1: PARTIAL, 2: PARTIAL, 3: PARTIAL if mask is WHOLE else mask}
        queries = {0: dim, 1: dim, 4: mask, 5: dim, 6: dim}
        if mask != _ILLEGAL:
            splits.append(RawSplit("head", call.dims(queries), call.results(gradients), heads))
    return splits


_ILLEGAL = -9


def _kind(dim: int, rank: int) -> str:
    return "head" if dim == rank + _HEADS else "sample"


def _dim(call: SplitCall, position: int, dim: int, size: int) -> int | None:
    slot = call.slot(position)
    return _cut(call.inputs[slot], dim, size) if slot is not None else WHOLE


def _mask_dim(call: SplitCall, position: int, dim: int, rank: int, size: int) -> int | None:
    """A mask broadcasts from the right."""
    slot = call.slot(position)
    if slot is None:
        return WHOLE
    shape = call.inputs[slot]
    own = dim - (rank - len(shape))
    return _cut(shape, own, size) if own >= 0 else WHOLE


def _cut(shape: Shape, dim: int, size: int) -> int | None:
    if shape[dim] == 1:
        return WHOLE
    return dim if shape[dim] % size == 0 else _ILLEGAL
