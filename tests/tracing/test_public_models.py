"""Public libraries' models against torch's own counts of a real run: parameters, FLOPs, bytes saved for backward.

The reference runs the module on the CPU with real weights. Attention and dropout are replaced there by what GPUs'
kernels save and do: query, key, value, output and a log-sum-exp; a mask of a byte an element. FlopCounterMode counts
neither grouped products nor SDPA on CPU: the reference adds both by their formulas.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from rostam_py.graph import OperatorGraph
from rostam_py.tracing import trace
from rostam_py.tracing.step import default_loss

sys.path.insert(0, str(Path(__file__).parent))

from public_models import BATCH, MODELS, declare_torchvision

pytestmark = pytest.mark.slow
# Tables of rotary embeddings that the regions' closures hold are no saved tensors of autograd.
MORE_SAVED = {"llama checkpointed": 1.04, "llama checkpointed, reentrant": 1.04}


class _Fused(torch.autograd.Function):
    """Attention as fused kernels save and compute it; ``flops``: forward, backward."""

    flops = [0, 0]  # noqa: RUF012

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        output = torch.zeros(*query.shape[:-1], value.shape[-1]).transpose(1, 2).contiguous().transpose(1, 2)
        ctx.save_for_backward(query, key, value, mask, output, torch.zeros(query.shape[:-1]))
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


def _materialise(module: nn.Module) -> nn.Module:
    module = module.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.02)
        for name, buffer in module.named_buffers():
            buffer.fill_(1) if buffer.is_floating_point() else buffer.zero_()
            if name.endswith("position_ids"):
                buffer.copy_(torch.arange(buffer.shape[-1]).expand(buffer.shape))
    return module


def _reference(module: nn.Module, inputs: Any) -> tuple[int, int, int]:
    """Return (forward FLOPs, backward FLOPs, saved bytes) of products, convolutions and attention of a real run."""
    module = _materialise(module)
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
            loss = default_loss(module(*args, **kwargs))
        in_forward = _Fused.flops[0]
        with FlopCounterMode(**counting) as backward:
            loss.backward()
    again = _Fused.flops[0] - in_forward  # of checkpointed regions
    flops = forward.get_total_flops() + in_forward, backward.get_total_flops() + again + _Fused.flops[1]
    return *flops, sum(t.untyped_storage().nbytes() for t in saved.values())


def _flops(graph: OperatorGraph, phase: str) -> float:
    names = ("mm", "convolution", "scaled_dot_product")
    return sum(op.flops.at(BATCH) for op in graph.ops if op.phase == phase and any(n in op.op_type for n in names))


def _traced(name: str) -> tuple[nn.Module, Any, OperatorGraph]:
    library, make = MODELS[name]
    declare_torchvision()
    pytest.importorskip(library, reason=f"{library} is not installed: pip install rostam[test-models]")
    module, inputs = make()
    return module, inputs, trace(module, inputs)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_flops_and_saved_bytes_are_those_of_a_real_run(name: str) -> None:
    module, inputs, graph = _traced(name)
    assert graph.num_parameters == sum(p.numel() for p in module.parameters())
    if (
        name == "mixtral batched"
    ):  # the batched backend gathers a copy of the weights for each row: traced as the grouped one
        return
    forward, backward, saved = _reference(module, inputs)
    assert _flops(graph, "forward") == pytest.approx(forward, rel=1e-9)
    assert _flops(graph, "backward") == pytest.approx(backward, rel=2e-3)
    if name != "mixtral eager":  # the loop keeps masks and rows of each expert apart: traced as the grouped one
        assert 0.98 <= graph.saved_bytes(BATCH) / saved <= MORE_SAVED.get(name, 1.02)


def test_all_backends_of_experts_are_one_balanced_program() -> None:
    graphs = [_traced(name)[2] for name in ("mixtral", "mixtral eager", "mixtral batched")]
    assert graphs[0].ops == graphs[1].ops == graphs[2].ops
    assert sum("_grouped_mm" in op.op_type for op in graphs[0].ops if op.phase == "forward") == 2 * 2
