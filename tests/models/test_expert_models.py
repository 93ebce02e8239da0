# ruff: noqa: N806 (the symbols of the formulas)
"""Models of experts: parameters and FLOPs by hand, by torch's own count, by the public classes.

Legend: L layers, D width, H query heads of size E, K key and value heads, F hidden width of an expert, N experts, k of
them for each token, V vocabulary, S tokens. A token passes k experts of 3 D F, and the router's D N.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from rostam_py.models import deepseek, get_spec, gpt_oss, mixtral
from rostam_py.models.decoder import rotated, rotation
from rostam_py.tracing import trace

sys.path.insert(0, str(Path(__file__).parents[1] / "tracing"))

from public_models import declare_torchvision
from real_runs import count, materialised

os.environ.setdefault("HF_HUB_OFFLINE", "1")
S = 4096


@dataclass(frozen=True)
class Stack:
    """Layers of one kind. attention: its matrices; score: FLOPs of a query and a key, 2 per key and value entry."""

    layers: int
    attention: int
    score: int
    norms: int
    dense: int = 0
    expert: int = 0
    N: int = 0
    k: int = 0

    @property
    def parameters(self) -> int:
        """Of all layers."""
        return self.layers * (self.attention + self.norms + self.dense + self.N * self.expert)

    def active(self, capacity: float = 1) -> float:
        """Entries of one layer's matrices that multiply a token."""
        return self.attention + self.dense + self.k * self.expert * capacity


@dataclass(frozen=True)
class Model:
    """A decoder of one or two stacks; ``published``: the parameters of the public checkpoint."""

    published: int
    D: int
    V: int
    stacks: dict[str, Stack]

    @property
    def parameters(self) -> int:
        """Embedding, head, last norm and the layers."""
        return 2 * self.V * self.D + self.D + sum(stack.parameters for stack in self.stacks.values())

    @property
    def active(self) -> float:
        """Parameters that multiply a token."""
        return self.V * self.D + sum(stack.layers * stack.active() for stack in self.stacks.values())

    def forward(self, layers: int, capacity: float = 1) -> float:
        """FLOPs of one sample with so many layers of each stack."""
        products = self.V * self.D + layers * sum(stack.active(capacity) for stack in self.stacks.values())
        return 2 * S * products + layers * S * S * sum(stack.score for stack in self.stacks.values())


def grouped(L, D, H, K, F, N, k, V, published, head=128, head_norms=0):
    attention = 2 * D * H * head + 2 * D * K * head
    blocks = Stack(L, attention, 4 * H * head, 2 * D + head_norms, dense=D * N, expert=3 * D * F, N=N, k=k)
    return Model(published, D, V, {"blocks": blocks})


def deepseek_v3():
    D, H, query, key, head, turning, value, V = 7168, 128, 1536, 512, 128, 64, 128, 129280
    down = D * query + D * (key + turning)
    attention = down + query * H * (head + turning) + key * H * (head + value) + H * value * D
    each = {"attention": attention, "score": 2 * H * (head + turning + value), "norms": 2 * D + query + key}
    expert = 3 * D * 2048
    return Model(671_026_404_352, D, V, {
        "dense_blocks": Stack(3, **each, dense=3 * D * 18432),
        "blocks": Stack(58, **each, dense=256 * D + expert, expert=expert, N=256, k=8),
    })  # fmt: skip


def oss(L, N, published):
    D, H, K, E, F, k, V = 2880, 64, 8, 64, 2880, 4, 201088
    attention = 2 * D * H * E + 2 * D * K * E
    biases = H * E + 2 * K * E + D + N * (2 * F + D) + N
    # Half of the layers see all S positions, the others 128; a layer's mean score stands for both.
    window = 128 * S - 128 * 127 // 2
    score = 4 * H * E * (S * S + window) / (2 * S * S)
    blocks = Stack(L, attention, score, 2 * D + biases + H, dense=D * N, expert=3 * D * F, N=N, k=k)
    return Model(published, D, V, {"blocks": blocks})


MODELS = {
    "mixtral_8x7b": grouped(32, 4096, 32, 8, 14336, 8, 2, 32000, 46_702_792_704),
    "mixtral_8x22b": grouped(56, 6144, 48, 8, 16384, 8, 2, 32000, 140_620_634_112),
    "qwen3_30b_a3b": grouped(48, 2048, 32, 4, 768, 128, 8, 151936, 30_532_122_624, head_norms=2 * 128),
    "qwen3_235b_a22b": grouped(94, 4096, 64, 4, 1536, 128, 8, 151936, 235_093_634_560, head_norms=2 * 128),
    "deepseek_v3": deepseek_v3(),
}
HEADS = {"mixtral_8x7b": 32, "mixtral_8x22b": 48, "qwen3_30b_a3b": 32, "qwen3_235b_a22b": 64, "deepseek_v3": 128}
GPT_OSS = {"gpt_oss_20b": oss(24, 32, 20_914_757_184), "gpt_oss_120b": oss(36, 128, 116_829_156_672)}
SLOWLY = [pytest.param(name, marks=() if name == "deepseek_v3" else pytest.mark.slow) for name in MODELS]


def flops(graph, phase, batch=1):
    """FLOPs of matrix products and attention."""
    names = ("mm", "scaled_dot_product")
    return sum(op.flops.at(batch) for op in graph.ops if op.phase == phase and any(n in op.op_type for n in names))


def test_parameters_are_those_of_the_published_checkpoints():
    for name, model in (MODELS | GPT_OSS).items():
        with torch.device("meta"):
            module = get_spec(name).build()
        assert sum(p.numel() for p in module.parameters()) == model.parameters == model.published, name


def test_active_parameters_are_those_that_papers_name():
    # with the embedding, as Mixtral counts (arXiv 2401.04088: 13B; 8x22B: 39B) and Qwen3 (3.3B); DeepSeek-V3: 37B
    with_embedding = {name: (m.active + m.V * m.D) / 1e9 for name, m in (MODELS | GPT_OSS).items()}
    assert with_embedding["mixtral_8x7b"] == pytest.approx(13, rel=0.02)
    assert with_embedding["mixtral_8x22b"] == pytest.approx(39, rel=0.01)
    assert with_embedding["qwen3_30b_a3b"] == pytest.approx(3.3, rel=0.02)
    assert with_embedding["qwen3_235b_a22b"] == pytest.approx(22, rel=0.02)
    # OpenAI's table 1 counts 3.61 and 5.13 G with the head and without the embedding
    assert GPT_OSS["gpt_oss_20b"].active == pytest.approx(3.61e9, rel=0.003)
    assert GPT_OSS["gpt_oss_120b"].active == pytest.approx(5.13e9, rel=0.003)
    assert with_embedding["deepseek_v3"] == pytest.approx(37, rel=0.02)


@pytest.mark.parametrize("name", SLOWLY)
def test_one_layer_of_each_kind_computes_the_closed_form(name):
    graph, model = trace(name, num_layers=1, cache=False), MODELS[name]
    assert flops(graph, "forward") == model.forward(1)
    scores = S * S * sum(stack.score for stack in model.stacks.values())
    values = S * S * len(model.stacks) * 2 * 128 * HEADS[name]  # of the products with values, 128 wide in all of them
    # backward: twice the products; of attention both operands' gradients, and the scores once more
    assert flops(graph, "backward") == 2 * model.forward(1) + (scores - values)
    assert graph.forward_flops(1) == pytest.approx(model.forward(1), rel=0.02)


def test_two_layers_of_gpt_oss_compute_the_closed_form():
    graph, model = trace("gpt_oss_20b", num_layers=2, cache=False), GPT_OSS["gpt_oss_20b"]
    assert flops(graph, "forward") == model.forward(2)
    scores = 2 * S * S * model.stacks["blocks"].score
    assert flops(graph, "backward") == 2 * model.forward(2) + scores / 2  # the scores once more


@pytest.mark.parametrize("factor", [0.5, 1.25])
def test_capacity_pads_or_drops_the_rows_of_experts(factor):
    graph = trace("mixtral_8x7b", num_layers=1, capacity_factor=factor, cache=False)
    assert flops(graph, "forward") == MODELS["mixtral_8x7b"].forward(1, factor)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_token_costs_six_flops_an_active_parameter_and_attention(name):
    graph, model = trace(name, cache=False), MODELS[name]
    assert graph.num_parameters == model.published
    scores = S * sum(stack.layers * stack.score for stack in model.stacks.values())
    # fused attention computes the scores once more backward: 3.5 to 3.6 times its forward in all
    by_hand = 6 * model.active + 3.5 * scores
    assert (graph.forward_flops(1) + graph.backward_flops(1)) / S == pytest.approx(by_hand, rel=0.02)


def small(family):
    """A model of few, narrow layers that runs for real."""
    if family == "deepseek":
        config = deepseek.Config(
            dense_layers=1, num_layers=1, width=64, num_heads=4, query_latent=32, key_latent=16, head_size=16,
            rotary_size=8, value_size=16, dense_hidden=128, hidden=32, num_experts=8, per_token=2, num_groups=4,
            groups_per_token=2, vocabulary=128, sequence_length=64,
        )  # fmt: skip
        return deepseek.build("small", config)
    config = mixtral.Config(
        num_layers=2, width=64, num_heads=4, num_key_heads=2, head_size=16, hidden=32, num_experts=8, per_token=2,
        vocabulary=128, sequence_length=64, has_head_norms=family == "qwen3",
    )  # fmt: skip
    return mixtral.build("small", config)


@pytest.mark.parametrize("family", ["qwen3", "deepseek", pytest.param("mixtral", marks=pytest.mark.slow)])
def test_flops_and_saved_bytes_are_those_of_a_real_run(family):
    spec, batch = small(family), 2
    graph = trace(spec)
    torch.manual_seed(0)
    with torch.device("meta"):
        module = spec.build()
    ids = torch.randint(0, 128, (batch, 64))
    forward, backward, saved = count(materialised(module), ids, lambda logits: spec.loss(logits, ids))
    assert flops(graph, "forward", batch) == forward
    assert flops(graph, "backward", batch) == backward
    # eager index_add keeps the rows that it adds for nothing but their shape; compiled programs do not
    num_expert_layers = 1 if family == "deepseek" else 2
    kept = num_expert_layers * batch * 64 * 2 * 64 * 4
    assert graph.saved_bytes(batch) == pytest.approx(saved - kept, rel=0.02)


def test_routers_send_each_token_to_k_experts_with_weights_that_sum_to_one():
    torch.manual_seed(0)
    x = torch.randn(32, 64)
    for router, total in (
        (mixtral.SoftmaxRouter(64, 8, 2), 1.0),
        (deepseek.GroupedSigmoidRouter(64, 8, 2, num_groups=4, groups_per_token=2, scale=2.5), 2.5),
    ):
        weights, chosen = router(x)
        assert chosen.sum(1).tolist() == [2] * 32
        assert torch.allclose(weights.sum(1), torch.tensor(total))
        assert (weights[~chosen] == 0).all()
        if total != 1:
            assert (chosen.view(32, 4, 2).any(2).sum(1) <= 2).all()  # from two groups at most


def test_experts_give_the_weighted_sum_of_the_chosen_ones():
    from rostam_py.models.experts import MixtureOfExperts, SoftmaxRouter

    torch.manual_seed(0)
    moe = MixtureOfExperts(16, 8, 4, SoftmaxRouter(16, 4, 2))
    for parameter in moe.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    moe, x = moe.to(torch.bfloat16), torch.randn(2, 5, 16, dtype=torch.bfloat16)
    weights, _ = moe.router(x.flatten(0, 1))
    rows = x.flatten(0, 1)
    each = torch.stack([
        (torch.nn.functional.silu(rows @ moe.gate[e]) * (rows @ moe.up[e])) @ moe.down[e] for e in range(4)
    ])  # fmt: skip
    by_hand = (each * weights.t()[:, :, None]).sum(0).view(2, 5, 16)
    assert torch.allclose(moe(x), by_hand, atol=0.05, rtol=0.05)


def test_gpt_oss_attends_as_explicit_sinks_and_masks_do():
    torch.manual_seed(0)
    config = gpt_oss.Config(
        num_layers=1, num_experts=4, width=32, num_heads=4, num_key_heads=2, head_size=16, hidden=16, window=100
    )
    attention = gpt_oss.SinkAttention(config, window=100)
    torch.nn.init.normal_(attention.sinks)
    x, waves = torch.randn(2, 256, 32), rotation(256, 16, config.theta, torch.device("cpu"))
    query = rotated(attention._heads(attention.query(x)), waves)
    key, value = attention._heads(attention.key(x)), attention._heads(attention.value(x))
    key, value = rotated(key, waves).repeat_interleave(2, 1), value.repeat_interleave(2, 1)
    places = torch.arange(256)
    seen = (places <= places[:, None]) & (places > places[:, None] - 100)
    scores = (query @ key.transpose(2, 3) / 4).masked_fill(~seen, -torch.inf)
    sinks = attention.sinks[None, :, None, None].expand(2, -1, 256, 1)
    weights = torch.softmax(torch.cat((scores, sinks), -1), -1)[..., :-1]
    by_hand = attention.proj((weights @ value).transpose(1, 2).flatten(2))
    with torch.no_grad():
        assert torch.allclose(attention(x, waves), by_hand, atol=1e-5)


def test_the_tiles_of_a_window_are_those_that_hold_any_of_its_positions():
    for window in (1, 100, 128, 129, 300, 512):
        mask = gpt_oss.causal_mask(512, window, torch.device("cpu"))
        seen = [[any(q - window < k <= q for q in range(i * 128, i * 128 + 128) for k in range(j * 128, j * 128 + 128))
                 for j in range(4)] for i in range(4)]  # fmt: skip
        counts, indices = mask.kv_num_blocks[0, 0], mask.kv_indices[0, 0]
        assert [sorted(indices[i, : counts[i]].tolist()) for i in range(4)] == [
            [j for j in range(4) if seen[i][j]] for i in range(4)
        ]


def public(name: str) -> Any:
    import transformers

    if name in GPT_OSS:
        layers, experts = (24, 32) if name == "gpt_oss_20b" else (36, 128)
        return transformers.GptOssForCausalLM(
            transformers.GptOssConfig(num_hidden_layers=layers, num_local_experts=experts)
        )
    if name == "qwen3_235b_a22b":
        config = transformers.Qwen3MoeConfig(
            vocab_size=151936, hidden_size=4096, num_hidden_layers=94, num_attention_heads=64, num_key_value_heads=4,
            head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=1536, decoder_sparse_step=1,
        )  # fmt: skip
        return transformers.Qwen3MoeForCausalLM(config)

    if name == "deepseek_v3":
        return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config())  # its defaults are this model
    if name == "qwen3_30b_a3b":
        config = transformers.Qwen3MoeConfig(
            vocab_size=151936, hidden_size=2048, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4,
            head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1,
        )  # fmt: skip
        return transformers.Qwen3MoeForCausalLM(config)
    L, D, H, F = (32, 4096, 32, 14336) if name == "mixtral_8x7b" else (56, 6144, 48, 16384)
    config = transformers.MixtralConfig(
        vocab_size=32000, hidden_size=D, intermediate_size=F, num_hidden_layers=L, num_attention_heads=H,
        num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2,
    )  # fmt: skip
    return transformers.MixtralForCausalLM(config)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MODELS, *GPT_OSS])
def test_parameters_are_those_of_hugging_faces_class(name):
    pytest.importorskip("transformers", reason="pip install rostam[test-models]")
    declare_torchvision()
    with torch.device("meta"):
        module = public(name)
    assert sum(p.numel() for p in module.parameters()) == (MODELS | GPT_OSS)[name].published
