"""Losses: which ops of a cross entropy make what."""

from rostam_py.costs.precision import is_of_log_softmax
from rostam_py.graph import Op


def makes_gradients_of_logits(op: Op) -> bool:
    """Tell whether an op makes the gradient of a cross entropy's logits."""
    return op.phase == "backward" and is_of_log_softmax(op.op_type)
