"""What a mask leaves of attention's work."""

from rostam_py.costs.families import op_family
from rostam_py.costs.kernel_kinds import CAUSAL_SHARE
from rostam_py.costs.model import CostModel, KernelCall
from rostam_py.graph import Op


def is_causal(op: Op) -> bool:
    """Say whether an op is attention under a causal mask, which fused kernels compute half of the scores for.

    Model: a mask that is given as a tensor, a sliding window's among them, leaves all of it.
    """
    if op_family(op.op_type, op.role) != "attention" or not isinstance(op.arguments, dict):
        return False
    given = (*op.arguments.get("args", ()), *op.arguments.get("kwargs", {}).values())
    return any(one is True for one in given)  # the one flag of graph's attention ops


def causal_flops(op: Op, flops: float) -> float:
    """Return what a causal mask leaves of an op's FLOPs: half of attention's, all of others'."""
    return flops * CAUSAL_SHARE if is_causal(op) else flops


def run_flops(call: KernelCall, flops: float, cost: CostModel) -> float:
    """Return what a kernel runs of its FLOPs: of causal attention's the share that its cost model times.

    Model: half, as fused kernels do, unless the cost model has a ``causal_share`` of its own.
    """
    return flops * getattr(cost, "causal_share", CAUSAL_SHARE) if is_causal(call.ops[0]) else flops
