"""Topologies for a job whose small demands are relayed: a case by hand, and all settings of four accelerators."""

import itertools

import numpy as np
import pytest

from rostam_py import _core
from rostam_py.fabrics.traffic import Traffic


def set_circuits(num, num_ocs, demand, **keys):
    """Return the counts (num, num) of a matrix of bytes."""
    src, dst = np.nonzero(demand)
    traffic = Traffic.from_messages(num, src, dst, demand[src, dst])
    found = _core.set_ocs_circuits(
        num, traffic.src, traffic.dst, traffic.num_bytes, num_ocs, can_relay=True, **keys
    )  # fmt: skip
    counts = np.zeros((num, num), int)
    counts[found["src"], found["dst"]] = found["count"]
    return counts


def busiest(counts, demand):
    """Return the bytes of the busiest circuit: fewest circuits, equal parts hop by hop; inf where no chain leads."""
    num, joined, load = len(counts), counts > 0, np.zeros(counts.shape)
    for dst in range(num):
        distance = np.full(num, num + 1)
        distance[dst] = 0
        for step in range(1, num):
            near = joined[:, distance == step - 1].any(axis=1)
            distance[near & (distance > num)] = step
        held = demand[:, dst].astype(float)
        if np.any(held[distance > num] > 0):
            return np.inf
        for step in range(num - 1, 0, -1):
            for here in np.flatnonzero(distance == step):
                nearer = np.flatnonzero(joined[here] & (distance == step - 1))
                load[here, nearer] += held[here] / len(nearer)
                held[nearer] += held[here] / len(nearer)
    return max((load[pair] / counts[pair] for pair in zip(*np.nonzero(load), strict=True)), default=0.0)


def test_small_demands_are_relayed_over_circuits_of_large_ones():
    # Eight accelerators with four ports: 100 MB to the next one, 1 MB to each other one. All four circuits to the next
    # carry 100 + (2 + ... + 7) = 127 MB; a circuit for each of four distances would carry 100 MB alone.
    demand = np.full((8, 8), 1_000_000)
    np.fill_diagonal(demand, 0)
    demand[np.arange(8), (np.arange(8) + 1) % 8] = 100_000_000
    counts = set_circuits(8, 4, demand)
    assert np.array_equal(counts, 4 * np.roll(np.eye(8, dtype=int), 1, axis=1))
    assert busiest(counts, demand) == pytest.approx(127e6 / 4)


def test_topologies_are_near_the_best_of_all_settings():
    num, num_ocs = 4, 2
    rows = [
        [row for row in itertools.product(range(num_ocs + 1), repeat=num) if 0 < sum(row) <= num_ocs and row[own] == 0]
        for own in range(num)
    ]
    settings = [np.array(one) for one in itertools.product(*rows) if np.all(np.sum(one, axis=0) <= num_ocs)]
    rng = np.random.default_rng(0)
    over = []
    for _ in range(12):
        demand = rng.integers(1, 100, (num, num)) ** rng.integers(1, 3) * (rng.random((num, num)) < 0.8)
        np.fill_diagonal(demand, 0)
        counts = set_circuits(num, num_ocs, demand)
        assert np.all(counts.sum(axis=0) <= num_ocs)
        assert np.all(counts.sum(axis=1) <= num_ocs)
        over.append(busiest(counts, demand) / min(busiest(one, demand) for one in settings))
    assert min(over) >= 1 - 1e-9
    assert np.mean(over) < 1.10
    assert max(over) < 1.35


@pytest.mark.parametrize("keys", [{}, {"is_symmetric": True}, {"may_leave_out": True}])
def test_relayed_topologies_reach_every_demand(keys):
    rng = np.random.default_rng(3)
    for _ in range(20):
        num = int(rng.integers(3, 20))
        demand = (rng.pareto(1.2, (num, num)) * 1e6).astype(int) + 1
        np.fill_diagonal(demand, 0)
        counts = set_circuits(num, 3, demand, **keys)
        assert np.isfinite(busiest(counts, demand))
        assert counts.sum(axis=0).max() <= 3
        assert counts.sum(axis=1).max() <= 3
