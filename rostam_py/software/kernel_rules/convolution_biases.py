"""Eager PyTorch adds a convolution's bias in a kernel of its own, and sums its gradient in another.

Source: output.add_ in _convolution, grad_output.sum in convolution_backward, behind cuDNN
    (aten/src/ATen/native/Convolution.cpp).
"""

from rostam_py.costs.families import MAP, REDUCE, op_family
from rostam_py.graph import KernelTraffic, Op
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KernelRule


class ConvolutionBiases(KernelRule):
    """The kernel that adds a convolution's bias to what it makes, or sums its gradient."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the kernel, if any."""
        op, tensors = ops[0], self.local.graph.tensors
        if op_family(op.op_type, op.role) != "convolution":
            return []
        is_forward = op.phase == "forward" or op.is_recomputed
        if not any(len(tensors[t].shape) == 1 for t in (op.inputs if is_forward else op.outputs)):
            return []
        size = self.local.tensor_bytes((op.outputs if is_forward else op.inputs)[0])
        return [self.local.apart(op, "bias", MAP if is_forward else REDUCE, size, size if is_forward else 0.0)]
