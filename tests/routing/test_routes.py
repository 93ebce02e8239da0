"""Spray and hash routes: conservation, minimality, latency, bundling."""

import collections
import itertools

import numpy as np
import pytest

from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.fabrics import build_fabric

FABRICS = {
    "flat": ("electrical_flat", {"num_accelerators": 5}),
    "cluster": ("electrical_cluster", {"num_accelerators": 9, "server_size": 4}),
    "tree": ("fat_tree", {"num_accelerators": 24, "radix": 8}),
    "tapered": ("fat_tree", {"num_accelerators": 30, "radix": 8, "leaf_down": 5, "leaf_up": 3}),
    "deep": ("fat_tree", {"num_accelerators": 40, "radix": 8, "levels": 3}),
    "deep_uneven": ("fat_tree", {"num_accelerators": 61, "radix": 8, "levels": 3, "leaf_down": 5, "leaf_up": 3}),
    "servers": ("fat_tree", {"num_accelerators": 24, "radix": 8, "server_size": 4}),
    "deep_servers": ("fat_tree", {"num_accelerators": 61, "radix": 8, "levels": 3, "leaf_down": 5, "server_size": 4}),
    "slim_fly": ("slim_fly", {"q": 3, "terminals_per_switch": 2}),
    "hyperx": ("hyperx", {"dims": (3, 4), "terminals": 2}),
    "dragonfly": (
        "dragonfly",
        {"routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 4},
    ),
    "torus": ("torus", {"dims": (4, 5)}),
    "torus_of_two": ("torus", {"dims": (2, 4, 2)}),
}


@pytest.fixture(params=sorted(FABRICS))
def fabric(request):
    name, params = FABRICS[request.param]
    return build_fabric(name, **params)


@pytest.fixture(params=["whole", "broken"])
def maybe_broken(request, fabric):
    if request.param == "whole" or fabric.num_links < 30:
        return fabric
    is_between = fabric.links["src"] >= fabric.num_accelerators
    between = fabric.links["cable"][is_between & (fabric.links["cable"] < fabric.num_links)]
    return fabric.with_failures(links=[int(between.max()) if len(between) else 3])


def pairs(fabric, limit=120):
    found = list(itertools.permutations(fabric.healthy_accelerators.tolist(), 2))
    return found[:: max(1, len(found) // limit)]


def link_shares(router, src, dst, message_hash=0):
    """Share of the flow on every fabric link, bundles divided equally."""
    shares = collections.defaultdict(float)
    for link, share in zip(*router.route(src, dst, message_hash)[:2], strict=True):
        for member in router.members[link]:
            shares[member] += share / len(router.members[link])
    return shares


@pytest.mark.parametrize("enable_bundling", [True, False])
def test_spray_conserves_the_flow_at_every_vertex(maybe_broken, enable_bundling):
    links = maybe_broken.links
    router = maybe_broken.router("spray", enable_bundling=enable_bundling)
    for src, dst in pairs(maybe_broken):
        balance = collections.defaultdict(float)
        for link, share in link_shares(router, src, dst).items():
            assert not links["is_failed"][link]
            balance[int(links["src"][link])] += share
            balance[int(links["dst"][link])] -= share
        expected = dict.fromkeys(balance, 0.0) | {src: 1.0, dst: -1.0}
        assert balance == pytest.approx(expected, abs=1e-12)


def test_bundled_and_unbundled_spray_load_every_link_alike(fabric):
    bundled, single = fabric.router("spray"), fabric.router("spray", enable_bundling=False)
    assert sum(bundled.capacities) == pytest.approx(sum(single.capacities))
    for src, dst in pairs(fabric):
        assert dict(link_shares(bundled, src, dst)) == pytest.approx(dict(link_shares(single, src, dst)), abs=1e-12)
        assert bundled.route(src, dst)[2] == single.route(src, dst)[2]


@pytest.mark.parametrize("routing", ["spray", "hash"])
def test_shares_cross_every_distance_exactly_once(maybe_broken, routing):
    # The links that lead from distance d to d - 1 form a cut; minimal routes put exactly 1 on each cut.
    links = maybe_broken.links
    router = maybe_broken.router(routing)
    for src, dst in pairs(maybe_broken):
        hops = maybe_broken.core.search_distances(dst)
        cuts = np.zeros(hops[src] + 1)
        for link, share in link_shares(router, src, dst, 7).items():
            near, far = hops[links["dst"][link]], hops[links["src"][link]]
            assert far == near + 1
            cuts[far] += share
        assert cuts[1:].tolist() == pytest.approx([1.0] * int(hops[src]))


def test_spray_halves_at_each_hop_of_a_square():
    # 0 -> 4 on a 3 x 3 torus: through 1 or 3, half each. 0 to 5 of a ring of 10: both ways round.
    square = build_fabric("torus", dims=(3, 3)).router()
    assert sorted(square.route(0, 4)[1]) == [0.5] * 4
    ring = build_fabric("torus", dims=(10,)).router()
    assert ring.route(0, 5)[1].tolist() == [0.5] * 10


def test_tree_routes_hold_one_entry_a_tier_and_cut_through_latency():
    fabric = build_fabric("fat_tree", num_accelerators=1024, link_latency="20 ns", switch_latency="40 ns")
    router = fabric.router("spray", message_overhead="1 us")
    links, shares, latency_ps = router.route(0, 1023)
    assert shares.tolist() == [1, 1, 1, 1]
    assert [len(router.members[link]) for link in links] == [1, 32, 32, 1]
    assert latency_ps == 1_000_000 + 4 * 20_000 + 3 * 40_000
    assert router.route(0, 31)[2] == 1_000_000 + 2 * 20_000 + 40_000
    deep = build_fabric("fat_tree", num_accelerators=16384).router()
    links, shares, _ = deep.route(0, 16383)
    assert [len(deep.members[link]) for link in links] == [1, 32, 1024, 1024, 32, 1]


def test_hash_takes_one_path_chosen_by_the_message_and_all_paths_in_the_long_run():
    fabric = build_fabric("fat_tree", num_accelerators=64, radix=16)
    router = fabric.router("hash")
    assert not router.is_hash_free
    assert fabric.router("spray").is_hash_free
    paths = collections.Counter()
    for message in range(4000):
        links, shares, _ = router.route(0, 63, message)
        assert set(shares) == {1.0}
        paths[tuple(links)] += 1
        assert tuple(router.route(0, 63, message)[0]) == tuple(links)
    # 8 uplinks over 4 spines, two links to a spine and two down: 8 x 2 = 16 paths of 250 messages each.
    assert len(paths) == 16
    assert max(abs(count - 250) for count in paths.values()) < 5 * np.sqrt(250)


def test_hash_never_bundles():
    assert all(len(members) == 1 for members in build_fabric("fat_tree", num_accelerators=64).router("hash").members)


def test_accelerators_do_not_forward_unless_told_to():
    # a1 hangs on both switches; the only other way from s0 to s1 is the longer one over s2, s3.
    links = [("a0", "s0"), ("a1", "s0"), ("a1", "s1"), ("a2", "s1"), ("s0", "s2"), ("s2", "s3"), ("s3", "s1")]
    around = build_fabric("custom", links=links, link_bandwidth="1 GB/s")
    through = build_fabric("custom", links=links, link_bandwidth="1 GB/s", forwarding=True)
    for routing in ("spray", "hash"):
        assert len(around.router(routing).route(0, 2)[0]) == 5
        assert len(through.router(routing).route(0, 2)[0]) == 4


def test_latency_is_that_of_the_slowest_path_sprayed():
    rows = {
        "src": ["a0", "a0", "s0", "s1"],
        "dst": ["s0", "s1", "a1", "a1"],
        "bandwidth": ["1 GB/s"] * 4,
        "latency": ["1 ns", "5 ns", "1 ns", "2 ns"],
    }
    assert build_fabric("custom", links=rows, switch_latency="10 ns").router().route(0, 1)[2] == 17_000


def test_neighbours_on_a_torus_ring_share_no_link():
    fabric = build_fabric("torus", dims=(8,))
    router = fabric.router()
    used = [router.route(i, (i + 1) % 8) for i in range(8)]
    links = [int(route[0][0]) for route in used]
    assert all(len(route[0]) == 1 for route in used)
    assert len(set(links)) == 8
    assert {route[2] for route in used} == {20_000}


def test_unknown_routing_lists_what_there_is():
    assert {"dfsssp", "hash", "layers", "spray", "turns", "up_down", "valiant"} <= set(_core.routing_names())
    with pytest.raises(
        ConfigError, match="unknown routing 'shortest'; registered: " + ", ".join(_core.routing_names())
    ):
        build_fabric("torus", dims=(4,)).router("shortest")


def test_accelerators_outside_the_fabric_are_config_errors():
    router = build_fabric("torus", dims=(4,)).router()
    for src, dst in [(0, 4), (4, 0), (-1, 0)]:
        with pytest.raises(ConfigError, match=r"accelerator -?\d does not exist; fabric torus has 0\.\.3"):
            router.route(src, dst)


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_a_sprayed_message_takes_as_long_as_its_slowest_path(slow):
    # a0 - s0 - (s1, s2 or s3) - s4 - a1: cables of 1 us, those by way of one switch of 10 us; 20 ns in each switch.
    cables = [["a0", "s0", 1e9, 1e-6], ["s4", "a1", 1e9, 1e-6]]
    for way in range(3):
        latency = 10e-6 if way == slow else 1e-6
        cables += [["s0", f"s{1 + way}", 1e9, latency], [f"s{1 + way}", "s4", 1e9, latency]]
    fabric = build_fabric("custom", links=cables, switch_latency=20e-9)
    links, shares, latency_ps = fabric.router("spray", enable_bundling=False).route(0, 1, 0)
    assert latency_ps == 22_060_000
    assert sorted(shares) == pytest.approx([1 / 3] * 6 + [1, 1])
    assert len(set(links)) == 8
