"""Splits of embedding tables: by index, by row (each member owns some words) and by column."""

from math import gcd

from rostam_py.graph import PARTIAL, WHOLE
from rostam_py.tracing.splits.call import RawSplit, SplitCall


def embedding(call: SplitCall) -> list[RawSplit]:
    """embedding(weight (V, D), ids (...)) -> (..., D); a row-split table gives partial sums."""
    (rows, columns), ids = call.inputs[0], call.inputs[1]
    splits = [RawSplit("feature", (WHOLE, d), (d,), n) for d, n in enumerate(ids)]
    splits.append(RawSplit("embedding_row", (0, WHOLE), (PARTIAL,), rows))
    splits.append(RawSplit("column", (1, WHOLE), (len(ids),), columns))
    return [s for s in splits if s.size > 1]


def embedding_backward(call: SplitCall) -> list[RawSplit]:
    """embedding_dense_backward(grad (..., D), ids (...), V, ...) -> (V, D)."""
    ids, (rows, columns) = call.inputs[1], call.outputs[0]
    splits = [RawSplit("feature", (d, d), (PARTIAL,), n) for d, n in enumerate(ids)]
    splits.append(RawSplit("embedding_row", (WHOLE, WHOLE), (0,), rows))
    splits.append(RawSplit("column", (len(ids), WHOLE), (1,), columns))
    return [s for s in splits if s.size > 1]


def embedding_bag(call: SplitCall) -> list[RawSplit]:
    """_embedding_bag(weight (V, D), ids (N,), offsets (B,)) -> out (B, D), offset2bag, bag_size, max_indices."""
    rows, columns = call.inputs[0]
    num_ids, bags = call.inputs[1][0], call.outputs[0][0]
    size = gcd(num_ids, bags)
    vectors = {p: 0 for p, s in zip(call.positions, call.outputs, strict=True) if s and s[0] in (num_ids, bags)}
    splits = [
        RawSplit("feature", (WHOLE, 0, 0) + (WHOLE,) * (len(call.inputs) - 3), call.results({**vectors, 0: 0}), size),
        RawSplit("embedding_row", call.dims({0: 0}), call.results({0: PARTIAL}), rows),
        RawSplit("column", call.dims({0: 1}), call.results({0: 1}), columns),
    ]
    return [s for s in splits if s.size > 1]


def embedding_bag_backward(call: SplitCall) -> list[RawSplit]:
    """_embedding_bag_backward(grad (B, D), ids, offsets, ...) -> dweight (V, D)."""
    (bags, columns), (rows, _) = call.inputs[0], call.outputs[0]
    num_ids = call.inputs[1][0]
    by_sample = tuple(0 if s and s[0] in (bags, num_ids) else WHOLE for s in call.inputs)
    splits = [
        RawSplit("feature", by_sample, (PARTIAL,), gcd(bags, num_ids)),
        RawSplit("embedding_row", (WHOLE,) * len(call.inputs), (0,), rows),
        RawSplit("column", call.dims({0: 1}), (1,), columns),
    ]
    return [s for s in splits if s.size > 1]
