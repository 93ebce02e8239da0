"""GroupPlacement: the sub-ops of one model-parallel group and where they run, which plans and estimates start from."""

from dataclasses import dataclass

from rostam_py.placement.sip_ml.algorithm1 import SubOpPlacement
from rostam_py.placement.sip_ml.sub_ops import SUM, SubOpGraph
from rostam_py.placement.sip_ml.window import Window
from rostam_py.plan.tasks import KernelTime


@dataclass(frozen=True, slots=True)
class GroupPlacement:
    """Sub-ops of one group and where they run; what an estimate of the iteration needs besides the plan.

    window: which of its devices may exchange data, None if any. optimizers: of each device, None without parameters.
    most_received_bytes: what one of its devices receives at least, of the device that receives most. notes: on the
    placement.
    """

    sub_ops: SubOpGraph
    placed: SubOpPlacement
    window: Window | None
    optimizers: tuple[KernelTime | None, ...]
    most_received_bytes: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def optimizer_s(self) -> tuple[float, ...]:
        """How long every device's optimizer takes [s]."""
        return tuple(0.0 if kernel is None else kernel.duration_s for kernel in self.optimizers)

    @property
    def makespan_s(self) -> float:
        """What an iteration takes at least: where communication is free, every device's sub-ops and optimizer [s]."""
        ends = list(self.optimizer_s)
        placed = zip(self.sub_ops.nodes, self.placed.devices, self.placed.starts_s, strict=True)
        for node, devices, starts in placed:
            if node.kind == SUM:
                continue  # what reads it comes later
            seconds = 0.0 if node.time is None else node.time.duration_s
            for d, start in zip(devices, starts, strict=True):
                ends[d] = max(ends[d], start + seconds + self.optimizer_s[d])
        return max(ends, default=0.0)
