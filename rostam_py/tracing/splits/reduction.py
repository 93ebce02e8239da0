"""Splits of reductions and of the negative log-likelihood loss."""

from typing import Any

from rostam_py.graph import PARTIAL, WHOLE
from rostam_py.tracing.splits.call import RawSplit, SplitCall

_LINEAR = ("sum", "mean")


def reduction(call: SplitCall) -> list[RawSplit]:
    """Kept dims stay split; a summed (or averaged) dim gives partial sums."""
    return _reduced(call, call.argument(1))


def norm(call: SplitCall) -> list[RawSplit]:
    """norm(x, p, dims, keepdim), linalg_vector_norm(x, ord, dims, keepdim): dims that are kept."""
    return _reduced(call, call.argument(2))


def _reduced(call: SplitCall, dims: Any) -> list[RawSplit]:
    shape = call.inputs[0]
    rank = len(shape)
    if isinstance(dims, int) and not isinstance(dims, bool):
        dims = [dims]
    if not isinstance(dims, (list, tuple)) or not dims:
        dims = list(range(rank))
    reduced = {d % rank for d in dims}
    keeps = len(call.outputs[0]) == rank
    splits = []
    for dim, size in enumerate(shape):
        if size <= 1:
            continue
        place: int | None = dim if keeps else dim - sum(r < dim for r in reduced)
        if dim in reduced:
            if call.name not in _LINEAR:
                continue
            place = PARTIAL
        kind = "row" if dim in reduced else "feature"
        splits.append(RawSplit(kind, (dim,), (place,) * len(call.outputs), size))
    return splits


def nll_loss(call: SplitCall) -> list[RawSplit]:
    """nll_loss_forward(logp (N, C, ...), target (N, ...), weight, reduction, ignore) -> loss, total_weight.

    A mean over samples is a sum of the members' parts of it. With split classes each member adds the
    samples whose class it owns.
    """
    shape = call.inputs[0]
    is_reduced = call.argument(3, 1) != 0
    loss = PARTIAL if is_reduced else 0
    total = PARTIAL if is_reduced else WHOLE
    splits = []
    if len(shape) > 1:
        splits.append(RawSplit("feature", call.dims({0: 0, 1: 0}), call.results({0: loss, 1: total}), shape[0]))
    classes = 1 if len(shape) > 1 else 0
    splits.append(RawSplit("column", call.dims({0: classes}), call.results({0: PARTIAL}), shape[classes]))
    return [s for s in splits if s.size > 1]


def nll_loss_backward(call: SplitCall) -> list[RawSplit]:
    """nll_loss_backward(grad, logp, target, weight, reduction, ignore, total_weight) -> dlogp."""
    shape = call.outputs[0]
    classes = 1 if len(shape) > 1 else 0
    grad = 0 if call.inputs[0] else WHOLE
    splits = [RawSplit("column", call.dims({1: classes}), (classes,), shape[classes])]
    if classes:
        splits.append(RawSplit("feature", call.dims({0: grad, 1: 0, 2: 0}), (0,), shape[0]))
    return [s for s in splits if s.size > 1]
