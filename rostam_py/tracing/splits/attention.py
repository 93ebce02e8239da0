"""Splits of fused attention, forward and backward: samples and heads are independent."""

from rostam_py.graph import WHOLE
from rostam_py.tracing.splits.call import RawSplit, Shape, SplitCall

_KINDS = ("sample", "head")


def attention(call: SplitCall) -> list[RawSplit]:
    """Tensors are (B, H, S, D), (B, H, S) or broadcast masks; dim 0 is the batch, dim 1 the heads."""
    splits = []
    for dim, kind in enumerate(_KINDS):
        size = min(shape[dim] for shape in call.inputs[:3])  # grouped-query attention has fewer key heads
        dims = [_dim(shape, dim, size) for shape in (*call.inputs, *call.outputs)]
        if size > 1 and all(d != "illegal" for d in dims):
            cut = len(call.inputs)
            splits.append(RawSplit(kind, tuple(dims[:cut]), tuple(dims[cut:]), size))  # type: ignore[arg-type]
    return splits


def _dim(shape: Shape, dim: int, size: int) -> int | str | None:
    if len(shape) < 3 or shape[dim] == 1:
        return WHOLE
    return dim if shape[dim] % size == 0 else "illegal"
