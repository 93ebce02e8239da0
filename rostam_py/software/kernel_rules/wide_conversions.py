"""What a kernel that computes in 32 bits reads and makes is converted in kernels of their own."""

from rostam_py.costs.families import CONVERT
from rostam_py.graph import KernelTraffic, Op
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KernelRule
from rostam_py.software.wide_ops import COMPLEX


class WideConversions(KernelRule):
    """The conversions of what a kernel that computes in 32 bits reads and makes."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the conversions."""
        local = self.local
        if local.wide_factor == 1 or ops[0].id not in local.wide:
            return []
        narrow = 1 / local.wide_factor
        moved = []
        for tensors, is_before in (
            (local.wide.converted_before(ops[0]), True), (local.wide.converted_behind(ops[0]), False)
        ):  # fmt: skip
            for t in tensors:
                wide = local.tensor_bytes(t) * (1.0 if local.graph.tensors[t].dtype == COMPLEX else local.wide_factor)
                moved.append((wide * narrow, wide) if is_before else (wide, wide * narrow))
        return [local.apart(ops[0], "convert", CONVERT, *sizes) for sizes in moved]
