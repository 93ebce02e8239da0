"""Autocast regions by the lists of GPUs, on fake CPU tensors.

A region of any device begins as the CPU's, whose lists keep fewer ops in float32: layer norms, softmaxes, powers and
losses would run, and be saved, in 16 bits. Here these ops have the GPU's rules while a trace runs.
Source: torch's CUDA op reference (docs, torch.amp) and ATen/autocast_mode.h: AT_FORALL_FP32,
AT_FORALL_FP32_SET_OPT_DTYPE and AT_FORALL_LOWER_PRECISION_FP; tests compare these lists with the header's.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


IN_FLOAT = _names(
    """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
    pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm
    nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
    upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa
    """
)
WITH_FLOAT_RESULT = _names(
    """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
    """
)
IN_HALF = _names("prelu addmv addr mv")  # those that the CPU's list lacks; others end in products that it has
AS_THEY_COME = _names("avg_pool3d")  # float32 on a CPU, in no list of a GPU

_HALVES = (torch.float16, torch.bfloat16)
_KEY = "AutocastCPU"


def follow_gpus(library: torch.library.Library) -> None:
    """Give ATen's ops the GPU's rules for as long as ``library``, of aten's implementations, lives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, that kernels are overridden
        for names, rule in ((IN_FLOAT, _in_float), (WITH_FLOAT_RESULT, _with_float_result), (IN_HALF, _in_half)):
            for name in names:
                library.impl(name, rule(_op(name)), _KEY, allow_override=True)
        for name in AS_THEY_COME:
            library.impl(name, torch.library.fallthrough_kernel, _KEY, allow_override=True)


def _op(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _uncast() -> Any:
    """Return a context in which nothing is cast, as inside of a listed op."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


def _cast(values: Any, dtype: torch.dtype, of: tuple[torch.dtype, ...]) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda t: t.to(dtype) if t.dtype in of else t, values)


def _in_float(op: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with _uncast():
            args, kwargs = _cast((args, kwargs), torch.float32, _HALVES)
            return op(*args, **kwargs)

    return run


def _in_half(op: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype("cpu")
        with _uncast():
            args, kwargs = _cast((args, kwargs), dtype, (torch.float32, *_HALVES))
            return op(*args, **kwargs)

    return run


def _with_float_result(op: Any) -> Callable[..., Any]:
    """Return a rule for ops that take their result's dtype: the caller's, else float32."""
    place = [argument.name for argument in op._schema.arguments].index("dtype")

    def run(*args: Any, **kwargs: Any) -> Any:
        given = args[place] if place < len(args) else kwargs.get("dtype")
        if given is None and args[0].dtype in _HALVES:
            if place < len(args):
                args = (*args[:place], torch.float32, *args[place + 1 :])
            else:
                kwargs = {**kwargs, "dtype": torch.float32}
        with _uncast():
            return op(*args, **kwargs)

    return run
