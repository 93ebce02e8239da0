# ruff: noqa: N806 (the symbols of the formulas)
"""BERT, T5, ViT, DiT and the Universal Transformer: parameters and FLOPs by hand, by torch's count, by public classes.

Legend: L layers, D width, F hidden width, V vocabulary, S tokens; a layer with biases holds 12 D^2 + 13 D parameters at
F = 4 D: attention 4 D^2 + 4 D, feed-forward 8 D^2 + 5 D, two norms 4 D. Attention counts 4 S^2 D per layer forward.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from rostam_py.models import get_spec
from rostam_py.tracing import trace

sys.path.insert(0, str(Path(__file__).parents[1] / "tracing"))

from public_models import declare_torchvision
from real_runs import count

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@dataclass(frozen=True)
class ByHand:
    """parameters: all that train. products, attention: forward FLOPs of one sample."""

    parameters: int
    products: float
    attention: float


def bert() -> ByHand:
    L, D, V, S, masked = 24, 1024, 30522, 512, 76
    embeddings = V * D + S * D + 2 * D + 2 * D
    heads = D * D + D + 2 * D + V + D * D + D + 2 * D + 2  # dense, norm, bias of all words; pooler, order
    products = 2 * S * L * 12 * D * D + 2 * masked * (D * D + V * D) + 2 * (D * D + 2 * D)
    return ByHand(embeddings + L * (12 * D * D + 13 * D) + heads, products, L * 4 * S * S * D)


def vit() -> ByHand:
    L, D, S, patch = 24, 1024, 14 * 14 + 1, 3 * 16 * 16
    parameters = patch * D + D + D + S * D + L * (12 * D * D + 13 * D) + 2 * D + 1000 * D + 1000
    products = 2 * (S - 1) * patch * D + 2 * S * L * 12 * D * D + 2 * 1000 * D
    return ByHand(parameters, products, L * 4 * S * S * D)


def dit() -> ByHand:
    L, D, S, patch, times = 28, 1152, 16 * 16, 4 * 2 * 2, 256
    layer = 12 * D * D + 9 * D + 6 * D * D + 6 * D  # norms without weights; six modulations
    condition = times * D + D + D * D + D + 1001 * D
    last = 2 * D * D + 2 * D + 2 * patch * D + 2 * patch
    products = 2 * S * (L * 12 * D * D + patch * D + 2 * patch * D) + 2 * (L * 6 + 2 + 1) * D * D + 2 * times * D
    return ByHand(patch * D + D + condition + L * layer + last, products, L * 4 * S * S * D)


def t5() -> ByHand:
    L, D, inner, F, V, S = 24, 1024, 128 * 128, 65536, 32128, 512
    attention, mlp = 4 * D * inner, 2 * D * F
    layers = L * (attention + mlp + 2 * D) + L * (2 * attention + mlp + 3 * D)
    products = 2 * S * (L * (3 * attention + 2 * mlp) + V * D)
    return ByHand(V * D + layers + 2 * D + 2 * 32 * 128, products, 3 * L * 4 * S * S * inner)


def universal() -> ByHand:
    D, F, V, S, steps = 3072, 11264, 32768, 64, 6
    attention, mlp = 4 * D * D, 2 * D * F
    biases = 3 * 4 * D + 2 * (F + D) + 2 * 5 * D + 2 * 2 * D  # of attentions, feed-forwards, five norms, two last ones
    products = 2 * S * (steps * (3 * attention + 2 * mlp) + V * D)
    return ByHand(V * D + 3 * attention + 2 * mlp + biases, products, 3 * steps * 4 * S * S * D)


BY_HAND = {
    "bert_large": bert(), "vit_large": vit(), "dit_xl_2": dit(), "t5_11b": t5(), "universal_transformer": universal(),
}  # fmt: skip
# Of the public checkpoints or papers; DiT's 675,129,632 include its fixed table of 256 positions.
PUBLISHED = {"bert_large": 336_226_108, "vit_large": 304_326_632, "t5_11b": 11_307_321_344}
PUBLISHED |= {"dit_xl_2": 675_129_632 - 256 * 1152}


def flops(graph, phase, of="flops"):
    """FLOPs of products, convolutions and attention of one sample. of: a quantity of ops."""
    names = ("mm", "convolution", "scaled_dot_product")
    return sum(getattr(op, of).at(1) for op in graph.ops if op.phase == phase and any(n in op.op_type for n in names))


@pytest.mark.parametrize("name", BY_HAND)
def test_parameters_are_those_by_hand_and_as_published(name):
    with torch.device("meta"):
        found = sum(p.numel() for p in get_spec(name).build().parameters())
    assert found == BY_HAND[name].parameters
    assert found == PUBLISHED.get(name, found)


@pytest.mark.parametrize(
    "name", ["vit_large", *(pytest.param(n, marks=pytest.mark.slow) for n in BY_HAND if n[0] != "v")]
)
def test_flops_are_those_by_hand(name):
    graph, hand = trace(name, cache=False), BY_HAND[name]
    assert graph.num_parameters == hand.parameters
    assert flops(graph, "forward") == hand.products + hand.attention
    assert flops(graph, "backward") == pytest.approx(2 * hand.products + 2.5 * hand.attention, rel=2e-3)
    assert flops(graph, "forward", "model_flops") == hand.products + hand.attention
    model = flops(graph, "backward", "model_flops")  # without the scores that attention's kernel makes again
    assert model == pytest.approx(2 * hand.products + 2 * hand.attention, rel=2e-3)
    assert flops(graph, "backward") - model == pytest.approx(hand.attention / 2, rel=1e-12)
    assert graph.forward_flops(1) == pytest.approx(hand.products + hand.attention, rel=0.05)


def test_dit_computes_what_its_paper_says():
    hand = BY_HAND["dit_xl_2"]
    assert hand.products + hand.attention == pytest.approx(2 * 118.64e9, rel=1e-3)  # table 4 counts multiply-adds


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_HAND)
def test_flops_and_saved_bytes_are_those_of_torchs_own_count(name):
    spec = get_spec(name)
    depth = dict.fromkeys(spec.stacks, 2)
    graph = trace(name, num_layers=2 if depth else None, cache=False)
    with torch.device("meta"):
        tensors = [
            torch.zeros(s, dtype=getattr(torch, d)) for s, d in (*spec.example_inputs(1), *spec.example_targets(1))
        ]
        module = spec.build(depth)
    inputs, targets = tuple(tensors[: len(spec.inputs)]), tensors[len(spec.inputs) :]
    forward, backward, saved = count(module, inputs, lambda output: spec.loss(output, *targets))
    assert flops(graph, "forward") == forward
    assert flops(graph, "backward") == pytest.approx(
        backward, rel=1e-4
    )  # bias gradients of convolutions are not counted
    assert graph.saved_bytes(1) == pytest.approx(saved, rel=0.02)


def public_bert() -> nn.Module:
    import transformers

    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    return transformers.BertForPreTraining(transformers.BertConfig(**sizes))


def public_t5() -> nn.Module:
    import transformers

    sizes = {"d_model": 1024, "d_kv": 128, "d_ff": 65536, "num_layers": 24, "num_heads": 128}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))


def public_vit() -> nn.Module:
    import timm

    return timm.create_model("vit_large_patch16_224")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "library", "make"),
    [
        ("bert_large", "transformers", public_bert),
        ("t5_11b", "transformers", public_t5),
        ("vit_large", "timm", public_vit),
    ],
)
def test_parameters_are_those_of_the_public_class(name, library, make):
    declare_torchvision()
    pytest.importorskip(library, reason="pip install rostam[test-models]")
    with torch.device("meta"):
        module = make()
    assert sum(p.numel() for p in module.parameters()) == BY_HAND[name].parameters
