"""Memory of one device against numbers derived by hand (MODEL D15)."""

import pytest

from rostam_py.errors import MemoryCapacityError
from rostam_py.placement import Strategy

S, H, HEADS, V, L = 2048, 768, 12, 50257, 4


def layer_activations(batch, tp):
    """Return the fp32 elements one member keeps of a GPT layer with fused attention and no dropout.

    Whole: both norms' inputs and outputs (4 s b h), their mean and 1 / deviation (4 s b). Split: q, k, v
    (3), the attention's output (1), the GELU's input and output (4 + 4), all s b h / t; one statistic
    of the softmax a token and head.
    """
    tokens = batch * S
    return tokens * (4 * H + 4 + 12 * H // tp + HEADS // tp)


def test_activations_of_a_gpt_equal_the_hand_count(gpt, placed):
    for batch, tp in ((1, 1), (2, 1), (2, 2)):
        words = V if tp == 1 else (V + 1) // 2
        # behind the layers: the last norm's input, output and statistics, and the log-probabilities
        tokens = batch * S
        elements = L * layer_activations(batch, tp) + tokens * (2 * H + 2) + tokens * words
        plan = placed(gpt, Strategy(tp=tp, precision="fp32", micro_batch=batch), batch)
        # positions (int64) and a scalar of the loss are the only other things kept
        extra = plan.stages[0].memory.activations - 4 * elements
        assert 0 <= extra <= 8 * S + 8, (batch, tp, extra)


def test_parameters_gradients_and_state_follow_precision_and_optimizer(gpt, placed):
    count = V * H + S * H + L * (12 * H * H + 13 * H) + 2 * H
    for precision, optimizer, sizes in (
        ("fp32", "sgd", (4, 4, 0)),
        ("fp32", "adam", (4, 4, 8)),
        ("bf16_mixed", "adam", (2, 2, 12)),
        ("fp16_mixed", "momentum", (2, 2, 8)),
    ):
        memory = placed(gpt, Strategy(precision=precision, optimizer=optimizer), 1).stages[0].memory
        found = (memory.parameters, memory.gradients, memory.optimizer_state)
        assert found == tuple(count * size for size in sizes), (precision, optimizer)
        assert memory.total == sum(found) + memory.activations


def test_microbatches_in_flight_multiply_the_activations(gpt, placed):
    one = placed(gpt, Strategy(pp=2), 1).stages
    many = placed(gpt, Strategy(pp=2), 8).stages
    gpipe = placed(gpt, Strategy(pp=2, schedule="gpipe"), 8).stages
    assert [b.memory.activations / a.memory.activations for a, b in zip(one, many, strict=True)] == [2, 1]
    assert [b.memory.activations / a.memory.activations for a, b in zip(one, gpipe, strict=True)] == [8, 8]


def test_full_recomputation_keeps_block_inputs_and_one_block(gpt, placed):
    plan = placed(gpt, Strategy(pp=2, precision="fp32", recompute="full"), 8)
    stage = plan.stages[0]
    layers = sum(name.endswith("norm1") for name in stage.modules)
    # the input of every block, twice (two micro-batches in flight); what leaves the stage belongs to the next
    kept = 2 * layers * S * H
    inner = layer_activations(1, 1) - S * H  # one block's own activations, its input aside
    extra = stage.memory.activations - 4 * (kept + inner)
    assert 0 <= extra <= 2 * 8 * S + 8


def test_selective_recomputation_drops_the_softmax_statistics_of_fused_attention(gpt, placed):
    none = placed(gpt, Strategy(precision="fp32"), 1).stages[0].memory.activations
    selective = placed(gpt, Strategy(precision="fp32", recompute="selective"), 1).stages[0].memory.activations
    assert none - selective == 4 * L * S * HEADS


def test_plan_over_capacity_says_by_how_much_where_and_what_holds_it(gpt, placed):
    with pytest.raises(MemoryCapacityError) as error:
        placed(gpt, Strategy(pp=2, dp=1, micro_batch=128, precision="fp32"), 1024)
    message = str(error.value)
    for part in ("of 2 needs", "a100_80gb has 85.9 GB", "too much", "of parameters", "of activations", "recompute"):
        assert part in message, message


def test_memory_check_can_be_switched_off(gpt, placed):
    plan = placed(gpt, Strategy(pp=2, micro_batch=128, precision="fp32", check_memory=False), 1024)
    assert plan.memory_bytes > 85.9e9
