"""An eager loss converts to fp32 what it reads, and back what it makes, in kernels of their own."""

from rostam_py.costs.families import CONVERT
from rostam_py.graph import KernelTraffic, Op
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KernelRule


class LossConversions(KernelRule):
    """The casts of what a kernel of an eager loss reads that others made, and makes that others read."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the casts."""
        local = self.local
        if not any(local.is_loss(op) for op in ops):
            return []
        read = [t for t in traffic.reads if local.is_widened(t)]
        left = [t for t in traffic.writes if local.loss_factor(t) > 1 and local.leaves_loss(t)]
        moved = [(local.tensor_bytes(t), local.tensor_bytes(t) * local.wide_factor) for t in read]
        moved += [(local.tensor_bytes(t) * local.wide_factor, local.tensor_bytes(t)) for t in left]
        return [local.apart(ops[0], "convert", CONVERT, *sizes) for sizes in moved]
