"""ATen and related names as kernels: what an op of given shapes is for a cost model, read off its name. Needs no torch.

Captured programs and traces name ops as torch prints them ("aten.mm.default", "fsdp.chunk_cat"); the overload may be
left out. Shapes are those of the tensors that an op is given, lists of tensors flattened, as its signature orders them.

Example:
    kernel_of("aten.addmm.default", ((1024,), (64, 512), (512, 1024)))     # a "matmul" of the last two
    kernel_of("aten.silu", ((64, 512),)).writes                            # ((64, 512),): by its bytes
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class AtenKernel:
    """What an op is for a cost model.

    written: the op of costs.written.OPS that it is, of ``reads``; "": it takes what the bytes of ``reads`` and
    ``writes`` take. op_type: with its overload, whose family decides the efficiency. is_backward: of a backward pass.
    calls: whose kernel it is (costs.programs), "" where its name does not say.
    """

    op_type: str
    reads: Shapes
    writes: Shapes = ()
    written: str = ""
    is_backward: bool = False
    calls: str = ""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# One kernel for each entry of the largest tensor, all of which are read; it writes one of that shape.
_POINTWISE = _names(
    """
    add sub rsub mul div neg exp expm1 log log1p log2 sqrt rsqrt reciprocal pow square abs sign sin cos tan tanh sigmoid
    silu gelu relu leaky_relu elu hardtanh softplus mish erf clamp clamp_min clamp_max where maximum minimum fmod
    remainder floor ceil round trunc eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_not
    logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor addcmul addcdiv lerp masked_fill native_dropout dropout
    silu_backward gelu_backward tanh_backward sigmoid_backward threshold_backward leaky_relu_backward elu_backward
    hardtanh_backward softplus_backward native_dropout_backward mse_loss_backward smooth_l1_loss_backward polar complex
    floor_divide true_divide fmax fmin atan atan2 asin acos sinh cosh exp2 sgn sinc logaddexp nan_to_num frac hypot
    xlogy hardswish hardswish_backward hardsigmoid hardsigmoid_backward log_sigmoid log_sigmoid_forward
    log_sigmoid_backward
    mish_backward glu glu_backward _prelu_kernel _prelu_kernel_backward softshrink hardshrink huber_loss_backward
    binary_cross_entropy_backward binary_cross_entropy_with_logits bitwise_xor bitwise_left_shift bitwise_right_shift
    __or__ __and__ __xor__ isneginf isposinf signbit lgamma digamma erfc erfinv
    """
)
# Written, and nothing read.
_FILLS = _names("fill zero zeros_like ones_like full_like new_zeros new_ones zeros ones full arange uniform normal "
                "bernoulli rand randn randint exponential scalar_tensor new_full")  # fmt: skip
# What is read is written elsewhere.
_COPIES = _names(
    """
    clone _to_copy contiguous cat stack split_with_sizes_copy split_copy _chunk_cat chunk_cat
    constant_pad_nd slice_backward select_backward repeat roll flip tril triu expand_copy unfold_backward
    repeat_interleave reflection_pad1d reflection_pad2d replication_pad2d im2col col2im pixel_shuffle pixel_unshuffle
    diag_embed upsample_nearest2d upsample_nearest2d_backward upsample_bilinear2d upsample_bilinear2d_backward
    avg_pool2d avg_pool2d_backward max_pool2d_with_indices max_pool2d_with_indices_backward _adaptive_avg_pool2d
    _adaptive_avg_pool2d_backward
    """
)
# The first tensor is the table or target, whose entries are picked or written; the rest says which.
_PICKS = _names("gather index index_select")
_SCATTERS = _names(
    "scatter scatter_add scatter_reduce index_add index_copy index_put masked_scatter _index_put_impl _unsafe_index_put"
)
_REDUCTIONS = _names(
    """
    sum mean prod amax amin max min argmax argmin norm linalg_vector_norm std var logsumexp all any count_nonzero
    _assert_async huber_loss smooth_l1_loss trace aminmax bincount histc nll_loss_forward nll_loss2d_forward mse_loss
    binary_cross_entropy
    """
)
_SAME_SHAPE = _names(
    """
    cumsum cumprod _softmax _safe_softmax _log_softmax native_layer_norm layer_norm _fused_rms_norm rms_norm
    native_group_norm native_batch_norm cudnn_batch_norm _softmax_backward_data _log_softmax_backward_data
    """
)
# Of norms: the gradient of the result, the input, and what forward kept; they write the input's gradient.
_NORM_BACKWARD = _names(
    """
    native_layer_norm_backward layer_norm_backward _fused_rms_norm_backward rms_norm_backward native_group_norm_backward
    native_batch_norm_backward cudnn_batch_norm_backward nll_loss_backward nll_loss2d_backward
    """
)
_ATTENTION = _names(
    """
    scaled_dot_product_attention _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention
    _scaled_dot_product_cudnn_attention _flash_attention_forward _efficient_attention_forward flex_attention
    """
)
_ATTENTION_BACKWARD = _names(
    """
    scaled_dot_product_attention_backward _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward
    _flash_attention_backward _efficient_attention_backward
    """
)
_HIGHER_ORDER = _names("flex_attention flex_attention_backward")  # torch prints them without a library
_SORTS = _names("sort topk argsort msort kthvalue")
_SORT_PASSES = 8  # of a radix sort of 64-bit keys by 8 bits, the most that a dtype needs
_ADAMS = _names("_fused_adam _fused_adamw")
# Whose kernels they are: PyTorch's attention is FlashAttention-2 (the memory-efficient one is slower, and no table has
# rows of it), and its norms by rows are its own.
_FLASH2, _CUDNN, _ATEN = "flash2", "cudnn", "aten"
_CALLS = {
    **dict.fromkeys(_names(
        """
        _scaled_dot_product_flash_attention _flash_attention_forward _scaled_dot_product_efficient_attention
        _efficient_attention_forward _scaled_dot_product_flash_attention_backward _flash_attention_backward
        _scaled_dot_product_efficient_attention_backward _efficient_attention_backward
        """
    ), _FLASH2),
    **dict.fromkeys(_names(
        "_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward"
    ), _CUDNN),
    **dict.fromkeys(_names(
        """
        native_layer_norm layer_norm _fused_rms_norm rms_norm native_layer_norm_backward layer_norm_backward
        _fused_rms_norm_backward rms_norm_backward
        """
    ), _ATEN),
}  # fmt: skip
# Of a foreach step: how many lists of tensors it takes, which are of equal shapes; others take one and numbers.
_FOREACH_LISTS = {"addcmul": 3, "addcdiv": 3, "lerp": 2, "copy": 2}
_PAIRED = (".List", ".Tensors")  # overloads that take a second list
# What describes memory, and what allocates it, runs no kernel.
_FREE = _names(
    """
    view _unsafe_view reshape _reshape_alias view_as view_as_complex view_as_real t transpose permute expand squeeze
    unsqueeze slice select split split_with_sizes chunk unbind detach alias narrow unfold as_strided empty empty_like
    empty_strided new_empty new_empty_strided resize set is_same_size lift_fresh record_stream
    """
)


def is_aten_name(name: str) -> bool:
    """Tell whether a name is one of a library's ops, "library.op" or "library.op.overload", or of higher order."""
    library, dot, _ = name.partition(".")
    return name in _HIGHER_ORDER or (bool(dot) and library.isidentifier())


def runs_no_kernel(name: str) -> bool:
    """Tell whether an op only describes or allocates memory."""
    return _op_of(name) in _FREE


def kernel_of(name: str, shapes: Shapes, writes: Shapes = (), *, is_causal: bool = False) -> AtenKernel | None:
    """Return what an op is for a cost model; None for one without a formula, or shapes that do not fit it.

    Model: products and attention are those of costs.written; every other op reads its tensors once and writes its
        result once. A sort passes 8 times over keys and 64-bit places (radix sort by bytes, the most that a dtype
        takes), and top-k is taken as one. Foreach steps are one kernel over all tensors of their lists. flex_attention
        is attention: its block mask is not known, so that it skips nothing but what ``is_causal`` says. A convolution
        is the product that computes it, over windows that are read as if they lay in memory one by one.
    Args:
        name: as torch prints it; the overload may be left out.
        shapes: of the tensors it is given.
        writes: of its results; () for those that its name implies.
        is_causal: attention under a causal mask.
    Source: own; NVIDIA, Convolutional Layers User's Guide, for products of convolutions; CUB's DeviceRadixSort for
        passes by 8 bits.
    """
    op = _op_of(name)
    if op in _BY_RESULTS:
        return _BY_RESULTS[op](_full_name(name), shapes, writes)
    make = _SPECIAL.get(op) or _made_as(op)
    if make is None or (not shapes and op not in _FILLS):
        return None
    found = make(_full_name(name), shapes)
    if found is None:
        return None
    found = replace(found, calls=_CALLS.get(op, ""))
    if found.written.startswith("attention") and is_causal:
        return replace(found, written=f"causal_{found.written}")
    return replace(found, writes=writes) if writes and not found.written else found


def _op_of(name: str) -> str:
    """Return an op's own name: without library, overload and the mark of one that works in place."""
    parts = name.split(".")
    op = parts[1] if len(parts) > 1 else parts[0]
    return op if op.startswith("__") else op.rstrip("_")


def _full_name(name: str) -> str:
    return name if name.count(".") > 1 else f"{name}.default"


def typed_place(name: str, num_shapes: int) -> int | None:
    """Return the place of the tensor whose entries a copy into others moves; None for other ops."""
    op = _op_of(name)
    if op == "copy":
        return num_shapes - 1
    return num_shapes // 2 if op == "_foreach_copy" else None


def _made_as(op: str) -> "Callable[[str, Shapes], AtenKernel | None] | None":
    for names, make in _KINDS:
        if op in names:
            return make
    if op.startswith("_foreach_"):
        return _foreach
    return None


def _pointwise(name: str, shapes: Shapes) -> AtenKernel | None:
    return AtenKernel(name, shapes, (max(shapes, key=math.prod),))


def _fill(name: str, shapes: Shapes) -> AtenKernel | None:
    return AtenKernel(name, (), shapes[:1])


def _copy(name: str, shapes: Shapes) -> AtenKernel | None:
    return AtenKernel(name, shapes, shapes)


def _copy_in(name: str, shapes: Shapes, writes: Shapes) -> AtenKernel | None:
    """Copy tensors into their places in the last one, which is larger."""
    return AtenKernel(name, shapes[:-1], shapes[:-1]) if len(shapes) > 1 else None


def _copy_into(name: str, shapes: Shapes) -> AtenKernel | None:
    return AtenKernel(name, shapes[-1:], shapes[:1])


def _pick(name: str, shapes: Shapes) -> AtenKernel | None:
    """Read as many entries as are picked, and what says which."""
    table, places = shapes[0], shapes[-1]
    row = table[1:] if len(places) < len(table) else ()
    result = (*places, *row)
    return AtenKernel(name, (result, places), (result,))


def _scatter(name: str, shapes: Shapes) -> AtenKernel | None:
    """Read values, places and the entries that they are added to, and write these."""
    values = shapes[-1]
    return AtenKernel(name, (values, *shapes[1:]), (values,))


def _reduction(name: str, shapes: Shapes) -> AtenKernel | None:
    return AtenKernel(name, shapes, ((1,),))


def _same_shape(name: str, shapes: Shapes) -> AtenKernel | None:
    return AtenKernel(name, shapes, shapes[:1])


def _norm_backward(name: str, shapes: Shapes) -> AtenKernel | None:
    return AtenKernel(name, shapes, (shapes[min(1, len(shapes) - 1)],), is_backward=True)


def _sort(name: str, shapes: Shapes) -> AtenKernel | None:
    keys = shapes[0]
    moved = ((_SORT_PASSES * 2, *keys),)  # keys and places, of one width
    return AtenKernel(name, moved, moved)


def _foreach(name: str, shapes: Shapes) -> AtenKernel | None:
    op = _op_of(name).removeprefix("_foreach_")
    lists = _FOREACH_LISTS.get(op, 2 if name.endswith(_PAIRED) else 1)
    if len(shapes) % lists:
        return None
    first = shapes[: len(shapes) // lists]
    if op == "norm":
        return AtenKernel(name, shapes, ((len(shapes),),))
    if op == "zero":
        return AtenKernel(name, (), first)
    return AtenKernel(name, shapes[len(first) :] if op == "copy" else shapes, first)


def _unscale(name: str, shapes: Shapes) -> AtenKernel | None:
    """Multiply gradients in place; the last two are the flag that is set and the scale."""
    return AtenKernel(name, shapes, shapes[:-2]) if len(shapes) > 2 else None


def _adam(name: str, shapes: Shapes) -> AtenKernel | None:
    """Of weights, gradients and two moments; steps and rates are single numbers."""
    entries = sum(size for size in map(math.prod, shapes) if size > 1)
    return AtenKernel(name, ((max(1, entries // 4),),), written="adam")


def _matmul(name: str, shapes: Shapes) -> AtenKernel | None:
    return AtenKernel(name, shapes[-2:], written="matmul") if len(shapes) >= 2 else None


def _scaled(name: str, shapes: Shapes) -> AtenKernel | None:
    """Return a product of 8 bits, each of whose inputs has one scale; those with a scale for each row have no price."""
    if len(shapes) < 4 or math.prod((*shapes[2], *shapes[3])) != 1:
        return None
    return AtenKernel(name, shapes[:2], written="matmul")


def _batched(name: str, shapes: Shapes) -> AtenKernel | None:
    return AtenKernel(name, shapes[-2:], written="batched_matmul") if len(shapes) >= 2 else None


def _grouped(name: str, shapes: Shapes) -> AtenKernel | None:
    """Products of rows, columns or contractions that a third tensor cuts into groups, here into equal ones."""
    if len(shapes) < 2:
        return None
    left, right = shapes[:2]
    if len(left) == len(right) == 3:
        return AtenKernel(name, (left, right), written="batched_matmul")
    if len(shapes) < 3 or len(shapes[2]) != 1:
        return None
    groups = shapes[2][0]
    if len(left) == 2 and len(right) == 3:
        left = (groups, -(-left[0] // groups), left[1])
    elif len(left) == 3:
        right = (groups, right[0], -(-right[1] // groups))
    else:
        width = -(-left[1] // groups)
        left, right = (groups, left[0], width), (groups, width, right[1])
    return AtenKernel(name, (left, right), written="batched_matmul")


def _any_product(name: str, shapes: Shapes) -> AtenKernel | None:
    if len(shapes) != 2:
        return None
    return _matmul(name, shapes) if len(shapes[1]) == 2 else _batched(name, shapes)


def _linear(name: str, shapes: Shapes) -> AtenKernel | None:
    if len(shapes) < 2 or len(shapes[1]) != 2:
        return None
    return AtenKernel(name, (shapes[0], shapes[1][::-1]), written="matmul")


def _embedding(name: str, shapes: Shapes) -> AtenKernel | None:
    return AtenKernel(name, shapes[:2], written="embedding") if len(shapes) >= 2 else None


def _embedding_backward(name: str, shapes: Shapes) -> AtenKernel | None:
    return AtenKernel(name, (shapes[0], *shapes), shapes[:1], is_backward=True)


def _attention(name: str, shapes: Shapes) -> AtenKernel | None:
    return AtenKernel(name, shapes[:3], written="attention") if len(shapes) >= 3 else None


def _attention_backward(name: str, shapes: Shapes) -> AtenKernel | None:
    """Of the gradient of the result, queries, keys and values."""
    return AtenKernel(name, shapes[1:4], written="attention_backward") if len(shapes) >= 4 else None


def _flex_backward(name: str, shapes: Shapes) -> AtenKernel | None:
    """Of queries, keys, values, the result and its gradients."""
    return AtenKernel(name, shapes[:3], written="attention_backward") if len(shapes) >= 3 else None


def _convolution(name: str, shapes: Shapes, writes: Shapes) -> AtenKernel | None:
    """Of inputs and weights; what it writes says how many windows there are."""
    if len(shapes) < 2 or not writes or len(shapes[0]) < 3:
        return None
    return _windows(name, shapes[0], shapes[1], writes[0], 1)


def _convolution_backward(name: str, shapes: Shapes, writes: Shapes) -> AtenKernel | None:
    """Of the gradient of the result, inputs and weights: one product as large as forward's for each of their two."""
    if len(shapes) < 3 or len(shapes[0]) < 3:
        return None
    num_gradients = sum(one in (shapes[1], shapes[2]) for one in writes)
    found = _windows(name, shapes[1], shapes[2], shapes[0], num_gradients) if num_gradients else None
    return None if found is None else replace(found, is_backward=True)


def _windows(name: str, inputs: Shape, weights: Shape, outputs: Shape, times: int) -> AtenKernel | None:
    """Return the product of a convolution, ``times`` its rows; a transposed one is that whose gradient it is."""
    if outputs[1] != weights[0]:
        inputs, outputs = outputs, inputs
    if outputs[1] != weights[0] or inputs[1] % weights[1]:
        return None
    groups = inputs[1] // weights[1]
    rows, contraction = times * outputs[0] * math.prod(outputs[2:]), math.prod(weights[1:])
    if groups == 1:
        return AtenKernel(name, ((rows, contraction), (contraction, weights[0])), written="matmul")
    shapes = ((groups, rows, contraction), (groups, contraction, weights[0] // groups))
    return AtenKernel(name, shapes, written="batched_matmul")


_BY_RESULTS: dict[str, Callable[[str, Shapes, Shapes], AtenKernel | None]] = {
    "convolution": _convolution, "convolution_backward": _convolution_backward,
    "cudnn_convolution": _convolution, "all_gather_copy_in": _copy_in,
}  # fmt: skip
_SPECIAL: dict[str, Callable[[str, Shapes], AtenKernel | None]] = {
    "mm": _matmul, "_scaled_mm": _scaled, "addmm": _matmul, "bmm": _batched, "_grouped_mm": _grouped,
    "baddbmm": _batched, "matmul": _any_product, "linear": _linear,
    "copy": _copy_into, "embedding": _embedding, "embedding_dense_backward": _embedding_backward,
    "flex_attention_backward": _flex_backward, "_amp_foreach_non_finite_check_and_unscale": _unscale,
    "_amp_update_scale": _pointwise,
}  # fmt: skip
_KINDS: Sequence[tuple[frozenset[str], Callable[[str, Shapes], AtenKernel | None]]] = (
    (_POINTWISE, _pointwise), (_FILLS, _fill), (_COPIES, _copy), (_PICKS, _pick), (_SCATTERS, _scatter),
    (_REDUCTIONS, _reduction), (_SAME_SHAPE, _same_shape), (_NORM_BACKWARD, _norm_backward), (_SORTS, _sort),
    (_ATTENTION, _attention), (_ATTENTION_BACKWARD, _attention_backward), (_ADAMS, _adam),
)  # fmt: skip
