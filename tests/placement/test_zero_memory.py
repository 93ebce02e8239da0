"""Memory of ZeRO 1 to 3 equals the published formulas (Rajbhandari et al. 2020, figure 1), to the byte.

P parameters, d ranks that share the state, g gradient bytes: 4, or 2 where gradients are asked for in 16 bits.
Mixed-precision Adam: 2 bytes of weights, 12 of state. Together 18 bytes a parameter, as Megatron's bf16 runs hold.
"""

import math

import pytest

from rostam_py.errors import MemoryCapacityError
from rostam_py.models import gpt as models
from rostam_py.plan import Plan, Strategy
from rostam_py.simulation.detail import run_detail
from rostam_py.tracing import trace

H, S, V, L, SHORT = 768, 2048, 50257, 4, 128
WORDS, POSITIONS, LAYER, NORM = V * H, S * H, 12 * H * H + 13 * H, 2 * H
UNITS = [WORDS, POSITIONS, *[LAYER] * L, NORM]
P = sum(UNITS)
SHORT_POSITIONS = SHORT * H
LOSS = 2 * SHORT * V  # bytes of the logits' gradient for a short sequence, there before any weight's
MIXED, HALVES, FULL = (2, 4, 12), (2, 2, 12), (4, 4, 8)  # bytes of weight, gradient and Adam's state


@pytest.fixture(scope="module")
def short():
    """Four layers as gpt's, of sequences so short that gradients take more than the loss."""
    return trace(models.build("short", models.Config(num_layers=L, width=H, num_heads=12, sequence_length=SHORT)))


def held(plan):
    """Return (weights, gradients, optimizer state) of the first stage."""
    memory = plan.stages[0].memory
    return memory.parameters, memory.gradients, memory.optimizer_state


@pytest.mark.parametrize(
    ("precision", "gradients", "sizes"),
    [
        ("bf16_mixed", "auto", MIXED), ("bf16_mixed", "bf16", HALVES), ("fp16_mixed", "auto", HALVES),
        ("fp16_mixed", "fp32", MIXED), ("fp32", "auto", FULL),
    ],
)  # fmt: skip
@pytest.mark.parametrize("d", [2, 8, 64])
def test_what_devices_hold_equals_the_formulas_of_zero(precision, gradients, sizes, d, gpt, placed):
    w, g, state = sizes
    of_all = -(-P // d)
    of_units = sum(-(-unit // d) for unit in UNITS)
    expected = {
        0: (w * P, g * P, state * P),
        1: (w * P, g * P, state * of_all),
        2: (w * P, g * of_all, state * of_all),
        3: (w * of_units, g * of_units, state * of_units),
    }
    for level, parts in expected.items():
        numerics = {"precision": precision, "gradient_precision": gradients, "optimizer": "adam"}
        strategy = Strategy.of(dp=d, shard=level, micro_batch=1, **numerics)
        assert held(placed(gpt, strategy, d)) == parts, level
    if d == 64:  # 12 H H, S H and H divide by 64, and so do all units: nothing is padded
        total = expected[3][0] + expected[3][1] + expected[3][2]
        assert [P % d, total] == [0, sum(sizes) * P // d]


def test_hybrid_sharding_divides_by_the_ranks_of_a_group_and_sgd_shares_master_weights_alone(gpt, placed):
    for optimizer, state in (("adam", 12), ("sgd", 4), ("momentum", 8)):
        strategy = Strategy(dp=16, shard=3, shard_group=4, precision="bf16_mixed", optimizer=optimizer)
        assert held(placed(gpt, strategy, 16)) == (2 * P // 4, 4 * P // 4, state * P // 4), optimizer


def test_stages_and_tp_members_divide_what_they_hold_themselves(gpt, placed):
    plan = placed(gpt, Strategy(dp=4, tp=2, pp=2, shard=1, precision="bf16_mixed", optimizer="adam"), 8)
    for stage in plan.stages:
        assert stage.memory.optimizer_state == 12 * math.ceil(stage.num_parameters / 4)
        assert stage.memory.parameters == 2 * stage.num_parameters
        assert stage.memory.gradients == 4 * stage.num_parameters


def test_the_optimizer_updates_a_ranks_share_alone(gpt, placed):
    def step_s(**settings):
        plan = placed(gpt, Strategy.of(precision="bf16_mixed", optimizer="adam", **settings), 8, cost="roofline")
        return sum(t.duration_s for t in plan.stages[0].templates["backward_last"] if t.is_optimizer)

    for level in (1, 2, 3):  # bound by memory: 8 times less
        assert step_s(dp=8, shard=level) == pytest.approx(step_s(dp=8) / 8, rel=1e-3)


def test_whole_weights_are_those_of_the_window_and_whole_gradients_those_of_the_largest_unit(gpt, short, placed):
    def gathered(graph=short, **settings):
        plan = placed(graph, Strategy.of(dp=8, shard=3, precision="bf16_mixed", **settings), 8)
        return plan.stages[0].memory.gathered

    # in backward the words, which the head reads first and the embedding last, and as many layers as the window has
    for prefetch, layers in ((0, 1), (1, 2), (2, 3), (100, 4)):
        others = SHORT_POSITIONS + NORM if prefetch == 100 else 0
        assert gathered(prefetch=prefetch) == 2 * (WORDS + layers * LAYER + others) + 4 * WORDS - LOSS, prefetch
    assert gathered(reshard_after_forward=False) == 2 * (P - POSITIONS + SHORT_POSITIONS) + 4 * WORDS - LOSS
    assert 2 * S * V > 4 * WORDS  # of long sequences the loss takes more
    assert gathered(gpt) == 2 * (WORDS + 2 * LAYER)
    for level in (0, 1, 2):
        plan = placed(gpt, Strategy(dp=8, shard=level, precision="bf16_mixed"), 8)
        assert plan.stages[0].memory.gathered == 0


@pytest.mark.parametrize("level", [2, 3])
def test_gradients_that_are_reduced_behind_the_last_micro_batch_alone_are_added_up_whole(short, placed, level):
    def memory(is_often):
        strategy = Strategy.of(
            dp=8, shard=level, precision="bf16_mixed", micro_batch=1, reduce_every_microbatch=is_often
        )
        return placed(short, strategy, 16).stages[0].memory

    units = [WORDS, SHORT_POSITIONS, *[LAYER] * L, NORM]
    often, last = memory(True), memory(False)
    assert last.gradients == 4 * sum(units)
    parts = math.ceil(sum(units) / 8) if level == 2 else sum(math.ceil(unit / 8) for unit in units)
    assert often.gradients == 4 * parts
    assert (last.parameters, last.optimizer_state) == (often.parameters, often.optimizer_state)
    # the largest unit's are made in 2 bytes before they are added, not in 4 for a message
    assert often.gathered - last.gathered == (2 * WORDS if level == 3 else 0)


def test_gathered_weights_count_towards_capacity_and_are_named(gpt, placed):
    plan = placed(gpt, Strategy(dp=8, shard=3, precision="bf16_mixed"), 8)
    memory = plan.stages[0].memory
    assert plan.memory_bytes == sum((*held(plan), memory.activations, memory.gathered))
    # weights of the words and two layers: 2 (38,597,376 + 2 x 7,087,872)
    with pytest.raises(MemoryCapacityError, match=r"of activations and 105\.5 MB of gathered weights \(micro-batches"):
        placed(gpt, Strategy(dp=2, shard=3, precision="bf16_mixed", micro_batch=512), 1024)


def test_a_saved_plan_keeps_its_gathered_weights_and_older_files_have_none(gpt, placed, tmp_path):
    import json

    import rostam_py as rostam

    machine = rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=4), accelerator="a100_80gb")
    plan = rostam.place(gpt, machine, global_batch=4, strategy=Strategy(dp=4, shard=3, shard_group=2), software="ideal")
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").stages == plan.stages
    document = json.loads((tmp_path / "plan.json").read_text())
    del document["stages"][0]["memory"]["gathered"]
    (tmp_path / "older.json").write_text(json.dumps(document))
    assert Plan.load(tmp_path / "older.json").stages[0].memory.gathered == 0
    rows = run_detail(rostam.simulate(plan))["memory"]
    assert [row["gathered"] for row in rows] == [plan.stages[0].memory.gathered]
