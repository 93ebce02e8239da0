"""Rules: all that a training program chooses about the kernels of a model, in one frozen object.

It is what KernelBuilder is told of the program, and what its kernels are kept under; equal rules give equal kernels.
"""

from dataclasses import dataclass

from rostam_py.collectives.row_exchanges import DEEPEP
from rostam_py.costs.precision import is_of_loss
from rostam_py.graph import Op
from rostam_py.plan.fusion import (
    APART_NORMS,
    BLOCKS_AND_LOSS,
    EVERYWHERE,
    FUSED_NORM,
    MODULES,
    PRODUCER,
    UNFUSED,
)
from rostam_py.plan.graph_inputs import READ_IN_PLACE
from rostam_py.plan.program_rules import DTENSOR, INDUCTOR, MCORE
from rostam_py.plan.strategy import Strategy
from rostam_py.software.weight_casts import casts_gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a program does around the ops of a model; the defaults are an ideal program's.

    precision: of training. gradient_bytes: of one element of a parameter's gradient.
    fusion: which ops share a kernel, one of plan.fusion.FUSIONS but auto. fused_part: what fusion reaches
        (plan.fusion.FUSED_PARTS).
    accumulation: what adding gradients up costs (plan.strategy.ACCUMULATIONS).
    copies_gradients: separate kernels copy gradients into what is reduced, not add them to those before.
    eager_loss: of a loss that shares no kernel, so that kernels of their own convert what it reads and makes to fp32,
        whose kernels make it (plan.fusion.EAGER_LOSSES); "" of others.
    eager_norm: where some ops share no kernel, whose kernels make norms of them (plan.fusion.EAGER_NORMS); "" of
        others.
    casts_weights: products that read weights cast them, which no cast of an iteration's first use lasts for.
    by_sender: experts' rows arrive by the rank that sent them, a copy to each expert (all-to-alls).
    pads_rows: kernels of their own pad experts' rows for narrow products.
    joins_products: products of one input are one where Megatron-Core's are (``joint_products``).
    convolution_norms: where norms between convolutions run (plan.fusion.CONVOLUTION_NORMS).
    autocast: products and convolutions cast weights and inputs of the model, and gradients of weights back.
    compiles_casts: casts for narrow products are PyTorch's compiler's (software.rules.cast_kernels=inductor).
    inputs: how the model's get to forward (plan.graph_inputs).
    splits_loss: the loss is DTensor's loss_parallel as PyTorch's compiler makes it by itself.
    kernels: names of kernel rules (kernel_rule.KERNEL_RULES) in the order in which they act.
    """

    precision: str
    gradient_bytes: int
    fusion: str = PRODUCER
    fused_part: str = EVERYWHERE
    accumulation: str = "free"
    copies_gradients: bool = False
    eager_loss: str = ""
    eager_norm: str = ""
    casts_weights: bool = False
    by_sender: bool = False
    pads_rows: bool = False
    joins_products: bool = False
    convolution_norms: str = APART_NORMS
    autocast: bool = False
    compiles_casts: bool = False
    inputs: str = READ_IN_PLACE
    splits_loss: bool = False
    kernels: tuple[str, ...] = ()

    def is_fused(self, op: Op) -> bool:
        """Tell whether an op may share a kernel with others."""
        if self.fusion == UNFUSED:
            return False
        is_in_block = op.block >= 0 or self.fused_part == EVERYWHERE
        return is_in_block or (self.fused_part == BLOCKS_AND_LOSS and is_of_loss(op.op_type))


# Of Megatron-Core's modules.
_OF_MODULES = (
    "gradient_sums", "permuted_rows", "clamps", "row_copies", "attention_copies", "arranged_scales", "expert_biases",
)  # fmt: skip


def rules_of(strategy: Strategy, precision: str, gradient_bytes: int) -> Rules:
    """Return the rules that a strategy's keys describe. Args: precision, gradient_bytes: of its numerics."""
    has_sent_rows = strategy.ep > 1
    by_sender = has_sent_rows and strategy.rules.servers_per_token is None
    return Rules(
        precision=precision,
        gradient_bytes=gradient_bytes,
        fusion=strategy.fused_as,
        fused_part=strategy.rules.fused_part,
        accumulation=strategy.rules.accumulation,
        copies_gradients=strategy.copies_gradients,
        eager_loss=strategy.rules.eager_loss if strategy.has_eager_loss else "",
        eager_norm=strategy.rules.eager_norm if strategy.has_eager_head else "",
        casts_weights=casts_gathered(strategy, precision),
        by_sender=by_sender,
        pads_rows=by_sender or (has_sent_rows and strategy.rules.dispatcher == DEEPEP),
        joins_products=strategy.fused_as == MODULES or (strategy.rules.tp_overlap and strategy.rules.tp_style == MCORE),
        convolution_norms=strategy.rules.convolution_norms,
        autocast=strategy.rules.autocast,
        compiles_casts=strategy.rules.cast_kernels == INDUCTOR,
        inputs=strategy.rules.inputs,
        splits_loss=_splits_loss(strategy),
        kernels=_kernels_of(strategy),
    )


def _splits_loss(strategy: Strategy) -> bool:
    return strategy.tp > 1 and strategy.rules.tp_style == DTENSOR and strategy.rules.fused_part == BLOCKS_AND_LOSS


def _kernels_of(strategy: Strategy) -> tuple[str, ...]:
    """Return the names of the kernel rules that a strategy's keys describe, in the order in which they act."""
    fusion = strategy.fused_as
    found = ["loss_conversions", "loss_passes"] if strategy.has_eager_loss else []
    found += ["split_loss"] if _splits_loss(strategy) else []
    found += ["wide_conversions"] if fusion != PRODUCER else []
    found += ["norm_sums"] if fusion == UNFUSED and strategy.rules.eager_norm == FUSED_NORM else []
    found.append("sorted_ids")
    found += ["convolution_biases"] if fusion == UNFUSED else []
    found += ["autocast"] if strategy.rules.autocast else []
    found += _OF_MODULES if fusion == MODULES else ()
    return tuple(found)
