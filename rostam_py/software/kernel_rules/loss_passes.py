"""A split cross entropy runs more kernels than PyTorch's whole one.

Model: what log_softmax is counts as the exponentials of Megatron's and as the logarithms of DTensor's; its backward as
    the sum of DTensor's.
Source: Megatron-LM's core/tensor_parallel/cross_entropy.py, VocabParallelCrossEntropy; _log_softmax and
    _nll_loss_and_log_softmax_backward of pytorch/pytorch, torch/distributed/tensor/parallel/loss.py.
"""

from functools import cached_property

from rostam_py.costs.families import MAP, REDUCE
from rostam_py.graph import KernelTraffic, Op
from rostam_py.graph.vocabulary import ROW_PLACES
from rostam_py.plan.fusion import LOSS_PARALLEL, VOCAB_PARALLEL
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KernelRule
from rostam_py.software.losses import makes_gradients_of_logits

# Of eager losses, (what, kind of op, tensors written) for each tensor read.
_PASSES = {
    VOCAB_PARALLEL: (("largest", REDUCE, 0), ("less", MAP, 1), ("sum", REDUCE, 0), ("quotient", MAP, 1)),
    LOSS_PARALLEL: (("largest", REDUCE, 0), ("less", MAP, 1), ("exponential", MAP, 1), ("sum", REDUCE, 0)),
}
_BACKWARD_PASSES = {LOSS_PARALLEL: (("exponential", MAP, 1), ("times", MAP, 1))}


class LossPasses(KernelRule):
    """The kernels of a split cross entropy beyond those of PyTorch's whole one."""

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the kernels."""
        passes: tuple[tuple[str, str, int], ...] = ()
        if not self._picked.isdisjoint(ops[0].outputs):
            passes = _PASSES.get(self.local.rules.eager_loss, ())
        elif makes_gradients_of_logits(ops[0]):
            passes = _BACKWARD_PASSES.get(self.local.rules.eager_loss, ())
        if not passes:
            return []
        size = self.local.read_bytes(ops, ops[0].inputs[0])
        return [self.local.apart(ops[0], what, op_type, size, size * writes) for what, op_type, writes in passes]

    @cached_property
    def _picked(self) -> frozenset[int]:
        """Rows of log-probabilities that a loss picks one of each from."""
        graph = self.local.graph
        picks = (op for op in graph.ops if op.role == "pick")
        return frozenset(graph.view_roots[op.inputs[ROW_PLACES[op.role]]] for op in picks)
