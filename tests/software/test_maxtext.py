"""MaxText's flags, as its configuration has them."""

import pytest

from rostam_py.errors import ConfigError
from rostam_py.plan import Strategy
from rostam_py.software.program import Program, stack_of


def run_as(flags, strategy, graph, machine):
    return Program.of({"name": "maxtext", **flags}, graph, cost="calibrated").on(strategy, machine)


def test_flags_set_sharding_recomputation_and_precision(graph, machine):
    flags = {"ici_fsdp_parallelism": -1, "remat_policy": "full", "quantization": "fp8"}
    found, software = run_as(flags, Strategy(dp=8), graph, machine)
    assert (found.shard, found.recompute, found.precision) == (3, "full", "fp8_delayed_mixed")
    assert dict(software.sets) == {"shard": 3, "recompute": "full", "precision": "fp8_delayed_mixed"}
    assert software.on(machine).host == "graphs"
    found, software = run_as({}, Strategy(dp=8), graph, machine)
    assert (found.shard, found.recompute, software.sets) == (0, "none", ())


@pytest.mark.parametrize(
    ("flags", "strategy", "said"),
    [
        ({"ici_fsdp_parallelism": -1}, Strategy(dp=8, shard=1), r"means strategy\.shard=3, but strategy\.shard is 1"),
        (
            {"remat_policy": "minimal"}, Strategy(dp=8, recompute="full"),
            r"means strategy\.recompute=none, but strategy\.recompute is full",
        ),
    ],
)  # fmt: skip
def test_flags_and_a_strategy_that_disagree_are_refused(graph, machine, flags, strategy, said):
    with pytest.raises(ConfigError, match=said):
        run_as(flags, strategy, graph, machine)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"ici_fsdp_parallelism": 4}, r"software\.ici_fsdp_parallelism is 4; it must be -1"),
        ({"remat_policy": "some"}, r"software\.remat_policy is 'some'; it must be one of: minimal, full"),
        ({"quantization": "int8"}, r"software\.quantization is 'int8'"),
    ],
)
def test_flags_that_make_no_sense_are_refused(flags, said):
    with pytest.raises(ConfigError, match=said):
        stack_of({"name": "maxtext", **flags})


def test_a_schedule_that_it_has_not_is_refused(graph, machine):
    with pytest.raises(ConfigError, match=r"strategy\.schedule is 'zb_h1', which MaxText has not"):
        run_as({}, Strategy(dp=4, pp=2, schedule="zb_h1"), graph, machine)
    found, _ = run_as({}, Strategy(dp=8, schedule="zb_h1"), graph, machine)
    assert found.schedule == "zb_h1", "without a pipeline it says nothing"
