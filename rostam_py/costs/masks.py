"""What a mask leaves of attention's work."""

from rostam_py.costs.families import op_family
from rostam_py.graph import Op


def is_causal(op: Op) -> bool:
    """Say whether an op is attention under a causal mask, which fused kernels compute half of the scores for.

    Model: a mask that is given as a tensor, a sliding window's among them, leaves all of it.
    """
    if op_family(op.op_type, op.role) != "attention" or not isinstance(op.arguments, dict):
        return False
    given = (*op.arguments.get("args", ()), *op.arguments.get("kwargs", {}).values())
    return any(one is True for one in given)  # the one flag of graph's attention ops
