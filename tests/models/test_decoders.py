"""Decoder-only language models: parameters and FLOPs by hand, by torch's own count, by the public classes.

Legend: L layers, D width, H query heads of size E, K key and value heads, F hidden width, V vocabulary, S tokens.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from rostam_py.graph import OperatorGraph
from rostam_py.models import get_spec
from rostam_py.tracing import trace

sys.path.insert(0, str(Path(__file__).parents[1] / "tracing"))

from public_models import declare_torchvision
from real_runs import count

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@dataclass(frozen=True)
class Shape:
    """A dense decoder; ``published``: the parameters of the public checkpoint."""

    L: int
    D: int
    H: int
    K: int
    F: int
    V: int
    S: int
    published: int

    @property
    def products(self) -> int:
        """Matrix entries of one layer that multiply every token."""
        return 2 * self.D * self.D + 2 * self.D * self.D * self.K // self.H + 3 * self.D * self.F

    @property
    def parameters(self) -> int:
        """Embedding, head and last norm; each layer's matrices and two norms."""
        return 2 * self.V * self.D + self.D + self.L * (self.products + 2 * self.D)

    def forward(self, layers: int) -> int:
        """FLOPs of products and attention of one sample; attention counts all S x S scores."""
        return 2 * self.S * (self.V * self.D + layers * self.products) + layers * 4 * self.S**2 * self.D

    def backward(self, layers: int) -> int:
        """Twice the products; fused attention computes the scores again: five products for two."""
        return 4 * self.S * (self.V * self.D + layers * self.products) + layers * 10 * self.S**2 * self.D


SHAPES = {
    "llama2_7b": Shape(32, 4096, 32, 32, 11008, 32000, 4096, 6_738_415_616),
    "llama2_13b": Shape(40, 5120, 40, 40, 13824, 32000, 4096, 13_015_864_320),
    "llama2_70b": Shape(80, 8192, 64, 8, 28672, 32000, 4096, 68_976_648_192),
    "llama3_8b": Shape(32, 4096, 32, 8, 14336, 128256, 8192, 8_030_261_248),
    "llama3_70b": Shape(80, 8192, 64, 8, 28672, 128256, 8192, 70_553_706_496),
    "llama3_405b": Shape(126, 16384, 128, 8, 53248, 128256, 8192, 405_853_388_800),
    "llama3_8b_32k": Shape(32, 4096, 32, 8, 14336, 128256, 32768, 8_030_261_248),
    "llama3_8b_64k": Shape(32, 4096, 32, 8, 14336, 128256, 65536, 8_030_261_248),
    "llama3_8b_256k": Shape(32, 4096, 32, 8, 14336, 128256, 262144, 8_030_261_248),
    "llama3_405b_32k": Shape(126, 16384, 128, 8, 53248, 128256, 32768, 405_853_388_800),
    "llama3_405b_256k": Shape(126, 16384, 128, 8, 53248, 128256, 262144, 405_853_388_800),
    "llama3_405b_128k": Shape(126, 16384, 128, 8, 53248, 128256, 131072, 405_853_388_800),
}


def flops(graph: OperatorGraph, phase: str) -> float:
    """FLOPs of matrix products and attention of one sample."""
    names = ("mm", "scaled_dot_product")
    return sum(op.flops.at(1) for op in graph.ops if op.phase == phase and any(n in op.op_type for n in names))


def test_parameters_are_those_of_the_published_checkpoints() -> None:
    for name, shape in SHAPES.items():
        with torch.device("meta"):
            module = get_spec(name).build()
        assert sum(p.numel() for p in module.parameters()) == shape.parameters == shape.published, name


QUICK = ("llama3_8b",)
SLOWLY = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SHAPES]


@pytest.mark.parametrize("name", SLOWLY)
def test_two_layers_compute_what_the_closed_form_and_torchs_own_count_say(name: str) -> None:
    graph, shape, spec = trace(name, num_layers=2, cache=False), SHAPES[name], get_spec(name)
    assert flops(graph, "forward") == shape.forward(2)
    assert flops(graph, "backward") == shape.backward(2)
    assert graph.forward_flops(1) == pytest.approx(shape.forward(2), rel=0.01)  # the rest is element-wise
    with torch.device("meta"):
        ids = torch.zeros(1, shape.S, dtype=torch.int64)
        module = spec.build({"blocks": 2})
    forward, backward, saved = count(module, ids, lambda logits: spec.loss(logits, ids))
    assert (flops(graph, "forward"), flops(graph, "backward")) == (forward, backward)
    assert graph.saved_bytes(1) == pytest.approx(saved, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_a_token_costs_six_flops_a_parameter_and_attention(name: str) -> None:
    graph, shape = trace(name, cache=False), SHAPES[name]
    assert graph.num_parameters == shape.published
    active = shape.published - shape.V * shape.D  # the embedding is looked up
    by_hand = 6 * active + 14 * shape.L * shape.S * shape.D
    assert (graph.forward_flops(1) + graph.backward_flops(1)) / shape.S == pytest.approx(by_hand, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_parameters_and_flops_are_those_of_hugging_faces_class(name: str) -> None:
    transformers = pytest.importorskip("transformers", reason="pip install rostam[test-models]")
    declare_torchvision()
    shape = SHAPES[name]
    settings: dict[str, Any] = {
        "vocab_size": shape.V, "hidden_size": shape.D, "intermediate_size": shape.F, "num_attention_heads": shape.H,
        "num_key_value_heads": shape.K, "max_position_embeddings": shape.S, "use_cache": False,
    }  # fmt: skip
    with torch.device("meta"):
        whole = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=shape.L, **settings))
        two = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=2, **settings))
    assert sum(p.numel() for p in whole.parameters()) == shape.published
    ids = torch.zeros(1, shape.S, dtype=torch.int64)
    theirs, ours = trace(two, {"input_ids": ids, "labels": ids}), trace(name, num_layers=2, cache=False)
    for phase in ("forward", "backward"):
        assert flops(theirs, phase) == flops(ours, phase)


def test_adapters_are_all_that_is_trained_and_frozen_weights_have_no_gradients() -> None:
    layers, rank = 2, 16
    graph, shape = trace("llama2_70b_lora", num_layers=layers, cache=False), SHAPES["llama2_70b"]
    qkv = shape.D + 2 * shape.D * shape.K // shape.H
    adapters = rank * (shape.D + qkv) + rank * (shape.D + shape.D)
    assert 80 * adapters == 44_564_480  # what the registry says of it
    assert graph.num_parameters == layers * adapters
    frozen = 2 * shape.V * shape.D + shape.D + layers * (shape.products + 2 * shape.D)
    assert graph.num_frozen_parameters == frozen
    tokens = 8192
    attention, head = layers * 4 * tokens**2 * shape.D, shape.V * shape.D
    assert (
        flops(graph, "forward") == 2 * tokens * (shape.V * shape.D + layers * (shape.products + adapters)) + attention
    )
    # Backward: frozen products have an input gradient alone, adapters both; nothing wants the gradient of what enters
    # the first layer's qkv, where its adapter's weight gradients remain.
    first = 2 * tokens * (shape.D * qkv + rank * shape.D)
    by_hand = 2 * tokens * (head + layers * (shape.products + 2 * adapters)) - first + 2.5 * attention
    assert flops(graph, "backward") == by_hand
    gradients = {t.name for t in graph.tensors if t.kind == "gradient"}
    assert len(gradients) == layers * 4
