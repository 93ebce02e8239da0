"""MODEL K29 in every run: routes join their transfers' ends, and links carry what accelerators say they sent."""

import numpy as np
import pytest

import rostam_py as rostam

FABRICS = {
    "electrical_flat": {"num_accelerators": 12},
    "electrical_cluster": {"num_accelerators": 12, "server_size": 4},
    "fat_tree": {"num_accelerators": 12, "radix": 8, "leaf_down": 5, "leaf_up": 3},
    "torus": {"dims": (3, 4)},
    "hammingmesh": {"board": (2, 2), "boards": (3, 1)},
}
HELD = {
    "routes join the ends of their messages",
    "links of every accelerator carry what it sends, receives and forwards",
}


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("routing", ["spray", "hash"])
@pytest.mark.parametrize("fold", [True, False])
def test_links_of_an_accelerator_carry_what_it_sends_and_forwards(name, routing, fold):
    # A second count, by hand: out minus in over the fabric's links, against what the all-gather ring moves. Every rank
    # passes 11 chunks of 1,000 bytes on and receives as many, so out and in are equal, forwarded bytes included.
    fabric = rostam.fabric(name, accelerator_bandwidth="400 Gb/s", **FABRICS[name])
    result = rostam.run_collective(
        fabric, "all_gather", algorithm="ring", num_bytes=12_000, routing=routing, fold=fold, seed=4
    )
    assert set(result.checks) >= HELD
    links = fabric.links
    out, into = np.zeros(12), np.zeros(12)
    for src, dst, carried in zip(links["src"], links["dst"], result.link_bytes, strict=True):
        if src < 12:
            out[src] += carried
        if dst < 12:
            into[dst] += carried
    np.testing.assert_allclose(out, into, rtol=1e-9)
    assert (out >= 11_000 * (1 - 1e-9)).all()


def test_a_broadcast_takes_bytes_out_of_the_root_only():
    fabric = rostam.fabric("torus", dims=(3, 4), accelerator_bandwidth="400 Gb/s")
    links = fabric.links
    # Binomial tree over 12 ranks: the root sends to 8, 4, 2 and 1; along a chain once. Every other rank receives once.
    for algorithm, count in (("binomial_tree", 4), ("ring", 1)):
        result = rostam.run_collective(fabric, "broadcast", num_bytes=8192, algorithm=algorithm)
        net = np.bincount(links["src"], result.link_bytes, 12) - np.bincount(links["dst"], result.link_bytes, 12)
        assert net.sum() == pytest.approx(0, abs=1e-6)
        assert net[0] == pytest.approx(count * 8192)
        assert (net[1:] >= -8192 - 1e-6).all()


def test_flows_that_are_cut_off_or_rerouted_are_counted_by_what_was_sent():
    fabric = rostam.fabric("torus", dims=(4, 4), link_bandwidth=1e9, link_latency=0.0)
    events = [rostam.Reroute("1 ms", 0, 77), rostam.Reroute("2 ms", 1, 5)] if hasattr(rostam, "Reroute") else []
    result = rostam.run_flows(
        fabric, src=[0, 5, 3], dst=[10, 15, 4], num_bytes=[10**7] * 3, stop_s=[None, "3 ms", None], events=events
    )
    assert result.bytes_left[1] > 0
    assert "links of every accelerator carry what it sends, receives and forwards" in result.checks
