"""Splits of convolutions: samples, output and input channels, groups, and space with halos."""

from math import gcd, prod

from rostam_py.graph import PARTIAL
from rostam_py.tracing.splits.call import RawSplit, Shape, SplitCall


def _halo_bytes(shape: Shape, dim: int, kernel: int, dilation: int) -> int:
    """Return the bytes both neighbours send to one member: dilation * (kernel - 1) slices of fp32."""
    return 4 * dilation * (kernel - 1) * (prod(shape) // shape[dim])


def _listed(value: list[int] | int, index: int) -> int:
    if isinstance(value, int):
        return value
    return value[index] if len(value) > 1 else value[0]


def convolution(call: SplitCall) -> list[RawSplit]:
    """convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups) -> y."""
    x, weight, y = call.inputs[0], call.inputs[1], call.outputs[0]
    dilation, transposed, groups = call.args[5], call.args[6], call.args[8]
    out_dim, in_dim = (1, 0) if transposed else (0, 1)
    splits = [RawSplit("feature", call.dims({0: 0}), (0,), x[0])]
    if groups == 1:
        splits.append(RawSplit("column", call.dims({1: out_dim, 2: 0}), (1,), y[1]))
        splits.append(RawSplit("row", call.dims({0: 1, 1: in_dim}), (PARTIAL,), x[1]))
    else:
        splits.append(RawSplit("column", call.dims({0: 1, 1: 0, 2: 0}), (1,), groups))
    for index in range(len(x) - 2):
        dim = index + 2
        halo = _halo_bytes(x, dim, weight[dim], _listed(dilation, index))
        splits.append(
            RawSplit("spatial", call.dims({0: dim}), (dim,), gcd(x[dim], y[dim]), "halo" if halo else "", halo)
        )
    return [s for s in splits if s.size > 1]


def convolution_backward(call: SplitCall) -> list[RawSplit]:
    """(dy, x, weight, bias_sizes, stride, padding, dilation, transposed, ..., groups, mask) -> dx, dweight, dbias."""
    dy, x, weight = call.inputs[:3]
    dilation, transposed, groups = call.args[6], call.args[7], call.args[9]
    out_dim, in_dim = (1, 0) if transposed else (0, 1)
    weights = {1: PARTIAL, 2: PARTIAL}
    splits = [RawSplit("feature", call.dims({0: 0, 1: 0}), call.results({0: 0, **weights}), x[0])]
    if groups == 1:
        column = call.results({0: PARTIAL, 1: out_dim, 2: 0})
        splits.append(RawSplit("column", call.dims({0: 1, 2: out_dim}), column, dy[1]))
        splits.append(RawSplit("row", call.dims({1: 1, 2: in_dim}), call.results({0: 1, 1: in_dim}), x[1]))
    else:
        splits.append(RawSplit("column", call.dims({0: 1, 1: 1, 2: 0}), call.results({0: 1, 1: 0, 2: 0}), groups))
    for index in range(len(x) - 2):
        dim = index + 2
        halo = _halo_bytes(dy, dim, weight[dim], _listed(dilation, index))
        outputs = call.results({0: dim, **weights})
        kind = "halo" if halo else ""
        splits.append(RawSplit("spatial", call.dims({0: dim, 1: dim}), outputs, gcd(x[dim], dy[dim]), kind, halo))
    return [s for s in splits if s.size > 1]


def max_pool(call: SplitCall) -> list[RawSplit]:
    """max_pool(x, kernel, stride, ...) -> y, indices: samples, channels, and space with halos."""
    x, y = call.inputs[0], call.outputs[0]
    num_space = len(call.args[1])
    outputs = len(call.outputs)
    splits = []
    for dim, size in enumerate(x):
        index = dim - (len(x) - num_space)
        if index < 0:
            splits.append(RawSplit("column", (dim,), (dim,) * outputs, size))
            continue
        kernel = _listed(call.args[1], index)
        stride = _listed(call.argument(2) or call.args[1], index)
        halo = 4 * max(0, kernel - stride) * (prod(x) // size)
        splits.append(RawSplit("spatial", (dim,), (dim,) * outputs, gcd(size, y[dim]), "halo" if halo else "", halo))
    return [s for s in splits if s.size > 1]
