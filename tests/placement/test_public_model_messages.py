"""Tensor-parallel messages of Hugging Face's models equal lists derived by hand from Megatron's scheme.

Legend: s tokens, h width, t = tp; A = s h elements of 2 bytes (bf16), the micro-batch is 1. A layer all-reduces A
behind each row-split product forward, and the gradient of the input of each group of column-split products backward.
Besides them: the embedding's output, the gradient of the head's input, and of the loss per token a maximum and a sum
forward (8 bytes), a sum backward (4), and the loss (4).
"""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from rostam_py.plan import Strategy
from rostam_py.tracing import trace

sys.path.insert(0, str(Path(__file__).parent.parent / "tracing"))

from public_models import hugging_face

pytestmark = pytest.mark.slow

WIDTH, TOKENS, WORDS, LAYERS, HEADS, HIDDEN = 1024, 256, 32000, 3, 16, 2816
A = TOKENS * WIDTH * 2
DECODER = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "max_position_embeddings": TOKENS, "use_cache": False,
}  # fmt: skip


def traced(family, model="ForCausalLM", **settings):
    """Return a model's graph, loss included."""
    pytest.importorskip("transformers", reason="transformers is not installed: pip install rostam[test-models]")
    ids = torch.zeros(2, TOKENS, dtype=torch.int64)
    return trace(hugging_face(family, model, **settings), {"input_ids": ids, "labels": ids})


def listed(plan):
    """Return {(group, kind, bytes): count} of the tensor-parallel groups."""
    found = Counter()
    for m in plan.messages():
        if m.group.startswith("tp"):
            found[m.group, m.kind, m.num_bytes] += m.count
    return found


def expected(num_reduced):
    """Return the list of a model that all-reduces A so many times."""
    sizes = {A: num_reduced, 8 * TOKENS: 1, 4 * TOKENS: 1, 4: 1}
    return Counter({("tp", "all_reduce", size): count for size, count in sizes.items()})


def work_ratio(plan, graph):
    """Return the FLOPs of all devices over the graph's, both of one sample."""
    work = sum(s.hardware_flops for s in plan.stages) * plan.strategy.tp
    return work / (graph.forward_flops() + graph.backward_flops())


def check(placed, graph, lists, most=1.02):
    """Compare the lists of tp = 2, 4, 8 and the work that is done more than once."""
    for tp, hand in lists.items():
        plan = placed(graph, Strategy(tp=tp, precision="bf16_mixed"), 1)
        assert listed(plan) == hand, tp
        assert work_ratio(plan, graph) <= most, tp


def test_llama(placed):
    check(placed, traced("Llama", **DECODER, num_key_value_heads=8), dict.fromkeys((2, 4, 8), expected(4 * LAYERS + 2)))


def test_llama_of_two_key_heads(placed):
    # one key and one value head on each member, t / 2 members hold the same and sum its weights' gradients once an
    # iteration; its projections are computed t / 2 times, the exception to hardware FLOPs <= 1.02 of the model's:
    # (t / 2 - 1) 4 h h / 16 more for a layer's 2.25 h h + 3 h 2,816 and its share of the head, 10.4 h h
    own, weights = expected(4 * LAYERS + 2), LAYERS * 2 * WIDTH * 64 * 4  # gradients accumulate in fp32
    again = Counter({("tp1", "all_reduce", weights): 1})
    graph = traced("Llama", **DECODER, num_key_value_heads=2)
    check(placed, graph, {2: own, 4: own + again, 8: own + again}, most=1 + 3 * 4 / 16 / (2.25 + 8.25 + 10.4) + 0.005)


def test_gpt2_whose_product_is_taken_apart_by_thirds(placed):
    sizes = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": TOKENS}
    graph = traced("GPT2", "LMHeadModel", vocab_size=WORDS, **sizes, use_cache=False)
    check(placed, graph, dict.fromkeys((2, 4, 8), expected(4 * LAYERS + 2)))


@pytest.mark.parametrize(("is_parallel", "count"), [(True, 3), (False, 4)])
def test_gpt_neox_sums_both_branches_of_a_parallel_residual_first(placed, is_parallel, count):
    graph = traced("GPTNeoX", **DECODER, use_parallel_residual=is_parallel)
    check(placed, graph, dict.fromkeys((2, 4, 8), expected(count * LAYERS + 2)))


def test_t5_whose_first_blocks_hold_a_table_more(placed):
    # encoder layer: 2 forward, 2 backward. Decoder layer: 3 forward; backward self-attention, cross queries, cross keys
    # with values, feed-forward: the encoder's output has a gradient from each decoder layer, reduced there. Forward two
    # embeddings, backward the head's input. The tables of distances are split by heads: no message.
    sizes = {"d_model": WIDTH, "d_kv": 64, "d_ff": HIDDEN, "num_layers": LAYERS, "num_heads": HEADS}
    graph = traced(
        "T5", "ForConditionalGeneration", vocab_size=WORDS, **sizes, use_cache=False, decoder_start_token_id=0
    )
    assert graph.block_names == tuple(f"{side}.block.{i}" for side in ("encoder", "decoder") for i in range(LAYERS))
    hand = expected((2 + 3) * LAYERS + 2 + (2 + 4) * LAYERS + 1)
    check(placed, graph, dict.fromkeys((2, 4, 8), hand))


def test_mixtrals_dense_part_and_what_its_experts_add(placed):
    # the experts' rows are summands, combined to s rows before they are all-reduced: as a dense layer's feed-forward.
    # Their own messages: the gradients of the weights of a token's two experts, and the router's logits, which is split
    # by experts
    experts, per_token = 8, 2
    graph = traced(
        "Mixtral", **DECODER, num_key_value_heads=8, num_local_experts=experts, num_experts_per_tok=per_token
    )
    hand = expected(4 * LAYERS + 2)
    hand["tp", "all_reduce", TOKENS * per_token * 2] += LAYERS
    hand["tp", "all_gather", TOKENS * experts * 2] += LAYERS
    check(placed, graph, dict.fromkeys((2, 4, 8), hand))


def test_falcon_40b_takes_each_groups_key_and_value_behind_its_queries(placed):
    # one product of 8 groups, each two queries, a key and a value; a parallel residual of two norms
    graph = traced(
        "Falcon", vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        use_cache=False, new_decoder_architecture=True, num_kv_heads=8,
    )  # fmt: skip
    check(placed, graph, dict.fromkeys((2, 4, 8), expected(3 * LAYERS + 2)))


def test_gpt_oss_interleaves_gate_and_up_and_adds_experts_biases(placed):
    experts, per_token = 8, 2
    graph = traced(
        "GptOss", **DECODER, num_key_value_heads=8, head_dim=64, num_local_experts=experts,
        num_experts_per_tok=per_token,
    )  # fmt: skip
    hand = expected(4 * LAYERS + 2)
    hand["tp", "all_reduce", TOKENS * per_token * 2] += LAYERS
    hand["tp", "all_gather", TOKENS * experts * 2] += LAYERS
    check(placed, graph, dict.fromkeys((2, 4, 8), hand))


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_deepseek_v3_gathers_latents_and_nothing_larger(placed, tp):
    # queries of a latent of 256, keys and values of one of 128 and a rotated key of 32, split by columns and gathered
    rank, key_rank, rotated = 256, 128, 32
    graph = traced(
        "DeepseekV3", **DECODER, num_key_value_heads=HEADS, q_lora_rank=rank, kv_lora_rank=key_rank,
        qk_rope_head_dim=rotated, qk_nope_head_dim=64, v_head_dim=64, n_routed_experts=8, num_experts_per_tok=2,
        n_group=1, topk_group=1, moe_intermediate_size=1024, first_k_dense_replace=1, n_shared_experts=1,
    )  # fmt: skip
    plan = placed(graph, Strategy(tp=tp, precision="bf16_mixed"), 1)
    found = listed(plan)
    assert found["tp", "all_reduce", A] == 4 * LAYERS + 2
    assert max(size for _, _, size in found if size != A) <= max(rank, key_rank + rotated) * TOKENS * 2
    assert work_ratio(plan, graph) <= 1.02
