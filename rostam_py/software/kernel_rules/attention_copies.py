"""Megatron-Core copies queries and values in front of attention, joins their gradients, and rotates heads by element.

Model and source: software/attention_copies.py says what is copied; costs/rotations.py how long a rotation takes.
"""

from functools import cached_property

from rostam_py.costs.families import MAP
from rostam_py.costs.kernel_shapes import makes_weight_gradient
from rostam_py.costs.precision import get_precision
from rostam_py.costs.rotations import rotation_seconds
from rostam_py.graph import KernelTraffic, Op
from rostam_py.graph.fusion import APART, REDUCTION, ROWS
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.attention_copies import AttentionCopies, attention_copies
from rostam_py.software.kernel_rule import KernelRule


class CopiesAndRotations(KernelRule):
    """The copies in front of attention, the joins of gradients in front of their product, and rotations."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the copies, or the join."""
        local, op = self.local, ops[0]
        found = self._copies.of.get(op.id)
        if found is not None:
            heads = found.num_key_heads * local.held_share(found.keys)
            moved = [("values copied", found.values)]
            moved += [("queries copied", found.queries)] if found.is_grouped and heads > 1 else []
            return [local.apart(op, what, MAP, local.tensor_bytes(t), local.tensor_bytes(t)) for what, t in moved]
        if op.phase != "backward" or op.role != "product" or op.forward_op is None:
            return []
        if len(ops) == 1 or makes_weight_gradient(op, local.graph):
            return []
        size = sum(map(local.tensor_bytes, self._copies.joined.get(op.forward_op, ())))
        return [local.apart(op, "gradients joined", MAP, size, size)] if size else []

    def time(self, ops: tuple[Op, ...], time: KernelTime, written: float) -> KernelTime:
        """Return a rotation's time: that of its elements, if they take longer than its traffic."""
        if not time.duration_s or not self._rotates(ops):
            return time
        elements = written / get_precision(self.local.rules.precision).tensor_bytes
        least = rotation_seconds(elements, self.local.multiprocessors, ops[0].phase)
        return time.stretched(max(1.0, least / time.duration_s))

    def _rotates(self, ops: tuple[Op, ...]) -> bool:
        """Tell whether a kernel is a rotation of queries or keys, or of their gradients."""
        forward = {op.id if op.phase == "forward" else op.forward_op for op in ops if not op.is_accumulation}
        is_view = [one is not None and self.local.graph.ops[one].is_metadata for one in forward]  # a part's is a join
        changed = [one for one, is_one in zip(forward, is_view, strict=True) if not is_one]
        return bool(changed) and self._copies.rotations.issuperset(changed)

    @cached_property
    def _copies(self) -> AttentionCopies:
        kinds = self.local.fused_kinds

        def is_pointwise(op: Op) -> bool:
            return kinds[op.id] not in (ROWS, REDUCTION, APART)

        return attention_copies(self.local.graph, self.local.joint_forward, is_pointwise)
