"""Stages of given numbers of layers: what they hold, the state of Llama 2 7B by hand, empty chunks."""

import re

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.plan import Strategy

# Llama 2 7B: a layer of 4 x 4096^2 + 3 x 4096 x 11008 + 2 x 4096; tables of 32,000 x 4,096 in front and behind.
LAYER, TABLE, NORM = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096, 32_000 * 4_096, 4_096


@pytest.fixture(scope="module")
def twelve_layers():
    return rostam.trace("gpt_125m")


def blocks_of(stage):
    return sorted({int(m) for name in stage.modules for m in re.findall(r"blocks\.(\d+)", name)})


def state_bytes(stage):
    memory = stage.memory
    return memory.parameters + memory.gradients + memory.optimizer_state


def test_llama_2_7b_in_stages_of_5_9_9_9(placed):
    strategy = Strategy.of(pp=4, tp=2, layers=[5, 9, 9, 9], precision="bf16_mixed", check_memory=False)
    plan = placed(rostam.trace("llama2_7b"), strategy, 4)
    # 18 B a parameter: 2 of weights, 4 of gradients, 12 of Adam's state; norms are whole on both tp ranks.
    split = LAYER - 2 * NORM
    by_hand = [18 * (count * (split / 2 + 2 * NORM) + TABLE / 2 * ends + NORM * (ends and count == 9))
               for count, ends in ((5, 1), (9, 0), (9, 0), (9, 1))]  # fmt: skip
    assert [state_bytes(stage) for stage in plan.stages] == by_hand
    assert [round(size / 1e9, 3) for size in by_hand] == [10.287, 16.394, 16.394, 17.573]


def test_chunks_hold_what_the_text_says(placed, twelve_layers):
    layers = "E | t*2 | t | t*3 | | t*2 | t*3 | t L"
    strategy = Strategy.of(pp=4, virtual_stages=2, layers=layers, precision="bf16_mixed")
    plan = placed(twelve_layers, strategy, 8)
    assert [blocks_of(stage) for stage in plan.stages] == [[], [0, 1, 6, 7], [2, 8, 9, 10], [3, 4, 5, 11]]
    assert "tokens" in plan.stages[0].modules
    assert "loss" in plan.stages[-1].modules
    # Tied tables are on the first and the last device; nothing else is held twice.
    assert sum(stage.num_parameters for stage in plan.stages) == twelve_layers.num_parameters + 50257 * 768
    messages = [task for stage in plan.stages for task in stage.templates["forward.0"] if task.kind == "send"]
    assert len(messages) == 4, "an empty chunk hands on what it receives"


def test_even_numbers_are_the_even_split(placed, twelve_layers):
    plans = [
        placed(twelve_layers, Strategy.of(pp=3, virtual_stages=2, precision="bf16_mixed", **one), 6)
        for one in ({"layers": [2] * 6}, {"stage_blocks": "even"})
    ]
    assert plans[0].stages == plans[1].stages


def test_layers_that_the_model_has_not_are_refused(placed, twelve_layers):
    with pytest.raises(ConfigError, match=r"layers has 11 blocks in 2 chunks, but 'gpt_125m' has 12 blocks"):
        placed(twelve_layers, Strategy.of(pp=2, layers=[5, 6], precision="bf16_mixed"), 4)
    with pytest.raises(ConfigError, match=r"'cosmoflow' has 0 blocks"):
        placed(rostam.trace("cosmoflow"), Strategy.of(pp=2, layers=[1, 1]), 4)


@pytest.mark.parametrize("software", ["megatron_core", "deepspeed"])
def test_programs_leave_given_layers_as_they_are(twelve_layers, software):
    fabric = rostam.fabric("electrical_flat", num_accelerators=2, link_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    strategy = Strategy.of(dp=1, pp=2, layers=[7, 5], precision="bf16_mixed")
    plan = rostam.place(twelve_layers, machine, global_batch=4, strategy=strategy, software=software)
    assert [len(blocks_of(stage)) for stage in plan.stages] == [7, 5]
