"""Splits of element-wise ops (with broadcasting), creations, and ops independent along some dims."""

from math import prod

from rostam_py.graph import PARTIAL, WHOLE
from rostam_py.tracing.splits.call import RawSplit, Rule, Shape, SplitCall


def _aligned(shape: Shape, output: Shape, dim: int) -> int | None:
    """Return the dim of ``shape`` that broadcasts onto ``dim`` of ``output``, WHOLE if it is stretched."""
    own = dim - (len(output) - len(shape))
    return own if own >= 0 and shape[own] == output[dim] and output[dim] > 1 else WHOLE


def elementwise(call: SplitCall) -> list[RawSplit]:
    """Every dim of the output, carried to the inputs by the broadcasting rules."""
    if not call.outputs:
        return []
    shape = call.outputs[0]
    splits = []
    for dim, size in enumerate(shape):
        if size > 1:
            inputs = tuple(_aligned(s, shape, dim) for s in call.inputs)
            outputs = tuple(dim if o == shape else WHOLE for o in call.outputs)
            splits.append(RawSplit("feature", inputs, outputs, size))
    return splits


def creation(call: SplitCall) -> list[RawSplit]:
    """A tensor made from scalars: each member makes its part."""
    wholes = (WHOLE,) * len(call.inputs)
    return [RawSplit("feature", wholes, (d,), n) for d, n in enumerate(call.outputs[0]) if n > 1]


def creation_like(call: SplitCall) -> list[RawSplit]:
    """A tensor made from scalars next to another one: along dims that both have, split as the other is."""
    shape, output = call.inputs[0], call.outputs[0]
    num_same = sum(a == b for a, b in zip(shape, output, strict=False))
    if len(shape) != len(output) or num_same < len(output) - 1:
        return creation(call)
    return [RawSplit("feature", (d if shape[d] == n else WHOLE,), (d,), n) for d, n in enumerate(output) if n > 1]


def pointwise_loss(call: SplitCall) -> list[RawSplit]:
    """mse_loss and its kin: a reduced loss is a sum of the members' parts."""
    if call.outputs[0] == call.inputs[0]:
        return elementwise(call)
    shape = call.inputs[0]
    splits = []
    for dim, size in enumerate(shape):
        if size > 1:
            splits.append(RawSplit("feature", tuple(_aligned(s, shape, dim) for s in call.inputs), (PARTIAL,), size))
    return splits


def leading(num_dims: int, kind: str = "column") -> Rule:
    """Return a rule for ops that work on each of the first ``num_dims`` dims' entries alone (pooling)."""

    def rule(call: SplitCall) -> list[RawSplit]:
        splits = []
        for dim in range(num_dims):
            shapes = [*call.inputs, *call.outputs]
            size = call.inputs[0][dim] if len(call.inputs[0]) > dim else 1
            if size > 1 and all(len(s) > dim and s[dim] == size for s in shapes):
                splits.append(RawSplit(kind, (dim,) * len(call.inputs), (dim,) * len(call.outputs), size))
        return splits

    return rule


def stacked(call: SplitCall) -> list[RawSplit]:
    """Ops on stacks of matrices, which are independent: all dims before the last two."""
    return leading(max(len(call.inputs[0]) - 2, 0), "feature")(call)


def independent_along(position: int, default: int = -1) -> Rule:
    """Return a rule for ops that mix only the dim named by argument ``position`` (cumsum, gather, sort)."""

    def rule(call: SplitCall) -> list[RawSplit]:
        shape = call.inputs[0]
        mixed = call.kwargs.get("dim", call.argument(position, default))
        mixed = mixed % len(shape) if isinstance(mixed, int) and shape else 0
        splits = []
        for dim, size in enumerate(shape):
            tensors = [*call.inputs, *call.outputs]
            if dim != mixed and size > 1 and all(len(s) == len(shape) and s[dim] == size for s in tensors):
                splits.append(RawSplit("feature", (dim,) * len(call.inputs), (dim,) * len(call.outputs), size))
        return splits

    return rule


def softmax(call: SplitCall) -> list[RawSplit]:
    """Softmax and its backward; along the softmax dim the statistics are all-reduced."""
    shape = call.inputs[0]
    backward = "backward" in call.name
    mixed = call.argument(2 if backward else 1) % len(shape)
    statistics = 1 if backward else 2  # the sum of grad * output; the maximum and the sum
    splits = []
    for dim, size in enumerate(shape):
        if size <= 1:
            continue
        dims = tuple(dim if s == shape else WHOLE for s in call.inputs)
        if dim != mixed:
            splits.append(RawSplit("feature", dims, (dim,), size))
        else:
            num_bytes = statistics * 4 * (prod(shape) // size)
            splits.append(RawSplit("column", dims, (dim,), size, "all_reduce", num_bytes))
    return splits
