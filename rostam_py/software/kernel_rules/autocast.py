"""torch.autocast casts what products and convolutions read to 16 bits, and gradients of parameters back.

Model: a weight is cast by its first reader of a micro-batch's forward, and that copy kept for the others; what the
    model is given is cast by each reader; the gradient of each weight that was cast by itself. Ignores that tables and
    norms make 32 bits of theirs.
Source: cached_cast of pytorch/pytorch, aten/src/ATen/autocast_mode.cpp, and its list of lower_precision_fp.
"""

from functools import cached_property

from rostam_py.costs.families import CONVERT
from rostam_py.graph import WEIGHT_KINDS, KernelTraffic, Op, Tensor
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KernelRule

_NARROW_ROLES = ("product", "batched_product", "convolution")  # of ops that it runs in 16 bits


class Autocast(KernelRule):
    """The casts of torch.autocast."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the kernels that cast what an op reads, or gradients of parameters that it makes."""
        op, local, wide = ops[0], self.local, self.local.wide_factor
        if op.phase == "backward":
            made = (t for t in traffic.writes if t in self._gradients)
            narrow = [local.num_elements(t) * 4 / wide for t in made]
            return [local.apart(op, "gradient cast", CONVERT, size, size * wide) for size in narrow]
        if op.role not in _NARROW_ROLES:
            return []
        tensors, roots = local.graph.tensors, local.graph.view_roots
        read = [t for t in op.inputs if self._is_cast_by(op, tensors[roots[t]])]
        return [local.apart(op, "cast", CONVERT, local.tensor_bytes(t) * wide, local.tensor_bytes(t)) for t in read]

    def _is_cast_by(self, op: Op, root: Tensor) -> bool:
        """Tell whether a forward op casts what it reads of a tensor: a weight, or what the model is given."""
        if root.producer is not None or root.dtype != "float32":
            return False
        return root.kind not in WEIGHT_KINDS or op.id == min(self.local.readers_of(root.id))

    @cached_property
    def _gradients(self) -> frozenset[int]:
        """Final gradients of the weights that forward casts: norms' and tables' are made in 32 bits."""
        graph = self.local.graph
        tensors, roots = graph.tensors, graph.view_roots
        narrow = (op for op in graph.ops if op.phase == "forward" and op.role in _NARROW_ROLES)
        read = (roots[t] for op in narrow for t in op.inputs)
        names = {tensors[t].name for t in read if tensors[t].kind in WEIGHT_KINDS}
        return frozenset(roots[t.id] for t in graph.gradients if t.name in names)
