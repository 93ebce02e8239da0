"""Which ops pass partial sums on: op(sum of parts) = sum of op(part).

A placer may delay the all-reduce of a PARTIAL tensor over such ops. Constant terms (the bias of an
addmm or a convolution) stay WHOLE and are added by one member only.
"""

from rostam_py.graph.operator_graph import Op


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Linear in all tensor inputs taken together: every one of them must be PARTIAL.
_ADDITIVE = _names("add sub cat stack")

# Linear in the first input; further inputs, if any, must be WHOLE.
_FIRST = _names(
    """
    view _unsafe_view reshape _reshape_alias t transpose permute expand squeeze unsqueeze slice select split
    split_with_sizes unbind chunk detach alias clone _to_copy neg sum mean cumsum tril triu flip repeat div
    slice_backward select_backward constant_pad_nd gather index index_select scatter_add unfold_backward
    embedding_dense_backward _embedding_bag_backward _embedding_bag_dense_backward gelu_backward silu_backward
    threshold_backward tanh_backward sigmoid_backward leaky_relu_backward elu_backward hardtanh_backward
    softplus_backward native_dropout_backward native_layer_norm_backward native_group_norm_backward
    _fused_rms_norm_backward native_batch_norm_backward batch_norm_backward convolution_backward
    _softmax_backward_data _log_softmax_backward_data nll_loss_backward nll_loss2d_backward mse_loss_backward
    smooth_l1_loss_backward binary_cross_entropy_backward max_pool2d_with_indices_backward
    max_pool3d_with_indices_backward avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _scaled_dot_product_flash_attention_for_cpu_backward
    upsample_nearest2d upsample_nearest2d_backward
    """
)

# Linear in each of these inputs while the others are WHOLE.
_BILINEAR: dict[str, tuple[int, ...]] = {
    "mul": (0, 1), "mm": (0, 1), "bmm": (0, 1), "mv": (0, 1), "dot": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2),
    "convolution": (0, 1), "embedding": (0,), "_embedding_bag": (0,),
}  # fmt: skip


def is_linear_in(op: Op, input_index: int) -> bool:
    """Return whether ``op`` is linear in input ``input_index`` with all other inputs WHOLE.

    For add, sub, cat and stack of several tensors that is never enough: see ``passes_partial``.
    """
    name = _name(op)
    if name in _ADDITIVE:
        return len(op.inputs) == 1 and not _adds_constant(op)
    if name in _FIRST:
        return input_index == 0
    return input_index in _BILINEAR.get(name, ())


def passes_partial(op: Op, partial: frozenset[int]) -> bool:
    """Return whether all outputs are PARTIAL sums if exactly the inputs at places ``partial`` are.

    Args: partial: places in ``op.inputs``, not tensor ids; not empty.
    """
    if _name(op) in _ADDITIVE and len(op.inputs) > 1:
        return len(partial) == len(op.inputs)
    return len(partial) == 1 and is_linear_in(op, next(iter(partial)))


def _name(op: Op) -> str:
    name = op.op_type.split(".")[1] if "." in op.op_type else op.op_type
    return name[:-1] if name.endswith("_") else name


def _adds_constant(op: Op) -> bool:
    args = op.arguments["args"] if op.arguments else []
    return _name(op) in ("add", "sub") and any(isinstance(a, (int, float)) and a != 0 for a in args)
