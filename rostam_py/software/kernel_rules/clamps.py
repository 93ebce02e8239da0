"""Megatron-Core clamps both halves of a gated unit's input in eager PyTorch, and joins them for its fused unit.

Model: two clamps and a join forward; comparisons, their conjunction, two selections and a join backward. What reads or
    makes parts of rows is bound by its elements (costs/strided.py).
Source: weighted_bias_quick_geglu_impl in megatron/core/fusions/fused_bias_geglu.py of NVIDIA/Megatron-LM at 034fd2d3.
"""

from rostam_py.costs.families import MAP
from rostam_py.costs.strided import is_clamp, strided_seconds
from rostam_py.graph import KernelTraffic, Op
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KernelRule


class Clamps(KernelRule):
    """The kernels of clamps of parts of rows, in front of the unit that is one kernel, and their backward's."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the kernels."""
        local, tensors = self.local, self.local.graph.tensors
        found, joined = [], 0.0
        for op in ops:
            clamp = op if op.forward_op is None else local.graph.ops[op.forward_op]
            if not is_clamp(clamp.op_type) or not op.inputs or not self._is_part(clamp.inputs[0]):
                continue
            made = op.outputs[0]
            one = local.apart(op, "alone", MAP, sum(map(local.tensor_bytes, op.inputs)), local.tensor_bytes(made))
            if tensors[op.inputs[0]].dtype != "bool" or len(op.inputs) > 2:  # a conjunction's are whole
                least = strided_seconds(local.num_elements(made), local.multiprocessors)
                one = one.stretched(max(1.0, least / one.duration_s))
            found.append(one)
            if tensors[made].dtype != "bool":
                joined += local.tensor_bytes(made)
        return [*found, local.apart(ops[0], "joined", MAP, joined, joined)] if found else []

    def _is_part(self, tensor: int) -> bool:
        """Tell whether a tensor is a view of a part of another."""
        graph, batch = self.local.graph, self.local.batch
        root = graph.tensors[graph.view_roots[tensor]]
        return graph.tensors[tensor].num_bytes(batch) < root.num_bytes(batch)
