"""Ranks to accelerators (MODEL C11)."""

import numpy as np
import pytest

from rostam_py.errors import ConfigError, DegreeError
from rostam_py.plan import Machine, Strategy
from rostam_py.plan.ranks import assign_accelerators


def test_linear_mapping_numbers_tp_fastest_then_pp_then_dp(flat_fabric):
    ids = assign_accelerators(Strategy(dp=2, pp=3, tp=4), Machine(fabric=flat_fabric(24)))
    assert ids.shape == (2, 3, 4)
    # rank = t + 4 s + 12 d
    assert ids[1, 2, 3] == 3 + 4 * 2 + 12 * 1
    assert np.array_equal(ids.ravel(), np.arange(24))


def test_rank_order_moves_the_fastest_axis(flat_fabric):
    ids = assign_accelerators(Strategy(dp=2, pp=3, tp=4, rank_order="dp,tp,pp"), Machine(fabric=flat_fabric(24)))
    # rank = d + 2 t + 8 s
    assert ids[1, 2, 3] == 1 + 2 * 3 + 8 * 2


def test_the_parts_of_a_sequence_lie_behind_each_other(flat_fabric):
    machine = Machine(fabric=flat_fabric(48))
    ids = assign_accelerators(Strategy(dp=2, cp=2, pp=3, tp=4), machine)
    # rank = t + 4 c + 8 s + 24 d, at row 2 d + c
    assert ids.shape == (4, 3, 4)
    assert ids[2 * 1 + 1, 2, 3] == 3 + 4 * 1 + 8 * 2 + 24 * 1
    outer = assign_accelerators(Strategy(dp=2, cp=2, pp=3, tp=4, rank_order="tp,pp,dp,cp"), machine)
    assert outer[2 * 1 + 0, 2, 3] == 3 + 4 * 2 + 12 * 1
    assert outer[2 * 0 + 1, 2, 3] == 3 + 4 * 2 + 24 * 1


def test_an_order_without_cp_means_what_it_did(flat_fabric):
    machine = Machine(fabric=flat_fabric(24))
    new, old = (Strategy(dp=2, pp=3, tp=4, rank_order=order) for order in ("tp,cp,pp,dp", "tp,pp,dp"))
    assert np.array_equal(assign_accelerators(new, machine), assign_accelerators(old, machine))


def test_failed_accelerator_is_replaced_by_the_first_spare(flat_fabric):
    machine = Machine(fabric=flat_fabric(6, failed={1}))
    ids = assign_accelerators(Strategy(dp=4, allow_idle=True), machine)
    assert ids.ravel().tolist() == [0, 4, 2, 3]


def test_random_mapping_is_a_permutation_fixed_by_its_seed(flat_fabric):
    machine = Machine(fabric=flat_fabric(64))
    first = assign_accelerators(Strategy(dp=64, mapping="random(3)"), machine).ravel()
    again = assign_accelerators(Strategy.of(dp=64, mapping="random", mapping_seed=3), machine).ravel()
    other = assign_accelerators(Strategy(dp=64, mapping="random(4)"), machine).ravel()
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert sorted(first) == list(range(64))


def test_explicit_lists_are_followed(flat_fabric):
    machine = Machine(fabric=flat_fabric(8))
    by_mapping = assign_accelerators(Strategy(tp=2, dp=2, mapping=[7, 1, 3, 0]), machine)
    assert by_mapping[:, 0, :].tolist() == [[7, 1], [3, 0]]
    by_pool = assign_accelerators(Strategy(dp=2, accelerators=[5, 2]), machine)
    assert by_pool.ravel().tolist() == [5, 2]


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"dp": 16}, DegreeError, ["16 x 1 x 1 = 16", "7 healthy accelerators of 8"]),
        ({"dp": 4}, DegreeError, ["= 4", "7 healthy", "allow_idle"]),
        ({"dp": 8}, DegreeError, ["= 8", "7 healthy"]),
        ({"dp": 4, "mapping": [0, 1, 2]}, DegreeError, ["strategy.mapping has 3 entries"]),
        ({"dp": 2, "mapping": [0, 9]}, ConfigError, ["accelerator 9", "0 to 7"]),
        ({"dp": 2, "accelerators": [0, 5]}, ConfigError, ["accelerator 5", "has failed"]),
    ],
)
def test_degrees_that_do_not_fit_name_the_sizes(flat_fabric, settings, error, words):
    with pytest.raises(error) as raised:
        assign_accelerators(Strategy.of(**settings), Machine(fabric=flat_fabric(8, failed={5})))
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_machine_checks_slow_accelerators(flat_fabric):
    machine = Machine(fabric=flat_fabric(8)).with_slow_accelerators({3: 0.5})
    assert machine.slow == {3: 0.5}
    assert machine.with_slow_accelerators({4: 0.9}).slow == {3: 0.5, 4: 0.9}
    with pytest.raises(ConfigError, match=r"machine.slow names accelerator 3.5"):
        machine.with_slow_accelerators({3.5: 0.5})
    with pytest.raises(ConfigError, match="accelerator 8"):
        machine.with_slow_accelerators({8: 0.5})
    with pytest.raises(ConfigError, match="must be > 0"):
        machine.with_slow_accelerators({1: 0.0})
    with pytest.raises(ConfigError, match="a100_80gb"):
        Machine(fabric=flat_fabric(8), accelerator="a1000")
