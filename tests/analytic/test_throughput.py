"""Saturation throughput and link loads against figures derived by hand."""

import numpy as np
import pytest

from rostam_py.errors import ConfigError
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.throughput import link_loads, saturation_throughput


@pytest.mark.parametrize("params", [{"num_accelerators": 1024}, {"num_accelerators": 128, "radix": 8, "levels": 3}])
@pytest.mark.parametrize("pattern", ["all_to_all", "bisection", "neighbour"])
def test_nonblocking_trees_carry_every_pattern_at_full_rate(params, pattern):
    assert saturation_throughput(build_fabric("fat_tree", **params), pattern) == pytest.approx(1.0, rel=1e-9)


def test_two_to_one_tapered_tree_carries_half_of_what_leaves_a_leaf():
    # Leaf: 32 down, 16 up. Of a sender's p - 1 = 1,023 peers 992 are on other leaves: 32 B 992/1023 <= 16 B / x.
    fabric = build_fabric("fat_tree", num_accelerators=1024, leaf_down=32, leaf_up=16, radix=64)
    assert saturation_throughput(fabric) == pytest.approx(0.5 * 1023 / 992, rel=1e-9)
    assert saturation_throughput(fabric, "bisection") == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize("size", [4, 8, 32])
def test_all_to_all_on_a_square_torus_meets_the_mean_distance_bound(size):
    # All links of an n x n torus are alike, so each carries B/(p-1) x (sum of distances from one accelerator) / 4,
    # and holds B/4. For even n that sum is p x 2 x n/4: x = (p-1) / (p n/2); 6.24 % for 32 x 32.
    fabric = build_fabric("torus", dims=(size, size))
    count = size * size
    assert saturation_throughput(fabric) == pytest.approx((count - 1) / (count * size / 2), rel=1e-9)


@pytest.mark.parametrize(("size", "boards"), [(1, 8), (1, 32), (2, 4), (2, 16)])
@pytest.mark.parametrize("wiring", ["board_row", "accelerator_row"])
def test_all_to_all_on_a_hammingmesh_is_bound_by_the_ends_of_boards(size, boards, wiring):
    # An accelerator has 2/a row links of B/4. Of its p - 1 peers p (1 - 1/x) lie on other columns of boards, each
    # reached over one row crossing: x_sat B p (1 - 1/x) / (p - 1) = (2/a) B/4, so x_sat tends to 1/(2a).
    # On 2 x 2 boards under board_row, the peer across the diagonal is as near over the row's switch as over traces (two
    # ways) or the column's switch: a quarter of its bytes add to the row crossings.
    fabric = build_fabric("hammingmesh", board=(size, size), boards=(boards, boards), wiring=wiring)
    count = fabric.num_accelerators
    diagonal = 0.25 if (size, wiring) == (2, "board_row") else 0
    bound = (count - 1) / (count * (1 - 1 / boards) + diagonal) / (2 * size)
    assert saturation_throughput(fabric) == pytest.approx(bound, rel=1e-9)


def test_equal_shares_leave_large_boards_short_of_the_bound_and_wirings_differ():
    # Boards of 4 x 4: inner lines and the ends near corners are not loaded alike under equal shares on minimal paths.
    shares = {
        wiring: saturation_throughput(build_fabric("hammingmesh", board=(4, 4), boards=(8, 8), wiring=wiring))
        for wiring in ("board_row", "accelerator_row")
    }
    assert shares["board_row"] != pytest.approx(shares["accelerator_row"], rel=1e-3)
    for share in shares.values():
        assert 0.85 / 8 < share < 1023 / 1024 / (1 - 1 / 8) / 8


def test_a_tapered_row_tree_carries_what_its_uplinks_do():
    # A row of 64 boards of one accelerator: 4 leaves of 16, two links each. Shifted by 16, all of B leaves each leaf,
    # whose uplinks hold taper x B.
    for taper in (1.0, 0.5):
        fabric = build_fabric("hammingmesh", board=(1, 1), boards=(64, 1), wiring=("tree", "wrap"), taper=taper)
        assert [d.num_leaves for d in fabric.config.dimensions] == [4, 0]
        assert saturation_throughput(fabric, "shift", shift=16) == pytest.approx(taper)


def test_a_failed_board_lowers_what_the_others_can_send():
    fabric = build_fabric("hammingmesh", board=(2, 2), boards=(4, 4))
    broken = saturation_throughput(fabric.with_failures(boards=[5]))
    assert 0.8 * saturation_throughput(fabric) < broken < saturation_throughput(fabric)


def test_shift_on_a_ring_shares_each_link_among_as_many_flows():
    # B = 2 links. Shift 3 of 8 goes one way: every link carries 3 flows of B on B/2.
    fabric = build_fabric("torus", dims=(8,))
    assert saturation_throughput(fabric, "shift", shift=3) == pytest.approx(1 / 6)
    assert saturation_throughput(fabric, "neighbour") == pytest.approx(1 / 2)
    # Opposite ends split both ways: 4 hops x 1/2 each way.
    assert saturation_throughput(fabric, "shift", shift=4) == pytest.approx(1 / 4)


def test_cluster_is_bound_by_its_server_uplink():
    # 8 accelerators of 50 GB/s behind 50 GB/s: the permutation by 8 crosses servers with everything.
    fabric = build_fabric("electrical_cluster", num_accelerators=32, accelerator_bandwidth="400 Gb/s")
    assert saturation_throughput(fabric, "shift", shift=8) == pytest.approx(1 / 8)
    assert saturation_throughput(fabric, np.arange(32) ^ 1) == 1.0


@pytest.mark.parametrize("planes", [1, 4])
def test_throughput_is_a_share_whatever_the_bandwidth_and_planes(planes):
    fabric = build_fabric("torus", dims=(8,), planes=planes, link_bandwidth="1 Gb/s")
    assert saturation_throughput(fabric, "neighbour") == pytest.approx(1 / 2)


def test_link_loads_sum_to_bytes_times_hops_on_one_plane():
    fabric = build_fabric("torus", dims=(4, 4), planes=2)
    rng = np.random.default_rng(0)
    src, dst, size = rng.integers(0, 16, 50), rng.integers(0, 16, 50), rng.integers(1, 1000, 50)
    for routing in ("spray", "hash"):
        loads = link_loads(fabric, src, dst, size, routing)
        hops = [fabric.core.closed_form_distance(int(s), int(d)) for s, d in zip(src, dst, strict=True)]
        assert loads.sum() == pytest.approx(np.dot(hops, size) / 2)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("fat_tree", {"num_accelerators": 24, "radix": 8}),
        ("fat_tree", {"num_accelerators": 30, "radix": 8, "leaf_down": 5, "leaf_up": 3}),
        ("fat_tree", {"num_accelerators": 40, "radix": 8, "levels": 3}),
        ("torus", {"dims": (2, 5)}),
        ("hammingmesh", {"board": (2, 2), "boards": (3, 3)}),
        ("hammingmesh", {"board": (1, 1), "boards": (4, 4), "radix": 4, "wiring": "tree"}),
        # 4 leaves of 3 uplinks on 2 spines: their links are uneven.
        (
            "hammingmesh",
            {"board": (1, 1), "boards": (12, 2), "radix": 10, "taper": 0.5, "wiring": ("tree", "board_row")},
        ),
        ("hammingmesh", {"board": (2, 1), "boards": (6, 2), "radix": 8, "taper": 0.5, "wiring": ("tree", "board_row")}),
    ],
)
def test_merged_spray_loads_equal_the_sum_of_single_bundled_routes(name, params):
    fabric = build_fabric(name, **params)
    router = fabric.router("spray")
    count = fabric.num_accelerators
    load = np.zeros(len(router.capacities))
    port = fabric.plane_bandwidth_bytes_per_s
    for src in range(count):
        for dst in range(count):
            if src != dst:
                links, shares, _ = router.route(src, dst)
                load[links] += shares * port / (count - 1)
    assert saturation_throughput(fabric) == pytest.approx(np.min(router.capacities / load), rel=1e-9)


def test_failed_links_lower_throughput_and_failed_accelerators_are_left_out():
    fabric = build_fabric("fat_tree", num_accelerators=64, radix=16)
    assert saturation_throughput(fabric.with_failures(accelerators=[5])) == pytest.approx(1.0)
    between = fabric.links["cable"].max()
    assert saturation_throughput(fabric.with_failures(links=[between])) < 1.0
    # An accelerator without its cable counts as failed.
    assert saturation_throughput(fabric.with_failures(links=[0])) == pytest.approx(1.0)


def test_bad_patterns_are_config_errors():
    fabric = build_fabric("torus", dims=(4,))
    with pytest.raises(ConfigError, match="unknown pattern 'all2all'; allowed: all_to_all, bisection"):
        saturation_throughput(fabric, "all2all")
    with pytest.raises(ConfigError, match="needs one working accelerator for each of the 4"):
        saturation_throughput(fabric, [1, 0])
    with pytest.raises(ConfigError, match="unknown routing"):
        saturation_throughput(fabric, routing="ecmp")
