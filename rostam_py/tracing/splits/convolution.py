"""Splits of convolutions and pooling: samples, output and input channels, groups, and space with halos.

Space is split where X = s Y: every member then holds as many outputs as its inputs make, and all halos are alike.
Legend: X, Y inputs and outputs along one dimension (of a transposed convolution the other way round), k kernel, s
stride, p padding, d dilation; output j reads inputs s j - p + d t, t = 0 to k - 1. A member owns outputs a to b - 1
and inputs s a to s b - 1.
"""

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

from rostam_py.graph import PARTIAL, Halo
from rostam_py.tracing.splits.call import RawSplit, Shape, SplitCall


class _Window(NamedTuple):
    """A kernel along one dimension."""

    kernel: int
    stride: int
    padding: int
    dilation: int = 1

    def gathered(self) -> tuple[int, int]:
        """Return the inputs before and after its own that a member's outputs read.

        Model: output a reads from s a - p, output b - 1 up to s b - s - p + d (k - 1).
        """
        last = self.dilation * (self.kernel - 1) - self.padding
        return self.padding, max(0, last - (self.stride - 1))

    def scattered(self) -> tuple[int, int]:
        """Return the outputs before and after its own that read a member's inputs.

        Model: input i is read by outputs (i + p - d t) / s: of i = s a from a - floor((d (k - 1) - p) / s), of
            i = s b - 1 up to b - 1 + ceil(p / s).
        """
        last = self.dilation * (self.kernel - 1) - self.padding
        return max(0, last // self.stride), -(-self.padding // self.stride)


def _listed(value: Sequence[int] | int, index: int) -> int:
    if isinstance(value, int):
        return value
    return value[index] if len(value) > 1 else value[0]


def _halos(*reads: tuple[int | None, tuple[int, int], bool, float]) -> tuple[Halo, ...]:
    """Return the halos of (input or None, slices before and after, whether kept, share of work), no empty ones."""
    return tuple(
        Halo(place, before, after, is_kept, share)
        for place, (before, after), is_kept, share in reads
        if place is not None and before + after > 0
    )


def _is_aligned(inputs: Shape, outputs: Shape, dim: int, window: _Window) -> bool:
    return inputs[dim] == window.stride * outputs[dim]


def _windows(call: SplitCall, weight: Shape, at: int) -> list[_Window]:
    """Return the windows of a convolution whose stride, padding and dilation are arguments ``at`` onwards."""
    stride, padding, dilation = call.args[at : at + 3]
    return [
        _Window(kernel, _listed(stride, i), _listed(padding, i), _listed(dilation, i))
        for i, kernel in enumerate(weight[2:])
    ]


def convolution(call: SplitCall) -> list[RawSplit]:
    """convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups) -> y."""
    x, weight, y = call.inputs[0], call.inputs[1], call.outputs[0]
    transposed, groups = call.args[6], call.args[8]
    out_dim, in_dim = (1, 0) if transposed else (0, 1)
    splits = [RawSplit("feature", call.dims({0: 0}), (0,), x[0])]
    if groups == 1:
        splits.append(RawSplit("column", call.dims({1: out_dim, 2: 0}), (1,), y[1]))
        splits.append(RawSplit("row", call.dims({0: 1, 1: in_dim}), (PARTIAL,), x[1]))
    else:
        splits.append(RawSplit("column", call.dims({0: 1, 1: 0, 2: 0}), (1,), groups))
    for dim, window in enumerate(_windows(call, weight, 3), start=2):
        if not _is_aligned(*((y, x) if transposed else (x, y)), dim, window):
            continue
        halos = _halos((call.slot(0), window.scattered() if transposed else window.gathered(), False, 1.0))
        splits.append(RawSplit("spatial", call.dims({0: dim}), (dim,), gcd(x[dim], y[dim]), halos=halos))
    return [s for s in splits if s.size > 1]


def convolution_backward(call: SplitCall) -> list[RawSplit]:
    """(dy, x, weight, bias_sizes, stride, padding, dilation, transposed, ..., groups, mask) -> dx, dweight, dbias.

    Along space dx needs the gradients that the neighbours hold of outputs which read its inputs, dweight the inputs
    that the outputs read, halos included. A transposed convolution changes the roles of x and dy.
    """
    dy, x, weight = call.inputs[:3]
    transposed, groups = call.args[7], call.args[9]
    out_dim, in_dim = (1, 0) if transposed else (0, 1)
    weights = {1: PARTIAL, 2: PARTIAL}
    splits = [RawSplit("feature", call.dims({0: 0, 1: 0}), call.results({0: 0, **weights}), x[0])]
    if groups == 1:
        column = call.results({0: PARTIAL, 1: out_dim, 2: 0})
        splits.append(RawSplit("column", call.dims({0: 1, 2: out_dim}), column, dy[1]))
        splits.append(RawSplit("row", call.dims({1: 1, 2: in_dim}), call.results({0: 1, 1: in_dim}), x[1]))
    else:
        splits.append(RawSplit("column", call.dims({0: 1, 1: 1, 2: 0}), call.results({0: 1, 1: 0, 2: 0}), groups))
    has_dx, has_dweight = 0 in call.positions, 1 in call.positions
    share = 0.5 if has_dx and has_dweight else 1.0  # both products are of the same size
    for dim, window in enumerate(_windows(call, weight, 4), start=2):
        if not _is_aligned(*((dy, x) if transposed else (x, dy)), dim, window):
            continue
        if transposed:
            halos = _halos((call.slot(0), window.gathered(), False, 1.0)) if has_dx or has_dweight else ()
        else:
            halos = _halos(
                (call.slot(0) if has_dx else None, window.scattered(), False, share),
                (call.slot(1) if has_dweight else None, window.gathered(), True, share),
            )
        outputs = call.results({0: dim, **weights})
        splits.append(RawSplit("spatial", call.dims({0: dim, 1: dim}), outputs, gcd(x[dim], dy[dim]), halos=halos))
    return [s for s in splits if s.size > 1]


def _pool_windows(call: SplitCall, at: int, has_dilation: bool) -> list[_Window]:
    """Return the windows of a pooling whose kernel, stride and padding are arguments ``at`` onwards."""
    kernel = call.args[at]
    stride = call.argument(at + 1) or kernel
    padding, dilation = call.argument(at + 2, 0), call.argument(at + 3, 1) if has_dilation else 1
    return [
        _Window(_listed(kernel, i), _listed(stride, i), _listed(padding, i), _listed(dilation, i))
        for i in range(len(kernel))
    ]


def _pooled(
    call: SplitCall, x: Shape, y: Shape, windows: list[_Window], reads: Sequence[int], is_backward: bool
) -> list[RawSplit]:
    """Return the splits of a pooling from x to y, or of its backward: samples, channels, and space with halos.

    Args: reads: arguments of which members read halos.
    """
    splits = []
    for dim, size in enumerate(x):
        index = dim - (len(x) - len(windows))
        dims, made = (dim,) * len(call.inputs), (dim,) * len(call.outputs)
        if index < 0:
            splits.append(RawSplit("column", dims, made, size))
        elif _is_aligned(x, y, dim, windows[index]):
            slices = windows[index].scattered() if is_backward else windows[index].gathered()
            halos = _halos(*((call.slot(position), slices, False, 1.0) for position in reads))
            splits.append(RawSplit("spatial", dims, made, y[dim], halos=halos))
    return [s for s in splits if s.size > 1]


def max_pool(call: SplitCall) -> list[RawSplit]:
    """max_pool(x, kernel, stride, padding, dilation, ceil_mode) -> y, indices."""
    return _pooled(call, call.inputs[0], call.outputs[0], _pool_windows(call, 1, True), (0,), False)


def max_pool_backward(call: SplitCall) -> list[RawSplit]:
    """max_pool_backward(dy, x, kernel, stride, padding, dilation, ceil_mode, indices) -> dx; dy goes to its indices."""
    return _pooled(call, call.inputs[1], call.inputs[0], _pool_windows(call, 2, True), (0, 7), True)


def average_pool(call: SplitCall) -> list[RawSplit]:
    """avg_pool(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override) -> y."""
    return _pooled(call, call.inputs[0], call.outputs[0], _pool_windows(call, 1, False), (0,), False)


def average_pool_backward(call: SplitCall) -> list[RawSplit]:
    """avg_pool_backward(dy, x, kernel, stride, padding, ...) -> dx."""
    return _pooled(call, call.inputs[1], call.inputs[0], _pool_windows(call, 2, False), (0,), True)
