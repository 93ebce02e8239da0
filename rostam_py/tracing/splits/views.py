"""Splits of ops that only rearrange: which dim of the input is which dim of the output.

A merged dim splits along its outermost factor only: members hold contiguous parts.
"""

from math import gcd

from rostam_py.graph import WHOLE
from rostam_py.tracing.splits.call import RawSplit, Rule, Shape, SplitCall


def view(call: SplitCall) -> list[RawSplit]:
    """view and reshape: dims fall into groups of equal product; a group splits along its outermost dim."""
    shape, output = call.inputs[0], call.outputs[0]
    return [RawSplit("feature", (i,), (o,), size) for i, o, size in _outermost(shape, output)]


def _outermost(shape: Shape, output: Shape) -> list[tuple[int, int, int]]:
    """Return (input dim, output dim, size) of every group's outermost dims."""
    if 0 in shape or 0 in output:
        return []
    ins = [d for d, n in enumerate(shape) if n > 1]
    outs = [d for d, n in enumerate(output) if n > 1]
    groups = []
    i = o = 0
    while i < len(ins) and o < len(outs):
        first = (ins[i], outs[o])
        a, b = shape[ins[i]], output[outs[o]]
        size = gcd(a, b)
        while a != b:
            if a < b:
                i += 1
                a *= shape[ins[i]]
            else:
                o += 1
                b *= output[outs[o]]
        groups.append((*first, size))
        i, o = i + 1, o + 1
    return [(i, o, size) for i, o, size in groups if size > 1]


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
    """Return a rule for ops that cut or pad the dim at argument ``position`` and keep its place (slice, split)."""

    def rule(call: SplitCall) -> list[RawSplit]:
        shape = call.inputs[0]
        cut = call.argument(position, call.kwargs.get("dim", 0)) % max(len(shape), 1)
        is_full = all(o == shape for o in call.outputs)
        return [
            RawSplit("feature", (dim,), (dim,) * len(call.outputs), size)
            for dim, size in enumerate(shape)
            if size > 1 and (dim != cut or is_full)
        ]

    return rule


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
    """slice_backward(grad, sizes, dim, ...): every other dim."""
    output = call.outputs[0]
    cut = call.args[2] % len(output)
    return [RawSplit("feature", (d,), (d,), n) for d, n in enumerate(output) if n > 1 and d != cut]


def cat(call: SplitCall) -> list[RawSplit]:
    """cat: every dim but the concatenated one."""
    output = call.outputs[0]
    joined = call.argument(1, 0) % max(len(output), 1)
    return [
        RawSplit("feature", tuple(d if len(s) == len(output) else WHOLE for s in call.inputs), (d,), n)
        for d, n in enumerate(output)
        if n > 1 and d != joined
    ]


def stack(call: SplitCall) -> list[RawSplit]:
    """stack: every dim but the new one."""
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
    """index(x, [rows]): the dims behind the first one, and the rows that are asked for."""
    x, y = call.inputs[0], call.outputs[0]
    if len(call.args[1]) != 1 or len(call.inputs) != 2:
        return []
    rows = call.inputs[1]
    shift = len(y) - len(x)
    splits = [RawSplit("feature", (d, WHOLE), (d + shift,), n) for d, n in enumerate(x) if d >= 1 and n > 1]
    if y[: len(rows)] == rows:
        splits += [RawSplit("feature", (WHOLE, d), (d,), n) for d, n in enumerate(rows) if n > 1]
    return splits


def index_put(call: SplitCall) -> list[RawSplit]:
    """index_put(x, [rows], values): the dims behind the first one."""
    x, values = call.inputs[0], call.inputs[-1]
    if len(call.args[1]) != 1 or len(call.inputs) != 3 or len(values) < len(x):
        return []
    shift = len(values) - len(x)
    return [
        RawSplit("feature", (d, WHOLE, d + shift), (d,), n)
        for d, n in enumerate(x)
        if d >= 1 and n > 1 and values[d + shift] == n
    ]


def index_add(call: SplitCall) -> list[RawSplit]:
    """index_add(x, dim, rows, values): every other dim."""
    x, dim = call.inputs[0], call.args[1] % len(call.inputs[0])
    return [RawSplit("feature", (d, WHOLE, d), (d,), n) for d, n in enumerate(x) if d != dim and n > 1]
