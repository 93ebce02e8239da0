"""Which split rule belongs to which op."""

from rostam_py.tracing.splits import (
    attention,
    convolution,
    elementwise,
    embedding,
    matmul,
    normalization,
    reduction,
    views,
)
from rostam_py.tracing.splits.call import RawSplit, Rule, SplitCall


def _each(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: dict[str, Rule] = {
    "mm": matmul.mm, "addmm": matmul.addmm, "bmm": matmul.bmm, "baddbmm": matmul.baddbmm,
    "mv": matmul.mv, "dot": matmul.dot,
    **_each("linalg_solve_triangular triangular_solve _linalg_solve_ex linalg_inv_ex linalg_cholesky_ex",
            elementwise.stacked),
    **_each("view reshape _unsafe_view squeeze unsqueeze _reshape_alias", views.view),
    **_each("permute transpose t", views.permute),
    "expand": views.expand,
    **_each("slice", views.along_others(1)),
    **_each("split split_with_sizes chunk unsafe_split unsafe_split_with_sizes", views.along_others(2)),
    **_each("select unbind", views.removes(1)),
    "select_backward": views.select_backward, "slice_backward": views.slice_backward,
    "slice_scatter": views.slice_scatter, "select_scatter": views.select_scatter,
    **_each("index _unsafe_index", views.index), **_each("index_put _unsafe_index_put", views.index_put),
    "index_add": views.index_add,
    **_each("view_as_complex view_as_real _conj resolve_conj", views.complex_pairs), "repeat": views.repeat,
    "cat": views.cat, "stack": views.stack,
    **_each("constant_pad_nd tril triu", views.same_shape_dims),
    "scaled_dot_product_attention": attention.attention,
    **_each("scaled_dot_product_attention_backward scaled_dot_product_attention_mask_backward",
            attention.attention_backward),
    "_grouped_mm": matmul.grouped_mm,
    **_each("_softmax _safe_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data",
            elementwise.softmax),
    "native_layer_norm": normalization.layer_norm, "native_layer_norm_backward": normalization.layer_norm_backward,
    "_fused_rms_norm": normalization.rms_norm, "_fused_rms_norm_backward": normalization.rms_norm_backward,
    "native_group_norm": normalization.group_norm, "native_group_norm_backward": normalization.group_norm_backward,
    "_weight_norm_interface": normalization.weight_norm,
    "_weight_norm_interface_backward": normalization.weight_norm_backward,
    **_each("native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
            "_native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_with_update_functional "
            "cudnn_batch_norm", normalization.batch_norm),
    **_each("native_batch_norm_backward batch_norm_backward", normalization.batch_norm_backward),
    "embedding": embedding.embedding, "embedding_dense_backward": embedding.embedding_backward,
    **_each("_embedding_bag _embedding_bag_forward_only", embedding.embedding_bag),
    **_each("_embedding_bag_backward _embedding_bag_dense_backward", embedding.embedding_bag_backward),
    "convolution": convolution.convolution, "convolution_backward": convolution.convolution_backward,
    **_each("max_pool2d_with_indices max_pool3d_with_indices", convolution.max_pool),
    **_each("max_pool2d_with_indices_backward max_pool3d_with_indices_backward", convolution.max_pool_backward),
    **_each("avg_pool2d avg_pool3d", convolution.average_pool),
    **_each("avg_pool2d_backward avg_pool3d_backward", convolution.average_pool_backward),
    **_each("_adaptive_avg_pool2d _adaptive_avg_pool2d_backward upsample_nearest2d upsample_bilinear2d",
            elementwise.leading(2)),
    **_each("sum mean amax amin max min argmax argmin var var_mean std prod any all logsumexp", reduction.reduction),
    **_each("norm linalg_vector_norm", reduction.norm),
    "nll_loss_forward": reduction.nll_loss, "nll_loss_backward": reduction.nll_loss_backward,
    "nll_loss2d_forward": reduction.nll_loss, "nll_loss2d_backward": reduction.nll_loss_backward,
    **_each("mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits",
            elementwise.pointwise_loss),
    **_each("mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward "
            "_to_copy detach alias lift_fresh lift_fresh_copy native_dropout native_dropout_backward "
            "softplus_backward elu_backward hardtanh_backward hardswish_backward hardsigmoid_backward mish_backward "
            "log_sigmoid_backward hardshrink_backward softshrink_backward rrelu_with_noise_backward "
            "leaky_relu_backward copy bernoulli zeros_like ones_like full_like empty_like rand_like randn_like "
            "masked_fill",
            elementwise.elementwise),
    **_each("arange zeros ones full empty empty_strided rand randn scalar_tensor linspace", elementwise.creation),
    **_each("new_zeros new_ones new_full new_empty new_empty_strided", elementwise.creation_like),
    **_each("cumsum gather scatter scatter_add sort flip", elementwise.independent_along(1)),
    "topk": elementwise.independent_along(2),
}  # fmt: skip


def find_splits(call: SplitCall) -> list[RawSplit]:
    """Return the legal splits of a call; none where no rule is known (the op is then replicated)."""
    rule = RULES.get(call.name)
    if rule is None and call.is_pointwise:
        rule = elementwise.elementwise
    return rule(call) if rule is not None else []
