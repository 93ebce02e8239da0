"""KernelRule: what a program runs around the ops of one kernel, and the registry of all rules.

A rule is one file of ``kernel_rules`` with its source and its test, and one line here. Rules.kernels names those that a
program has, in the order in which they act.
"""

from rostam_py.graph import KernelTraffic, Op
from rostam_py.plan.tasks import KernelTime
from rostam_py.registry import Registry
from rostam_py.software.local_ops import LocalOps

KERNEL_RULES = Registry("kernel rule")
for _name, _class in (
    ("loss_conversions", "LossConversions"),
    ("loss_passes", "LossPasses"),
    ("split_loss", "SplitLoss"),
    ("wide_conversions", "WideConversions"),
    ("norm_sums", "NormSums"),
    ("sorted_ids", "SortedIds"),
    ("convolution_biases", "ConvolutionBiases"),
    ("autocast", "Autocast"),
    ("gradient_sums", "GradientSums"),
    ("permuted_rows", "PermutedRows"),
    ("clamps", "Clamps"),
    ("row_copies", "RowCopies"),
    ("attention_copies", "CopiesAndRotations"),
    ("arranged_scales", "ArrangedScales"),
    ("expert_biases", "ExpertBiases"),
):
    KERNEL_RULES.add(_name, f"rostam_py.software.kernel_rules.{_name}:{_class}")


class KernelRule:
    """What a program runs around a group of ops that is one kernel: by default nothing.

    Args: local: the ops; one rule sees one sharded graph.
    """

    def __init__(self, local: LocalOps) -> None:
        self.local = local

    def kernels(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> list[KernelTime]:
        """Return the kernels that run in front of the group's."""
        return []

    def moved(self, ops: tuple[Op, ...], read: float, written: float) -> tuple[float, float]:
        """Return what the group's kernel reads and writes [bytes], of what rules before have made of it."""
        return read, written

    def time(self, ops: tuple[Op, ...], time: KernelTime, written: float) -> KernelTime:
        """Return the group's kernel, of what rules before have made of it. Args: ops: that which decides it first."""
        return time
