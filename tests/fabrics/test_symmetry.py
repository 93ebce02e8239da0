"""Symmetric demands: the period is found, and alike groups get alike circuits."""

import numpy as np

import rostam_py as rostam
from rostam_py.fabrics.symmetry import least_of_orbits, period
from rostam_py.fabrics.traffic import Traffic


def groups(num: int, size: int, scale: float = 1.0) -> Traffic:
    """All-to-all inside groups of ``size`` and a ring from group to group, as SiP-ML's Fig. 7."""
    i = np.arange(num)
    pairs = [(a, a // size * size + b, 3.0) for a in i for b in range(size) if a % size != b]
    pairs += [(a, (a + size) % num, 2.0) for a in i]
    src, dst, size_bytes = (np.array(c) for c in zip(*pairs, strict=True))
    return Traffic.from_messages(num, src, dst, size_bytes * scale)


def test_the_period_is_the_group_size():
    assert period(groups(24, 4)) == 4
    assert period(groups(24, 6)) == 6


def test_a_demand_without_symmetry_has_the_period_of_the_whole_machine():
    base = groups(24, 4)
    odd = Traffic.from_messages(24, np.append(base.src, 5), np.append(base.dst, 6), np.append(base.num_bytes, 1.0))
    assert period(odd) == 24
    assert np.array_equal(least_of_orbits(odd, np.arange(len(odd.src))), np.arange(len(odd.src)))


def test_the_least_of_an_orbit_keeps_the_least_ratio():
    traffic = groups(24, 4)
    count = np.random.default_rng(0).integers(2, 9, len(traffic.src))
    least = least_of_orbits(traffic, count)
    assert np.all(least <= count)
    assert (least / traffic.num_bytes).min() == (count / traffic.num_bytes).min()
    by_orbit = {}
    for s, d, c in zip(traffic.src, traffic.dst, least, strict=True):
        by_orbit.setdefault((s % 4, (d - s) % 24), set()).add(int(c))
    assert all(len(counts) == 1 for counts in by_orbit.values())


def test_groups_on_a_ring_get_alike_wavelengths():
    # 64 accelerators in groups of 8, 128 wavelengths: rounding alone gives groups that differ.
    fabric = rostam.fabric("sip_ring", num_accelerators=64, accelerator_bandwidth="3.2 Tb/s")
    circuits = fabric.with_circuits(groups(64, 8), seed=3).circuits
    orbits = {}
    for s, d, c in zip(circuits.src, circuits.dst, circuits.count, strict=True):
        orbits.setdefault((s % 8, (d - s) % 64), set()).add(int(c))
    assert all(len(counts) == 1 for counts in orbits.values())
    assert np.array_equal(np.bincount(circuits.circuit_pair), circuits.count)
