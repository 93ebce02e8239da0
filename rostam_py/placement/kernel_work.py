"""What kernels count for utilisation: FLOPs as they are timed, as they run, and the model's (MODEL D15)."""

from collections.abc import Sequence
from dataclasses import dataclass

from rostam_py.costs.masks import causal_flops, run_flops
from rostam_py.costs.model import CostModel
from rostam_py.graph import Op
from rostam_py.plan.tasks import KernelTime


@dataclass(frozen=True, slots=True)
class KernelWork:
    """FLOPs of a kernel on one device, or of several.

    run: with padding and replicated work, less what it leaves out of attention's scores under a causal mask.
    model: this device's even share of the model's own work, so that the devices of a stage sum to the model. causal:
    of those half of attention's where its mask is causal.
    """

    run: float = 0.0
    model: float = 0.0
    causal: float = 0.0

    def __add__(self, other: "KernelWork") -> "KernelWork":
        return KernelWork(self.run + other.run, self.model + other.model, self.causal + other.causal)

    @property
    def again(self) -> "KernelWork":
        """The same as a replay of recomputation, which is no work of the model's."""
        return KernelWork(self.run)


NO_WORK = KernelWork()


def kernel_work(
    ops: Sequence[Op], batch: float, num_members: int, flops: float, time: KernelTime, cost: CostModel
) -> KernelWork:
    """Return what a kernel counts.

    Args:
        ops: as the whole model has them. num_members: devices that its work is shared by.
        flops: as it is timed, in all of its parts.
        time: of one of them.
        cost: that timed it.
    """
    own = [op.model_flops.at(batch) for op in ops]
    causal = sum(causal_flops(op, each) for op, each in zip(ops, own, strict=True))
    run = flops if time.call is None else run_flops(time.call, flops, cost)
    return KernelWork(run, sum(own) / num_members, causal / num_members)
