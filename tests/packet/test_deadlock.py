"""Deadlock happens where channel dependencies allow it, is found and named, and does not where they form no circle."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import PacketOptions
from rostam_py.errors import ConfigError, DeadlockError

SMALL = {"buffer_bytes": 4 * 8192}


def ring(size=8):
    return rostam.fabric("torus", dims=(size,), link_bandwidth=5e10)


def turn(fabric, hops, routing, num_bytes=10**6, **options):
    """Everyone sends to the one so many hops on."""
    count = fabric.num_accelerators
    return rostam.run_flows(
        fabric, src=list(range(count)), dst=[(a + hops) % count for a in range(count)], num_bytes=[num_bytes] * count,
        fidelity="packet", routing=routing, packets=PacketOptions(**{**SMALL, **options}),
    )  # fmt: skip


def test_a_ring_of_one_virtual_channel_locks_and_says_where():
    # Every buffer is full of packets that wait for room in the next one (Dally and Seitz 1987).
    with pytest.raises(DeadlockError) as error:
        turn(ring(), 3, "spray")
    said = str(error.value)
    assert said.startswith("deadlock at ")
    assert (
        "8 of which, full, wait for each other in a circle: accelerator 0 -> accelerator 1 (virtual channel 0)" in said
    )
    assert "accelerator 7 -> accelerator 0 (virtual channel 0), back to the first" in said
    assert "turns" in said


def test_a_second_channel_behind_the_cable_that_wraps_keeps_it_moving():
    result = turn(ring(), 3, "turns")
    # Each link carries three flows of 1 MB at 50 GB/s.
    assert 60e-6 <= result.finish_s.max() < 3 * 60e-6


def test_both_in_one_channel_lock_again():
    with pytest.raises(DeadlockError, match="8 of which, full"):
        turn(ring(), 3, "turns", num_vcs=1)


def test_large_buffers_never_fill_and_so_never_lock():
    # 24 MB in all, and 32 MB of room in each buffer.
    assert turn(ring(), 3, "spray", buffer_bytes="32 MB").finish_s.max() < 70e-6


def test_a_collective_that_locks_says_so_too():
    with pytest.raises(DeadlockError, match="wait for each other in a circle"):
        rostam.run_collective(
            rostam.fabric("torus", dims=(4, 4), link_bandwidth=5e10), "all_to_all", num_bytes="16 MiB",
            algorithm="direct", routing="hash", fidelity="packet", packets=PacketOptions(buffer_bytes=8192),
        )  # fmt: skip


@pytest.mark.parametrize("routing", ["turns", "turns_adaptive", "up_down", "dfsssp"])
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("torus", {"dims": (4, 4)}),
        ("torus", {"dims": (3, 3, 3)}),
        ("hammingmesh", {"board": (2, 2), "boards": (2, 2)}),
        ("hammingmesh", {"board": (4, 4), "boards": (2, 2)}),
        ("hyperx", {"dims": (3, 4), "terminals": 2}),
        (
            "dragonfly",
            {"routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 5},
        ),
        ("slim_fly", {"q": 3, "terminals_per_switch": 2}),
        ("fat_tree", {"num_accelerators": 24, "radix": 8}),
    ],
)
def test_routings_free_of_deadlock_run_on_buffers_of_one_packet(name, parameters, routing):
    fabric = rostam.fabric(name, link_bandwidth=5e10, **parameters)
    check = rostam.check_dependencies(fabric, routing)
    assert check.is_deadlock_free
    needed = check.num_virtual_channels + 6  # the policy counts what its rule could take, never less
    rng = np.random.default_rng(3)
    src = np.repeat(np.arange(fabric.num_accelerators), 4)
    dst = rng.integers(0, fabric.num_accelerators, len(src))
    apart = src != dst
    result = rostam.run_flows(
        fabric, src=src[apart], dst=dst[apart], num_bytes=[100_000] * int(apart.sum()), fidelity="packet",
        routing=routing, packets=PacketOptions(buffer_bytes=8192 * needed),
    )  # fmt: skip
    assert np.isfinite(result.finish_s).all()


def test_fewer_channels_than_the_routing_takes_are_refused():
    fabric = rostam.fabric("hammingmesh", board=(2, 2), boards=(2, 2), link_bandwidth=5e10)
    with pytest.raises(ConfigError, match=r"packets.num_vcs is 2; it must be 1 \(all in one\) or at least the 3 that"):
        turn(fabric, 3, "turns", num_vcs=2)


def test_links_without_capacity_are_no_deadlock_of_buffers():
    fabric = ring(4)
    link = int(np.flatnonzero((fabric.links["src"] == 0) & (fabric.links["dst"] == 1))[0])
    with pytest.raises(DeadlockError, match="1 flows are stalled on links of capacity 0; the first is flow 0"):
        rostam.run_flows(
            fabric, src=[0], dst=[1], num_bytes=[10**5], fidelity="packet",
            events=[rostam.LinkBandwidth(time=1e-6, link=link, scale=0)],
        )  # fmt: skip
