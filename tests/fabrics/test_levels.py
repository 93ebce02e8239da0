"""Levels of a fabric's links, and factors on them."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.fabrics import FABRICS, example_fabric
from rostam_py.fabrics.levels import link_levels


def counts(fabric):
    names, level_of = link_levels(fabric)
    return {name: int((level_of == level).sum()) for level, name in enumerate(names)}


def test_a_tree_of_servers_has_servers_nics_and_tiers():
    fabric = rostam.fabric("fat_tree", num_accelerators=128, accelerator_bandwidth="400 Gb/s", server_size=8)
    found = counts(fabric)
    assert set(found) == {"inside servers", "NIC", "switch tier 1 to 2"}
    assert found["inside servers"] == 2 * 128
    assert found["NIC"] == 2 * 2 * 128  # accelerator to NIC and NIC to leaf, both ways
    assert sum(found.values()) == len(fabric.links)


def test_a_torus_has_one_level_and_a_hammingmesh_boards_and_trees():
    torus = rostam.fabric("torus", dims=(4, 4), accelerator_bandwidth="400 Gb/s")
    assert counts(torus) == {"accelerator to accelerator": 4 * 16}
    mesh = rostam.fabric("hammingmesh", board=(2, 2), boards=(4, 4), accelerator_bandwidth="400 Gb/s")
    assert set(counts(mesh)) == {"accelerator to accelerator", "accelerator to switch"}


def test_links_of_a_few_bandwidths_are_levels_of_their_own():
    fast = [("a0", "s0"), ("a1", "s0"), ("s0", "s1")]
    links = [(*ends, "400 Gb/s", "1 us") for ends in fast]
    links += [(f"a{k}", "s1", "100 Gb/s", "1 us") for k in (2, 3)]
    fabric = rostam.fabric("custom", links=links)
    assert counts(fabric) == {
        "accelerator to switch, 400 Gb/s": 4, "accelerator to switch, 100 Gb/s": 4, "switch tier 1 to 1": 2,
    }  # fmt: skip


@pytest.mark.parametrize("name", list(FABRICS))
def test_every_link_of_every_fabric_is_of_a_level(name):
    fabric = example_fabric(name)
    if fabric.is_circuit_switched:
        return  # its links are its circuits
    names, level_of = link_levels(fabric)
    assert len(level_of) == len(fabric.links)
    assert set(level_of.tolist()) == set(range(len(names)))


def test_factors_change_links_and_routes_and_leave_prices():
    fabric = rostam.fabric("fat_tree", num_accelerators=64, accelerator_bandwidth="400 Gb/s")
    faster = fabric.with_factors(2.0, 4.0, 4.0)
    assert np.array_equal(faster.links["bandwidth_bytes_per_s"], 2 * fabric.links["bandwidth_bytes_per_s"])
    assert faster.links["latency_s"] == pytest.approx(fabric.links["latency_s"] / 4, abs=1e-12)
    assert faster.network_usd == fabric.network_usd
    times = [rostam.run_flows(one, src=[0], dst=[63], num_bytes=[10**9]).finish_s[0] for one in (fabric, faster)]
    assert times[0] == pytest.approx(2 * times[1], rel=1e-4)


def test_unequal_links_of_a_bundle_are_no_bundle():
    fabric = rostam.fabric("fat_tree", num_accelerators=128, accelerator_bandwidth="400 Gb/s")
    bundled = np.flatnonzero(fabric.links["bundle"] >= 0)
    factors = np.ones(len(fabric.links))
    factors[bundled[0]] = 0.5
    assert (fabric.with_factors(factors).links["bundle"] == -1).all()
    assert (fabric.with_factors(0.5).links["bundle"] == fabric.links["bundle"]).all()


def test_factors_travel_with_the_fabric_and_are_checked():
    import pickle

    fabric = rostam.fabric("torus", dims=(4, 4), accelerator_bandwidth="400 Gb/s")
    half = fabric.with_factors(0.5)
    again = pickle.loads(pickle.dumps(half))
    assert np.array_equal(again.links["bandwidth_bytes_per_s"], half.links["bandwidth_bytes_per_s"])
    with pytest.raises(ConfigError, match="factors of its links already"):
        half.with_factors(0.5)
    with pytest.raises(ConfigError, match="fail parts and set circuits before"):
        half.with_failures(links=[0])
    with pytest.raises(ConfigError, match="bandwidth factor is -1"):
        fabric.with_factors(-1.0)
