"""Messages of all micro-batches (software.rules.pipeline_buffers=every_microbatch), against counts by hand.

h = bytes of a micro-batch's hidden state in 16 bits; p stages, m micro-batches of one sample.
"""

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.plan import Strategy

S, H, V = 2048, 768, 50257
HIDDEN, LOGITS = 2 * S * H, 2 * S * V
P, M = 4, 6


def memory(graph, placed, batch=M, **settings):
    strategy = Strategy.of(pp=P, micro_batch=1, precision="bf16_mixed", recompute="full", **settings)
    fabric = rostam.fabric("electrical_flat", num_accelerators=P * settings.get("tp", 1), link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    plan = rostam.place(graph, machine, global_batch=batch, strategy=strategy, software="ideal")
    return [stage.memory for stage in plan.stages]


@pytest.mark.parametrize("t", [1, 2])
def test_stages_hold_inputs_outputs_and_gradients_of_all_microbatches(t, gpt, placed):
    tp = {"tp": t, "sequence_parallel": t > 1, "fusion": "none"}
    before = memory(gpt, placed, **tp)
    after = memory(gpt, placed, **tp, pipeline_buffers="every_microbatch")
    h, logits = HIDDEN / t, LOGITS / t
    # Outputs and their gradients; inputs as well; inputs and logits.
    expected = [2 * M * h, 3 * M * h, 3 * M * h, M * (h + logits)]
    assert [one.messages for one in after] == pytest.approx(expected, rel=1e-4)
    assert all(one.messages == 0 for one in before)
    # What was received is not kept besides: p - s micro-batches are in flight.
    freed = [a.activations - b.activations for a, b in zip(before, after, strict=True)]
    assert freed[:-1] == pytest.approx([0, 3 * h, 2 * h], rel=1e-4)


def test_it_is_what_the_memory_over_time_has(gpt):
    fabric = rostam.fabric("electrical_flat", num_accelerators=P, link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    strategy = Strategy.of(
        pp=P, micro_batch=1, recompute="full", allocator="torch", pipeline_buffers="every_microbatch"
    )
    plan = rostam.place(gpt, machine, global_batch=M, strategy=strategy, software="ideal")
    found = rostam.simulate(plan, timeline=True).memory_over_time()
    assert [max(one.num_bytes) for one in found] == [stage.memory.total for stage in plan.stages]


def test_every_stage_of_a_device_has_its_own(gpt, placed):
    # Four stages on two devices: outputs and gradients of the first, and of the third with inputs; the others' too.
    strategy = Strategy.of(
        pp=2, virtual_stages=2, micro_batch=1, precision="bf16_mixed", recompute="full",
        pipeline_buffers="every_microbatch",
    )  # fmt: skip
    stages = placed(gpt, strategy, 4).stages
    assert stages[0].memory.messages == pytest.approx(4 * 5 * HIDDEN, rel=1e-4)
    assert stages[1].memory.messages == pytest.approx(4 * (4 * HIDDEN + LOGITS), rel=1e-4)


def test_it_is_refused_or_noted_where_it_says_nothing():
    with pytest.raises(ConfigError, match=r"pipeline_buffers is 'all'.*in_use, every_microbatch"):
        Strategy.of(pipeline_buffers="all")
    from rostam_py.plan.unread import unread_keys

    assert "strategy.pp > 1" in unread_keys(Strategy.of(pipeline_buffers="every_microbatch"))[0]
