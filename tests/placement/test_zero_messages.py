"""Messages of ZeRO 1 to 3, FSDP and hybrid sharding equal lists derived by hand.

S sequence, H width, V vocabulary, L layers of the GPT; P its parameters; d ranks that share the state, m micro-batches.
In bf16_mixed a weight has 2 bytes and a gradient 4, in fp32 both have 4.
"""

from collections import Counter

import pytest

from rostam_py.errors import ConfigError, DegreeError
from rostam_py.plan import Strategy

S, H, V, L = 2048, 768, 50257, 4
WORDS, POSITIONS, LAYER, NORM = V * H, S * H, 12 * H * H + 13 * H, 2 * H
P = WORDS + POSITIONS + L * LAYER + NORM
UNITS = [WORDS, POSITIONS, *[LAYER] * L, NORM]  # the words are read before and behind the blocks: a unit that lasts
ONE_BUCKET = {"precision": "bf16_mixed", "bucket_size": "10 GB"}


def listed(plan, *labels):
    """Return {(kind, group, bytes): count} of some groups, all stages."""
    found = Counter()
    for m in plan.messages():
        if m.group in labels:
            found[m.kind, m.group, m.num_bytes] += m.count
    return dict(found)


def times(count, *messages):
    """Return messages, each ``count`` times, equal ones added up."""
    found = Counter()
    for message in messages:
        found[message] += count
    return dict(found)


@pytest.mark.parametrize("m", [1, 3])
def test_zero_1_reduce_scatters_gradients_and_gathers_weights_once_an_iteration(m, gpt, placed):
    for overlap in (False, True):
        strategy = Strategy.of(dp=8, shard=1, micro_batch=1, overlap_param_gather=overlap, **ONE_BUCKET)
        plan = placed(gpt, strategy, 8 * m)
        expected = {("reduce_scatter", "dp", 4 * P): 1, ("all_gather", "zero", 2 * P): 1}
        assert listed(plan, "dp", "zero") == expected, overlap


@pytest.mark.parametrize("m", [1, 3])
def test_zero_2_reduce_scatters_behind_every_micro_batch(m, gpt, placed):
    plan = placed(gpt, Strategy.of(dp=8, shard=2, micro_batch=1, **ONE_BUCKET), 8 * m)
    assert listed(plan, "dp", "zero") == {("reduce_scatter", "dp", 4 * P): m, ("all_gather", "zero", 2 * P): 1}


def test_buckets_of_zero_1_are_those_of_the_all_reduces_and_so_are_its_gathers(gpt, placed):
    plain = listed(placed(gpt, Strategy(dp=8, precision="fp32"), 8), "dp")
    shared = listed(placed(gpt, Strategy(dp=8, shard=1, precision="fp32"), 8), "dp", "zero")
    assert sum(plain.values()) == 5
    expected = {("reduce_scatter", "dp", size): count for (_, _, size), count in plain.items()}
    expected |= {("all_gather", "zero", size): count for (_, _, size), count in plain.items()}
    assert shared == expected


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("prefetch", [0, 1, 100])
def test_zero_3_gathers_each_unit_twice_a_micro_batch_and_reduce_scatters_it(m, prefetch, gpt, placed):
    plan = placed(gpt, Strategy.of(dp=8, shard=3, prefetch=prefetch, micro_batch=1, precision="bf16_mixed"), 8 * m)
    gathers = times(2 * m, *(("all_gather", "zero", 2 * unit) for unit in UNITS))
    reductions = times(m, *(("reduce_scatter", "dp", 4 * unit) for unit in UNITS))
    assert listed(plan, "dp", "zero") == gathers | reductions


def test_units_that_are_not_resharded_are_gathered_once_a_micro_batch(gpt, placed):
    strategy = Strategy.of(dp=8, shard=3, reshard_after_forward=False, micro_batch=1, precision="fp32")
    plan = placed(gpt, strategy, 16)
    gathers = times(2, *(("all_gather", "zero", 4 * unit) for unit in UNITS))
    assert listed(plan, "dp", "zero") == gathers | times(2, *(("reduce_scatter", "dp", 4 * unit) for unit in UNITS))


def test_whole_gradients_are_reduced_once_an_iteration(gpt, placed):
    strategy = Strategy.of(dp=8, shard=3, reduce_every_microbatch=False, micro_batch=1, precision="bf16_mixed")
    plan = placed(gpt, strategy, 24)
    gathers = times(6, *(("all_gather", "zero", 2 * unit) for unit in UNITS))
    assert listed(plan, "dp", "zero") == gathers | times(1, *(("reduce_scatter", "dp", 4 * unit) for unit in UNITS))


def test_hybrid_sharding_gathers_within_groups_and_all_reduces_shares_across_once_an_iteration(gpt, placed):
    plan = placed(gpt, Strategy(dp=8, shard=3, shard_group=4, micro_batch=1, precision="bf16_mixed"), 16)
    expected = times(4, *(("all_gather", "zero", 2 * unit) for unit in UNITS))
    expected |= times(2, *(("reduce_scatter", "dp_shard", 4 * unit) for unit in UNITS))
    expected |= times(1, *(("all_reduce", "dp_replicate", -(-4 * unit // 4)) for unit in UNITS))
    assert listed(plan, "dp", "zero", "dp_shard", "dp_replicate") == expected
    assert plan.members("zero").tolist() == plan.members("dp_shard").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert plan.members("dp_replicate").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert "ZeRO 3: weights, gradients and optimizer state shared by 4 ranks, 2 copies" in plan.notes


def test_hybrid_zero_1_all_reduces_shares_of_buckets_across(gpt, placed):
    plan = placed(gpt, Strategy.of(dp=8, shard=1, shard_group=2, micro_batch=1, **ONE_BUCKET), 16)
    assert listed(plan, "dp", "zero", "dp_shard", "dp_replicate") == {
        ("reduce_scatter", "dp_shard", 4 * P): 1,
        ("all_reduce", "dp_replicate", 2 * P): 1,
        ("all_gather", "zero", 2 * P): 1,
    }


@pytest.mark.parametrize("shard", [1, 2, 3])
def test_stages_and_tp_members_share_what_they_hold_and_tied_shares_are_summed_over_stages(shard, gpt, placed):
    settings = {"precision": "bf16_mixed", "bucket_size": "10 GB", "micro_batch": 1}
    plan = placed(gpt, Strategy.of(dp=4, tp=2, pp=2, shard=shard, **settings), 8)
    m, words = 2, (V + 1) // 2 * H
    assert listed(plan, "tied0") == {("all_reduce", "tied0", -(-4 * words // 4)): 2}
    per_stage = Counter()
    for message in plan.messages():
        if message.group in ("dp", "zero"):
            per_stage[message.kind, message.stages[0]] += message.count * message.num_bytes
    for stage in plan.stages:
        size = 2 * stage.num_parameters
        assert per_stage["reduce_scatter", stage.index] == 4 * stage.num_parameters * (m if shard > 1 else 1)
        assert per_stage["all_gather", stage.index] == size * (2 * m if shard == 3 else 1)


def test_tp_groups_and_ranks_far_apart_along_dp_share_with_their_own_kind(gpt, placed):
    # device numbers are (d pp + s) tp + t
    plan = placed(gpt, Strategy(dp=4, tp=2, shard=3, shard_group=2), 4)
    assert plan.members("zero").tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert plan.members("dp_replicate").tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_one_rank_alone_shares_nothing(gpt, placed):
    plain = placed(gpt, Strategy(dp=1, precision="bf16_mixed"), 4)
    for shared in (Strategy(dp=1, shard=3), Strategy(dp=1, shard=1, shard_group=1)):
        shared.precision = "bf16_mixed"
        plan = placed(gpt, shared, 4)
        assert (plan.stages, plan.groups) == (plain.stages, plain.groups)
    copies = placed(gpt, Strategy(dp=4, shard=2, shard_group=1), 4)
    assert copies.stages == placed(gpt, Strategy(dp=4), 4).stages


def test_every_kernel_waits_for_the_weights_that_it_reads(gpt, placed):
    """A unit's gather comes before its first kernel, which waits for it; no more units are whole than the window."""
    for prefetch in (0, 1, 2):
        for template in ("forward", "backward", "backward_last"):
            tasks = placed(gpt, Strategy.of(dp=4, shard=3, prefetch=prefetch), 4).stages[0].templates[template]
            gathers = [k for k, task in enumerate(tasks) if task.group == "zero"]
            assert len(gathers) == len(UNITS)
            waited = {d for task in tasks if task.kind == "compute" for d in task.deps}
            assert set(gathers) <= waited, (prefetch, template)
            for k in gathers:  # behind the template's begin, or behind the unit that left the window
                (before,) = tasks[k].deps
                assert tasks[before].kind == "compute"
            layers = [k for k in gathers if tasks[k].num_bytes == 4 * LAYER]
            for a, b in zip(layers, layers[prefetch + 1 :], strict=False):
                user = next(i for i, task in enumerate(tasks) if a in task.deps)
                assert tasks[b].deps[0] >= user, "begins once the layer before the window has run"


def test_settings_that_do_not_fit_are_refused_by_name(gpt, placed):
    for settings, error, words in (
        ({"shard": 4}, ConfigError, ("strategy.shard is 4", "0, 1, 2, 3")),
        ({"shard": True}, ConfigError, ("strategy.shard is True",)),
        ({"shard": 3, "dp": 8, "shard_group": 3}, DegreeError, ("strategy.shard_group is 3", "strategy.dp = 8")),
        ({"shard": 3, "shard_group": 0}, DegreeError, ("strategy.shard_group is 0", ">= 1")),
        ({"shard_group": 4}, ConfigError, ("strategy.shard_group", "strategy.shard = 1 or 2 or 3", "it is 0")),
        ({"shard": 3, "prefetch": -1}, ConfigError, ("software.rules.prefetch is -1", ">= 0")),
        ({"shard": 2, "prefetch": 2}, ConfigError, ("software.rules.prefetch", "strategy.shard = 3")),
        ({"shard": 1, "reshard_after_forward": False}, ConfigError, ("reshard_after_forward", "strategy.shard = 3")),
        (
            {"shard": 1, "reduce_every_microbatch": False},
            ConfigError,
            ("reduce_every_microbatch", "strategy.shard = 2 or 3"),
        ),
        ({"shard": 3, "overlap_param_gather": True}, ConfigError, ("overlap_param_gather", "1 or 2")),
        ({"shard": 1, "dp": 4, "mp": 2, "placer": "sip_ml"}, ConfigError, ("strategy.shard is 1", "placer=sip_ml")),
    ):
        with pytest.raises(error) as raised:
            Strategy.of(**settings)
        assert all(word in str(raised.value) for word in words), str(raised.value)
    with pytest.raises(DegreeError, match=r"strategy.shard_group is 3; it must divide strategy.dp = 4"):
        placed(gpt, Strategy(dp=4, shard=3, shard_group=3), 4)
