"""Ops in one form for all devices: fused attention, grouped products and dropout as GPUs run them.

Fake CPU tensors would take the CPU's attention kernel or, with dropout, unequal head sizes or a mask that is trained,
an explicit softmax; here every call of torch's ``scaled_dot_product_attention`` is one op forward and one backward:
it saves query, key, value, output and one log-sum-exp for each row of scores, not the scores (MODEL D15). FlexAttention
is the same op, whose ``window`` is that of a mask of the last so many positions (masks.py). Autocast regions of any
device run by the GPUs' lists of ops (autocast.py).
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from rostam_py.errors import TracingError
from rostam_py.tracing.autocast import follow_gpus
from rostam_py.tracing.balance import knows
from rostam_py.tracing.masks import kept_positions

_FORWARD = "scaled_dot_product_attention"
_BACKWARD = "scaled_dot_product_attention_backward"
_MASK_BACKWARD = "scaled_dot_product_attention_mask_backward"  # of a mask that takes a gradient
_LIBRARY = torch.library.Library("rostam", "DEF")
_LIBRARY.define(
    f"{_FORWARD}(Tensor query, Tensor key, Tensor value, Tensor? mask, float dropout_p, bool is_causal, float? scale,"
    " int? window=None) -> (Tensor, Tensor)"
)
_BACKWARD_INPUTS = (
    "(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor output, Tensor logsumexp,"
    " float dropout_p, bool is_causal, float? scale, int? window=None)"
)
_LIBRARY.define(f"{_BACKWARD}{_BACKWARD_INPUTS} -> (Tensor, Tensor, Tensor)")
_LIBRARY.define(f"{_MASK_BACKWARD}{_BACKWARD_INPUTS} -> (Tensor, Tensor, Tensor, Tensor)")
_LIBRARY.define("_grouped_mm(Tensor a, Tensor b, Tensor? offsets) -> Tensor")
attention = torch.ops.rostam.scaled_dot_product_attention
attention_backward = torch.ops.rostam.scaled_dot_product_attention_backward
attention_mask_backward = torch.ops.rostam.scaled_dot_product_attention_mask_backward
grouped_product = torch.ops.rostam._grouped_mm


def _by_rows(like: torch.Tensor, shape: Any) -> torch.Tensor:
    """Return a tensor (..., heads, rows, size) whose heads lie side by side in memory, as fused kernels write it."""
    if len(shape) < 3:
        return like.new_empty(shape)
    *lead, heads, rows, size = shape
    return like.new_empty((*lead, rows, heads, size)).transpose(-3, -2)


def _forward_shapes(query: Any, key: Any, value: Any, *others: Any) -> tuple[torch.Tensor, torch.Tensor]:
    lead = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3])
    shape = (*lead, *query.shape[len(query.shape[:-3]) : -1])
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    sums = query.new_empty(shape, dtype=torch.float32 if is_half else query.dtype)
    return _by_rows(query, (*shape, value.shape[-1])), sums


def _backward_shapes(gradient: Any, query: Any, key: Any, value: Any, *others: Any) -> tuple[torch.Tensor, ...]:
    return tuple(_by_rows(t, t.shape) for t in (query, key, value))


def _mask_backward_shapes(
    gradient: Any, query: Any, key: Any, value: Any, mask: Any, *others: Any
) -> tuple[torch.Tensor, ...]:
    return *_backward_shapes(gradient, query, key, value), mask.new_empty(mask.shape)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    query, key, value, mask, *ctx.places = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(query, key, value, mask, *output)


def _differentiate(ctx: Any, gradient: Any, _: Any) -> tuple[Any, ...]:
    query, key, value, mask, output, sums = ctx.saved_tensors
    needs_mask = mask is not None and ctx.needs_input_grad[3]
    backward = attention_mask_backward if needs_mask else attention_backward
    grads = backward(gradient, query, key, value, mask, output, sums, *ctx.places)
    return *grads[:3], grads[3] if needs_mask else None, *(None for _ in ctx.places)


torch.library.register_fake(f"rostam::{_FORWARD}", _forward_shapes)
torch.library.register_fake(f"rostam::{_BACKWARD}", _backward_shapes)
torch.library.register_fake(f"rostam::{_MASK_BACKWARD}", _mask_backward_shapes)
torch.library.register_autograd(f"rostam::{_FORWARD}", _differentiate, setup_context=_save)


def _product_shape(a: Any, b: Any, offsets: Any) -> torch.Tensor:
    """Groups are rows of a 2-d ``a``, columns of a 2-d ``b``, or lie along the inner dim of two of them."""
    if a.dim() == b.dim() == 2:
        return a.new_empty((offsets.numel(), a.shape[0], b.shape[1]))
    lead = a.shape[:1] if a.dim() == b.dim() else ()
    return a.new_empty((*lead, a.shape[-2], b.shape[-1]))


def _differentiate_product(ctx: Any, gradient: Any) -> tuple[Any, ...]:
    a, b, offsets = ctx.saved_tensors
    of_a = grouped_product(gradient, b.transpose(-2, -1), offsets) if ctx.needs_input_grad[0] else None
    of_b = grouped_product(a.transpose(-2, -1), gradient, offsets) if ctx.needs_input_grad[1] else None
    return of_a, of_b, None


torch.library.register_fake("rostam::_grouped_mm", _product_shape)
torch.library.register_autograd(
    "rostam::_grouped_mm",
    _differentiate_product,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def _grouped_mm(a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """Stand in for aten::_grouped_mm, whose CPU form takes few dtypes and strides."""
    product = grouped_product(a, b, offs)
    product = product if bias is None else product + bias
    return product if out_dtype is None else product.to(out_dtype)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Stand in for aten::scaled_dot_product_attention."""
    if not enable_gqa and query.dim() > 2 and query.shape[-3] != key.shape[-3] and key.shape[-3] != 1:
        raise RuntimeError(
            f"attention of {query.shape[-3]} query and {key.shape[-3]} key heads without enable_gqa=True"
        )
    return attention(query, key, value, attn_mask, dropout_p, is_causal, scale)[0]


def _dropout(x: Any, p: float, train: bool) -> Any:
    """Stand in for aten::dropout: one kernel that keeps a mask of one byte an element."""
    if not train or p == 0 or x.numel() == 0:
        return x
    return torch.ops.aten.native_dropout(x, p, True)[0] if p < 1 else x * torch.zeros((), dtype=x.dtype)


def _flex_attention(query: Any, key: Any, value: Any, score_mod: Any, mask: Any, scale: Any, *others: Any) -> Any:
    """Stand in for FlexAttention's operator: masks other than causal ones and windows are counted in full.

    Raises: TracingError if ``score_mod`` reads what takes a gradient: the stand-in gives it none.
    """
    place = torch.zeros((), dtype=torch.int32)
    with torch.enable_grad():
        score = score_mod(query.detach().new_zeros(()), *(place,) * 4)
    if score.requires_grad:
        raise TracingError(
            "FlexAttention's score_mod reads a tensor that takes a gradient, which a trace does not compute: add it as "
            "attn_mask of scaled_dot_product_attention, or put a module that does in its place by "
            "rostam.register_module(Class, stand_in)"
        )
    kept = kept_positions(mask[-1], query.shape[-2], key.shape[-2])
    is_window = kept is not None and kept < key.shape[-2]
    places = (None, 0.0, kept is not None and not is_window, scale, *((kept,) if is_window else ()))
    output, sums = attention(query, key, value, *places)
    return output, sums, sums


def _checked(check: Any, place: int) -> Any:
    """Return a check that holds where nobody can know whether it does. Args: place: of its condition."""

    def run(*args: Any, **kwargs: Any) -> Any:
        condition = args[place] if len(args) > place else kwargs.get("cond", kwargs.get("condition"))
        if isinstance(condition, torch.Tensor) and not knows(condition):
            return None
        return check(*args, **kwargs)

    return run


@contextlib.contextmanager
def _neutral_programs() -> Iterator[None]:
    """Let FlexAttention, autocast regions of any device and torch's checks of entries run on fake CPU tensors."""
    init = torch.amp.autocast_mode.autocast.__init__

    def begin(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if dtype is None and device_type != "cpu":
            dtype = torch.get_autocast_dtype(device_type)
        init(self, "cpu", dtype, *args, **kwargs)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch.amp.autocast_mode.autocast, "__init__", begin))
        stack.enter_context(
            mock.patch.object(torch, "_check_tensor_all_with", _checked(torch._check_tensor_all_with, 1))
        )
        stack.enter_context(mock.patch.object(torch, "_assert", _checked(torch._assert, 0)))
        flex = sys.modules.get("torch.nn.attention.flex_attention")
        if flex is not None:
            stack.enter_context(mock.patch.object(flex, "_validate_device"))
            stack.enter_context(mock.patch.object(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True))
            stack.enter_context(mock.patch.object(flex, "flex_attention_hop", _flex_attention))
        yield


@contextlib.contextmanager
def neutral_ops() -> Iterator[None]:
    """Run attention, dropout and autocast on (fake) CPU tensors in their neutral forms while the context lasts."""
    library = torch.library.Library("aten", "IMPL")
    try:
        for key in ("AutogradCPU", "CPU"):
            library.impl("scaled_dot_product_attention", _attention, key, allow_override=True)
            library.impl("_grouped_mm", _grouped_mm, key, allow_override=True)
            library.impl("dropout", _dropout, key, allow_override=True)
        follow_gpus(library)
        with _neutral_programs():
            yield
    finally:
        library._destroy()
