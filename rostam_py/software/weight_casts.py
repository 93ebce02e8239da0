"""Casts of weights to the width in which products read them, as often as weights change on a device.

Model: updated weights are cast once an iteration, behind the optimizer (Transformer Engine's is_first_microbatch; its
copies last until the next). Where ranks share weights, each phase casts what it has gathered: kernels' own casts; so
torchao's layers do everywhere (cast_kernels=inductor).
Narrow weights (software.rules.narrow_weights) come cast, by rows, and are transposed where the device's products need
it; those whose blocks have scales are gathered in 16 bits (Megatron's reuse_grad_buf_for_mxfp8_param_ag) and cast.
"""

from rostam_py.costs.families import CAST
from rostam_py.costs.model import CostModel, KernelCall
from rostam_py.costs.precision import Precision, get_precision
from rostam_py.graph import Affine, Op
from rostam_py.plan.program_rules import INDUCTOR
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.tasks import KernelTime


def casts_gathered(strategy: Strategy, precision: str) -> bool:
    """Return whether weights are cast whenever they have been gathered, once for each phase; torchao's always are."""
    chosen = get_precision(precision)
    if chosen.casts is not None and chosen.casts.by_product:
        return True
    is_again = strategy.state_sharding.shares_weights or strategy.rules.cast_kernels == INDUCTOR
    return is_again and not _is_gathered_narrow(strategy, chosen)


def updated_casts(
    cost: CostModel, strategy: Strategy, precision: str, num_weights: int, transposes: bool
) -> tuple[KernelTime, ...]:
    """Return the kernels that cast the weights which an iteration has updated.

    Args: num_weights: on a device, that products alone read. transposes: its products of 8 bits need transposed copies.
    """
    chosen = get_precision(precision)
    is_again = casts_gathered(strategy, precision) or strategy.state_sharding.shares_weights
    if chosen.casts is None or is_again:
        return ()
    written = chosen.copied_weight_bytes(transposes)
    read: float = chosen.casts.num_weight_reads * chosen.parameter_bytes
    if _is_gathered_narrow(strategy, chosen):
        read = written = written - chosen.gathered_weight_bytes
    read, written = read * num_weights, written * num_weights
    if not written:
        return ()
    cast = Op(
        id=0, name="weights (cast)", module="", phase="optimizer", op_type=CAST, inputs=(), outputs=(),
        is_elementwise=True, bytes_read=Affine(read), bytes_written=Affine(written),
    )  # fmt: skip
    return (
        KernelTime.of(
            cost,
            KernelCall(
                ops=(cast,), flops=0.0, bytes_read=read, bytes_written=written, batch=1, precision=chosen.others
            ),
        ),
    )


def _is_gathered_narrow(strategy: Strategy, precision: Precision) -> bool:
    """Return whether updated weights are cast before they are gathered."""
    return strategy.rules.narrow_weights and precision.gathered_weight_bytes < precision.parameter_bytes
