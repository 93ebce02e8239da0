"""16-bit programs cost what they are: bf16 modules, autocast regions of any device, mixed parameter types."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from rostam_py.costs.precision import op_precision
from rostam_py.errors import TracingError
from rostam_py.graph import Affine
from rostam_py.tracing import trace


class Autocast(nn.Module):
    def __init__(self, device: str, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.linear, self.device, self.dtype = nn.Linear(16, 32, bias=False), device, dtype

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(self.device, dtype=self.dtype):
            return self.linear(x)


@pytest.mark.parametrize("route", ["joint", "dispatch"])
@pytest.mark.parametrize(
    ("device", "given", "dtype"),
    [("cpu", torch.bfloat16, "bfloat16"), ("cuda", torch.bfloat16, "bfloat16"), ("cuda", None, "float16")],
)
def test_autocast_of_any_device_casts_products(device: str, given: torch.dtype | None, dtype: str, route: str) -> None:
    graph = trace(Autocast(device, given), torch.zeros(4, 16), route=route)
    product = next(op for op in graph.ops if op.op_type == "aten.mm.default" and op.phase == "forward")
    assert [graph.tensors[t].dtype for t in product.inputs] == [dtype, dtype]
    assert product.bytes_read == Affine(2 * 16 * 32, 2 * 16)
    assert {t.dtype for t in graph.parameters} == {"float32"}
    assert graph.default_precision == "fp32"


def test_a_bf16_module_trains_in_bf16_unless_told_otherwise() -> None:
    module = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32, dtype=torch.float32))
    module[0].bfloat16()

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = module

        def forward(self, x: Tensor) -> Tensor:
            return self.layers[1](self.layers[0](x).float())

    inputs = torch.zeros(4, 16, dtype=torch.bfloat16)
    graph = trace(Mixed(), inputs)
    assert graph.default_precision == "bf16_mixed"
    assert trace(Mixed(), inputs, precision="fp32").default_precision == "fp32"
    # Kept: x (bf16), the norm's input (fp32), its mean and scale.
    assert graph.saved_bytes(1) == 2 * 16 + 4 * 32 + 2 * 4


def test_products_of_16_bit_tensors_run_at_their_peak() -> None:
    assert op_precision("fp32", ("bfloat16", "float32")) == "bf16_mixed"
    assert op_precision("tf32", ("int64", "float16")) == "fp16_mixed"
    assert op_precision("fp32", ("float32", "bfloat16")) == "fp32"
    assert op_precision("bf16_mixed", ("float32",)) == "bf16_mixed"
    assert op_precision("fp32", ()) == "fp32"


@pytest.mark.parametrize("route", ["joint", "dispatch"])
def test_flex_attention_is_fused_attention(route: str) -> None:
    class Flex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(64, 192)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
            return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j))

    graph = trace(Flex(), torch.zeros(2, 128, 64), route=route)
    flops = [op.flops for op in graph.ops if op.role == "attention"]
    assert flops == [Affine(0, 2 * 4 * 128**2 * 2 * 16), Affine(0, 2 * 4 * 128**2 * 5 * 16)]


@pytest.mark.parametrize(
    ("keeps", "window", "is_causal", "scores"),
    [
        (lambda b, h, i, j: i >= j, None, True, 128**2),
        (lambda b, h, i, j: (i >= j) & (i - j < 32), 32, False, sum(min(i + 1, 32) for i in range(128))),
        (lambda b, h, i, j: i - j < 32, None, False, 128**2),  # the future too
        (lambda b, h, i, j: (i >= j) & (i // 64 == j // 64), None, False, 128**2),  # two documents
    ],
)
def test_a_window_of_flex_attention_computes_the_scores_inside(
    keeps: Callable[..., Any], window: int | None, is_causal: bool, scores: int
) -> None:
    class Flex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(64, 192)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
            mask = create_block_mask(keeps, None, None, 128, 128, device=x.device)
            return flex_attention(q, k, v, block_mask=mask)

    forward, backward = (op for op in trace(Flex(), torch.zeros(2, 128, 64)).ops if op.role == "attention")
    assert forward.flops == Affine(0, 2 * 4 * scores * 2 * 16)
    assert backward.flops == Affine(0, 2 * 4 * scores * 5 * 16)
    assert forward.arguments["args"][5] is is_causal
    assert forward.arguments["args"][7:] == ([] if window is None else [window])


@pytest.mark.parametrize("is_learned", [True, False])
def test_a_learned_shift_of_flex_attention_is_refused(is_learned: bool) -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.shifts = nn.Linear(64, 192), nn.Parameter(torch.zeros(4, 256), requires_grad=is_learned)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
            return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + self.shifts[h, i - j])

    if is_learned:
        with pytest.raises(TracingError, match=r"score_mod reads a tensor that takes a gradient.*attn_mask"):
            trace(Shifted(), torch.zeros(2, 128, 64))
    else:
        assert any(op.role == "attention" for op in trace(Shifted(), torch.zeros(2, 128, 64)).ops)
