"""Interleaved 1F1B in groups of micro-batches (software.rules.microbatch_group_size), against Megatron's own table."""

import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.placement.schedule import most_in_flight, stage_program
from rostam_py.plan import Strategy
from rostam_py.plan.phases import chunk_of, is_last, phase_of


def megatrons(num_stages, rank, num_microbatches, num_chunks, group):
    """Return a rank's order by get_schedule_table and get_pp_rank_microbatches of megatron/core, written out."""
    table = []
    for begin in range(0, num_microbatches, group):
        members = range(begin, min(begin + group, num_microbatches))
        table += [(microbatch, chunk) for chunk in range(num_chunks) for microbatch in members]
    forwards = [("forward", chunk, microbatch) for microbatch, chunk in table]
    backwards = [("backward", num_chunks - 1 - chunk, microbatch) for microbatch, chunk in table]
    warmup = min((num_stages - rank - 1) * 2 + (num_chunks - 1) * group, len(table))
    order = forwards[:warmup]
    for forward, backward in zip(forwards[warmup:], backwards, strict=False):
        order += [forward, backward]
    return order + backwards[len(table) - warmup :]


@pytest.mark.parametrize("num_stages", [2, 3, 4, 8])
@pytest.mark.parametrize("num_chunks", [2, 3])
def test_the_order_is_megatrons(num_stages, num_chunks):
    tried = 0
    for num_microbatches in range(num_stages, 5 * num_stages + 1):
        for group in range(num_stages, num_microbatches + 1):
            if 0 < num_microbatches % group < num_stages:
                continue
            tried += 1
            for rank in range(num_stages):
                program = stage_program("1f1b", rank, num_stages, num_microbatches, num_chunks, group=group)
                found = [(phase_of(name), chunk_of(name), microbatch) for name, microbatch in program]
                assert found == megatrons(num_stages, rank, num_microbatches, num_chunks, group)
                assert sorted(name for name, _ in program if is_last(name)) == [
                    f"backward_last.{chunk}" for chunk in range(num_chunks)
                ]
    assert tried > num_stages


def test_a_group_of_three_of_five_micro_batches_by_hand():
    # p = 2, v = 2, groups of 3 and 2, first stage: 2 + 3 forwards in front, then in turn.
    found = [(name[0], chunk_of(name), m) for name, m in stage_program("1f1b", 0, 2, 5, 2, group=3)]
    forwards = [(c, m) for kind, c, m in found if kind == "f"]
    assert forwards == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (0, 4), (1, 3), (1, 4)]
    assert [kind for kind, _, _ in found] == list("fffff" + "fb" * 5 + "b" * 5)
    assert [(c, m) for kind, c, m in found if kind == "b"][:3] == [(1, 0), (1, 1), (1, 2)]


def test_a_group_as_large_as_the_pipeline_is_the_default_and_many_groups_are_a_few_segments():
    for rank in range(4):
        assert stage_program("1f1b", rank, 4, 16, 3, group=4) == stage_program("1f1b", rank, 4, 16, 3)
        program = stage_program("1f1b", rank, 4, 6 * 2**40 + 4, 2, group=6)
        assert len(program.segments) == 3
        assert len(program) == 4 * (6 * 2**40 + 4)
        assert most_in_flight(program) == 2 * (3 - rank) + 6 + 1  # the warm-up and one more


@pytest.fixture(scope="module")
def machine():
    """Return four accelerators on an electrical network."""
    return rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=4), accelerator="a100_80gb")


@pytest.fixture(scope="module")
def deep():
    """Return a GPT of 8 layers."""
    return rostam.trace("gpt_125m", num_layers=8)


def test_a_larger_group_holds_more_and_sends_the_same(deep, machine):
    plans = {}
    for group in (None, 4, 6, 12):
        rules = {} if group is None else {"microbatch_group_size": group}
        strategy = Strategy(pp=4, virtual_stages=2, precision="bf16_mixed", rules=rules)
        plans[group] = rostam.place(deep, machine, global_batch=12, strategy=strategy, software="ideal")
    results = {group: rostam.simulate(plan, timeline=True) for group, plan in plans.items()}
    assert results[None].iteration_time_s == results[4].iteration_time_s
    held = [plans[group].stages[0].memory.activations for group in (4, 6, 12)]
    # Warm-up and one more: 2 x 3 + g + 1 chunks of micro-batches of one layer each; head and table are elsewhere.
    assert held[1] / held[0] == pytest.approx(13 / 11, rel=0.05)
    assert held[2] / held[0] == pytest.approx(19 / 11, rel=0.05)
    for group in (6, 12):
        assert results[group].bytes_sent == results[4].bytes_sent
        assert results[group].memory_over_time()


@pytest.mark.parametrize(
    ("keys", "group", "error", "words"),
    [
        ({"pp": 2}, 2, ConfigError, "strategy.virtual_stages is 1"),
        ({"pp": 2, "schedule": "gpipe"}, 2, ConfigError, "strategy.schedule is gpipe; it must be 1f1b"),
        ({"pp": 2, "virtual_stages": 2}, 0, DegreeError, "must be an integer >= 1"),
        ({"pp": 2, "virtual_stages": 2}, True, DegreeError, "must be an integer >= 1"),
    ],
)
def test_groups_of_nothing_are_refused(keys, group, error, words):
    with pytest.raises(error, match=words):
        Strategy(**keys, rules={"microbatch_group_size": group})


@pytest.mark.parametrize(
    ("group", "batch", "words"),
    [
        (3, 8, "from strategy.pp = 4 to 8"),
        (9, 8, "from strategy.pp = 4 to 8"),
        (5, 8, r"a group of 3 is left; it must be 0, or strategy.pp = 4 or more"),
    ],
)
def test_groups_that_leave_the_pipeline_open_are_refused(group, batch, words):
    strategy = Strategy(dp=1, pp=4, virtual_stages=2, rules={"microbatch_group_size": group})
    with pytest.raises(DegreeError, match=words):
        strategy.batches(batch)


def test_megatron_cores_flag_is_the_rule(deep, machine):
    strategy = Strategy(pp=4, virtual_stages=2, precision="bf16_mixed")
    software = {"name": "megatron_core", "microbatch_group_size_per_vp_stage": 6}
    plan = rostam.place(deep, machine, global_batch=12, strategy=strategy, software=software)
    assert plan.strategy.rules.microbatch_group_size == 6
