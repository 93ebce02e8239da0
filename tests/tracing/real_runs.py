"""A real run of a module, counted by torch: FLOPs of products, convolutions and attention, bytes saved for backward.

Attention and dropout are replaced by what GPUs' kernels save and do: query, key, value, output and a log-sum-exp; a
mask of a byte an element. FlopCounterMode counts neither grouped products nor SDPA on CPU: both are added by their
formulas. On the meta device modules of any size run, as long as no shape depends on values.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode


class _Fused(torch.autograd.Function):
    """Attention as fused kernels save and compute it; ``flops``: forward, backward."""

    flops = [0, 0]  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        output = query.new_zeros(*query.shape[:-1], value.shape[-1]).transpose(1, 2).contiguous().transpose(1, 2)
        ctx.save_for_backward(query, key, value, mask, output, query.new_zeros(query.shape[:-1]))
        _Fused.flops[0] += 2 * query.shape[:-1].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1])
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        query, key, value, mask, _, _ = ctx.saved_tensors
        widths = 3 * query.shape[-1] + 2 * value.shape[-1]
        _Fused.flops[1] += 2 * query.shape[:-1].numel() * key.shape[-2] * widths
        return query * 0, key * 0, value * 0, mask * 0 if ctx.needs_input_grad[3] else None


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *args: Any, **kw: Any
) -> Tensor:
    return _Fused.apply(query, key, value, attn_mask)


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(x, p, True)[0] if training and p > 0 else x


def _grouped(a: Any, b: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return 2 * a[0] * a[1] * b[-1]  # two-dimensional a: rows of all groups, or columns of one product for each group


@contextmanager
def _as_on_gpus() -> Iterator[None]:
    with (
        torch.backends.mkldnn.flags(enabled=False),  # whose recurrent kernels no counter sees into
        mock.patch.object(functional, "dropout", _dropout),
        mock.patch.object(functional, "scaled_dot_product_attention", _attention),
    ):
        yield


def materialised(module: nn.Module) -> nn.Module:
    """Return a module of the meta device on the CPU, with weights."""
    module = module.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.02)
        for name, buffer in module.named_buffers():
            buffer.fill_(1) if buffer.is_floating_point() else buffer.zero_()
            if name.endswith("position_ids"):
                buffer.copy_(torch.arange(buffer.shape[-1]).expand(buffer.shape))
    return module


def count(module: nn.Module, inputs: Any, loss_of: Callable[[Any], Tensor]) -> tuple[int, int, int]:
    """Return (forward FLOPs, backward FLOPs, saved bytes) of products, convolutions and attention of a real run."""
    held = {t.untyped_storage()._cdata for t in (*module.parameters(), *module.buffers())}
    saved: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage()._cdata not in held:
            saved[tensor.untyped_storage()._cdata] = tensor
        return tensor

    args, kwargs = (
        ((), inputs) if isinstance(inputs, dict) else (inputs if isinstance(inputs, tuple) else (inputs,), {})
    )
    counting = {"display": False, "custom_mapping": {torch.ops.aten._grouped_mm: _grouped}}
    _Fused.flops = [0, 0]
    with _as_on_gpus():
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), FlopCounterMode(**counting) as forward:
            loss = loss_of(module(*args, **kwargs))
        in_forward = _Fused.flops[0]
        with FlopCounterMode(**counting) as backward:
            loss.backward()
    again = _Fused.flops[0] - in_forward  # of checkpointed regions
    flops = forward.get_total_flops() + in_forward, backward.get_total_flops() + again + _Fused.flops[1]
    return *flops, sum(t.untyped_storage().nbytes() for t in saved.values())
