"""Experts that batched products compute: each of a stack of weights multiplies rows that were copied for it.

Model: a batched product of a stack of weights has an axis of as many independent products. Where every one of them gets
rows of its own choice (tokens copied to each, or gathered, or scattered to places), its weights are an expert's, and
the axis may be spread over ranks as experts are. Where the axis is one of the tokens' features, as heads are, it is
not: then the stack of rows is a view of what a product with weights, or the input, has side by side.

Example: x.repeat(experts, 1).view(experts, tokens, width) @ weights, Hugging Face's Llama 4; x[order].view(experts,
-1, width) @ weights; a product with a mask of places (GShard's einsum of one_hot) in front of a batched product.
"""

from collections.abc import Sequence
from dataclasses import replace

from rostam_py.graph import WEIGHT_KINDS, Op, Split, Tensor
from rostam_py.graph.vocabulary import FLOATING_DTYPES

_STACKED = "batched_product"


def mark_experts(ops: Sequence[Op], tensors: Sequence[Tensor]) -> tuple[Op, ...]:
    """Return the ops with the axis of such products named "expert", forward and backward. Args: ops: with roles."""
    producers = {t: op for op in ops for t in op.outputs}
    marked: dict[int, Op] = {}
    for op in ops:
        if op.role != _STACKED:
            continue
        is_forward = op.phase == "forward" and _is_of_experts(op, tensors, producers)
        if is_forward or (op.phase == "backward" and op.forward_op in marked):
            marked[op.id] = replace(op, splits=tuple(_named(split) for split in op.splits))
    return tuple(marked.get(op.id, op) for op in ops) if marked else tuple(ops)


def _named(split: Split) -> Split:
    return replace(split, kind="expert") if _is_stack(split) else split


def _is_stack(split: Split) -> bool:
    return split.kind == "head" and split.output_dims == (0,)


def _is_of_experts(op: Op, tensors: Sequence[Tensor], producers: dict[int, Op]) -> bool:
    for split in op.splits:
        if not _is_stack(split):
            continue
        read = [t for t, dim in zip(op.inputs, split.input_dims, strict=True) if dim is not None]
        rows = [t for t in read if _is_rows(tensors[t])]
        weights = [t for t in read if _is_weight(t, tensors, producers)]
        return len(rows) == 1 and len(weights) == len(read) - 1 and _is_made(rows[0], 0, tensors, producers)
    return False


def _is_rows(tensor: Tensor) -> bool:
    return tensor.dtype in FLOATING_DTYPES and any(dim.per_sample for dim in tensor.shape)


def _is_decision(tensor: Tensor) -> bool:
    """Tell whether a tensor says which rows go where: numbers of rows, or a mask of places."""
    return tensor.dtype not in FLOATING_DTYPES and any(dim.per_sample for dim in tensor.shape)


def _is_weight(tensor: int, tensors: Sequence[Tensor], producers: dict[int, Op]) -> bool:
    """Tell whether a tensor is a weight, a view or a cast of one."""
    while (op := producers.get(tensor)) is not None and len(op.inputs) == 1:
        tensor = op.inputs[0]
    return tensors[tensor].kind in WEIGHT_KINDS


def _is_made(tensor: int, dim: int, tensors: Sequence[Tensor], producers: dict[int, Op]) -> bool:
    """Tell whether a dimension of rows begins where rows are copied, gathered or placed, not as one of features."""
    while (op := producers.get(tensor)) is not None:
        place = op.outputs.index(tensor)
        along = [split.input_dims for split in op.splits if split.output_dims[place] == dim]
        if not along:
            return not any(_is_weight(t, tensors, producers) for t in op.inputs)
        carried = [(t, d) for t, d in zip(op.inputs, along[0], strict=True) if d is not None]
        rows = [(t, d) for t, d in carried if _is_rows(tensors[t])]
        if not rows:
            of_weight = any(_is_weight(t, tensors, producers) for t in op.inputs)  # a table: positions, not rows
            return not carried or (not of_weight and all(_is_decision(tensors[t]) for t, _ in carried))
        tensor, dim = rows[0]
    return False
