"""Counts, diameters and distance functions of the built-in fabrics against closed forms and search."""

import math

import numpy as np
import pytest

from rostam_py.fabrics import FABRICS, build_fabric, example_fabric

SMALL = [
    ("electrical_flat", {"num_accelerators": 5}),
    ("electrical_flat", {"num_accelerators": 1}),
    ("electrical_cluster", {"num_accelerators": 10, "server_size": 4}),
    ("electrical_cluster", {"num_accelerators": 4, "server_size": 4}),
    ("regional_ocs", {"num_accelerators": 3, "server_size": 4}),
    ("regional_ocs", {"num_accelerators": 13, "server_size": 4, "region_servers": 2}),
    ("regional_ocs", {"num_accelerators": 39, "server_size": 2, "region_servers": 8, "num_ocs": 3}),
    ("fat_tree", {"num_accelerators": 3, "radix": 8}),
    ("fat_tree", {"num_accelerators": 30, "radix": 8}),
    ("fat_tree", {"num_accelerators": 30, "radix": 8, "leaf_down": 5, "leaf_up": 3}),
    ("fat_tree", {"num_accelerators": 61, "radix": 8, "levels": 3}),
    ("fat_tree", {"num_accelerators": 61, "radix": 8, "levels": 3, "leaf_down": 5, "leaf_up": 3}),
    ("fat_tree", {"num_accelerators": 10, "radix": 8, "levels": 3}),
    ("fat_tree", {"num_accelerators": 32, "radix": 16, "leaf_down": 8, "leaf_up": 4, "num_spines": 4}),
    ("fat_tree", {"num_accelerators": 1, "server_size": 4}),
    ("fat_tree", {"num_accelerators": 3, "radix": 8, "server_size": 4}),
    ("fat_tree", {"num_accelerators": 4, "radix": 8, "server_size": 2}),
    ("fat_tree", {"num_accelerators": 30, "radix": 8, "server_size": 4}),
    ("fat_tree", {"num_accelerators": 30, "radix": 8, "leaf_down": 5, "leaf_up": 3, "server_size": 4}),
    ("fat_tree", {"num_accelerators": 61, "radix": 8, "levels": 3, "server_size": 2}),
    ("fat_tree", {"num_accelerators": 61, "radix": 8, "levels": 3, "leaf_down": 5, "leaf_up": 3, "server_size": 4}),
    ("fat_tree", {"num_accelerators": 8, "radix": 8, "server_size": 8, "rails": True}),
    ("fat_tree", {"num_accelerators": 16, "radix": 8, "server_size": 8, "rails": True}),
    ("fat_tree", {"num_accelerators": 30, "radix": 8, "server_size": 4, "rails": True}),
    ("fat_tree", {"num_accelerators": 27, "radix": 8, "leaf_down": 5, "leaf_up": 3, "server_size": 3, "rails": True}),
    ("fat_tree", {"num_accelerators": 61, "radix": 8, "levels": 3, "server_size": 4, "rails": True}),
    ("fat_tree", {"num_accelerators": 40, "radix": 8, "levels": 3, "server_size": 20, "rails": True}),
    ("hybrid_cube_mesh", {"num_accelerators": 8}),
    ("hybrid_cube_mesh", {"num_accelerators": 24, "radix": 8}),
    ("hybrid_cube_mesh", {"num_accelerators": 40, "radix": 16}),
    ("hybrid_cube_mesh", {"num_accelerators": 160, "radix": 8, "levels": 3}),
    ("sip_ocs", {"num_accelerators": 5, "num_ocs": 3}),
    ("sip_ring", {"num_accelerators": 1}),
    ("sip_ring", {"num_accelerators": 2}),
    ("sip_ring", {"num_accelerators": 9}),
    ("hyperx", {"dims": (4,), "terminals": 3}),
    ("hyperx", {"dims": (2, 1, 3)}),
    ("slim_fly", {"q": 4, "terminals_per_switch": 2}),
    ("slim_fly", {"q": 7, "terminals_per_switch": 1}),
    ("torus", {"dims": (2,)}),
    ("torus", {"dims": (4, 5, 3)}),
    ("torus", {"dims": (4, 6, 1), "board": (2, 3, 1)}),
]


@pytest.mark.parametrize(("name", "params"), [*SMALL, *((name, None) for name in FABRICS.names())])
def test_distance_function_equals_breadth_first_search(name, params):
    core = (example_fabric(name) if params is None else build_fabric(name, **params)).core
    if core.closed_form_distance(0, 0) < 0:
        pytest.skip("its distances come from searches")
    longest = 0
    for dst in range(core.num_accelerators):
        searched = core.search_distances(dst)
        closed = [core.closed_form_distance(v, dst) for v in range(len(searched))]
        assert closed == searched.tolist()
        longest = max(longest, int(searched[: core.num_accelerators].max()))
    assert core.diameter() == longest


def test_every_registered_fabric_has_a_core_and_a_documented_schema():
    from rostam_py import _core

    assert FABRICS.names() == sorted(_core.fabric_names())
    for name in FABRICS.names():
        assert "Source:" in FABRICS.get(name).__doc__


# HammingMesh, appendix C: (accelerators, leaf down / up) -> leaves + upper switches, cables between switches.
@pytest.mark.parametrize(
    ("params", "num_switches", "between", "diameter"),
    [
        ({"num_accelerators": 1024}, 32 + 16, 1024, 4),
        ({"num_accelerators": 1024, "leaf_down": 42, "leaf_up": 22}, 25 + 9, 550, 4),
        ({"num_accelerators": 1024, "leaf_down": 51, "leaf_up": 13}, 21 + 5, 273, 4),
        ({"num_accelerators": 16384}, 512 + 512 + 256, 2 * 16384, 6),
    ],
)
def test_fat_tree_has_the_published_counts(params, num_switches, between, diameter):
    fabric = build_fabric("fat_tree", **params)
    assert fabric.num_switches == num_switches
    assert fabric.num_links == params["num_accelerators"] + between
    assert fabric.diameter() == diameter


@pytest.mark.parametrize("params", [p for n, p in SMALL if n == "fat_tree"] + [{"num_accelerators": 1024}])
def test_no_switch_of_a_tree_has_more_ports_than_its_radix(params):
    fabric = build_fabric("fat_tree", **params)
    switches = slice(fabric.num_accelerators, fabric.num_accelerators + fabric.num_switches)
    ports = np.bincount(fabric.links["src"])[switches]
    assert ports.max() <= fabric.config.radix
    assert ports.min() > 0


@pytest.mark.parametrize("dims", [(2,), (7,), (2, 2), (4, 5), (3, 4, 2), (32, 32)])
def test_torus_has_two_ports_a_dimension_and_half_the_sizes_as_diameter(dims):
    fabric = build_fabric("torus", dims=dims)
    count = math.prod(dims)
    assert fabric.num_accelerators == count
    assert fabric.num_switches == 0
    assert fabric.num_links == count * len(dims)
    assert fabric.diameter() == sum(size // 2 for size in dims)
    assert set(np.bincount(fabric.links["src"])) == {2 * len(dims)}


def test_torus_numbers_row_major_within_boards_and_boards_row_major():
    # 4 x 4 in 2 x 2 boards:   0  1 | 4  5
    #                          2  3 | 6  7
    #                          8  9 |12 13
    #                         10 11 |14 15
    links = build_fabric("torus", dims=(4, 4), board=(2, 2)).links
    neighbours = {int(d) for s, d in zip(links["src"], links["dst"], strict=True) if s == 1}
    assert neighbours == {0, 4, 3, 11}


def test_flat_and_cluster_split_their_end_to_end_latency_exactly():
    assert build_fabric("electrical_flat", num_accelerators=3).router().route(0, 2)[2] == 1_000_000
    odd = build_fabric("electrical_flat", num_accelerators=3, latency="7 ps")
    assert odd.router().route(0, 2)[2] == 7
    cluster = build_fabric(
        "electrical_cluster", num_accelerators=16, server_latency="5 ps", network_latency="12 ps", link_latency="1 ps"
    )
    assert cluster.router().route(0, 7)[2] == 5 + 2
    assert cluster.router().route(0, 8)[2] == 12 + 4


def test_cluster_shares_one_uplink_per_server_and_direction():
    fabric = build_fabric("electrical_cluster", num_accelerators=16, server_bandwidth="200 Gb/s", planes=2)
    router = fabric.router()
    links, shares, _ = router.route(3, 12)
    assert shares.tolist() == [1, 1, 1, 1]
    # Uplink and downlink hold the server's 200 Gb/s over two planes: 12.5 GB/s in this one.
    assert router.capacities[links].tolist() == [4e11, 12.5e9, 12.5e9, 4e11]


def test_ideal_switch_scales_to_sixteen_thousand_accelerators():
    fabric = build_fabric("electrical_flat", num_accelerators=16384)
    assert (fabric.num_links, fabric.diameter()) == (16384, 2)
    links = fabric.links
    used = links[fabric.router().route(16383, 0)[0]]
    assert (used["src"][0], used["dst"][1]) == (16383, 0)
