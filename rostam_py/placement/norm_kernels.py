"""Kernels of norms that lie inside convolutions: what is left of them, and what convolutions read besides.

Model: see placement/convolution_norms.py, whose table says what each kernel moves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rostam_py.graph import Op
from rostam_py.placement.convolution_norms import ConvolutionNorm, convolution_norms
from rostam_py.placement.kernel import Kernel
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.plan.fusion import APART_NORMS, BOTH_NORMS
from rostam_py.plan.tasks import KernelTime

Ops = tuple[int, ...]
_WIDE, _NARROW = 4, 2  # bytes of a statistic, and of the scales and biases that convolutions apply
# Of each channel: sums, squares, the norm's scale and bias, running statistics are read; statistics for backward, new
# running ones, and the scale and bias that are applied are written (FinalizeInit of cudnn_norm_convolution-inl.h).
_FINALIZED = 6 * _WIDE, 4 * _WIDE + 2 * _NARROW
_BITS = 8  # elements whose signs a byte holds


def with_joined_norms(builder: KernelBuilder, kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels of a graph, of which norms between convolutions lie inside these where they do."""
    if builder.rules.convolution_norms == APART_NORMS:
        return list(kernels)
    joined = _Joined(builder, kernels)
    for norm in convolution_norms(builder.graph):
        joined.add_forward(norm)
        joined.add_backward(norm, is_both=builder.rules.convolution_norms == BOTH_NORMS)
    return joined.all()


class _Joined:
    def __init__(self, builder: KernelBuilder, kernels: Sequence[Kernel]) -> None:
        self.builder, self.kernels = builder, {kernel.ops: kernel for kernel in kernels}
        self.of = {op: kernel.ops for kernel in kernels for op in kernel.ops}
        self.read: dict[Ops, float] = {}  # kernels of convolutions -> bytes that they read for norms

    def add_forward(self, norm: ConvolutionNorm) -> None:
        """Replace the kernels of norms, activation and sum."""
        finalized = tuple(self._finalized(op) for op in norm.norms)
        main = self._merge((norm.activation, *norm.norms, *([] if norm.addition is None else [norm.addition])))
        if norm.addition is None:
            self._set(main, finalized[0])
            return
        size = self._size(norm)
        applied = self.builder.moved(norm.addition, "scaled, added, cut", 2 * size, size + self._bits(norm))
        self._set(main, applied, finalized)

    def add_backward(self, norm: ConvolutionNorm, *, is_both: bool) -> None:
        """Replace the kernels of gradients of norms, activation and sums of gradients."""
        if norm.cut is None or len(norm.backward) < len(norm.norms):
            return
        size, is_added = self._size(norm), norm.addition is not None
        sums = norm.sums if norm.gradient is not None else ()
        if norm.gradient is not None:
            self._join(norm.gradient, len(sums) * size)
        if is_both and norm.gradient is not None:
            self._join(norm.gradient, size * (2 if is_added else 1))
            main, num = self._merge((*norm.backward, norm.cut, *sums)), len(norm.norms)
            self._set(main, self.builder.moved(norm.backward[0], "applied", (1 + num) * size, num * size))
            return
        first = next((op for op in norm.backward if self.of[op.id] == self.of[norm.cut.id]), norm.backward[0])
        main = self._merge((first, norm.cut, *sums))  # a second norm's stays by itself
        signs = self._bits(norm) if is_added else 0.0  # else known again of what the norm read
        self._retime(main, (first, norm.cut), 2 * size + signs, size * (2 if is_added else 1))  # the shortcut's, too

    def all(self) -> list[Kernel]:
        """Return all kernels, with what convolutions read besides."""
        for ops, read in self.read.items():
            call = self.kernels[ops].time.call
            if read and call is not None:
                self._retime(ops, call.ops, call.bytes_read + read, call.bytes_written, read)
        return list(self.kernels.values())

    def _retime(self, ops: Ops, does: tuple[Op, ...], read: float, written: float, beside: float = 0.0) -> None:
        """Time a kernel again that moves other bytes. Args: does: its ops, main first. beside: see KernelCall."""
        time = self.kernels[ops].time
        if time.call is not None:
            call = replace(time.call, ops=does, bytes_read=read, bytes_written=written, beside=beside)
            self._set(ops, KernelTime.of(self.builder.cost, call, time.name, time.launches, module=time.module))

    def _merge(self, does: Iterable[Op]) -> Ops:
        """Return the kernel of the first of some ops, which does the work of the others from now on."""
        main, *others = dict.fromkeys(self.of[op.id] for op in does)
        for ops in others:
            self._drop(ops)
        return main

    def _join(self, gradient: Op, num_bytes: float) -> None:
        ops = self.of[gradient.id]
        self.read[ops] = self.read.get(ops, 0.0) + num_bytes

    def _size(self, norm: ConvolutionNorm) -> float:
        return self.builder.tensor_bytes(norm.norms[0].outputs[0])

    def _bits(self, norm: ConvolutionNorm) -> float:
        return self.builder.num_elements(norm.norms[0].outputs[0]) / _BITS

    def _finalized(self, norm: Op) -> KernelTime:
        """Return the kernel that makes a scale and a bias of the sums of each channel."""
        channels = self.builder.graph.tensors[norm.outputs[0]].shape[1].at(self.builder.batch)
        return self.builder.moved(norm, "finalized", *(channels * each for each in _FINALIZED))

    def _set(self, ops: Ops, time: KernelTime, before: tuple[KernelTime, ...] = ()) -> None:
        kernel = self.kernels[ops]
        adding = None if kernel.adding_time is None else time
        self.kernels[ops] = replace(kernel, time=time, casts=(*kernel.casts, *before), adding_time=adding)

    def _drop(self, ops: Ops) -> None:
        """Leave a kernel out that others do the work of."""
        kernel = self.kernels[ops]
        nothing = KernelTime(
            name=kernel.time.name, module=kernel.time.module, op_type=kernel.time.op_type, duration_s=0.0
        )
        self.kernels[ops] = replace(kernel, time=nothing, is_view=True, casts=(), adds=(), adding_time=None)
