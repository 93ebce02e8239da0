"""DeepSpeed's flags, as its configuration has them."""

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.plan import Strategy
from rostam_py.software.program import Program, stack_of


def run_as(flags, strategy, graph, machine):
    return Program.of({"name": "deepspeed", **flags}, graph, cost="calibrated").on(strategy, machine)[0]


@pytest.mark.parametrize(("stage", "does_overlap"), [(0, False), (1, False), (3, True)])
def test_overlap_is_on_by_itself_for_stage_3_alone(graph, machine, stage, does_overlap):
    """overlap_comm_valid of its configuration; stages 2 and 3 have no reduction that waits for all of backward here."""
    found = run_as({"stage": stage}, Strategy(dp=8, precision="bf16_mixed"), graph, machine)
    assert found.shard == stage
    assert found.rules.overlap_grad_reduce is (does_overlap or stage == 3)
    assert run_as({"stage": 1, "overlap_comm": True}, Strategy(dp=8), graph, machine).rules.overlap_grad_reduce


@pytest.mark.parametrize(
    ("precision", "flags", "kind", "num_bytes"),
    [
        ("bf16_mixed", {}, "bf16", 10**9),
        ("fp16_mixed", {}, "fp16", 10**9),
        ("bf16_mixed", {"grad_accum_dtype": "fp32"}, "fp32", 2 * 10**9),
        ("bf16_mixed", {"reduce_bucket_size": 25_000_000}, "bf16", 50_000_000),
    ],
)
def test_buckets_count_elements_of_the_gradients_dtype(graph, machine, precision, flags, kind, num_bytes):
    rules = run_as(flags, Strategy(dp=8, precision=precision), graph, machine).rules
    assert (rules.gradient_precision, rules.bucket_bytes) == (kind, num_bytes)


def test_a_step_without_overlap_is_longer_and_sends_as_much(graph, machine):
    settings = {"global_batch": 8, "strategy": Strategy(dp=8, micro_batch=1, precision="bf16_mixed")}
    flags = {"name": "deepspeed", "reduce_bucket_size": 10**6}
    alone, beside = (
        rostam.simulate(rostam.place(graph, machine, **settings, software=flags | {"overlap_comm": does_overlap}))
        for does_overlap in (False, True)
    )
    assert alone.iteration_time_s > beside.iteration_time_s
    assert alone.bytes_sent == beside.bytes_sent


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"stage": 4}, "software.stage is 4; it must be one of: 0, 1, 2, 3"),
        ({"overlap_comm": 1}, "software.overlap_comm is 1; it must be true or false"),
        ({"reduce_bucket_size": 0}, "software.reduce_bucket_size is 0; it must be >= 1"),
    ],
)
def test_flags_that_make_no_sense_are_refused(flags, said):
    with pytest.raises(ConfigError, match=said):
        stack_of({"name": "deepspeed", **flags})


def test_a_stage_that_is_not_the_strategy_s_is_refused(graph, machine):
    with pytest.raises(ConfigError, match=r"software\.stage is 2, but strategy\.shard is 3"):
        run_as({"stage": 2}, Strategy(dp=8, shard=3), graph, machine)


@pytest.mark.parametrize(
    ("flags", "strategy", "said"),
    [
        ({}, {"shard": 2}, r"strategy\.pp is 2 and strategy\.shard is 2: .* stages 0 and 1 alone"),
        ({"stage": 3}, {}, r"strategy\.pp is 2 and software\.stage is 3: .* stages 0 and 1 alone"),
    ],
)
def test_a_pipeline_shards_no_gradients(graph, machine, flags, strategy, said):
    """PipelineEngine's own check."""
    with pytest.raises(ConfigError, match=said):
        run_as(flags, Strategy(dp=4, pp=2, **strategy), graph, machine)
    assert run_as({"stage": 1}, Strategy(dp=4, pp=2), graph, machine).shard == 1
