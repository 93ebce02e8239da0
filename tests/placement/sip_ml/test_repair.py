"""Repair: what a move changes is counted edge by edge, and is what counting all edges again gives."""

import random

import pytest

from rostam_py.placement.sip_ml.repair import Units, _Search, repair
from rostam_py.placement.sip_ml.window import make_window

INFINITE = float("inf")


def drawn(num_devices, num_units, num_edges, seed):
    """Return units on random devices with random edges, some both ways."""
    draw = random.Random(seed)
    pairs = [(draw.randrange(num_units), draw.randrange(num_units)) for _ in range(num_edges)]
    edges = {(a, b) for a, b in pairs if a != b}
    edges |= {(b, a) for a, b in list(edges)[: num_edges // 4]}
    return Units(
        devices=[draw.randrange(num_devices) for _ in range(num_units)],
        num_bytes=[draw.random() for _ in range(num_units)], seconds=[1.0] * num_units, edges=edges,
    )  # fmt: skip


def steps_out_of_range(window, sender, receiver):
    """Return the steps from the receiver's device to the nearest that the sender's may send to."""
    k = window.num_devices
    near = [d for d in range(k) if window.holds(sender, d)]
    return min(min((receiver - d) % k, (d - receiver) % k) for d in near)


@pytest.mark.parametrize("kind", ["symmetric", "paper"])
def test_moves_count_the_edges_out_of_range(kind):
    window, units = make_window(16, 6, kind=kind), drawn(16, 60, 150, seed=1)
    search = _Search(units, 16, window, INFINITE, seed=0)
    draw = random.Random(2)
    for _ in range(200):
        unit, device = draw.randrange(60), draw.randrange(16)
        if device != search.devices[unit]:
            search._move(unit, device)
        own = search.devices
        counts = [0] * 60
        for a, b in units.edges:
            for end in (a, b):
                counts[end] += not window.holds(own[a], own[b])
        assert search.violations == counts
        assert search.num_violations == sum(counts)
        assert sorted(search.violating) == [u for u, count in enumerate(counts) if count]


def test_conflicts_are_the_steps_out_of_range_of_all_edges():
    window, units = make_window(16, 6), drawn(16, 40, 120, seed=3)
    search = _Search(units, 16, window, INFINITE, seed=0)
    for unit in range(40):
        expected = [
            sum(steps_out_of_range(window, d, search.devices[b]) for a, b in units.edges if a == unit)
            + sum(steps_out_of_range(window, search.devices[a], d) for a, b in units.edges if b == unit)
            for d in range(16)
        ]
        assert search._conflicts(unit) == expected  # a symmetric window: either end's masks tell the same steps


def test_a_repair_ends_within_the_windows_and_the_memory():
    window, units = make_window(16, 9), drawn(16, 48, 40, seed=4)
    capacity = 1.5 * sum(units.num_bytes) / 16
    assert repair(units, 16, window, capacity) > 0
    assert all(window.holds(units.devices[a], units.devices[b]) for a, b in units.edges)
    load = [0.0] * 16
    for device, size in zip(units.devices, units.num_bytes, strict=True):
        load[device] += size
    assert max(load) <= capacity * (1 + 1e-9)
