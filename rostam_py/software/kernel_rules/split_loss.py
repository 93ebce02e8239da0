"""DTensor's compiled loss_parallel runs more kernels in forward than the one that reads logits once.

Model: all-reduces of the largest logits and of the sums of exponentials part what reads logits: a kernel for each. The
    gradient of logits, but for the loss's, is made in forward, in fp32: it is filled with zeros, the picked words'
    places are written, exponentials are added. It is kept, and backward scales it.
Source: torch/distributed/tensor/parallel/loss.py, traced by PyTorch 2.13's compiler (_nll_loss_forward and
    _nll_loss_and_log_softmax_backward: full, index_put, exp and add lie before the partition's cut).
"""

from rostam_py.costs.families import MAP, REDUCE
from rostam_py.costs.precision import is_of_log_softmax
from rostam_py.graph import KernelTraffic, Op
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KernelRule


class SplitLoss(KernelRule):
    """The kernels of DTensor's compiled loss_parallel beyond the one that reads logits once, in forward."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the kernels."""
        made = [op for op in ops if op.phase == "forward" and is_of_log_softmax(op.op_type)]
        if not made:
            return []
        size = self.local.read_bytes(ops, made[0].inputs[0])
        wide = size * self.local.wide_factor
        return [
            self.local.apart(made[0], "sum", REDUCE, size, 0),
            self.local.apart(made[0], "zeros", MAP, 0, wide),
            self.local.apart(made[0], "gradient", MAP, size + wide, wide),
        ]
