"""Megatron-Core adds the biases of experts' last products in eager PyTorch, weighted by row, in fp32.

Model: each expert's bias is multiplied by its rows' weights, the product is added, and what all experts make is joined:
    two kernels for each expert, the join and a cast forward; a cast and, for each expert, one of the product's
    gradient, two products and two sums backward. 115 of 16 experts both ways, as was counted on an H100.
Source: _apply_bias in megatron/core/transformer/moe/experts.py of NVIDIA/Megatron-LM at 034fd2d3.
"""

from rostam_py.costs.families import CONVERT, MAP, REDUCE
from rostam_py.graph import KernelTraffic, Op
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KernelRule


class ExpertBiases(KernelRule):
    """The kernels of the biases of experts' last products, and of their gradients; the last is the group's own."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return all but the last."""
        return self._all(ops)[:-1]

    def time(self, ops: tuple[Op, ...], time: KernelTime, written: float) -> KernelTime:
        """Return the last, of groups that have any."""
        found = self._all(ops)
        return found[-1] if found else time

    def _all(self, ops: tuple[Op, ...]) -> list[KernelTime]:
        found = []
        for op in ops:
            product = self.local.epilogues.weighted.get(op.id)
            if product is None:
                continue
            rows = op.outputs[0] if op.phase == "forward" else op.inputs[-1]
            size, experts = 2 * self.local.num_elements(rows), self.local.num_products(product)
            if op.phase == "forward":
                passes = [("weighted", MAP, 0.0, 2.0, experts), ("biased", MAP, 3.0, 2.0, experts)]
                passes += [("all joined", MAP, 2.0, 2.0, 1), ("narrowed", CONVERT, 2.0, 1.0, 1)]
            else:
                passes = [("widened", CONVERT, 1.0, 2.0, 1), ("narrowed", CONVERT, 2.0, 1.0, experts)]
                for what in ("bias", "weight"):
                    passes += [(what, MAP, 2.0, 2.0, experts), (f"{what}, summed", REDUCE, 2.0, 0.0, experts)]
            found += [
                self.local.apart(op, what, kind, read * size, written * size, launches)
                for what, kind, read, written, launches in passes
            ]
        return found
