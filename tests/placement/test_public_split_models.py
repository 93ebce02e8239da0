"""Public models that are split by heads, experts or rows: messages counted by hand, two layers each.

Legend: T tokens of width h, A = T h elements of 2 bytes (bf16), the micro-batch is 1. A layer all-reduces A behind each
row-split product forward, and the gradient of the input of each group of column-split products backward. Besides them:
the embedding's output, the gradient of the head's input, and of the loss per token a maximum and a sum forward (8
bytes), a sum backward (4), and the loss (4).
"""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from rostam_py.plan import Strategy
from rostam_py.tracing import trace

sys.path.insert(0, str(Path(__file__).parent.parent / "tracing"))

from public_models import declare_torchvision

pytestmark = pytest.mark.slow

LAYERS, TOKENS, WIDTH, WORDS = 2, 1024, 1024, 32000
A = TOKENS * WIDTH * 2
DECODER = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": 2816, "num_hidden_layers": LAYERS,
    "num_attention_heads": 16, "max_position_embeddings": 4096, "use_cache": False,
}  # fmt: skip


def traced(family, tokens=TOKENS, part="", **settings):
    """Return a language model's graph, loss included. Args: part: "Text" for settings of a part of a larger model."""
    declare_torchvision()
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install rostam[test-models]"
    )
    config = getattr(transformers, f"{family}{part}Config")(**settings)
    with torch.device("meta"):
        module = getattr(transformers, f"{family}ForCausalLM")(config)
    ids = torch.zeros(2, tokens, dtype=torch.int64)
    return trace(module, {"input_ids": ids, "labels": ids})


def plan_of(placed, graph, **degrees):
    strategy = Strategy.of(precision="bf16_mixed", check_memory=False, micro_batch=1, **degrees)
    return placed(graph, strategy, strategy.dp or 1)


def listed(plan, prefix="tp"):
    """Return {(kind, bytes): count} of the groups whose labels begin so."""
    found = Counter()
    for m in plan.messages():
        if m.group.startswith(prefix):
            found[m.kind, m.num_bytes] += m.count
    return found


def decoder(num_reduced, tokens=TOKENS, width=WIDTH):
    """Return the list of a decoder that all-reduces A so many times."""
    return Counter({("all_reduce", size): count for size, count in (
        (tokens * width * 2, num_reduced), (8 * tokens, 1), (4 * tokens, 1), (4, 1),
    )})  # fmt: skip


def work_ratio(plan):
    """Return the FLOPs that devices run over their shares of the model's, of causal attention half."""
    return sum(s.hardware_flops for s in plan.stages) / sum(s.causal_flops for s in plan.stages)


def test_gpt_oss_sends_rows_of_tokens_and_no_biases(placed):
    # four experts a token: dispatched, combined and both backward, 4 T h elements each
    graph = traced("GptOss", **DECODER | {"hidden_size": 2880}, head_dim=64, num_local_experts=32)
    found = listed(plan_of(placed, graph, dp=4, ep=4), "ep")
    assert found == {("all_to_all", 4 * TOKENS * 2880 * 2): 4 * LAYERS}
    assert sum(size * count for (_, size), count in found.items()) == 180 * 2**20


def test_llama_4_reduces_tokens_and_spreads_its_experts(placed):
    # every expert multiplies all tokens, times a score each. Split inside, experts are added before they are reduced;
    # spread, n T rows travel. The router is split by experts and its logits gathered; a token has one score's gradient
    experts, width = 16, 1280
    graph = traced(
        "Llama4", part="Text", **DECODER | {"hidden_size": width}, intermediate_size_mlp=4096, num_key_value_heads=8,
        head_dim=80, num_local_experts=experts, interleave_moe_layer_step=1,
    )  # fmt: skip
    plan = plan_of(placed, graph, tp=4)
    router = {("all_gather", TOKENS * experts * 2): LAYERS, ("all_reduce", 2 * TOKENS): LAYERS}
    assert listed(plan) == decoder(4 * LAYERS + 2, width=width) + Counter(router)
    assert work_ratio(plan) <= 1.01
    spread = listed(plan_of(placed, graph, dp=4, ep=4), "ep")
    assert spread == {("all_to_all", experts * TOKENS * width * 2): 4 * LAYERS}


def test_mamba_2_gathers_nothing(placed):
    graph = traced(
        "Mamba2", vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_heads=32, head_dim=64, n_groups=8,
        state_size=128, expand=2, chunk_size=256, use_cache=False,
    )  # fmt: skip
    plan = plan_of(placed, graph, tp=4)
    assert listed(plan) == decoder(2 * LAYERS + 2)
    assert work_ratio(plan) <= 1.01


def test_gated_delta_rules_of_qwen_3_next_gather_nothing(placed):
    # the norm of what a head makes has one weight for all heads, of 64: its gradients are summed once an iteration
    graph = traced(
        "Qwen3Next", 256, **DECODER, num_key_value_heads=8, head_dim=64, linear_num_value_heads=16,
        linear_num_key_heads=8, linear_key_head_dim=64, linear_value_head_dim=64, num_experts=8, num_experts_per_tok=2,
        mlp_only_layers=list(range(LAYERS)), layer_types=["linear_attention"] * LAYERS,
    )  # fmt: skip
    plan = plan_of(placed, graph, tp=4)
    assert listed(plan) == decoder(4 * LAYERS + 2, tokens=256) + Counter({("all_reduce", LAYERS * 64 * 4): 1})
    assert work_ratio(plan) <= 1.01


def test_gemma_3n_sends_nothing_larger_than_its_activations(placed):
    # not its tables' gradients, of 262,400 x 2,048 and 262,144 x 256 a layer in fp32
    graph = traced("Gemma3n", part="Text", num_hidden_layers=LAYERS, num_kv_shared_layers=0, use_cache=False)
    plan = plan_of(placed, graph, tp=4)
    assert max(size for _, size in listed(plan)) <= TOKENS * 2048 * 2
    assert work_ratio(plan) <= 1.01


def test_flux_sends_nothing_larger_than_its_activations(placed):
    # not the gradients of its modulations' weights, of 3,072 x 3,072 in fp32
    declare_torchvision()
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: pip install rostam[test-models]")
    image, text, width = 1024, 512, 3072
    with torch.device("meta"):
        module = diffusers.FluxTransformer2DModel(num_layers=1, num_single_layers=1, guidance_embeds=True)
    inputs = {
        "hidden_states": torch.zeros(2, image, 64), "encoder_hidden_states": torch.zeros(2, text, 4096),
        "pooled_projections": torch.zeros(2, 768), "timestep": torch.zeros(2), "guidance": torch.zeros(2),
        "img_ids": torch.zeros(image, 3), "txt_ids": torch.zeros(text, 3),
    }  # fmt: skip
    batch = {name: None if name.endswith("_ids") else 0 for name in inputs}
    plan = plan_of(placed, trace(module, {**inputs, "return_dict": False}, batch_dims=batch), tp=4)
    assert max(size for _, size in listed(plan)) <= (image + text) * width * 2
    assert work_ratio(plan) <= 1.02  # fused attention computes its scores again in backward: 1.3% here


def _vision():
    declare_torchvision()
    torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")
    with torch.device("meta"):
        return torchvision.models.VisionTransformer(224, 16, LAYERS, 12, 768, 3072), torch.zeros(2, 3, 224, 224)


def _attention():
    x = torch.zeros(128, 2, WIDTH)
    return nn.MultiheadAttention(WIDTH, 16, device="meta"), (x, x, x)


def _encoder_layer():
    return nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, device="meta"), torch.zeros(128, 2, WIDTH)


def _transformer():
    return nn.Transformer(WIDTH, 16, 2, 2, 4 * WIDTH, device="meta"), (torch.zeros(128, 2, WIDTH),) * 2


@pytest.mark.parametrize("build", [_attention, _encoder_layer, _transformer, _vision])
def test_torchs_own_attention_is_computed_once(placed, build):
    graph = trace(*build())
    for tp in (2, 4):
        assert work_ratio(plan_of(placed, graph, tp=tp)) <= 1.01, tp


def test_three_of_torchvisions_heads_lie_on_each_pair_of_eight_members(placed):
    # of 12 heads: both members of a pair compute attention and its output product, h h of a layer's 12 h h, again; the
    # packed product is split by all eight and gathered in pairs
    graph = trace(*_vision())
    plan = plan_of(placed, graph, tp=8)
    tokens, width = 197, 768
    product, attention = width * width, 3 * 4 * tokens * width / 6  # in parameters' worth of 6 FLOPs
    again = (product + attention) / (12 * product + attention)
    assert work_ratio(plan) - 1 == pytest.approx(again, rel=0.25)
    assert listed(plan, "tp1")["all_gather", 3 * width // 4 * tokens * 2] == LAYERS
