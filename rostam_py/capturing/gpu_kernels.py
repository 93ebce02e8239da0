"""Which kernels a GPU runs where torch decides by device: of attention and of norms, on a torch built for CPUs.

Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (order and conditions of backends), layer_norm.cpp
(rms_norm takes the fused kernel on CUDA), of torch 2.13.
"""

import functools
from typing import Any

import torch
import torch.nn.functional as F

from rostam_py.capturing.replacing import replace

aten = torch.ops.aten
_WIDEST_HEAD = 256  # of flash attention
_FLASH_DTYPES = (torch.float16, torch.bfloat16)
_FUSED_DTYPES = (*_FLASH_DTYPES, torch.float32)
# Ops that torch decomposes where a device has no kernel of them.
_OF_GPUS = (
    aten._fused_rms_norm.default, aten._fused_rms_norm_backward.default, aten.silu_backward.default,
    aten.mish_backward.default,
)  # fmt: skip
_LIBRARY = torch.library.Library(aten.mm.default.namespace, "IMPL")  # kernels are registered as long as it is alive


def install_kernels() -> None:
    """Let composite ops take the path of a CUDA device."""
    for op in _OF_GPUS:
        _LIBRARY.impl(op, _never_run, "CUDA")  # that there is one keeps torch from decomposing the op
    composite = F.scaled_dot_product_attention
    replace(composite, composite.__name__, _attention(composite))


def _never_run(*arguments: Any, **others: Any) -> Any:
    raise NotImplementedError("capture computes nothing")


def _attention(composite: Any) -> Any:
    """Return attention that chooses kernels as CUDA's. Args: composite: of other devices, and by products."""

    @functools.wraps(composite)
    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        if query.device.type == "cuda" and query.dim() == 4 and attn_mask is None and _can_flash(query, value):
            return _flash(query, key, value, dropout_p, is_causal, scale)
        if query.device.type == "cuda" and query.dim() == 4 and _can_fuse(query):
            return _fused(query, key, value, attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale)
        return composite(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    return attention


def _can_flash(query: Any, value: Any) -> bool:
    is_enabled = torch.backends.cuda.flash_sdp_enabled()
    heads = query.shape[-1] == value.shape[-1] and query.shape[-1] <= _WIDEST_HEAD
    return is_enabled and heads and query.dtype in _FLASH_DTYPES


def _can_fuse(query: Any) -> bool:
    return torch.backends.cuda.mem_efficient_sdp_enabled() and query.dtype in _FUSED_DTYPES


def _flash(query: Any, key: Any, value: Any, dropout_p: float, is_causal: bool, scale: float | None) -> Any:
    width = query.shape[-1]
    scale = width**-0.5 if scale is None else scale
    query, key, value = (_padded(one) for one in (query, key, value))
    out = aten._scaled_dot_product_flash_attention.default(query, key, value, dropout_p, is_causal, False, scale=scale)
    return out[0] if out[0].shape[-1] == width else out[0][..., :width]


def _padded(one: Any) -> Any:
    """Return a tensor whose heads are a multiple of eight wide."""
    short = -one.shape[-1] % 8
    return F.pad(one, (0, short)) if short else one


def _fused(
    query: Any, key: Any, value: Any, mask: Any, *, dropout_p: float, is_causal: bool, scale: float | None
) -> Any:  # fmt: skip
    shared = query.shape[-3] // key.shape[-3]
    if shared > 1:
        key, value = (one.repeat_interleave(shared, -3) for one in (key, value))
    if mask is not None and mask.dtype == torch.bool:
        blocked = torch.zeros_like(mask, dtype=query.dtype)
        mask = blocked.masked_fill_(mask.logical_not(), float("-inf"))
    if mask is not None:
        mask = mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    keeps_sums = any(one.requires_grad for one in (query, key, value))
    return aten._scaled_dot_product_efficient_attention.default(
        query, key, value, mask, keeps_sums, dropout_p, is_causal=is_causal, scale=scale
    )[0]
