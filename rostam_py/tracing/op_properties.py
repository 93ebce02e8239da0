"""What the rest of the house asks of an op, read off its ATen name: role, linearity, repeated work. Needs no torch.

The tracer sets them once, on the finished ops; files of graphs that do not have them yet get them here too.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rostam_py.graph import Op, Tensor
from rostam_py.graph.vocabulary import ROW_PLACES
from rostam_py.tracing.custom import find_op


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ROLES = {
    "product": _names("mm addmm _grouped_mm"),
    "batched_product": _names("bmm baddbmm matmul"),
    "convolution": _names("convolution"),
    "embedding": _names("embedding _embedding_bag _embedding_bag_forward_only"),
    "gather": _names("index_select gather index"),
    "pick": _names("nll_loss_forward nll_loss2d_forward"),
    "pick_backward": _names("nll_loss_backward nll_loss2d_backward"),
    "softmax": _names("_softmax _safe_softmax"),
    "sum": _names("add sub"),
    "copy": _names("_to_copy clone"),
    "join": _names("cat stack"),
}
_ROLE_OF = {name: role for role, names in _ROLES.items() for name in names}
_OWN_NAMES = (
    "aten",
    "prims",
    "rostam",
    "optimizer",
)  # whose ops the tables below and in flops.py name; no other library's
_SCALING = _names("neg mul div")  # of one tensor: by a number
_ATTENTION = "scaled_dot_product"  # in the names of all fused attention operators, backward ones too
_QUERY_PLACE, _VALUE_PLACE = 1, 3  # among the inputs of fused attention's backward, behind the result's gradient

# Linear in all tensor inputs taken together: every one of them must be PARTIAL.
_ADDITIVE = _names("add sub cat stack")

# Linear in the first input; further inputs, if any, must be WHOLE.
_FIRST = _names(
    """
    view _unsafe_view reshape _reshape_alias view_as_complex view_as_real t transpose permute expand squeeze unsqueeze
    slice select split split_with_sizes unbind chunk detach alias clone _to_copy neg sum mean cumsum tril triu flip
    repeat div
    slice_backward select_backward constant_pad_nd gather index index_select scatter_add unfold_backward
    embedding_dense_backward _embedding_bag_backward _embedding_bag_dense_backward gelu_backward silu_backward
    threshold_backward tanh_backward sigmoid_backward leaky_relu_backward elu_backward hardtanh_backward
    softplus_backward native_dropout_backward native_layer_norm_backward native_group_norm_backward
    _fused_rms_norm_backward native_batch_norm_backward batch_norm_backward convolution_backward
    _softmax_backward_data _log_softmax_backward_data nll_loss_backward nll_loss2d_backward mse_loss_backward
    smooth_l1_loss_backward binary_cross_entropy_backward max_pool2d_with_indices_backward
    max_pool3d_with_indices_backward avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward scaled_dot_product_attention_backward
    scaled_dot_product_attention_mask_backward upsample_nearest2d upsample_nearest2d_backward
    """
)

# Zeros in the shape of their inputs, whatever these hold.
_ZEROS = _names("zeros_like new_zeros")

# Linear in the last input, values that are written or added into a first one, which counts on one member.
_LAST = _names("index_add index_put _unsafe_index_put")

# Linear in each of these inputs while the others are WHOLE.
_BILINEAR: dict[str, tuple[int, ...]] = {
    "mul": (0, 1), "mm": (0, 1), "bmm": (0, 1), "mv": (0, 1), "dot": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2),
    "_grouped_mm": (0, 1), "convolution": (0, 1), "embedding": (0,), "_embedding_bag": (0,),
}  # fmt: skip


def row_place(name: str) -> int | None:
    """Return which tensor an op of this name picks entries of, or makes the gradient of; None of other ops."""
    return ROW_PLACES.get(_role(name, 0))


def with_properties(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Return the ops with ``role`` and ``linear_in`` set from their types, inputs and arguments."""
    return tuple(_with(op, *_of(op)) for op in ops)


def with_repeated_flops(ops: Iterable[Op], tensors: Sequence[Tensor]) -> tuple[Op, ...]:
    """Return the ops with ``repeated_flops`` set: the scores that fused attention's backward makes again.

    Model: torch's formulas and ours (tracing/flops.py) count them; the model's FLOPs do not.
    Args:
        ops: with their roles.
        tensors: of the graph, by id.
    """
    found = []
    for op in ops:
        if _repeats_scores(op, tensors):
            op = replace(op, repeated_flops=op.flops.scaled(_repeated_share(op, tensors)))
        found.append(op)
    return tuple(found)


def attention_backward_widths(query: float, value: float) -> tuple[float, float]:
    """Return the inner and outer widths of the products in fused attention's backward: all, and the repeated one's.

    Model: five products for each pair of positions: the scores again and the gradients of query and key, as wide as a
        query; the gradients of the scores and of value, as wide as a value.
    """
    return 3 * query + 2 * value, query


def _repeats_scores(op: Op, tensors: Sequence[Tensor]) -> bool:
    if op.role != "attention" or find_op(op.op_type) is not None or not op_name(op.op_type).endswith("backward"):
        return False
    # Of a damaged file: the error is raised when the graph is made.
    return len(op.inputs) > _VALUE_PLACE and all(
        t < len(tensors) and tensors[t].shape for t in op.inputs[: _VALUE_PLACE + 1]
    )


def _repeated_share(op: Op, tensors: Sequence[Tensor]) -> float:
    query, value = (tensors[op.inputs[place]].shape[-1].at(1) for place in (_QUERY_PLACE, _VALUE_PLACE))
    widths, repeated = attention_backward_widths(query, value)
    return repeated / widths


def _of(op: Op) -> tuple[str, tuple[tuple[int, ...], ...]]:
    custom = find_op(op.op_type)
    if custom is not None:
        return custom.role, ()
    return _properties(op_name(op.op_type), len(op.inputs), _adds_constant(op))


def _with(op: Op, role: str, linear_in: tuple[tuple[int, ...], ...]) -> Op:
    return op if (op.role, op.linear_in) == (role, linear_in) else replace(op, role=role, linear_in=linear_in)


@functools.cache
def _properties(name: str, num_inputs: int, adds_constant: bool) -> tuple[str, tuple[tuple[int, ...], ...]]:
    return _role(name, num_inputs), _linear_in(name, num_inputs, adds_constant)


def _role(name: str, num_inputs: int) -> str:
    if _ATTENTION in name:
        return "attention"
    if name in _SCALING and num_inputs == 1:
        return "scale"
    return _ROLE_OF.get(name, "")


def _linear_in(name: str, num_inputs: int, adds_constant: bool) -> tuple[tuple[int, ...], ...]:
    if name in _ADDITIVE:
        return () if adds_constant or not num_inputs else (tuple(range(num_inputs)),)
    if name in _LAST:
        return ((num_inputs - 1,),)
    if name in _ZEROS:
        return ((),)
    places = (0,) if name in _FIRST else _BILINEAR.get(name, ())
    return tuple((place,) for place in places if place < num_inputs)


def op_name(target: Any) -> str:
    """Return an op's name without overload or in-place mark: "add" for aten.add_.Tensor, "mylib::add" for others'."""
    library, dot, rest = str(target).partition(".")
    name = rest.partition(".")[0] if dot else library
    name = name[:-1] if name.endswith("_") and not name.startswith("__") else name
    return f"{library}::{name}" if dot and library not in _OWN_NAMES else name


def _adds_constant(op: Op) -> bool:
    """Tell whether one tensor and a number other than 0 are added."""
    if len(op.inputs) != 1 or not op.arguments or op_name(op.op_type) not in ("add", "sub"):
        return False
    return any(isinstance(a, (int, float)) and a != 0 for a in op.arguments["args"])
