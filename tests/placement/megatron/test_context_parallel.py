"""What ranks that share a sequence exchange, how long attention takes among them, and what they hold.

Legend: s tokens, c ranks of a sequence, n query and k key heads of size d, t = tp, 2 bytes a number (bf16),
micro-batch b. 2 x 2 b (s/c) k/t d: keys and values of a rank; 2 b (s/c) n/t d: its queries. The model: 2 layers, s 256,
width 64 (n 8, k 4, d 8).
"""

import time
from collections import Counter

import pytest

import rostam_py as rostam
from rostam_py.costs import gradient_bytes
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.models import gpt, llama
from rostam_py.plan import Strategy

TOKENS, WIDTH, HEADS, KEY_HEADS, SIZE, LAYERS = 256, 64, 8, 4, 8, 2
RING, GATHER, ULYSSES = ({"cp_algorithm": a, "precision": "bf16_mixed"} for a in ("ring", "all_gather", "ulysses"))
REDUCED = gradient_bytes("bf16_mixed")


def llama_of(tokens):
    """Return a small Llama with grouped queries."""
    config = llama.Config(
        num_layers=LAYERS, width=WIDTH, num_heads=HEADS, num_key_heads=KEY_HEADS, hidden=96, vocabulary=512,
        sequence_length=tokens,
    )  # fmt: skip
    return rostam.trace(llama.build("llama", config))


@pytest.fixture(scope="module")
def graph():
    """The model of most tests."""
    return llama_of(TOKENS)


def listed(plan, group="cp", template=None):
    """Return {(kind, bytes): count} of a group, of one template if it is named."""
    found = Counter()
    for stage in plan.stages:
        counts = stage.program.counts() if template is None else {template: 1}
        for name, count in counts.items():
            for task in stage.templates[name]:
                if task.group == group:
                    found[task.collective or task.kind, task.num_bytes] += count
    return dict(found)


def keys_bytes(c, t=1, b=1):
    return 2 * 2 * b * (TOKENS // c) * (KEY_HEADS // t) * SIZE


def queries_bytes(c, t=1, b=1):
    return 2 * b * (TOKENS // c) * (HEADS // t) * SIZE


@pytest.mark.parametrize(("c", "t", "b"), [(2, 1, 1), (4, 1, 2), (8, 1, 1), (4, 2, 1), (2, 4, 2)])
def test_a_ring_sends_keys_and_values_and_brings_their_gradients_home(placed, graph, c, t, b):
    plan = placed(graph, Strategy.of(cp=c, tp=t, dp=1, **RING), b)
    size = keys_bytes(c, t, b)
    assert listed(plan, template="forward") == {("shift", size): LAYERS * (c - 1)}
    assert listed(plan, template="backward") == {("shift", size): LAYERS * (c - 1 + c)}
    assert listed(plan, template="backward_last") == {("shift", size): LAYERS * (2 * c - 1)}


@pytest.mark.parametrize(("c", "t"), [(2, 1), (4, 1), (4, 2)])
def test_keys_and_values_are_gathered_once_and_their_gradients_scattered(placed, graph, c, t):
    plan = placed(graph, Strategy.of(cp=c, tp=t, dp=1, **GATHER), 1)
    size = c * keys_bytes(c, t)
    assert listed(plan, template="forward") == {("all_gather", size): LAYERS}
    assert listed(plan, template="backward") == {("reduce_scatter", size): LAYERS}


@pytest.mark.parametrize(("c", "t", "copies"), [(2, 1, 1), (4, 1, 1), (4, 2, 2), (8, 1, 2), (2, 4, 2)])
def test_ulysses_exchanges_rows_for_heads(placed, graph, c, t, copies):
    # c t > k: each of the k/t key heads of a rank goes to c t / k ranks.
    plan = placed(graph, Strategy.of(cp=c, tp=t, dp=1, **ULYSSES), 1)
    queries, keys = queries_bytes(c, t), copies * keys_bytes(c, t) // 2
    expected = Counter({("all_to_all", queries): 2 * LAYERS}) + Counter({("all_to_all", keys): 2 * LAYERS})
    assert listed(plan, template="forward") == expected  # queries and outputs, keys and values
    assert listed(plan, template="backward") == expected  # the gradients of all four


def test_a_replay_runs_the_exchange_again(placed, graph):
    for settings, kind in ((RING, "shift"), (GATHER, "all_gather"), (ULYSSES, "all_to_all")):
        plans = [
            placed(graph, Strategy.of(cp=4, dp=1, recompute=r, **settings), 1) for r in ("none", "selective", "full")
        ]
        lists = [listed(plan, template="backward") for plan in plans]
        counts = [sum(n for (name, _), n in found.items() if name == kind) for found in lists]
        forward = sum(n for (name, _), n in listed(plans[0], template="forward").items() if name == kind)
        assert counts[1] == counts[2] == counts[0] + forward


def test_gradients_are_reduced_once_over_replicas_and_parts(placed, graph):
    plan = placed(graph, Strategy.of(cp=4, dp=2, tp=2, bucket_size="1 GB", **RING), 4)
    assert plan.group_set("dp").num_ranks == 8
    (one,) = plan.stages
    assert listed(plan, "dp") == {("all_reduce", REDUCED * one.num_parameters): 1}
    # Every device is in one group with those, and only those, that hold the same tp part of the same stage.
    for row in plan.group_set("dp").members:
        assert len({int(device) % 2 for device in row}) == 1
    halves = placed(graph, Strategy.of(dp=8, tp=2, bucket_size="1 GB", precision="bf16_mixed"), 8)
    assert listed(halves, "dp") == listed(plan, "dp")


def test_messages_between_stages_shrink_with_the_sequence(placed, graph):
    alone, shared = (placed(graph, Strategy.of(cp=c, dp=1, pp=2, micro_batch=1, **RING), 2) for c in (1, 4))
    for plan, tokens in ((alone, TOKENS), (shared, TOKENS // 4)):
        for template, kind in (("forward", "send"), ("backward", "recv")):
            assert listed(plan, "pp", template)[kind, 2 * tokens * WIDTH] == 1


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_tensor_parallel_messages_are_those_of_a_c_th_of_the_tokens(placed, graph, sequence_parallel):
    settings = {"dp": 1, "tp": 4, "sequence_parallel": sequence_parallel}
    shared = placed(graph, Strategy.of(cp=4, **settings, **RING), 2)
    small = placed(llama_of(TOKENS // 4), Strategy.of(**settings, **RING), 2)
    assert listed(shared, "tp") == listed(small, "tp")
    assert any(name == "reduce_scatter" for name, _ in listed(shared, "tp")) == sequence_parallel


@pytest.mark.parametrize("shard", [1, 2, 3])
def test_state_is_shared_over_replicas_and_parts(placed, graph, shard):
    shared = placed(graph, Strategy.of(cp=4, dp=2, shard=shard, micro_batch=1, **RING), 2)
    replicas = placed(graph, Strategy(dp=8, shard=shard, micro_batch=1, precision="bf16_mixed"), 8)
    assert shared.group_set("zero").num_ranks == 8
    for group in ("zero", "dp"):
        assert listed(shared, group) == listed(replicas, group)
    assert shared.stages[0].memory.optimizer_state == replicas.stages[0].memory.optimizer_state


# Time


def simulated(graph, c, settings, bandwidth, latency=0.0, **others):
    machine = rostam.Machine(
        fabric=rostam.fabric("electrical_flat", num_accelerators=c, link_bandwidth=bandwidth, latency=latency),
        accelerator="a100_80gb", launch_latency=0.0, min_kernel_time=0.0,
    )  # fmt: skip
    strategy = Strategy.of(cp=c, dp=1, algorithms={"all_reduce": "ring"}, **settings)
    plan = rostam.place(graph, machine, global_batch=1, strategy=strategy, **others, software="ideal")
    return plan, rostam.simulate(plan)


def compute_s(plan):
    (stage,) = plan.stages
    return sum(task.duration_s * n for name, n in stage.program.counts().items() for task in stage.templates[name])


def attention_s(plan, template):
    """Return the seconds of each of the kernels of one layer's attention."""
    (stage,) = plan.stages
    found = [k.duration_s for task in stage.templates[template] for k in task.kernels if "attention" in k.op_type]
    return found[: len(found) // LAYERS]


def test_work_of_c_ranks_is_a_c_th_where_only_flops_and_bytes_of_rows_count(graph):
    # Published times are spread over FLOPs, so that each rank's share is exactly a c-th, attention's too.
    times = {"cost": "constant", "cost_config": {"forward_s": 0.010, "backward_s": 0.020}}
    for settings in (RING, GATHER, ULYSSES):
        plan, _ = simulated(graph, 4, settings, 1e12, **times)
        assert compute_s(plan) == pytest.approx(0.030 / 4, rel=1e-4)


def test_a_ring_is_as_long_as_the_longer_of_blocks_and_shifts(graph):
    # Forward: c - 1 steps of max(block, shift), then the last block. Backward, with kv shifts K and gradient shifts G
    # of equal bytes: max(B, K), c - 2 steps of max(B, K + G), max(B, G), and the last G home.
    c = 4
    times = {"cost": "constant", "cost_config": {"forward_s": 0.010, "backward_s": 0.020}}
    for bandwidth in (1e12, 2e8, 1e8, 3e7, 1e6):
        plan, result = simulated(graph, c, RING, bandwidth, **times)
        shift = keys_bytes(c) / bandwidth
        forward, backward = (attention_s(plan, name) for name in ("forward", "backward"))
        assert len(forward) == len(backward) == c
        f, b = forward[0], backward[0]
        hidden = LAYERS * (c * f + c * b)
        ring = LAYERS * ((c - 1) * max(f, shift) + f)
        ring += LAYERS * (max(b, shift) + (c - 2) * max(b, 2 * shift) + max(b, shift) + shift)
        (stage,) = plan.stages
        reduce = 2 * (c - 1) / c * REDUCED * stage.num_parameters / bandwidth
        assert result.iteration_time_s == pytest.approx(compute_s(plan) - hidden + ring + reduce, rel=0.02)


@pytest.mark.parametrize("settings", [RING, GATHER, ULYSSES])
def test_bytes_are_conserved_and_reported_by_kind(graph, settings):
    plan, result = simulated(graph, 4, settings, 1e9)
    assert result.bytes_sent == result.bytes_received
    sums = {"shift": lambda s: 4 * s, "all_to_all": lambda s: 3 * s, "all_gather": lambda s: 3 * s,
            "reduce_scatter": lambda s: 3 * s}  # fmt: skip
    sent = sum(sums[kind](size) * n for (kind, size), n in listed(plan).items())
    gradients = sum(2 * 3 * size * n for (_, size), n in listed(plan, "dp").items())
    assert plan.traffic.num_bytes.sum() == pytest.approx(sent + gradients, rel=1e-6)
    assert result.breakdown["cp"] > 0
    assert sum(result.breakdown.values()) == pytest.approx(result.iteration_time_s, rel=1e-6)


def test_folded_equals_unfolded(graph):
    fabric = rostam.fabric("fat_tree", num_accelerators=16, radix=8, link_bandwidth="100 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    for settings in (RING, GATHER, ULYSSES):
        strategy = Strategy.of(cp=4, tp=2, pp=2, dp=1, micro_batch=1, **settings)
        plan = rostam.place(graph, machine, global_batch=4, strategy=strategy, software="ideal")
        folded, whole = (rostam.simulate(plan, fold=fold).iteration_time_s for fold in (True, False))
        assert folded == pytest.approx(whole, rel=1e-6)


# Memory


@pytest.mark.parametrize("c", [2, 4, 8])
def test_keys_gathered_out_of_a_fused_product_are_kept_beside_it(placed, c):
    """Its output, 3 b (s/c) h, holds the queries and is kept; gathered keys and values are 2 b s h more."""
    shape = gpt.Config(num_layers=LAYERS, width=WIDTH, num_heads=HEADS, sequence_length=TOKENS, vocabulary=512)
    fused = rostam.trace(gpt.build("gpt", shape))
    ring, gather = (placed(fused, Strategy.of(cp=c, dp=1, **s), 1).stages[0].memory for s in (RING, GATHER))
    assert gather.activations - ring.activations == LAYERS * 2 * TOKENS * WIDTH * 2


def test_activations_shrink_with_the_sequence_and_gathered_keys_do_not(placed, graph):
    alone = placed(graph, Strategy(dp=1, precision="bf16_mixed"), 1).stages[0].memory
    ring, gather, ulysses = (
        placed(graph, Strategy.of(cp=4, dp=1, **settings), 1).stages[0].memory for settings in (RING, GATHER, ULYSSES)
    )
    assert ring.activations == pytest.approx(alone.activations / 4, rel=0.01)  # rotations stay whole
    assert ring.parameters == alone.parameters
    assert gather.activations - ring.activations == LAYERS * 3 * keys_bytes(4)
    assert ulysses.activations == ring.activations
    eight = [placed(graph, Strategy.of(cp=8, dp=1, **s), 1).stages[0].memory.activations for s in (RING, ULYSSES)]
    assert eight[1] - eight[0] == LAYERS * keys_bytes(8)  # each key head twice


# Refusals


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"cp": 16, **ULYSSES}, DegreeError, ["strategy.cp x tp is 16 x 1", "8 query heads"]),
        ({"cp": 4, "tp": 4, **ULYSSES}, DegreeError, ["strategy.cp x tp is 4 x 4 = 16", "8 query heads"]),
        ({"cp": 256, **RING}, DegreeError, ["strategy.cp is 256", "2 blocks each", "512 must divide 256"]),
    ],
)
def test_the_axis_that_does_not_divide_is_named(placed, graph, settings, error, words):
    with pytest.raises(error) as raised:
        placed(graph, Strategy.of(dp=1, **settings), 1)
    assert all(word in str(raised.value) for word in words), raised.value


def test_ulysses_refuses_masks(placed):
    with pytest.raises(ConfigError, match="must be 'ring' or 'all_gather'"):
        placed(rostam.trace("t5_11b", num_layers=1), Strategy.of(cp=2, dp=1, check_memory=False, **ULYSSES), 1)


@pytest.mark.slow
def test_llama_405b_on_16384_accelerators_takes_a_minute_at_most():
    # Llama 3, table 4: tp 8, cp 16, pp 16, dp 8, sequences of 131,072 tokens, 128 in a batch; n_kv / t = 1, d = 128.
    begin = time.process_time()
    graph = rostam.trace("llama3_405b_128k")
    fabric = rostam.fabric(
        "fat_tree", num_accelerators=16384, server_size=8, accelerator_bandwidth="400 Gb/s", server_bandwidth="450 GB/s"
    )
    strategy = Strategy.of(
        dp=8, cp=16, tp=8, pp=16, micro_batch=1, shard=1, recompute="full", sequence_parallel=True, **GATHER
    )
    plan = rostam.place(
        graph,
        rostam.Machine(fabric=fabric, accelerator="h100_80gb"),
        global_batch=128,
        strategy=strategy,
        software="ideal",
    )
    whole = 2 * 2 * 131072 * 128
    layers = Counter()
    for stage in plan.stages:
        for task in stage.templates["forward"]:
            if task.group == "cp":
                layers[task.collective, task.num_bytes] += 1
    assert layers == {("all_gather", whole): 126}
    result = rostam.simulate(plan)
    assert time.process_time() - begin < 60
    assert 10 < result.iteration_time_s < 60
    assert result.bytes_sent == result.bytes_received
