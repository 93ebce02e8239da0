"""Between Megatron-Core's modules autograd adds gradients up in kernels of their own.

Model: autograd adds what comes from elsewhere, as along a residual, to what the kernel makes: it reads both and writes
    the sum. What products of one input make of its gradient is one product's where that code has one for all of them
    (qkv, gate and up), which adds up inside.
"""

from rostam_py.costs.families import ADD
from rostam_py.graph import KernelTraffic, Op
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KernelRule


class GradientSums(KernelRule):
    """The sums of gradients among a kernel's ops that are kernels of their own, and what the rest moves."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the sums."""
        return [self.local.apart(op, "sum", ADD, 2 * size, size) for op, size in self._sums(ops)]

    def moved(self, ops: tuple[Op, ...], read: float, written: float) -> tuple[float, float]:
        """Return what the rest reads and writes."""
        if ops[0].phase != "backward":
            return read, written
        merged = [op for op in ops if op.id in self.local.merged_sums]
        if len(merged) == len(ops):
            return 0.0, 0.0
        made, roots = {t for op in ops for t in op.outputs}, self.local.graph.view_roots
        parts = list(dict.fromkeys(t for op in merged for t in op.inputs if roots[t] not in made))
        read -= sum(self.local.read_bytes(tuple(merged), t) for t in parts[1:])
        for _, size in self._sums(ops):
            read -= size
        return read, written

    def _sums(self, ops: tuple[Op, ...]) -> list[tuple[Op, float]]:
        """Return the sums that are kernels of their own, and the bytes of what each makes."""
        if ops[0].phase != "backward" or len(ops) == 1 or all(op.id in self.local.merged_sums for op in ops):
            return []
        made, roots, found = {t for op in ops for t in op.outputs}, self.local.graph.view_roots, []
        for op in ops:
            others = [t for t in op.inputs if roots[t] not in made]
            if op.role != "sum" or op.id in self.local.merged_sums or len(op.inputs) != 2 or len(others) != 1:
                continue
            size = self.local.read_bytes((op,), others[0])
            if all(size == self.local.read_bytes((op,), t) for t in op.inputs):
                found.append((op, size))
        return found
