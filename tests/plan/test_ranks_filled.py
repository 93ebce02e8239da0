"""An open dp fills the machine, from Python as on the command line."""

import pytest

import rostam_py as rostam
from rostam_py.errors import DegreeError
from rostam_py.plan.ranks import filled


def machine(count, failed=()):
    """An ideal switch of so many accelerators."""
    fabric = rostam.fabric("electrical_flat", num_accelerators=count, accelerator_bandwidth="400 Gb/s")
    return rostam.Machine(fabric=fabric.with_failures(accelerators=failed), accelerator="a100_80gb")


@pytest.mark.parametrize(
    ("given", "failed", "dp", "allow_idle"),
    [
        ({}, (), 8, False), ({"tp": 2}, (), 4, False), ({"tp": 2, "pp": 4}, (), 1, False), ({"dp": 3}, (), 3, False),
        ({"mp": 4, "placer": "sip_ml"}, (), 2, False), ({"tp": 2}, (5,), 3, True), ({"tp": 4}, (5, 6, 7), 1, True),
        ({"tp": 3, "allow_idle": True}, (), 2, True), ({"tp": 2, "accelerators": [0, 1, 4, 5]}, (), 2, False),
        ({"mapping": [3, 2, 1]}, (), 3, False),
    ],
)  # fmt: skip
def test_an_open_dp_is_as_many_replicas_as_the_machine_holds(given, failed, dp, allow_idle):
    strategy = filled(rostam.Strategy.of(**given), machine(8, failed))
    assert (strategy.dp, strategy.allow_idle) == (dp, allow_idle)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tp": 3}, "strategy.tp = 3 does not divide the 8 accelerators"),
        ({"tp": 3, "pp": 2}, "strategy.tp x pp = 3 x 2 = 6 does not divide the 8"),
        ({"mp": 3, "placer": "sip_ml"}, "strategy.mp = 3 does not divide the 8"),
        ({"tp": 16}, "strategy.tp = 16 needs as many accelerators for one replica; the machine has 8"),
        ({"mapping": []}, r"strategy.mapping is \[\]; a replica needs 1"),
        ({"tp": 2, "accelerators": []}, r"strategy.accelerators is \[\]; a replica needs 2"),
        ({"tp": 2, "accelerators": [0, 1, 2]}, "strategy.tp = 2 does not divide the 3 accelerators that the strategy"),
    ],
)
def test_what_leaves_a_remainder_is_refused(given, message):
    with pytest.raises(DegreeError, match=message):
        filled(rostam.Strategy.of(**given), machine(8))


def test_an_open_dp_has_no_number_of_ranks_yet():
    strategy = rostam.Strategy(tp=2)
    assert strategy.dp is None
    assert strategy.describe() == "dp open x tp 2 x pp 1"
    assert "all" in strategy._repr_html_()
    with pytest.raises(DegreeError, match=r"strategy\.dp is not set"):
        _ = strategy.num_ranks
