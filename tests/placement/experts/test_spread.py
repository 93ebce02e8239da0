"""Expert parallelism: messages, memory and work by hand (spec: GShard's scheme as Megatron-Core runs it).

Legend: h width, f hidden width of an expert, n experts, k of them for a token, T tokens of a micro-batch on one rank,
L layers with experts; d, t, p, e the degrees. Rows are of 2 bytes an entry (bf16): 2 T k h bytes are dispatched and
combined, forward and backward, so four all-to-alls a layer and micro-batch. Their weights, 2 T k bytes, are dispatched
forward and the gradients of these combined backward: two more. Gradients of parameters have 4 bytes.
"""

import functools
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.costs.kernel_shapes import question_of
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.models import deepseek, mixtral
from rostam_py.placement.experts.spread import busiest_rank, spread_experts
from rostam_py.plan import Strategy
from rostam_py.tracing import trace

WIDTH, HIDDEN, TOKENS, WORDS, LAYERS, EXPERTS, K = 512, 1024, 256, 1000, 4, 8, 2
ROWS, WEIGHTS = 2 * TOKENS * K * WIDTH, 2 * TOKENS * K
EXPERT = 3 * WIDTH * HIDDEN
ATTENTION = 2 * WIDTH * WIDTH + 2 * WIDTH * WIDTH // 2  # 8 heads on 4


@functools.cache
def mixed_of(per_token, num_layers):
    """Return layers of 8 experts as Mixtral's, traced once for all tests."""
    config = mixtral.Config(
        num_layers=num_layers, width=WIDTH, num_heads=8, num_key_heads=4, head_size=64, hidden=HIDDEN,
        num_experts=EXPERTS, per_token=per_token, vocabulary=WORDS, sequence_length=TOKENS,
    )  # fmt: skip
    return trace(mixtral.build("mixed", config))


@pytest.fixture(scope="module")
def mixed():
    """Four layers of 8 experts, 2 for a token, as Mixtral's."""
    return mixed_of(K, LAYERS)


@pytest.fixture(scope="module")
def shared():
    """One dense layer and two with 8 experts and a shared one, as DeepSeek-V3's."""
    config = deepseek.Config(
        dense_layers=1, num_layers=2, width=WIDTH, num_heads=8, query_latent=64, key_latent=32, head_size=64,
        rotary_size=16, value_size=64, dense_hidden=HIDDEN, hidden=256, num_experts=EXPERTS, per_token=K, num_groups=4,
        groups_per_token=2, vocabulary=WORDS, sequence_length=TOKENS,
    )  # fmt: skip
    return trace(deepseek.build("shared", config))


def listed(plan, stage=0):
    """Return {(group, kind, bytes): count} of a stage without its tensor-parallel messages and sends."""
    found = Counter()
    for m in plan.messages():
        if m.group not in ("tp", "pp") and stage in m.stages:
            found[m.group, m.kind, m.num_bytes] += m.count
    return dict(found)


def routed(num_layers, parts=1):
    """Return {(group, kind, bytes): count} of a micro-batch. Args: parts: 1 over the rank's share of the tokens."""
    return {
        ("ep", "all_to_all", ROWS // parts): 4 * num_layers,
        ("ep", "all_to_all", WEIGHTS // parts): 2 * num_layers,
    }


@pytest.mark.parametrize("ep", [2, 4, 8])
def test_two_of_eight_experts_exchange_rows_four_times_a_layer(mixed, placed, ep):
    plan = placed(mixed, Strategy(dp=8, ep=ep, precision="bf16_mixed"), 8)
    whole = LAYERS * (ATTENTION + 2 * WIDTH + EXPERTS * WIDTH) + 2 * WORDS * WIDTH + WIDTH
    own = LAYERS * EXPERTS * EXPERT // ep
    assert plan.stages[0].num_parameters == whole + own
    expected = routed(LAYERS) | {("dp", "all_reduce", 4 * whole): 1}
    found = listed(plan)
    reduced = {key: count for key, count in found.items() if key[0] == "dp_experts"}
    assert {key: count for key, count in found.items() if key not in reduced} == expected
    # each expert's gradients over the ranks that hold it and no others, once; over none where one rank does
    assert sum(size * count for (_, _, size), count in reduced.items()) == (4 * own if ep < 8 else 0)
    assert plan.members("ep").tolist() == [list(range(a, a + ep)) for a in range(0, 8, ep)]
    if ep < 8:
        assert plan.members("dp_experts").tolist() == [list(range(a, 8, ep)) for a in range(ep)]


@pytest.mark.parametrize(("ep", "tp"), [(1, 1), (2, 1), (8, 1), (4, 2)])
def test_a_ranks_products_are_of_its_own_experts_with_the_rows_of_all_ranks(mixed, placed, ep, tp):
    # Each of 8 experts gets 64 of a rank's 256 x 2 rows; a rank of e has 8 / e of them, with 64 e rows each.
    plan = placed(mixed, Strategy(dp=8, ep=ep, tp=tp, precision="bf16_mixed"), 8)
    products = [
        question_of(kernel.call, kernel.call.ops[0], mixed)
        for name in ("forward", "backward")
        for task in plan.stages[0].templates[name]
        for kernel in task.kernels
        if "grouped_mm" in kernel.op_type
    ]
    assert len(products) == 3 * 3 * LAYERS
    assert {asked.sizes[:2] for asked in products} == {(EXPERTS / ep, TOKENS * K / EXPERTS * ep)}
    assert {tuple(sorted(asked.sizes[2:4])) for asked in products} == {(WIDTH, HIDDEN // tp)}


def of_tp(plan, phase, size):
    """Return {collective: count} of one size over tp in a template."""
    tasks = plan.stages[0].templates[phase]
    return dict(Counter(t.collective for t in tasks if t.group == "tp" and t.num_bytes == size))


@pytest.mark.parametrize("tp", [2, 4])
def test_tp_ranks_dispatch_their_own_tokens_under_sequence_parallelism(tp, mixed, placed):
    # T/t tokens of a rank: ROWS/t dispatched and combined, forward and backward. Experts are split inside: rows of all
    # tp ranks are gathered before them and reduce-scattered behind; their gradients the other way round. Else A = T h
    # of 2 bytes: attention gathers its input and scatters its output in each layer, so do the embedding (forward a
    # reduce-scatter, backward an all-gather) and the head (forward an all-gather, backward a reduce-scatter); backward
    # gathers the inputs of attention and of the head again. Experts have no such messages. The weights of rows are
    # gathered as rows are forward, their gradients, summands over tp, scattered as those of rows are.
    settings = {"precision": "bf16_mixed", "sequence_parallel": True, "bucket_size": "1 GB"}
    plan = placed(mixed, Strategy.of(dp=4, tp=tp, ep=4, **settings), 4)
    whole = LAYERS * (ATTENTION // tp + 2 * WIDTH + EXPERTS * WIDTH) + 2 * WORDS * WIDTH // tp + WIDTH
    own = LAYERS * EXPERTS * EXPERT // (4 * tp)
    assert listed(plan) == routed(LAYERS, tp) | {("dp", "all_reduce", 4 * whole): 1}
    assert plan.stages[0].num_parameters == whole + own
    activation = 2 * TOKENS * WIDTH
    assert of_tp(plan, "forward", ROWS) == {"all_gather": LAYERS, "reduce_scatter": LAYERS}
    assert of_tp(plan, "backward_last", ROWS) == {"all_gather": LAYERS, "reduce_scatter": LAYERS}
    assert of_tp(plan, "forward", WEIGHTS) == {"all_gather": LAYERS}
    of_loss = {"all_reduce": 1}  # a sum for each token in fp32: 4 T = 2 T k bytes
    assert of_tp(plan, "backward_last", WEIGHTS) == {"reduce_scatter": LAYERS} | of_loss
    assert of_tp(plan, "forward", activation) == {"all_gather": LAYERS + 1, "reduce_scatter": LAYERS + 1}
    assert of_tp(plan, "backward_last", activation) == {"all_gather": 2 * (LAYERS + 1), "reduce_scatter": LAYERS + 1}
    summed = LAYERS * (2 * WIDTH + EXPERTS * WIDTH) + WIDTH  # norms and routers, of parts of the tokens
    assert of_tp(plan, "backward_last", 4 * summed) == {"all_reduce": 1}


def test_products_of_experts_are_as_long_whether_rows_are_gathered_or_not(mixed, placed):
    def products(**settings):
        tasks = placed(mixed, Strategy.of(dp=4, tp=2, ep=4, precision="bf16_mixed", **settings), 4).stages[0].templates
        kernels = [k for task in tasks["backward_last"] for k in task.kernels if "grouped_mm" in k.op_type]
        return sorted(k.duration_s for k in kernels)

    assert products(sequence_parallel=True) == pytest.approx(products(), rel=1e-3)
    assert len(products()) == 6 * LAYERS


def test_uneven_experts_send_more_over_tp_too(mixed, placed):
    uneven = replace(mixed, metadata=mixed.metadata | {"experts": {"capacity_factor": None, "imbalance": 3.0}})
    strategy = Strategy(dp=4, tp=2, ep=4, precision="bf16_mixed", sequence_parallel=True)
    plan = placed(uneven, strategy, 4)
    busy = (3 + 5 / 7) / 2
    assert listed(plan)["ep", "all_to_all", math.ceil(busy * ROWS / 2)] == 4 * LAYERS
    assert listed(plan)["ep", "all_to_all", math.ceil(busy * WEIGHTS / 2)] == 2 * LAYERS
    assert of_tp(plan, "forward", math.ceil(busy * WEIGHTS)) == {"all_gather": LAYERS}
    assert of_tp(plan, "backward_last", math.ceil(busy * WEIGHTS)) == {"reduce_scatter": LAYERS}
    for phase in ("forward", "backward_last"):
        assert of_tp(plan, phase, math.ceil(busy * ROWS)) == {"all_gather": LAYERS, "reduce_scatter": LAYERS}


def test_a_shared_expert_stays_data_parallel(shared, placed):
    plan = placed(shared, Strategy.of(dp=4, ep=2, micro_batch=1, precision="bf16_mixed", bucket_size="1 GB"), 8)
    expert = 3 * WIDTH * 256
    own = 2 * EXPERTS * expert // 2
    assert listed(plan) == {
        ("ep", "all_to_all", ROWS): 2 * 4 * 2,  # micro-batches, all-to-alls, layers
        ("ep", "all_to_all", WEIGHTS): 2 * 2 * 2,
        ("dp", "all_reduce", 4 * (shared.num_parameters - 2 * EXPERTS * expert)): 1,
        ("dp_experts", "all_reduce", 4 * own): 1,
    }
    assert plan.stages[0].num_parameters == shared.num_parameters - own


def test_a_shared_expert_gathers_its_tokens_as_a_dense_layer_does(shared, placed):
    # One dense layer and two with a shared expert: each of these three feed-forwards, three attentions and the head
    # gather A = T h of 2 bytes forward and gather it again backward; rows of the routed experts go as without it.
    strategy = Strategy.of(dp=4, tp=2, ep=2, micro_batch=1, precision="bf16_mixed", sequence_parallel=True,
                        bucket_size="1 GB")  # fmt: skip
    plan = placed(shared, strategy, 4)
    assert routed(2, 2).items() <= listed(plan).items()
    expert = 3 * WIDTH * 256
    assert listed(plan)["dp_experts", "all_reduce", 4 * 2 * EXPERTS * expert // 2 // 2] == 1
    for phase in ("forward", "backward_last"):
        assert of_tp(plan, phase, ROWS) == {"all_gather": 2, "reduce_scatter": 2}
    activation = 2 * TOKENS * WIDTH
    assert of_tp(plan, "forward", activation) == {"all_gather": 3 + 3 + 1, "reduce_scatter": 3 + 3 + 1}
    # backward gathers the gradients of what was scattered, and the gathered inputs again; a shared expert's summands
    # are scattered before those of its routed ones, which are in parts already, are added
    found = of_tp(plan, "backward_last", activation)
    assert found == {"all_gather": 2 * (3 + 3 + 1), "reduce_scatter": 3 + 3 + 1}


@pytest.mark.parametrize("is_split", [False, True])
def test_mixtral_on_32_accelerators(is_split, placed):
    # tp 2, pp 2, dp 8, ep 4: d t p = 32. Each of 2 stages holds 2 of 4 layers, 2 of 8 experts in each, half of every
    # expert; 4 micro-batches of one sequence. Norms and routers are whole on both tp ranks. With sequence parallelism
    # each of both dispatches the rows of its half of the tokens.
    graph = trace("mixtral_8x7b", num_layers=4)
    strategy = Strategy.of(dp=8, tp=2, pp=2, ep=4, micro_batch=1, precision="bf16_mixed", bucket_size="2 GB",
                        sequence_parallel=is_split, check_memory=False)  # fmt: skip
    plan = placed(graph, strategy, 32)
    h, f, tokens, words = 4096, 14336, 4096, 32000
    attention = (2 * h * h + 2 * h * 1024) // 2
    own = 2 * 2 * 3 * h * f // 2
    router = 8 * h if is_split else 8 * h // plan_router_ways(plan)
    for stage in (0, 1):
        whole = 2 * (attention + 2 * h + router) + words * h // 2 + (h if stage else 0)
        assert listed(plan, stage) == {
            ("ep", "all_to_all", 2 * tokens * 2 * h // (2 if is_split else 1)): 4 * 4 * 2,
            ("ep", "all_to_all", 2 * tokens * 2 // (2 if is_split else 1)): 4 * 2 * 2,
            ("dp", "all_reduce", 4 * whole): 1,
            ("dp_experts", "all_reduce", 4 * own): 1,
        }
        assert plan.stages[stage].num_parameters == whole + own
    assert plan.members("ep").shape == (8, 4)
    assert plan.members("dp_experts").shape == (16, 2)
    # rank order tp, pp, dp: a dp neighbour is 4 accelerators further
    assert plan.members("ep")[0].tolist() == [0, 4, 8, 12]
    assert plan.members("dp_experts")[0].tolist() == [0, 16]


def test_mixtral_on_32_accelerators_with_whole_experts(placed):
    # tp 2, pp 2, dp 8 as above, experts whole: ep 4 takes 2 tp ranks of 2 data-parallel ones, so that 4 ranks of a
    # stage hold the same 2 of 8 experts. A tp rank sends the rows of its half of the tokens.
    graph = trace("mixtral_8x7b", num_layers=4)
    strategy = Strategy.of(dp=8, tp=2, pp=2, ep=4, expert_tp=1, micro_batch=1, precision="bf16_mixed",
                           bucket_size="4 GB",
                        sequence_parallel=True, check_memory=False)  # fmt: skip
    plan = placed(graph, strategy, 32)
    h, f, tokens, words = 4096, 14336, 4096, 32000
    own = 2 * 2 * 3 * h * f
    for stage in (0, 1):
        whole = 2 * ((2 * h * h + 2 * h * 1024) // 2 + 2 * h + 8 * h) + words * h // 2 + (h if stage else 0)
        found = listed(plan, stage)
        reduced = {key: count for key, count in found.items() if key[0] == "dp_experts"}
        assert sum(size * count for (_, _, size), count in reduced.items()) == 4 * own
        assert {key: count for key, count in found.items() if key not in reduced} == {
            ("ep", "all_to_all", 2 * (tokens // 2) * 2 * h): 4 * 4 * 2,
            ("ep", "all_to_all", 2 * (tokens // 2) * 2): 4 * 2 * 2,
            ("dp", "all_reduce", 4 * whole): 1,
        }
        assert plan.stages[stage].num_parameters == whole + own
    # devices: (dp, stage, tp) is (2 dp + stage) 2 + tp
    assert plan.members("ep").tolist()[:2] == [[0, 1, 4, 5], [8, 9, 12, 13]]
    assert plan.members("dp_experts").tolist()[:2] == [[0, 8, 16, 24], [1, 9, 17, 25]]
    assert of_tp(plan, "forward", 2 * tokens * 2 * h) == of_tp(plan, "forward", 2 * tokens * 2) == {}


@pytest.mark.parametrize(("dp", "tp", "ep"), [(2, 2, 4), (4, 2, 2), (1, 4, 2), (2, 4, 8)])
def test_whole_experts_send_over_ep_alone(dp, tp, ep, mixed, placed):
    settings = {"precision": "bf16_mixed", "sequence_parallel": True, "bucket_size": "1 GB"}
    plan = placed(mixed, Strategy.of(dp=dp, tp=tp, ep=ep, expert_tp=1, **settings), dp)
    whole = LAYERS * (ATTENTION // tp + 2 * WIDTH + EXPERTS * WIDTH) + 2 * WORDS * WIDTH // tp + WIDTH
    own = LAYERS * EXPERTS * EXPERT // ep
    expected = routed(LAYERS, tp) | {("dp", "all_reduce", 4 * whole): 1}
    expected |= {("dp_experts", "all_reduce", 4 * own): 1}
    if dp == 1:
        del expected["dp", "all_reduce", 4 * whole]
    if ep == dp * tp:
        del expected["dp_experts", "all_reduce", 4 * own]
    assert listed(plan) == expected
    assert plan.stages[0].num_parameters == whole + own
    assert of_tp(plan, "forward", ROWS) == of_tp(plan, "backward_last", ROWS) == of_tp(plan, "forward", WEIGHTS) == {}
    summed = LAYERS * (2 * WIDTH + EXPERTS * WIDTH) + WIDTH  # no experts: their own group reduces them
    assert of_tp(plan, "backward_last", 4 * summed) == {"all_reduce": 1}
    assert plan.members("ep").tolist() == [list(range(a, a + ep)) for a in range(0, dp * tp, ep)]


def test_state_of_whole_experts_is_shared_by_the_ranks_that_hold_the_same(mixed, placed):
    settings = {"precision": "bf16_mixed", "sequence_parallel": True, "bucket_size": "1 GB", "shard": 1}
    plan = placed(mixed, Strategy.of(dp=4, tp=2, ep=2, expert_tp=1, **settings), 4)
    own = LAYERS * EXPERTS * EXPERT // 2
    found = listed(plan)
    assert found["dp_experts", "reduce_scatter", 4 * own] == found["zero_experts", "all_gather", 2 * own] == 1
    assert plan.members("zero_experts").tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    whole = plan.stages[0].num_parameters - own
    assert plan.stages[0].memory.optimizer_state == 12 * (whole // 4 + own // 4)


def test_ranks_that_share_a_sequence_route_their_own_tokens(mixed, placed):
    # cp 2: T/2 tokens of a rank, ROWS/2 bytes of rows; ep 4 of dp x cp = 4: both parts of two sequences. Ring attention
    # sends keys and values of 4 heads of 64 once forward, and backward once more and their gradients twice.
    plan = placed(mixed, Strategy.of(dp=2, cp=2, ep=4, precision="bf16_mixed", bucket_size="1 GB"), 2)
    whole = LAYERS * (ATTENTION + 2 * WIDTH + EXPERTS * WIDTH) + 2 * WORDS * WIDTH + WIDTH
    keys = 2 * (2 * (TOKENS // 2) * 4 * 64)
    assert listed(plan) == routed(LAYERS, 2) | {
        ("cp", "shift", keys): 4 * LAYERS,
        ("dp", "all_reduce", 4 * whole): 1,
    }
    assert plan.stages[0].num_parameters == whole + LAYERS * EXPERTS * EXPERT // 4
    assert plan.members("ep").tolist() == [[0, 1, 2, 3]]


def test_ranks_that_share_a_sequence_do_their_part_of_the_experts_work(mixed, shared, placed):
    for graph in (mixed, shared):
        alone = placed(graph, Strategy(dp=2, ep=2, precision="bf16_mixed"), 2).stages[0]
        part = placed(graph, Strategy(dp=2, cp=2, ep=2, precision="bf16_mixed"), 2).stages[0]
        assert part.hardware_flops == pytest.approx(alone.hardware_flops / 2, rel=1e-4)
        assert part.memory.activations == pytest.approx(alone.memory.activations / 2, rel=0.01)


def test_latent_attention_and_experts_share_sequences(shared, placed):
    # keys of 64 + 16, values of 64, 8 heads of each: three layers' rings; rows of two layers with experts
    plan = placed(shared, Strategy(dp=4, cp=2, tp=2, ep=2, sequence_parallel=True, precision="bf16_mixed"), 4)
    found = listed(plan)
    assert found["cp", "shift", 2 * (TOKENS // 2) * 8 * (64 + 16 + 64) // 2] == 4 * 3
    assert routed(2, 4).items() <= found.items()
    for phase in ("forward", "backward_last"):
        assert of_tp(plan, phase, ROWS // 2) == {"all_gather": 2, "reduce_scatter": 2}


def test_what_chooses_among_tokens_cannot_share_sequences(placed):
    class Depths(nn.Module):  # mixture of depths: half of a sequence's tokens go through a layer
        def __init__(self):
            super().__init__()
            self.score, self.proj = nn.Linear(32, 1), nn.Linear(32, 32)

        def forward(self, x):
            q = x.view(x.shape[0], x.shape[1], 2, 16).transpose(1, 2)
            x = x + nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(2)
            weights, chosen = self.score(x).squeeze(-1).topk(16, 1)
            rows = torch.gather(x, 1, chosen[..., None].expand(-1, -1, 32))
            return x.scatter_add(1, chosen[..., None].expand(-1, -1, 32), self.proj(rows) * weights[..., None])

    graph = trace(Depths(), torch.zeros(2, 32, 32))
    with pytest.raises(ConfigError, match=r"strategy\.cp is 2; it must be 1 .* aten\.topk"):
        placed(graph, Strategy(dp=1, cp=2), 2)


@pytest.mark.parametrize(
    "settings",
    [
        {"tp": 2, "ep": 4, "sequence_parallel": True},
        {"tp": 2, "ep": 4, "sequence_parallel": True, "expert_tp": 1, "shard": 1},
        {"cp": 2, "ep": 4},
    ],
)
def test_simulations_of_experts_conserve_bytes_folded_or_not(settings, mixed):
    strategy = Strategy.of(dp=4, precision="bf16_mixed", algorithms={"all_to_all": "direct"}, **settings)
    fabric = rostam.fabric("electrical_cluster", num_accelerators=8, server_size=4)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    plan = rostam.place(mixed, machine, global_batch=4, strategy=strategy, software="ideal")
    results = [rostam.simulate(plan, fold=fold) for fold in (True, False)]
    for result in results:
        assert result.bytes_sent == result.bytes_received
        # a rank keeps a 4th of its rows
        assert result.bytes_sent["ep"] == 8 * LAYERS * (4 * ROWS + 2 * WEIGHTS) // 2 * 3 // 4
    assert results[0].bytes_sent == results[1].bytes_sent
    assert results[0].iteration_time_s == pytest.approx(results[1].iteration_time_s, rel=1e-9)


def plan_router_ways(plan):
    """Return over how many tp ranks the router is split: by experts, or whole on both."""
    return 2 if any(m.kind == "all_gather" and m.group == "tp" for m in plan.messages()) else 1


def test_only_experts_weights_states_and_traffic_shrink(mixed, placed):
    alone = placed(mixed, Strategy(dp=4, precision="bf16_mixed"), 4).stages[0]
    spread = placed(mixed, Strategy(dp=4, ep=4, precision="bf16_mixed"), 4).stages[0]
    fewer = LAYERS * EXPERTS * EXPERT * 3 // 4
    assert alone.memory.parameters - spread.memory.parameters == 2 * fewer
    assert alone.memory.gradients - spread.memory.gradients == 4 * fewer
    assert alone.memory.optimizer_state - spread.memory.optimizer_state == 12 * fewer
    assert alone.memory.activations == spread.memory.activations
    assert (alone.flops, alone.hardware_flops) == (spread.flops, spread.hardware_flops)


def test_recomputed_layers_exchange_their_rows_again(mixed, placed):
    plan = placed(mixed, Strategy(dp=2, ep=2, recompute="full", precision="bf16_mixed"), 2)
    assert listed(plan)["ep", "all_to_all", ROWS] == 6 * LAYERS
    assert listed(plan)["ep", "all_to_all", WEIGHTS] == 3 * LAYERS


def test_rows_come_before_the_first_products_weights_before_the_last(mixed, placed):
    tasks = placed(mixed, Strategy(dp=2, ep=2, precision="bf16_mixed"), 2).stages[0].templates["forward"]
    products = [i for i, task in enumerate(tasks) if any("grouped_mm" in kernel.op_type for kernel in task.kernels)]
    sent = {i: (task.name.split()[0], task.num_bytes) for i, task in enumerate(tasks) if task.group == "ep"}
    assert list(sent.values()) == [("dispatch", ROWS), ("dispatch", WEIGHTS), ("combine", ROWS)] * LAYERS
    each = list(sent)
    for rows, weights, combine, first, last in zip(
        each[::3], each[1::3], each[2::3], products[::2], products[1::2], strict=True
    ):
        assert rows in tasks[first].deps
        assert weights in tasks[last].deps
        assert tasks[combine].deps == (last,)


@pytest.mark.parametrize(("ep", "imbalance", "recomputed"), [(1, 1.0, ()), (4, 3.0, ()), (4, 3.0, ("activation",))])
def test_a_row_keeps_what_goes_into_products_its_weight_and_its_place(ep, imbalance, recomputed, placed):
    # One more expert for each token adds T rows: h into gate and up, f out of each, f weighted into down, and the
    # weight, of 2 bytes each; the token and the expert of a row, 8 bytes each, stay with those who routed it. No output
    # of down. A rank with F times the mean rows keeps F of all but places. Recomputed activations are not kept.
    def kept(per_token, num_layers):
        graph = mixed_of(per_token, num_layers)
        load = {"experts": {"capacity_factor": None, "imbalance": imbalance}}
        graph = replace(graph, metadata=graph.metadata | load)
        settings = {"recompute": "selective", "recompute_modules": recomputed} if recomputed else {}
        plan = placed(graph, Strategy.of(dp=4, ep=ep, precision="bf16_mixed", **settings), 4)
        return plan.stages[0].activation_changes["forward"][0]

    busy, hidden = busiest_rank(EXPERTS, ep, imbalance), 2 if recomputed else 3
    found = [kept(per_token, 2) - kept(per_token, 1) for per_token in (2, 3)]
    assert found[1] - found[0] == pytest.approx(TOKENS * (busy * 2 * (WIDTH + hidden * HIDDEN + 1) + 2 * 8), abs=4)


@pytest.mark.parametrize("imbalance", [1.5, 4.0])
def test_all_wait_for_the_busiest_rank(imbalance, placed):
    # 8 experts on 4 ranks, one with f times the mean load, 7 share the rest: its rank has f + (8 - f)/7 of 2 shares.
    even = mixed_of(K, 1)
    uneven = replace(even, metadata=even.metadata | {"experts": {"capacity_factor": None, "imbalance": imbalance}})
    busy = (imbalance + (8 - imbalance) / 7) / 2
    assert busiest_rank(8, 4, imbalance) == pytest.approx(busy)
    strategy = Strategy(dp=4, ep=4, precision="bf16_mixed")
    plans = [placed(graph, strategy, 4) for graph in (even, uneven)]
    sizes = [sorted(m.num_bytes for m in plan.messages() if m.group == "ep") for plan in plans]
    assert sizes[0] == [WEIGHTS, ROWS]
    assert sizes[1] == [math.ceil(busy * WEIGHTS - 1e-6), math.ceil(busy * ROWS - 1e-6)]
    products = [
        sum(k.flops for task in plan.stages[0].templates["forward"] for k in task.kernels if "grouped" in k.op_type)
        for plan in plans
    ]
    assert products[1] == pytest.approx(busy * products[0], rel=1e-9)
    assert plans[0].stages[0].flops == plans[1].stages[0].flops  # the model's work is the same
    assert any("uneven experts" in note for note in plans[1].notes)


def test_more_than_all_rows_for_one_expert_is_refused(mixed, placed):
    uneven = replace(mixed, metadata=mixed.metadata | {"experts": {"capacity_factor": None, "imbalance": 9.0}})
    with pytest.raises(ConfigError, match=r"imbalance is 9\.0; it must be at most 8: the busiest of 8 experts"):
        placed(uneven, Strategy(dp=2, ep=2), 2)


def test_experts_biases_are_spread_too():
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(16, 4, bias=False)
            self.up, self.down = nn.Parameter(torch.zeros(4, 16, 32)), nn.Parameter(torch.zeros(4, 32, 16))
            self.bias = nn.Parameter(torch.zeros(4, 32))

        def forward(self, x):
            rows = x.reshape(-1, 16)
            weights, chosen = torch.topk(self.router(rows).softmax(-1), 2, -1)
            order = chosen.view(-1).argsort()
            ends = torch.histc(chosen.float(), bins=4, min=0, max=3).cumsum(0, dtype=torch.int32)
            y = torch._grouped_mm(rows[order // 2], self.up, offs=ends) + self.bias[chosen.view(-1)[order]]
            y = torch._grouped_mm(y.relu(), self.down, offs=ends) * weights.view(-1)[order, None]
            return torch.zeros_like(rows).index_add(0, order // 2, y).view(x.shape)

    graph = trace(Biased(), torch.zeros(2, 8, 16))
    experts = spread_experts(graph, 2)
    divided = {t.name for t in graph.parameters if t.id in experts.divided}
    assert divided == {"up", "down", "bias"}
    # the rows that the experts read need no gradient: none is combined
    assert Counter(experts.exchanged.values()) == {"dispatch": 2, "combine": 1}


def test_errors_name_the_axis_that_does_not_divide(mixed, gpt, placed):
    with pytest.raises(DegreeError, match=r"strategy\.ep is 3; it must divide strategy\.dp = 8"):
        Strategy(dp=8, ep=3)
    with pytest.raises(DegreeError, match=r"strategy\.ep is 16; it must divide the 8 experts of blocks\.0\.mlp"):
        placed(mixed, Strategy(dp=16, ep=16), 16)
    with pytest.raises(ConfigError, match=r"strategy\.ep is 2, but gpt_125m has no experts that can be spread"):
        placed(gpt, Strategy(dp=2, ep=2), 2)
    with pytest.raises(DegreeError, match=r"strategy\.ep is 2, but strategy\.placer=sip_ml .*placer=megatron"):
        Strategy(dp=2, mp=2, ep=2, placer="sip_ml")
    with pytest.raises(DegreeError, match=r"strategy\.ep is 0; it must be an integer >= 1"):
        Strategy(ep=0)
    with pytest.raises(DegreeError, match=r"strategy\.ep is 8; it must divide strategy\.dp = 4; .*expert_tp=1"):
        Strategy(dp=4, tp=2, ep=8)
    with pytest.raises(DegreeError, match=r"ep is 16; it must divide strategy\.dp x cp x tp = 2 x 2 x 2 = 8$"):
        Strategy(dp=2, cp=2, tp=2, ep=16, expert_tp=1, sequence_parallel=True)
    with pytest.raises(DegreeError, match=r"strategy\.expert_tp is 2; it must be 1, .* strategy\.tp = 4"):
        Strategy(tp=4, expert_tp=2)
    with pytest.raises(ConfigError, match=r"strategy\.expert_tp is 1 and strategy\.tp 2: .*sequence_parallel=true"):
        Strategy(tp=2, expert_tp=1)
    with pytest.raises(ConfigError, match=r"strategy\.expert_tp is 1, but gpt_125m has no experts"):
        placed(gpt, Strategy(tp=2, expert_tp=1, sequence_parallel=True), 1)
    with pytest.raises(DegreeError, match=r"strategy\.expert_tp is 1, but strategy\.placer=sip_ml"):
        Strategy(expert_tp=1, placer="sip_ml")
