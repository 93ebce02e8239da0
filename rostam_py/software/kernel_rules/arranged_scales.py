"""The scales of a narrow product's inputs are arranged as its kernel reads them.

Model: one kernel for each of the two inputs, which reads their scales and writes them, in front of every product.
Source: swizzle_scaling_factors of A and B in gemm, transformer_engine/pytorch/csrc/extensions/gemm.cpp of
    NVIDIA/TransformerEngine (casts write them so since, issue 2446 of 2025-12 and pull requests 3011, 3338).
"""

from rostam_py.costs.families import MAP
from rostam_py.costs.precision import get_precision
from rostam_py.graph import KernelTraffic, Op
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KernelRule
from rostam_py.software.product_inputs import is_narrow, memory_of


class ArrangedScales(KernelRule):
    """The kernels that arrange the scales of a narrow product's inputs."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the kernels."""
        precision, graph = get_precision(self.local.rules.precision), self.local.graph
        products = [op for op in ops if op.role == "product"]
        if not (precision.arranged_scale_bytes and products and is_narrow(graph, products[0])):
            return []
        width = precision.arranged_scale_bytes / precision.tensor_bytes
        found = []
        for place in range(min(2, len(products[0].inputs))):
            read = {memory_of(graph, op.inputs[place]): op for op in products}
            size = sum(self.local.wide_read_bytes((op,), op.inputs[place]) for op in read.values()) * width
            found.append(self.local.apart(products[0], "scales arranged", MAP, size, size))
        return found
