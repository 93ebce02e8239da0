"""Where a norm's backward is one kernel of a library, what it makes and another gradient are added up by one more."""

from rostam_py.costs.families import ADD
from rostam_py.graph import KernelTraffic, Op
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KernelRule


class NormSums(KernelRule):
    """The sums of what the backward of a norm in one kernel makes and of another gradient."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the sums."""
        if len(ops) == 1:
            return []
        inside = {op.id for op in ops}
        sums = [
            op for op in ops
            if op.is_accumulation and any(self.local.graph.tensors[t].producer not in inside for t in op.inputs)
        ]  # fmt: skip
        sizes = (self.local.tensor_bytes(op.outputs[0]) for op in sums)
        return [self.local.apart(op, "sum", ADD, size, size) for op, size in zip(sums, sizes, strict=True)]
