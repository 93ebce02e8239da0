"""FLOPs of one ATen call: torch's own formulas, and the gaps they leave.

Model: a multiply-add counts as two. Attention is counted in full, causal or not, as torch does; of a window only the
scores inside.
Element-wise ops cost 1 an output element, norms 4 (backward 6), softmax 5, data movement 0.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import conv_flop_count, flop_registry

from rostam_py.tracing.custom import find_op
from rostam_py.tracing.op_properties import attention_backward_widths, op_name


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# FLOPs per element of the largest tensor among arguments and results.
_PER_ELEMENT = {
    "_softmax": 5, "_safe_softmax": 5, "_log_softmax": 5, "_softmax_backward_data": 4, "_log_softmax_backward_data": 4,
    "native_layer_norm": 4, "native_layer_norm_backward": 6, "native_group_norm": 4, "native_group_norm_backward": 6,
    "_fused_rms_norm": 4, "_fused_rms_norm_backward": 6,
    "_weight_norm_interface": 3, "_weight_norm_interface_backward": 6, "norm": 2,
    "native_batch_norm": 4, "_native_batch_norm_legit": 4, "_native_batch_norm_legit_functional": 4,
    "_native_batch_norm_legit_no_training": 4, "native_batch_norm_backward": 6, "batch_norm_backward": 6,
    "sum": 1, "mean": 1, "amax": 1, "amin": 1, "max": 1, "min": 1, "var": 3, "var_mean": 3, "std": 3, "cumsum": 1,
    "argmax": 1, "argmin": 1, "prod": 1, "any": 1, "all": 1, "linalg_vector_norm": 2, "logsumexp": 3,
    "mse_loss": 3, "mse_loss_backward": 3, "l1_loss": 2, "smooth_l1_loss": 3, "smooth_l1_loss_backward": 3,
    "binary_cross_entropy": 5, "binary_cross_entropy_backward": 4, "binary_cross_entropy_with_logits": 5,
    "max_pool2d_with_indices": 1, "max_pool3d_with_indices": 1, "avg_pool2d": 1, "avg_pool3d": 1,
    "max_pool2d_with_indices_backward": 1, "max_pool3d_with_indices_backward": 1, "avg_pool2d_backward": 1,
    "_adaptive_avg_pool2d": 1, "_adaptive_avg_pool2d_backward": 1, "native_dropout": 2, "native_dropout_backward": 2,
    "floor_divide": 1, "histc": 1, "bincount": 1, "_conj": 1, "cumprod": 1, "renorm": 3, "trace": 1, "polar": 2,
    "leaky_relu_backward": 1, "embedding_dense_backward": 0, "nll_loss_forward": 0, "nll_loss_backward": 0,
}  # fmt: skip

# Where the window of fused attention stands among its arguments (neutral.py).
_WINDOW_PLACE, _BACKWARD_WINDOW_PLACE = 7, 10

# Ops that move, create or look at data.
_FREE = _names(
    """
    clone _to_copy copy detach alias view _unsafe_view reshape t transpose permute expand slice select split
    split_with_sizes unsafe_split
    unsafe_split_with_sizes unbind squeeze unsqueeze as_strided cat stack embedding embedding_dense_backward arange
    zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty
    scalar_tensor fill zero lift_fresh lift_fresh_copy constant_pad_nd index index_select index_put gather
    scatter scatter_add slice_backward select_backward slice_scatter select_scatter tril triu flip roll repeat
    nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward unfold unfold_backward
    _reshape_alias empty_strided bernoulli rand randn rand_like randn_like uniform normal eye linspace
    masked_fill where sort topk one_hot view_as_real view_as_complex chunk diagonal narrow movedim bitwise_not
    logical_not isin _unsafe_index _unsafe_index_put nonzero index_add index_copy index_fill masked_select
    masked_scatter masked_scatter_backward _conj_physical conj _neg_view resolve_conj resolve_neg argsort unique_dim
    tril_indices triu_indices bucketize searchsorted roll diag diag_embed pixel_shuffle pixel_unshuffle
    slice_inverse set copy_ diagonal_backward as_strided_scatter diagonal_scatter randperm unfold_copy
    pad reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d reflection_pad2d_backward
    empty_permuted upsample_nearest2d upsample_nearest2d_backward new_empty_strided randint
    """
)


def count_flops(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> float | None:
    """Return the FLOPs of one call, or None if no formula is known.

    Args: target: OpOverload. args, kwargs, result: the (fake) tensors and values of the call.
    """
    custom = find_op(str(target))
    if custom is not None:
        return custom.count_flops(args, kwargs, result)
    name = op_name(target)
    if name in _FREE:
        return 0.0
    if name in _SPECIAL:
        return float(_SPECIAL[name](args, result))
    packet = getattr(target, "overloadpacket", None)
    if packet in flop_registry:
        return float(flop_registry[packet](*args, **kwargs, out_val=result))
    if name in _PER_ELEMENT:
        return float(_PER_ELEMENT[name] * _largest(args, result))
    if torch.Tag.pointwise in getattr(target, "tags", ()):
        return float(_largest((), result))
    return None


def _tensors(structure: Any) -> list[torch.Tensor]:
    if isinstance(structure, torch.Tensor):
        return [structure]
    if isinstance(structure, (list, tuple)):
        return [t for item in structure for t in _tensors(item)]
    return []


def _largest(args: Any, result: Any) -> int:
    return max((t.numel() for t in _tensors(args) + _tensors(result)), default=0)


def _convolution_backward(args: tuple[Any, ...], result: Any) -> Any:
    # torch's own formula ignores groups: each gradient asked for costs what the forward pass costs.
    grad_out, x, weight, transposed, mask = args[0], args[1], args[2], args[7], args[10]
    one = conv_flop_count(list(x.shape), list(weight.shape), list(grad_out.shape), transposed)
    bias = grad_out.numel() if mask[2] else 0
    return one * (int(mask[0]) + int(mask[1])) + bias


def _attention(args: tuple[Any, ...], result: Any) -> Any:
    query, key, value = args[:3]  # as many rows of scores as the query has, whatever the key's number of heads
    window = args[_WINDOW_PLACE] if len(args) > _WINDOW_PLACE else None
    return 2 * _num_scores(query, key, window) * (query.shape[-1] + value.shape[-1])


def _attention_backward(args: tuple[Any, ...], result: Any) -> Any:
    query, key, value = args[1:4]
    widths, _ = attention_backward_widths(query.shape[-1], value.shape[-1])
    window = args[_BACKWARD_WINDOW_PLACE] if len(args) > _BACKWARD_WINDOW_PLACE else None
    return 2 * _num_scores(query, key, window) * widths


def _num_scores(query: torch.Tensor, key: torch.Tensor, window: int | None) -> int:
    """Return the scores that attention computes: all, or of each query those of the last ``window`` positions."""
    rows = query.shape[-2]
    each = rows * key.shape[-2] if window is None else rows * window - window * (window - 1) // 2
    return math.prod(query.shape[:-2]) * each


def _embedding_bag(args: tuple[Any, ...], result: Any) -> Any:
    return args[1].numel() * args[0].shape[1]


def _embedding_bag_backward(args: tuple[Any, ...], result: Any) -> Any:
    return args[1].numel() * args[0].shape[1]


def _grouped_product(args: tuple[Any, ...], result: Any) -> Any:
    """A grouped over rows or not, times B likewise: every row of a group meets that group's matrix once."""
    a, b = args[0], args[1]
    if a.dim() == 2 and b.dim() == 2:  # groups along the inner dim
        return 2 * a.shape[0] * a.shape[1] * b.shape[1]
    return 2 * math.prod(a.shape) * b.shape[-1] if b.dim() == 3 else 2 * a.shape[1] * math.prod(b.shape)


def _dot(args: tuple[Any, ...], result: Any) -> Any:
    return 2 * math.prod(args[0].shape)


_SPECIAL: dict[str, Callable[[tuple[Any, ...], Any], Any]] = {
    "convolution_backward": _convolution_backward,
    "scaled_dot_product_attention": _attention,
    "scaled_dot_product_attention_backward": _attention_backward,
    "scaled_dot_product_attention_mask_backward": _attention_backward,
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "_embedding_bag_backward": _embedding_bag_backward,
    "_embedding_bag_dense_backward": _embedding_bag_backward,
    "_grouped_mm": _grouped_product,
    "dot": _dot,
    "mv": _dot,
}
