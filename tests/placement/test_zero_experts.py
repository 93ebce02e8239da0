"""Experts whose state is shared: over the ranks that hold the same experts, all else over all data-parallel ranks.

Two layers of 8 experts. D, E: parameters of all but experts and of a rank's experts; d ranks share D, d/e ranks E.
"""

from collections import Counter

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.models import mixtral
from rostam_py.plan import Strategy
from rostam_py.tracing import trace

WIDTH, HIDDEN, WORDS, LAYERS, EXPERTS = 256, 512, 1000, 2, 8
LAYER = 3 * WIDTH * WIDTH + 2 * WIDTH + EXPERTS * WIDTH  # 8 heads on 4 keys' and values'; norms; router
OF_A_RANK = EXPERTS // 4 * 3 * WIDTH * HIDDEN  # experts of one layer, ep 4
FIRST, LAST = WORDS * WIDTH, WIDTH + WORDS * WIDTH
D, E = LAYERS * LAYER + FIRST + LAST, LAYERS * OF_A_RANK
SETTINGS = {"precision": "bf16_mixed", "optimizer": "adam", "micro_batch": 1, "bucket_size": "1 GB"}


@pytest.fixture(scope="module")
def mixed():
    """Two layers of 8 experts, 2 for a token, as Mixtral's."""
    config = mixtral.Config(
        num_layers=LAYERS, width=WIDTH, num_heads=8, num_key_heads=4, head_size=32, hidden=HIDDEN, num_experts=EXPERTS,
        per_token=2, vocabulary=WORDS, sequence_length=128,
    )  # fmt: skip
    return trace(mixtral.build("mixed", config))


def listed(plan):
    """Return {(group, kind, bytes): count} of what reduces gradients and gathers weights."""
    found = Counter()
    for m in plan.messages():
        if m.group.startswith(("dp", "zero")):
            found[m.group, m.kind, m.num_bytes] += m.count
    return dict(found)


@pytest.mark.parametrize("overlap", [False, True])
def test_zero_1_reduces_and_gathers_experts_among_their_own_replicas(overlap, mixed, placed):
    plan = placed(mixed, Strategy.of(dp=8, ep=4, shard=1, overlap_param_gather=overlap, **SETTINGS), 16)
    assert listed(plan) == {
        ("dp", "reduce_scatter", 4 * D): 1, ("dp_experts", "reduce_scatter", 4 * E): 1,
        ("zero", "all_gather", 2 * D): 1, ("zero_experts", "all_gather", 2 * E): 1,
    }  # fmt: skip
    assert (
        plan.members("zero_experts").tolist() == plan.members("dp_experts").tolist() == [[a, a + 4] for a in range(4)]
    )


def test_zero_3_gathers_both_parts_of_a_layer_before_its_forward_and_backward(mixed, placed):
    m = 2
    plan = placed(mixed, Strategy.of(dp=8, ep=4, shard=3, **SETTINGS), 8 * m)
    assert listed(plan) == {
        ("zero", "all_gather", 2 * LAYER): 2 * m * LAYERS,
        ("zero_experts", "all_gather", 2 * OF_A_RANK): 2 * m * LAYERS,
        ("zero", "all_gather", 2 * FIRST): 2 * m, ("zero", "all_gather", 2 * LAST): 2 * m,
        ("dp", "reduce_scatter", 4 * LAYER): m * LAYERS, ("dp_experts", "reduce_scatter", 4 * OF_A_RANK): m * LAYERS,
        ("dp", "reduce_scatter", 4 * FIRST): m, ("dp", "reduce_scatter", 4 * LAST): m,
    }  # fmt: skip


def test_memory_divides_experts_by_their_own_replicas(mixed, placed):
    whole, shares = D + E, D // 8 + E // 2
    parts = {1: (2 * whole, 4 * whole), 2: (2 * whole, 4 * shares), 3: (2 * shares, 4 * shares)}
    for level, (weights, gradients) in parts.items():
        memory = placed(mixed, Strategy.of(dp=8, ep=4, shard=level, **SETTINGS), 8).stages[0].memory
        assert (memory.parameters, memory.gradients) == (weights, gradients), level
        assert memory.optimizer_state == 12 * (D // 8 + E // 2), level
    gathered = placed(mixed, Strategy.of(dp=8, ep=4, shard=3, **SETTINGS), 8).stages[0].memory.gathered
    both = 2 * max(2 * (LAYER + OF_A_RANK), FIRST + LAYER + OF_A_RANK, LAST + LAYER + OF_A_RANK)
    # the largest unit's gradients come when the loss is done, which made 2 bytes for each of 128 tokens and word
    assert gathered == both + 4 * max(LAYER + OF_A_RANK, LAST) - 2 * 128 * WORDS


def test_experts_on_one_rank_each_share_nothing(mixed, placed):
    plan = placed(mixed, Strategy.of(dp=8, ep=8, shard=3, **SETTINGS), 8)
    assert {group for group, _, _ in listed(plan)} == {"dp", "zero"}
    own, units = LAYERS * 3 * WIDTH * HIDDEN, (LAYER, LAYER, FIRST, LAST)
    assert plan.stages[0].memory.parameters == 2 * (own + sum(-(-unit // 8) for unit in units))


def test_copies_of_shared_state_beside_experts_are_refused():
    with pytest.raises(
        ConfigError, match=r"strategy.ep is 2 and strategy.shard_group is 4.*leave strategy.shard_group out"
    ):
        Strategy(dp=8, ep=2, shard=3, shard_group=4)


@pytest.mark.parametrize("shard", [0, 1, 2, 3])
def test_simulations_conserve_bytes_and_send_what_rings_need(shard, mixed):
    fabric = rostam.fabric("electrical_flat", num_accelerators=8, link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    ring = {"all_gather": "ring", "reduce_scatter": "ring", "all_reduce": "ring"}
    strategy = Strategy.of(dp=8, ep=4, shard=shard, algorithms=ring, **SETTINGS)
    result = rostam.simulate(rostam.place(mixed, machine, global_batch=16, strategy=strategy, software="ideal"))
    assert result.bytes_sent == result.bytes_received
    once = 8 * (7 * D // 8 + E // 2)  # parameters that all ranks send in one reduce-scatter or gather of everything
    reductions, gathers = {0: (2, 0), 1: (1, 1), 2: (2, 1), 3: (2, 4)}[shard]
    assert result.bytes_sent["dp"] == reductions * 4 * once
    assert result.bytes_sent.get("zero", 0) == gathers * 2 * once
