"""Messages of whole plans equal lists derived by hand from Megatron's scheme (Shoeybi et al. 2019).

b micro-batch, s sequence, h width, V vocabulary, t = tp, m micro-batches, L layers; A = s b h elements.
"""

import math
from collections import Counter

import numpy as np
import pytest

from rostam_py.plan import Machine, Strategy
from rostam_py.tracing import trace


def listed(plan, axis):
    """Return {(kind, stages, bytes): count} of one axis."""
    found = Counter()
    for m in plan.messages():
        if m.group == axis:
            found[m.kind, m.stages, m.num_bytes] += m.count
    return dict(found)


def gpt_tp_messages(layers_of_stage, batch, sequence, width, num_microbatches, element_bytes, replays=0):
    """Return Megatron's tp all-reduces of every stage.

    A layer: two forward (after attention and after the feed-forward), two backward, two more for each
    replay. First stage: the embedding's output. Last: the gradient of the head's input; the loss:
    maximum and sum of every token forward (one message of 8 bytes a token), one sum backward, the loss.
    """
    activation = batch * sequence * width * element_bytes
    tokens = batch * sequence
    last = len(layers_of_stage) - 1
    found = Counter()
    for stage, layers in enumerate(layers_of_stage):
        count = layers * (4 + 2 * replays) + (stage == 0) + (stage == last)
        found["all_reduce", (stage,), activation] += count * num_microbatches
    for size in (8 * tokens, 4 * tokens, 4):
        found["all_reduce", (last,), size] += num_microbatches
    return dict(found)


def gpt_layer_parameters(width, tp):
    """Return one member's parameters of a layer: split matrices and column biases, whole row biases and norms."""
    return (12 * width * width + 7 * width) // tp + 2 * width + 4 * width


@pytest.mark.parametrize("tp", [2, 4])
def test_gpt_without_pipeline_sends_megatrons_all_reduces(gpt, placed, tp):
    plan = placed(gpt, Strategy(tp=tp, precision="bf16_mixed", micro_batch=2), 4)
    assert listed(plan, "tp") == gpt_tp_messages([4], 2, 2048, 768, 2, 2)
    assert listed(plan, "pp") == {}
    assert plan.tied == ()


def test_gpt_with_eight_way_tp_pads_the_vocabulary(placed):
    # 16 heads divide by 8; 50,257 words do not: each member holds 6,283 of 50,264
    plan = placed(trace("gpt_350m", num_layers=2), Strategy(tp=8, precision="fp32"), 1)
    assert listed(plan, "tp") == gpt_tp_messages([2], 1, 2048, 1024, 1, 4)
    local = math.ceil(50257 / 8)
    assert plan.stages[0].num_parameters == 1024 * (local + 2048) + 2 * gpt_layer_parameters(1024, 8) + 2 * 1024
    assert any("50257 to 50264" in note for note in plan.notes)


def test_gpt_pipeline_sends_one_activation_and_one_gradient_a_boundary_and_ties_the_embedding(gpt, placed):
    plan = placed(gpt, Strategy(tp=2, pp=2, dp=2, precision="bf16_mixed", recompute="full"), 16)
    m, activation = 8, 2048 * 768 * 2
    layers = [sum(name.endswith("norm1") for name in stage.modules) for stage in plan.stages]
    assert sum(layers) == 4
    assert listed(plan, "tp") == gpt_tp_messages(layers, 1, 2048, 768, m, 2, replays=1)
    assert listed(plan, "pp") == {
        ("send", (0, 1), activation): m, ("recv", (0, 1), activation): m,
        ("send", (1, 0), activation): m, ("recv", (1, 0), activation): m,
    }  # fmt: skip
    words = math.ceil(50257 / 2) * 768
    assert plan.tied == ((0, 1),)
    assert listed(plan, "tied0") == {("all_reduce", (0, 1), words * 4): 2}
    # each stage all-reduces all gradients it holds, 4 bytes each, once an iteration
    parameters = [
        words + 2048 * 768 + layers[0] * gpt_layer_parameters(768, 2),
        words + 2 * 768 + layers[1] * gpt_layer_parameters(768, 2),
    ]
    for stage, expected in zip(plan.stages, parameters, strict=True):
        assert stage.num_parameters == expected
        dp = {k: n for k, n in listed(plan, "dp").items() if k[1] == (stage.index,)}
        assert sum(k[2] * n for k, n in dp.items()) == expected * 4


def test_four_stages_of_a_gpt_hold_consecutive_layers(gpt, placed):
    plan = placed(gpt, Strategy(tp=4, pp=4, precision="bf16_mixed", schedule="gpipe"), 4)
    layers = [sum(name.endswith("norm1") for name in stage.modules) for stage in plan.stages]
    assert sum(layers) == 4
    assert listed(plan, "tp") == gpt_tp_messages(layers, 1, 2048, 768, 4, 2)
    assert plan.tied == ((0, 3),)


@pytest.mark.slow  # 96 templates; fewer stages of smaller models stand above
def test_gpt3_on_96_stages_holds_a_layer_each_and_sends_megatrons_messages(placed):
    # FP16 activation of a micro-batch: 2,048 x 12,288 x 2 = 48 MiB
    plan = placed(trace("gpt3_175b"), Strategy(tp=4, pp=96, recompute="full", precision="bf16_mixed"), 1536)
    activation, m = 2048 * 12288 * 2, 1536
    assert activation == 48 * 2**20
    for stage in plan.stages:
        assert [name for name in stage.modules if name.endswith("norm1")] == [f"blocks.{stage.index}.norm1"]
    assert listed(plan, "tp") == gpt_tp_messages([1] * 96, 1, 2048, 12288, m, 2, replays=1)
    boundaries = [pair for s in range(95) for pair in ((s, s + 1), (s + 1, s))]
    assert listed(plan, "pp") == {(kind, pair, activation): m for kind in ("send", "recv") for pair in boundaries}
    assert listed(plan, "tied0") == {("all_reduce", (0, 95), math.ceil(50257 / 4) * 12288 * 4): 2}
    # 734.8 TFLOP forward a sample, backward twice that
    total = sum(stage.flops for stage in plan.stages) * 4
    assert total == pytest.approx(3 * 734.8e12 * 1536, rel=0.02)
    assert sum(stage.hardware_flops for stage in plan.stages) * 4 == pytest.approx(4 / 3 * total, rel=0.02)


def test_encoder_decoder_sends_megatrons_all_reduces(encoder_decoder, placed):
    # encoder layer: 2 forward, 2 backward. Decoder layer: 3 forward; backward self-attention, cross
    # queries, cross keys with values (once, though they are two matrices), feed-forward. Two embeddings
    # (source, target) and the head's input gradient.
    plan = placed(encoder_decoder, Strategy(tp=4, precision="fp32"), 2)
    activation, tokens = 2 * 64 * 1024 * 4, 2 * 64
    assert listed(plan, "tp") == {
        ("all_reduce", (0,), activation): 3 * 4 + 3 * 7 + 2 + 1,
        ("all_reduce", (0,), 8 * tokens): 1,
        ("all_reduce", (0,), 4 * tokens): 1,
        ("all_reduce", (0,), 4): 1,
    }


def test_encoder_output_flows_through_every_later_stage(encoder_decoder, placed):
    plan = placed(encoder_decoder, Strategy(pp=4, precision="fp32"), 4)
    activation, m = 64 * 1024 * 4, 4
    first_decoder = min(s.index for s in plan.stages if any(name.startswith("decoder.") for name in s.modules))
    decodes = [any(name.startswith("decoder.") for name in s.modules) for s in plan.stages]
    assert sum(decodes) >= 2
    for upper in range(1, 4):
        # a boundary inside the decoder carries the decoder's state and the encoder's output
        count = (2 if any(decodes[:upper]) and any(decodes[upper:]) else 1) * m
        for kind in ("send", "recv"):
            assert listed(plan, "pp")[kind, (upper - 1, upper), activation] == count
            assert listed(plan, "pp")[kind, (upper, upper - 1), activation] == count
    assert not decodes[0]
    # the shared vocabulary: source embedding, target embedding, head
    assert plan.tied == (tuple(sorted({0, first_decoder, 3})),)


def test_tied_autoencoder_splits_the_shared_weight_once(tied_autoencoder, placed):
    # W (256 x 64) by rows: encode is column parallel; up takes the split input by row: a partial sum of
    # 512; down is column parallel; decoding with W^T is row parallel: a partial sum of 64. Backward: the
    # gradient of up's output is whole and gives down's split; that of down's input (512) is partial.
    plan = placed(tied_autoencoder, Strategy(tp=2, precision="fp32"), 8)
    counts = Counter()
    for (kind, _, size), count in listed(plan, "tp").items():
        counts[kind, size] += count
    assert counts == {("all_reduce", 8 * 512 * 4): 2, ("all_reduce", 8 * 64 * 4): 1}
    assert plan.stages[0].num_parameters == 256 * 64 // 2 + 256 * 512 // 2 + 512 + 512 * 256 // 2 + 256 // 2


def test_tied_autoencoder_on_two_stages_reduces_its_gradient_between_them(tied_autoencoder, placed):
    plan = placed(tied_autoencoder, Strategy(pp=2, dp=2, precision="fp32"), 8)
    assert plan.tied == ((0, 1),)
    assert listed(plan, "tied0") == {("all_reduce", (0, 1), 256 * 64 * 4): 2}
    assert all(kind in ("send", "recv") for kind, _, _ in listed(plan, "pp"))
    for stage in plan.stages:
        tasks = stage.templates["backward_last"]
        tied = next(i for i, t in enumerate(tasks) if t.group == "tied0")
        assert all(tasks[d].group == "dp" for d in tasks[tied].deps), "replicas are summed before stages"
        assert tasks[-1].is_optimizer
        assert tied in tasks[-1].deps


def test_groups_are_the_accelerators_along_each_axis(gpt, placed):
    plan = placed(gpt, Strategy(dp=2, pp=2, tp=2), 4)
    # rank = t + 2 s + 4 d
    assert [g.tolist() for g in plan.members("tp")] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [g.tolist() for g in plan.members("pp")] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert [g.tolist() for g in plan.members("dp")] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert [g.tolist() for g in plan.members("tied0")] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    with pytest.raises(ValueError, match="tied0"):
        plan.members("ep")


def test_plan_moves_to_another_machine_of_the_same_size(gpt, placed, flat_fabric):
    plan = placed(gpt, Strategy(dp=4), 4)
    other = Machine(fabric=flat_fabric(4))
    moved = plan.on(other)
    assert moved.machine is other
    assert np.array_equal(moved.accelerators, plan.accelerators)
    with pytest.raises(ValueError, match="8 accelerators"):
        plan.on(Machine(fabric=flat_fabric(8)))
    with pytest.raises(ValueError, match="h100_80gb"):
        plan.on(Machine(fabric=flat_fabric(4), accelerator="h100_80gb"))
