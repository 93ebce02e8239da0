"""Refusals by the number of parameters, and the largest micro-batch that fits."""

import pytest

import rostam_py as rostam
from rostam_py.costs.accelerators import get_accelerator
from rostam_py.errors import MemoryCapacityError
from rostam_py.graph.model_size import ModelSize
from rostam_py.placement import place
from rostam_py.placement.memory.least_memory import check_state_fits, least_state_bytes
from rostam_py.plan import Machine, Strategy
from rostam_py.tracing import trace

LLAMA_70B = ModelSize("llama3_70b", 70_553_706_496, "bf16_mixed", "adam")  # 18 bytes each: 2 + 4 + 12


@pytest.fixture(scope="module")
def gpt():
    return trace("gpt_125m", num_layers=2)


def machine(count=64, accelerator="h100_80gb"):
    return Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=count), accelerator=accelerator)


def test_the_least_degrees_that_would_do_are_those_of_one_division_each():
    capacity = get_accelerator("h100_80gb").memory_bytes
    with pytest.raises(MemoryCapacityError) as raised:
        check_state_fits(LLAMA_70B, Strategy(dp=64), machine())
    p = LLAMA_70B.num_parameters
    said = str(raised.value)
    for level, split in ((3, 1), (2, 4), (1, 8), (0, 16)):
        assert f"tp x pp = {split} with strategy.shard={level}" in said

        def held(m, level=level):
            weights, gradients, state = ((p / 64 if level >= least else p / m) for least in (3, 2, 1))
            return 2 * weights + 4 * gradients + 12 * state

        assert held(split) <= capacity
        assert split == 1 or held(split // 2) > capacity


@pytest.mark.parametrize(
    "settings",
    [
        {"dp": 64, "shard": 3}, {"dp": 8, "tp": 8, "shard": 1}, {"dp": 4, "tp": 8, "pp": 2}, {"dp": 64, "mp": 1},
        {"dp": 64, "check_memory": False},
    ],
)  # fmt: skip
def test_only_what_cannot_fit_is_refused(settings):
    if settings == {"dp": 64, "mp": 1}:
        with pytest.raises(MemoryCapacityError, match="The smallest degrees that fit: mp = 16"):
            check_state_fits(LLAMA_70B, Strategy.of(**settings, placer="sip_ml"), machine())
    else:
        check_state_fits(LLAMA_70B, Strategy.of(**settings), machine())


@pytest.mark.parametrize(
    "settings",
    [
        {"dp": 8}, {"dp": 2, "tp": 4}, {"dp": 4, "pp": 2}, {"dp": 8, "shard": 1}, {"dp": 8, "shard": 2},
        {"dp": 8, "shard": 3}, {"dp": 4, "tp": 2, "shard": 3, "shard_layout": "parameters"},
        {"dp": 8, "precision": "fp8_mixed", "narrow_weights": True}, {"dp": 8, "precision": "fp32"},
        {"dp": 8, "shard": 3, "shard_group": 2}, {"dp": 8, "optimizer": "sgd", "precision": "bf16_mixed"},
    ],
    ids=str,
)  # fmt: skip
def test_no_plan_holds_less_than_the_least(gpt, settings):
    strategy = Strategy.of(**{"precision": "bf16_mixed"} | settings)
    plan = place(gpt, machine(8), global_batch=16, strategy=strategy, software="ideal")
    parts = plan.memory_parts
    held = parts["parameters"] + parts["gradients"] + parts["optimizer_state"]
    assert least_state_bytes(ModelSize.of(gpt), plan.strategy) <= held


@pytest.mark.parametrize("name", ["resnet50", "gpt_125m", "transformer_350m", "bert_large", "mixtral_8x7b"])
def test_parameters_counted_before_tracing_are_those_of_the_graph(name):
    seen = []
    graph = trace(name, cache=False, refuse=seen.append)
    assert [one.num_parameters for one in seen] == [graph.num_parameters]
    assert seen == [ModelSize.of(graph)]


def test_a_model_too_large_is_refused_before_it_is_traced(monkeypatch):
    monkeypatch.setattr("rostam_py.tracing.tracer.trace_now", lambda *_, **__: pytest.fail("traced"))
    with pytest.raises(MemoryCapacityError, match="70,553,706,496 parameters"):
        trace("llama3_70b", cache=False, refuse=lambda size: check_state_fits(size, Strategy(dp=64), machine()))


def test_an_open_micro_batch_is_the_largest_divisor_that_fits(gpt):
    """Of 96 samples a replica: every larger divisor is refused, the one taken fits."""
    where = machine(8, "v100_32gb")
    strategy = Strategy(dp=8, precision="fp16_mixed")
    plan = place(gpt, where, global_batch=8 * 96, strategy=strategy, software="ideal")
    assert plan.micro_batch < 96
    assert 96 % plan.micro_batch == 0
    assert (
        plan.notes[0] == f"micro-batch: {plan.micro_batch} of a replica's 96 samples is the largest that fits in memory"
    )
    larger = min(size for size in range(plan.micro_batch + 1, 97) if 96 % size == 0)
    with pytest.raises(MemoryCapacityError):
        place(
            gpt,
            where,
            global_batch=8 * 96,
            strategy=Strategy(dp=8, precision="fp16_mixed", micro_batch=larger),
            software="ideal",
        )


def test_what_fits_whole_is_not_cut_and_what_is_named_is_kept(gpt):
    plan = place(gpt, machine(8), global_batch=16, strategy=Strategy(dp=8, precision="bf16_mixed"), software="ideal")
    assert (plan.micro_batch, plan.num_microbatches) == (2, 1)
    assert not any(note.startswith("micro-batch") for note in plan.notes)
    named = Strategy(dp=8, precision="fp16_mixed", micro_batch=96)
    with pytest.raises(MemoryCapacityError):
        place(gpt, machine(8, "v100_32gb"), global_batch=8 * 96, strategy=named, software="ideal")
