"""Device-neutral ops of a graph (tracing's ``rostam.*``) as the kernels of the device at hand run them.

A traced attention names no kernel: it is timed by the one that torch itself picks for the device and dtype, its
backward by the matching backward kernel, and a grouped product by torch's own.
"""

from collections.abc import Callable
from typing import Any


def neutral_call(op_type: str) -> Callable[..., Any] | None:
    """Return what runs a device-neutral op, None for any other op."""
    return _CALLS.get(op_type)


def _attention(query: Any, key: Any, value: Any, mask: Any, dropout_p: float, is_causal: bool, scale: Any) -> Any:
    from torch.nn.functional import scaled_dot_product_attention

    grouped = query.dim() > 2 and query.shape[-3] != key.shape[-3]
    options = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": grouped}
    return scaled_dot_product_attention(query, key, value, mask, **options)


def _attention_backward(
    gradient: Any, query: Any, key: Any, value: Any, mask: Any, output: Any, sums: Any, *settings: Any
) -> Any:
    import torch

    dropout_p, is_causal, scale = settings
    groups = query.shape[-3] // key.shape[-3]
    if groups > 1:  # the kernels' backward takes as many key as query heads; the copies are not part of a GPU's kernel
        key, value = (t.repeat_interleave(groups, -3) for t in (key, value))
    aten = torch.ops.aten
    if query.device.type == "cpu":
        backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
        tensors = (gradient, query, key, value, output, sums)
        return backward(*tensors, dropout_p, is_causal, attn_mask=mask, scale=scale)
    bias = None if mask is None else mask.to(query.dtype).expand(*query.shape[:-1], key.shape[-2])
    sums = sums.float().contiguous()
    if bias is None and query.dtype in (torch.float16, torch.bfloat16):
        rows, columns = query.shape[-2], key.shape[-2]
        state = torch.zeros(2, dtype=torch.uint64, device=query.device)
        places: Any = (None, None, rows, columns, dropout_p, is_causal, state, state[:1])
        tensors = (gradient, query, key, value, output, sums)
        return aten._scaled_dot_product_flash_attention_backward(*tensors, *places, scale=scale)
    missing = -sums.shape[-1] % 32  # this kernel pads its rows
    sums = torch.nn.functional.pad(sums, (0, missing)) if missing else sums
    state = torch.zeros((), dtype=torch.int64)
    masks = [True, True, True, mask is not None and mask.is_floating_point()]
    backward = aten._scaled_dot_product_efficient_attention_backward
    places = (dropout_p, masks, is_causal)
    return backward(gradient, query, key, value, bias, output, sums, state, state, *places, scale=scale)


def _grouped_product(a: Any, b: Any, offsets: Any) -> Any:
    import torch

    # Random offsets would lie outside the rows: groups are equal, as they are in the trace.
    rows = a.shape[-1] if a.dim() == b.dim() == 2 else (a.shape[0] if a.dim() == 2 else b.shape[-1])
    count = offsets.numel()
    ends = torch.arange(1, count + 1, device=a.device).mul(rows).div(count, rounding_mode="floor").to(torch.int32)
    return torch._grouped_mm(a, b, offs=ends)


_CALLS: dict[str, Callable[..., Any]] = {
    "rostam.scaled_dot_product_attention.default": _attention,
    "rostam.scaled_dot_product_attention_backward.default": _attention_backward,
    "rostam.scaled_dot_product_attention_mask_backward.default": _attention_backward,
    "rostam._grouped_mm.default": _grouped_product,
}
