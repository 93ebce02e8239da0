"""Attention is one op forward and one backward, whatever a CPU's kernels would do, and explicit attention stays so."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.graph import Affine, OperatorGraph
from rostam_py.tracing import trace

HEADS, S, SIZE = 4, 8, 16


class Attention(nn.Module):
    """x (B, S, HEADS * SIZE) -> attention; ``value``: size of a value head; ``kv``: key and value heads."""

    def __init__(self, value: int = SIZE, kv: int = HEADS, bias: bool = False, **options: object) -> None:
        super().__init__()
        self.sizes = (HEADS * SIZE, kv * SIZE, kv * value)
        self.qkv = nn.Linear(HEADS * SIZE, sum(self.sizes), bias=False)
        self.kv, self.options = kv, options
        self.bias = nn.Parameter(torch.zeros(1, HEADS, S, S)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).split(self.sizes, -1)
        q, k, v = (t.unflatten(-1, (h, -1)).transpose(1, 2) for t, h in ((q, HEADS), (k, self.kv), (v, self.kv)))
        return functional.scaled_dot_product_attention(q, k, v, self.bias, **self.options)


CASES = {
    "plain": Attention(),
    "causal": Attention(is_causal=True),
    "dropout": Attention(dropout_p=0.1),
    "unequal sizes": Attention(value=2 * SIZE),
    "trained mask": Attention(bias=True),
    "grouped": Attention(kv=2, enable_gqa=True),
}


def _attention(graph: OperatorGraph, phase: str) -> list[Affine]:
    return [op.flops for op in graph.ops if op.role == "attention" and op.phase == phase]


@pytest.mark.parametrize("route", ["joint", "dispatch"])
@pytest.mark.parametrize("case", CASES)
def test_attention_is_one_op_each_way(case: str, route: str) -> None:
    module = CASES[case]
    graph = trace(module, torch.zeros(2, S, HEADS * SIZE), route=route)
    value = 2 * SIZE if case == "unequal sizes" else SIZE
    scores = 2 * HEADS * S * S  # FLOPs of the scores, for each element of a head
    assert _attention(graph, "forward") == [Affine(0, scores * (SIZE + value))]
    assert _attention(graph, "backward") == [Affine(0, scores * (3 * SIZE + 2 * value))]
    assert not any("softmax" in op.op_type for op in graph.ops)
    # Kept: x, the product that query, key and value are parts of, the output and a sum for each row of scores.
    kept = S * (HEADS * SIZE + sum(module.sizes) + HEADS * value + HEADS)
    assert graph.saved_bytes(1) == 4 * kept


@pytest.mark.parametrize("case", CASES)
def test_heads_and_samples_split(case: str) -> None:
    graph = trace(CASES[case], torch.zeros(2, S, HEADS * SIZE))
    for op in graph.ops:
        if op.role == "attention":
            sizes = {split.kind: split.size for split in op.splits}
            assert sizes == {"sample": Affine(0, 1), "head": Affine(HEADS)}


def test_a_trained_mask_is_split_by_heads_and_its_gradient_summed_over_samples() -> None:
    graph = trace(CASES["trained mask"], torch.zeros(2, S, HEADS * SIZE))
    backward = next(op for op in graph.ops if op.role == "attention" and op.phase == "backward")
    by_kind = {split.kind: split for split in backward.splits}
    assert by_kind["sample"].output_dims == (0, 0, 0, -1)
    assert by_kind["head"].output_dims == (1, 1, 1, 1)
    assert any(t.kind == "gradient" and t.name == "bias" for t in graph.tensors)


def test_explicit_attention_is_traced_as_it_is() -> None:
    class Explicit(Attention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).split(self.sizes, -1))
            scores = torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1)
            return torch.einsum("bhqk,bhkd->bhqd", scores, v)

    graph = trace(Explicit(), torch.zeros(2, S, HEADS * SIZE))
    roles = [op.role for op in graph.ops if op.phase == "forward" and op.role in ("batched_product", "softmax")]
    assert roles == ["batched_product", "softmax", "batched_product"]
    assert not _attention(graph, "forward")


@pytest.mark.parametrize("route", ["joint", "dispatch"])
def test_dropout_keeps_a_mask_of_one_byte_an_element(route: str) -> None:
    graph = trace(nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1)), torch.zeros(4, 8), route=route)
    assert graph.saved_bytes(1) == 4 * 8 + 16


def test_real_tensors_of_the_process_attend_as_before() -> None:
    q = torch.randn(1, 2, 4, 8)
    before = functional.scaled_dot_product_attention(q, q, q)
    trace(CASES["plain"], torch.zeros(2, S, HEADS * SIZE))
    assert torch.equal(functional.scaled_dot_product_attention(q, q, q), before)
