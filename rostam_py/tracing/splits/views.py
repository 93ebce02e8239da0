"""Splits of ops that only rearrange: which dim of the input is which dim of the output.

A merged dim splits along each of its factors; along an inner one members hold a part of every stretch (graph.Part).
"""

import itertools
import operator
from math import gcd

from rostam_py.graph import WHOLE
from rostam_py.tracing.splits.call import RawPart, RawSplit, Rule, Shape, SplitCall


def view(call: SplitCall) -> list[RawSplit]:
    """view and reshape: dims fall into groups of equal product, a group into factors common to both sides.

    Each factor is an axis. A group without common factors, (6, 2) to (4, 3), splits along its outermost dim only.
    """
    shape, output = call.inputs[0], call.outputs[0]
    splits = []
    for ins, outs in _groups(shape, output):
        for i, o, size, outer_in, outer_out in _factors(shape, output, ins, outs):
            part_in, part_out = _outer(outer_in), _outer(outer_out)
            splits.append(RawSplit("feature", (i,), (o,), size, input_parts=part_in, output_parts=part_out))
    return splits


def _outer(count: int) -> tuple[RawPart | None, ...]:
    return (RawPart(outer=count),) if count > 1 else ()


def _groups(shape: Shape, output: Shape) -> list[tuple[list[int], list[int]]]:
    """Return (input dims, output dims) of every group, dims of extent 1 left out."""
    if 0 in shape or 0 in output:
        return []
    ins = [d for d, n in enumerate(shape) if n > 1]
    outs = [d for d, n in enumerate(output) if n > 1]
    groups = []
    i = o = 0
    while i < len(ins) and o < len(outs):
        first = (i, o)
        a, b = shape[ins[i]], output[outs[o]]
        while a != b:
            if a < b:
                i += 1
                a *= shape[ins[i]]
            else:
                o += 1
                b *= output[outs[o]]
        groups.append((ins[first[0] : i + 1], outs[first[1] : o + 1]))
        i, o = i + 1, o + 1
    return groups


def _factors(shape: Shape, output: Shape, ins: list[int], outs: list[int]) -> list[tuple[int, int, int, int, int]]:
    """Return (input dim, output dim, extent, factors of the input dim outside, of the output dim) of every factor."""
    ends_in, ends_out = _ends(shape, ins), _ends(output, outs)
    ends = sorted({*ends_in, *ends_out})
    if any(b % a for a, b in itertools.pairwise(ends)):
        size = gcd(shape[ins[0]], output[outs[0]])
        return [(ins[0], outs[0], size, 1, 1)] if size > 1 else []
    factors = []
    for before, end in itertools.pairwise([1, *ends]):
        i = sum(e <= before for e in ends_in)
        o = sum(e <= before for e in ends_out)
        outer_in = before // ([1, *ends_in][i])
        outer_out = before // ([1, *ends_out][o])
        factors.append((ins[i], outs[o], end // before, outer_in, outer_out))
    return factors


def _ends(shape: Shape, dims: list[int]) -> list[int]:
    """Return the products of the first, the first two, ... of the dims."""
    return list(itertools.accumulate((shape[d] for d in dims), operator.mul))


def permute(call: SplitCall) -> list[RawSplit]:
    """permute, transpose and t: every dim moves."""
    rank = len(call.inputs[0])
    order = list(range(rank))
    if call.name == "permute":
        order = [d % rank for d in call.args[1]]
    elif call.name == "t":
        order.reverse()
    else:
        a, b = call.args[1] % rank, call.args[2] % rank
        order[a], order[b] = b, a
    return [RawSplit("feature", (i,), (o,), call.outputs[0][o]) for o, i in enumerate(order) if call.outputs[0][o] > 1]


def expand(call: SplitCall) -> list[RawSplit]:
    """Dims kept split as they are; a stretched dim splits the output of a whole input."""
    shape, output = call.inputs[0], call.outputs[0]
    lead = len(output) - len(shape)
    splits = []
    for dim, size in enumerate(output):
        if size > 1:
            own = dim - lead
            splits.append(RawSplit("feature", (own if own >= 0 and shape[own] == size else WHOLE,), (dim,), size))
    return splits


def along_others(position: int) -> Rule:
    """Return a rule for ops that cut the dim at argument ``position`` and keep its place (slice, split)."""

    def rule(call: SplitCall) -> list[RawSplit]:
        shape = call.inputs[0]
        cut = call.argument(position, call.kwargs.get("dim", 0)) % max(len(shape), 1)
        is_full = all(o == shape for o in call.outputs)
        splits = [
            RawSplit("feature", (dim,), (dim,) * len(call.outputs), size)
            for dim, size in enumerate(shape)
            if size > 1 and (dim != cut or is_full)
        ]
        starts = _cut_starts(call, cut)
        if shape and not is_full and starts is not None:
            parts = tuple(RawPart(1, a, o[cut]) for a, o in zip(starts, call.outputs, strict=True))
            splits.append(RawSplit("feature", (cut,), (cut,) * len(parts), shape[cut], output_parts=parts))
        if shape and call.name == "slice" and not is_full:
            splits += _strided(cut, shape[cut], call.outputs[0][cut], call.argument(2, 0) or 0, call.argument(4, 1))
        return splits

    return rule


def _strided(dim: int, extent: int, taken: int, start: int, step: int) -> list[RawSplit]:
    """Return the split of a cut that takes one of every ``step`` entries: members hold whole groups of them."""
    if step == 1 or not 0 <= start < step or taken * step != extent:
        return []
    return [RawSplit("feature", (dim,), (dim,), taken)]


def slice_scatter(call: SplitCall) -> list[RawSplit]:
    """slice_scatter(x, part, dim, start, end, step): every other dim."""
    shape, cut = call.inputs[0], call.argument(2, call.kwargs.get("dim", 0)) % len(call.inputs[0])
    return [RawSplit("feature", (d, d), (d,), n) for d, n in enumerate(shape) if d != cut and n > 1]


def select_scatter(call: SplitCall) -> list[RawSplit]:
    """select_scatter(x, part, dim, index): every other dim."""
    shape, cut = call.inputs[0], call.argument(2, call.kwargs.get("dim", 0)) % len(call.inputs[0])
    return [RawSplit("feature", (d, d - (d > cut)), (d,), n) for d, n in enumerate(shape) if d != cut and n > 1]


def _cut_starts(call: SplitCall, cut: int) -> list[int] | None:
    """Return where in the cut dim each output begins, None where one is not a stretch of it."""
    extent = call.inputs[0][cut]
    if call.name == "slice":
        start = call.argument(2, 0) or 0
        if call.argument(4, 1) != 1 or 0 in call.outputs[0]:
            return None
        return [min(max(start + extent if start < 0 else start, 0), extent)]
    sizes = call.argument(1)
    if isinstance(sizes, int):
        size = -(-extent // sizes) if call.name == "chunk" else sizes
        return [place * size for place in call.positions]
    return [sum(sizes[:place]) for place in call.positions]


def removes(position: int) -> Rule:
    """Return a rule for ops that drop the dim at argument ``position`` (select, unbind)."""

    def rule(call: SplitCall) -> list[RawSplit]:
        shape = call.inputs[0]
        gone = call.argument(position, 0) % max(len(shape), 1)
        return [
            RawSplit("feature", (dim,), (dim - (dim > gone),) * len(call.outputs), size)
            for dim, size in enumerate(shape)
            if size > 1 and dim != gone
        ]

    return rule


def select_backward(call: SplitCall) -> list[RawSplit]:
    """select_backward(grad, sizes, dim, index): the selected dim comes back."""
    output = call.outputs[0]
    gone = call.args[2] % len(output)
    return [
        RawSplit("feature", (dim - (dim > gone),), (dim,), size)
        for dim, size in enumerate(output)
        if size > 1 and dim != gone
    ]


def slice_backward(call: SplitCall) -> list[RawSplit]:
    """slice_backward(grad, sizes, dim, start, end, step): every other dim, and the cut one in its stretch."""
    grad, output = call.inputs[0], call.outputs[0]
    cut = call.args[2] % len(output)
    splits = [RawSplit("feature", (d,), (d,), n) for d, n in enumerate(output) if n > 1 and d != cut]
    start, extent = call.argument(3, 0) or 0, output[cut]
    if call.argument(5, 1) == 1 and 0 not in grad and extent > 1:
        begin = min(max(start + extent if start < 0 else start, 0), extent)
        part = RawPart(1, begin, grad[cut])
        splits.append(RawSplit("feature", (cut,), (cut,), extent, input_parts=(part,)))
    return splits + _strided(cut, extent, grad[cut], start, call.argument(5, 1))


def cat(call: SplitCall) -> list[RawSplit]:
    """cat: every dim except the concatenated one, and that one with a part of every piece."""
    output = call.outputs[0]
    joined = call.argument(1, 0) % max(len(output), 1)
    splits = [
        RawSplit("feature", tuple(d if len(s) == len(output) else WHOLE for s in call.inputs), (d,), n)
        for d, n in enumerate(output)
        if n > 1 and d != joined
    ]
    if len(call.inputs) > 1 and all(len(s) == len(output) and 0 not in s for s in call.inputs):
        lengths = [s[joined] for s in call.inputs]
        parts = tuple(RawPart(1, sum(lengths[:k]), n) for k, n in enumerate(lengths))
        dims = (joined,) * len(lengths)
        splits.append(RawSplit("feature", dims, (joined,), output[joined], input_parts=parts))
    return splits


def stack(call: SplitCall) -> list[RawSplit]:
    """stack: every dim except the new one."""
    output = call.outputs[0]
    new = call.argument(1, 0) % len(output)
    return [
        RawSplit("feature", (d - (d > new),) * len(call.inputs), (d,), n)
        for d, n in enumerate(output)
        if n > 1 and d != new
    ]


def same_shape_dims(call: SplitCall) -> list[RawSplit]:
    """Ops that keep the rank: dims whose size does not change (padding, tril on leading dims)."""
    shape, output = call.inputs[0], call.outputs[0]
    kept = len(shape) - 2 if call.name in ("tril", "triu") else len(shape)
    if len(shape) != len(output):
        return []
    return [
        RawSplit("feature", (d,) + (WHOLE,) * (len(call.inputs) - 1), (d,), n)
        for d, n in enumerate(shape[:kept])
        if n > 1 and output[d] == n
    ]


def index(call: SplitCall) -> list[RawSplit]:
    """index(x, [None, ..., rows]): the dims around the one that is indexed, and the rows that are asked for."""
    x, y = call.inputs[0], call.outputs[0]
    place = _indexed(call)
    if place is None or len(call.inputs) != 2:
        return []
    rows = call.inputs[1]
    kept = _beside(x, place, len(y) - len(x))
    splits = [RawSplit("feature", (d, WHOLE), (out,), n) for d, out, n in kept]
    if y[place : place + len(rows)] == rows:
        splits += [RawSplit("feature", (WHOLE, d), (place + d,), n) for d, n in enumerate(rows) if n > 1]
    return splits


def index_put(call: SplitCall) -> list[RawSplit]:
    """index_put(x, [None, ..., rows], values): the dims around the one that is indexed."""
    x, values = call.inputs[0], call.inputs[-1]
    place = _indexed(call)
    if place is None or len(call.inputs) != 3 or len(values) < len(x):
        return []
    kept = _beside(x, place, len(values) - len(x))
    return [RawSplit("feature", (d, WHOLE, out), (d,), n) for d, out, n in kept if values[out] == n]


def _indexed(call: SplitCall) -> int | None:
    """Return the dim that the call's only index selects from, None if there are several."""
    places = [place for place, rows in enumerate(call.args[1]) if rows is not None]
    return places[0] if len(places) == 1 else None


def _beside(shape: Shape, place: int, shift: int) -> list[tuple[int, int, int]]:
    """Return (dim, the same dim where dim ``place`` is replaced by as many and ``shift`` more, size) of the others."""
    return [(d, d + shift * (d > place), n) for d, n in enumerate(shape) if d != place and n > 1]


def index_add(call: SplitCall) -> list[RawSplit]:
    """index_add(x, dim, rows, values): every other dim."""
    x, dim = call.inputs[0], call.args[1] % len(call.inputs[0])
    return [RawSplit("feature", (d, WHOLE, d), (d,), n) for d, n in enumerate(x) if d != dim and n > 1]


def complex_pairs(call: SplitCall) -> list[RawSplit]:
    """view_as_complex, view_as_real and conjugates: every dim but that of the pairs of real numbers."""
    shape, output = call.inputs[0], call.outputs[0]
    kept = min(len(shape), len(output))
    return [RawSplit("feature", (d,), (d,), n) for d, n in enumerate(shape[:kept]) if n > 1 and output[d] == n]


def repeat(call: SplitCall) -> list[RawSplit]:
    """repeat(x, repeats): dims as they are within each copy, and the copies, of which each reads all of x."""
    shape, output = call.inputs[0], call.outputs[0]
    lead = len(output) - len(shape)
    splits = []
    for dim, extent in enumerate(output):
        own = dim - lead
        size = shape[own] if own >= 0 else 1
        copies = extent // size if size else 1
        if copies > 1:
            splits.append(RawSplit("feature", (WHOLE,), (dim,), copies))
        if size > 1:
            splits.append(RawSplit("feature", (own,), (dim,), size, output_parts=_outer(copies)))
    return splits
