"""Circuits of optical switches: legal settings, the optimum of a MILP, what duplex costs, relays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.fabrics.traffic import Traffic


def set_circuits(traffic, num_ocs, **options):
    """Return what the core sets for a demand."""
    return _core.set_ocs_circuits(
        traffic.num_accelerators, traffic.src, traffic.dst, traffic.num_bytes, num_ocs, **options
    )


def random_traffic(rng, count, num_ocs):
    """Return a demand of at most num_ocs peers out and in: a sum of random partial permutations."""
    src, dst = [], []
    for _ in range(rng.integers(1, num_ocs + 1)):
        order = rng.permutation(count)
        kept = rng.random(count) < 0.7
        src += np.arange(count)[kept].tolist()
        dst += order[kept].tolist()
    return Traffic.from_messages(count, src, dst, rng.exponential(size=len(src)) + 0.05)


def counts_of(found, traffic):
    """Return circuits of every demanded pair, 0 where it has none."""
    table = np.zeros((traffic.num_accelerators,) * 2, dtype=int)
    table[found["src"], found["dst"]] = found["count"]
    return table[traffic.src, traffic.dst]


def check_setting(found, num_accelerators, num_ocs):
    """Every switch is a partial permutation, and counts count the circuits."""
    pair, ocs = found["circuit_pair"], found["circuit_ocs"]
    assert np.array_equal(np.bincount(pair, minlength=len(found["src"])), found["count"])
    assert set(ocs.tolist()) <= set(range(num_ocs))
    for side in (found["src"], found["dst"]):
        ports = side[pair].astype(int) * num_ocs + ocs
        assert len(np.unique(ports)) == len(ports)


def milp_ratio(traffic, num_ocs, *, is_symmetric=False):
    """Return max theta s.t. c_ij >= theta TM_ij, row and column sums of c <= Q (and c_ij = c_ji): HiGHS."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    num = len(traffic.src)
    rows, upper = [], []
    for side in (traffic.src, traffic.dst):
        for a in np.unique(side):
            rows.append(np.append((side == a).astype(float), 0))
            upper.append(num_ocs)
    for i in range(num):
        row = np.zeros(num + 1)
        row[i], row[num] = -1, traffic.num_bytes[i]
        rows.append(row)
        upper.append(0)
    if is_symmetric:
        index = {(s, d): i for i, (s, d) in enumerate(zip(traffic.src, traffic.dst, strict=True))}
        for (s, d), i in index.items():
            row = np.zeros(num + 1)
            row[i], row[index[d, s]] = 1, -1
            rows.append(row)
            upper.append(0)
    objective = np.append(np.zeros(num), -1)
    found = milp(
        objective, constraints=LinearConstraint(np.array(rows), -np.inf, upper),
        integrality=np.append(np.ones(num), 0), bounds=Bounds(0, np.append(np.full(num, num_ocs), np.inf)),
        options={"mip_rel_gap": 0},
    )  # fmt: skip
    assert found.success
    return -found.fun


@pytest.mark.parametrize("batch", range(10))
def test_circuits_equal_the_milp_optimum(batch):
    rng = np.random.default_rng(batch)
    for _ in range(20):
        count, num_ocs = int(rng.integers(2, 8)), int(rng.integers(1, 8))
        traffic = random_traffic(rng, count, num_ocs)
        if not len(traffic.src):
            continue
        found = set_circuits(traffic, num_ocs)
        check_setting(found, count, num_ocs)
        ratio = (counts_of(found, traffic) / traffic.num_bytes).min()
        assert ratio == pytest.approx(milp_ratio(traffic, num_ocs), rel=1e-6)


def test_symmetric_circuits_equal_the_milp_optimum():
    rng = np.random.default_rng(0)
    for _ in range(30):
        num_ocs = int(rng.integers(3, 8))
        one_way = random_traffic(rng, 6, num_ocs // 2)
        # The larger direction decides; the oracle gets a demand that is symmetric already.
        larger = np.maximum(one_way.matrix(), one_way.matrix().T)
        src, dst = np.nonzero(larger)
        found = set_circuits(one_way, num_ocs, is_symmetric=True)
        check_setting(found, 6, num_ocs)
        both = Traffic.from_messages(6, src, dst, larger[src, dst])
        if not len(both.src):
            continue
        counts = counts_of(found, both)
        assert np.array_equal(counts, counts_of(found, Traffic(6, both.src, both.dst, both.num_bytes)))
        reverse = {(s, d): c for s, d, c in zip(both.src, both.dst, counts, strict=True)}
        assert all(reverse[d, s] == c for (s, d), c in reverse.items())
        assert (counts / both.num_bytes).min() == pytest.approx(milp_ratio(both, num_ocs, is_symmetric=True), rel=1e-6)


@given(st.integers(0, 2**32), st.integers(2, 12), st.integers(1, 9))
def test_no_pair_can_be_widened_any_more(seed, count, num_ocs):
    traffic = random_traffic(np.random.default_rng(seed), count, num_ocs)
    found = set_circuits(traffic, num_ocs)
    check_setting(found, count, num_ocs)
    sent = np.bincount(found["src"], weights=found["count"], minlength=count)
    received = np.bincount(found["dst"], weights=found["count"], minlength=count)
    assert np.all((sent[traffic.src] == num_ocs) | (received[traffic.dst] == num_ocs))
    assert sent.max(initial=0) <= num_ocs >= received.max(initial=0)


def test_left_over_ports_go_to_the_slowest_pair():
    # 0 sends 1 to 1 and 3 to 2 with Q = 5. Ratios k / TM: after one each 1 and 1/3, so 2 gets the next two (2/3, 1);
    # of the equally slow pairs the first gets the fifth.
    traffic = Traffic.from_messages(3, [0, 0], [1, 2], [1, 3])
    assert set_circuits(traffic, 5)["count"].tolist() == [2, 3]
    assert set_circuits(traffic, 6)["count"].tolist() == [2, 4]


def test_more_peers_than_circuits_is_refused_by_name():
    traffic = Traffic.from_messages(5, [1, 1, 1, 0], [0, 2, 3, 4], np.ones(4))
    with pytest.raises(ConfigError, match="accelerator 1 sends to 3 peers, but it holds at most 2 circuits"):
        set_circuits(traffic, 2)
    with pytest.raises(ConfigError, match="accelerator 4 receives from 3 peers"):
        set_circuits(Traffic.from_messages(5, [0, 1, 2], [4, 4, 4], np.ones(3)), 2)
    with pytest.raises(ConfigError, match="accelerator 1 exchanges data with 3 peers"):
        set_circuits(traffic, 2, is_symmetric=True)


def test_duplex_keeps_both_directions_on_one_switch_and_reports_the_gap():
    # A triangle with Q = 4 takes 2 circuits a pair, 6 in all; a switch holds one pair of three accelerators both
    # ways, so 4 switches hold 4 pairs: 2 pairs of circuits, 4 directed ones, are given up.
    traffic = Traffic.from_messages(3, [0, 1, 2], [1, 2, 0], np.ones(3))
    found = set_circuits(traffic, 4, is_duplex=True)
    assert found["colouring_gap"] == 4
    check_setting(found, 3, 4)
    sides = {
        (int(found["src"][pair]), int(found["dst"][pair]), int(ocs))
        for pair, ocs in zip(found["circuit_pair"], found["circuit_ocs"], strict=True)
    }
    assert {(d, s, ocs) for s, d, ocs in sides} == sides
    assert found["count"].min() >= 1
    assert set_circuits(traffic, 4, is_symmetric=True)["colouring_gap"] == 0
    with pytest.raises(ConfigError, match=r"fabric.duplex is true, and no switch is left"):
        set_circuits(traffic, 2, is_duplex=True)


@pytest.mark.parametrize("seed", range(5))
def test_duplex_gives_up_few_circuits_of_random_demands(seed):
    rng = np.random.default_rng(seed)
    traffic = random_traffic(rng, 32, 5)
    found = set_circuits(traffic, 16, is_duplex=True)
    check_setting(found, 32, 16)
    assert counts_of(found, traffic).min() >= 1
    assert found["colouring_gap"] <= 0.1 * found["count"].sum()


def test_relays_give_circuits_to_the_largest_demands():
    # Q = 1 and two peers each: the larger one gets the circuit; the ring of circuits reaches the other one.
    traffic = Traffic.from_messages(3, [0, 0, 1, 1, 2, 2], [1, 2, 2, 0, 0, 1], [5, 1, 5, 1, 5, 1])
    found = set_circuits(traffic, 1, can_relay=True)
    assert list(zip(found["src"].tolist(), found["dst"].tolist(), strict=True)) == [(0, 1), (1, 2), (2, 0)]


def test_relays_keep_islands_together_with_a_ring():
    # The large demands pair 0 with 1 and 2 with 3 and would take every port of Q = 1; 0 -> 2 needs a way out.
    traffic = Traffic.from_messages(4, [0, 1, 2, 3, 0], [1, 0, 3, 2, 2], [9, 9, 9, 9, 1])
    found = set_circuits(traffic, 1, can_relay=True)
    assert list(zip(found["src"].tolist(), found["dst"].tolist(), strict=True)) == [(0, 1), (1, 2), (2, 3), (3, 0)]


def test_no_demand_sets_no_circuit():
    assert len(set_circuits(Traffic.from_messages(3, [], [], []), 4)["src"]) == 0


@pytest.mark.parametrize("kind", ["is_symmetric", "is_duplex"])
@pytest.mark.parametrize(("alone", "wider"), [(5.5, (0, 1)), (8.0, (0, 2))])
def test_both_directions_of_a_pair_count_as_the_larger_of_them(kind, alone, wider):
    # 0 and 1 exchange 6 and 5, 0 sends 2 some bytes. Of the three circuits of 0 the pair with more bytes has two: 6 is
    # right in both cases, the smaller of the directions (5) would be wrong in the first, their sum (11) in the second.
    traffic = Traffic.from_messages(3, [0, 1, 0], [1, 0, 2], np.array([6.0, 5.0, alone]))
    options = {"is_symmetric": False, "is_duplex": False, "can_relay": False, "may_leave_out": False} | {kind: True}
    found = set_circuits(traffic, 3, **options)
    counts = dict(zip(zip(found["src"].tolist(), found["dst"].tolist(), strict=True), found["count"], strict=True))
    assert counts[wider] == 2
    assert counts[0, 1] + counts[0, 2] == 3
