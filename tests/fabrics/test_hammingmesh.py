"""HammingMesh's schema: wirings resolved, numbering, rings over neighbours, bandwidths, bills and errors."""

import math

import numpy as np
import pytest

from rostam_py.collectives.closed_forms import collective_time_ps
from rostam_py.collectives.rank_groups import unit_size
from rostam_py.errors import ConfigError
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.throughput import saturation_throughput
from rostam_py.simulation.collective import run_collective


def mesh(board, boards, **params):
    return build_fabric("hammingmesh", board=board, boards=boards, **params)


def wirings(board, boards, **params):
    return [dimension.wiring for dimension in mesh(board, boards, **params).config.dimensions]


def test_auto_takes_the_first_wiring_that_fits_each_dimension_on_its_own():
    # A row of boards has 2 b x links (b accelerator rows a board), an accelerator row 2 x.
    assert wirings((2, 2), (16, 16)) == ["board_row", "board_row"]
    assert wirings((2, 2), (17, 32)) == ["accelerator_row", "accelerator_row"]
    assert wirings((2, 2), (33, 16)) == ["tree", "board_row"]
    assert wirings((2, 8), (16, 16)) == ["accelerator_row", "board_row"]
    assert wirings((2, 2), (1, 8)) == ["wrap", "board_row"]
    assert wirings((2, 2), (8, 8), wiring=["tree", "accelerator_row"]) == ["tree", "accelerator_row"]
    assert wirings((2, 2), (1, 8), wiring="accelerator_row") == ["accelerator_row", "accelerator_row"]


@pytest.mark.parametrize(
    ("taper", "leaves", "boards_a_leaf", "up", "spines"), [(1, 4, 16, 32, 2), (0.5, 4, 16, 16, 1), (0.25, 3, 22, 11, 1)]
)
def test_tapered_trees_hold_whole_boards_in_equal_leaves(taper, leaves, boards_a_leaf, up, spines):
    # 64 boards, 128 links a row. Leaves of 64 ports hold at most 32 / 42 / 50 links (down + taper x down <= 64).
    rows, columns = mesh((2, 2), (64, 64), taper=taper).config.dimensions
    assert rows == columns
    assert (rows.num_leaves, rows.leaf_boards, rows.leaf_up, rows.num_spines) == (leaves, boards_a_leaf, up, spines)


def test_numbering_is_row_major_within_boards_and_boards_row_major():
    fabric = mesh((3, 2), (2, 2))
    assert fabric.grid().tolist() == [
        [0, 1, 2, 6, 7, 8],
        [3, 4, 5, 9, 10, 11],
        [12, 13, 14, 18, 19, 20],
        [15, 16, 17, 21, 22, 23],
    ]
    links = fabric.links
    assert set(links["dst"][links["src"] == 1]) == {0, 2, 4, 24 + 2 + 0}  # W, E, S and the switch of board column 0
    assert fabric.with_failures(boards=[1]).grid() is None


@pytest.mark.parametrize("board", [(1, 1), (2, 2), (4, 2), (1, 3), (3, 3)])
@pytest.mark.parametrize("boards", [(4, 4), (1, 3), (3, 1), (5, 3), (3, 5)])
@pytest.mark.parametrize("wiring", ["auto", "accelerator_row"])
def test_a_ring_visits_all_accelerators_over_traces_and_single_crossings(board, boards, wiring):
    fabric = mesh(board, boards, wiring=wiring)
    ring = fabric.ring_order()
    assert sorted(ring) == list(range(math.prod(board) * math.prod(boards)))
    hops = [fabric.core.closed_form_distance(int(a), int(b)) for a, b in zip(ring, np.roll(ring, -1), strict=True)]
    assert set(hops) <= {1, 2}


def test_a_ring_loads_every_directed_link_at_most_once():
    fabric = mesh((2, 2), (4, 4))
    router = fabric.router()
    ring = fabric.ring_order().tolist()
    used = [link for a, b in zip(ring, ring[1:] + ring[:1], strict=True) for link in router.route(a, b)[0]]
    assert len(set(used)) == len(used)


def test_a_simulated_ring_on_neighbours_meets_its_closed_form():
    # Equal latency for traces and crossings, as the closed form needs: 40 ns a trace; 2 x 20 ns a crossing.
    fabric = mesh((2, 2), (4, 4), board_latency="40 ns", switch_latency="0 ns", link_bandwidth="400 Gb/s")
    result = run_collective(
        fabric, "all_reduce", num_bytes=64_000, algorithm="ring", ranks=fabric.ring_order().tolist()
    )
    expected = collective_time_ps(
        "all_reduce", "ring", num_bytes=64_000, num_ranks=64, latency="40 ns", bandwidth="400 Gb/s"
    )
    assert result.time_ps == expected == 2 * 63 * (40_000 + 20_000)


@pytest.mark.parametrize(("board", "boards"), [((1, 1), (8, 8)), ((2, 2), (4, 4)), ((4, 4), (2, 3))])
def test_a_simulated_all_to_all_takes_what_its_busiest_link_needs(board, boards):
    fabric = mesh(board, boards, planes=4)
    count, num_bytes = fabric.num_accelerators, 2**28
    result = run_collective(fabric, "all_to_all", num_bytes=num_bytes, algorithm="direct")
    share = (count - 1) / count * num_bytes / fabric.injection_bandwidth_bytes_per_s / result.time_s
    assert share == pytest.approx(saturation_throughput(fabric), rel=0.01)


@pytest.mark.parametrize(("collective", "algorithm"), [("all_reduce", "ring"), ("all_to_all", "direct")])
def test_folding_changes_nothing(collective, algorithm):
    fabric = mesh((2, 2), (3, 3))
    folded, plain = (
        run_collective(fabric, collective, num_bytes=36_000, algorithm=algorithm, fold=fold) for fold in (True, False)
    )
    assert abs(folded.time_ps - plain.time_ps) <= 2 * 35
    np.testing.assert_allclose(folded.link_bytes, plain.link_bytes, rtol=1e-9)


def test_hierarchical_groups_are_boards_or_the_rows_of_boards_of_one_accelerator():
    assert unit_size(mesh((4, 2), (3, 3))) == 8
    assert unit_size(mesh((1, 1), (6, 3))) == 6


def test_bandwidth_is_four_ports_a_plane():
    given = mesh((2, 2), (4, 4), link_bandwidth="400 Gb/s", planes=4)
    assert given.injection_bandwidth_bytes_per_s == 16 * 50e9
    derived = mesh((2, 2), (4, 4), accelerator_bandwidth="6400 Gb/s", planes=4)
    assert set(derived.links["bandwidth_bytes_per_s"]) == {50e9}
    # A line of boards of one accelerator, single across: nothing to join N and S with.
    line = mesh((1, 1), (4, 1), accelerator_bandwidth="800 Gb/s")
    assert set(line.links["bandwidth_bytes_per_s"]) == {50e9}


# HammingMesh, table II and appendix C; rows are copper, columns optical, 4 planes. Printed: 10.8, 5.4, 448, 43.3 M$.
@pytest.mark.parametrize(
    ("board", "boards", "switches", "dac", "aoc", "million_usd"),
    [
        ((1, 1), (32, 32), 64, 2048, 2048, 10.8),
        ((2, 2), (16, 16), 32, 1024, 1024, 5.4),
        ((4, 4), (8, 8), 16, 512, 512, None),
        ((1, 1), (128, 128), 3072, 32768, 32768 + 65536, 448),
        ((2, 2), (64, 64), 1536, 16384, 16384 + 32768, None),
        ((4, 4), (32, 32), 256, 8192, 8192, 43.3),
    ],
)
def test_bills_of_materials_meet_the_published_counts_and_prices(board, boards, switches, dac, aoc, million_usd):
    bill = mesh(board, boards, planes=4).bill_of_materials()
    assert bill.num_switches == 4 * switches
    assert bill.num_cables == {"DAC": 4 * dac, "AoC": 4 * aoc}
    if million_usd is not None:
        assert bill.total_usd == pytest.approx(million_usd * 1e6, rel=3e-3)


@pytest.mark.parametrize("boards", [(5, 3), (1, 4), (4, 1), (1, 1)])
@pytest.mark.parametrize("board", [(2, 3), (1, 2), (2, 1)])
@pytest.mark.parametrize("wiring", ["auto", "tree"])
def test_a_bill_counts_the_cables_and_switches_of_the_built_fabric(board, boards, wiring):
    fabric = mesh(board, boards, wiring=wiring, radix=6, planes=2, link_bandwidth="400 Gb/s")
    bill = fabric.bill_of_materials()
    (a, b), (x, y) = board, boards
    assert sum(bill.num_cables.values()) == fabric.num_links - 2 * x * y * (b * (a - 1) + a * (b - 1))
    assert bill.num_switches == fabric.num_switches


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"board": (2, 2)}, "fabric.boards is missing; fabric 'hammingmesh' needs it"),
        ({"board": (2,), "boards": (4, 4)}, r"fabric.board is \[2\]; it needs two sizes"),
        ({"board": (2, 0), "boards": (4, 4)}, r"fabric.board\[1\] is 0; every size must be an integer >= 1"),
        ({"board": (2, 2), "boards": 4}, "fabric.boards is 4; it must be a list of integers"),
        ({"board": (1, 1), "boards": (1, 1)}, "it must be an integer >= 2"),
        ({"board": (2, 2), "boards": (4, 4), "wiring": "ring"}, "fabric.wiring is 'ring'; allowed: auto, board_row"),
        ({"board": (2, 2), "boards": (4, 4), "wiring": ["tree"] * 3}, "or two of them: rows, columns"),
        (
            {"board": (2, 2), "boards": (17, 4), "wiring": "board_row"},
            "17 boards, which has 68 links .* is 64, enough for 16",
        ),
        ({"board": (2, 2), "boards": (4, 33), "wiring": "accelerator_row"}, "columns of 33 boards, which has 66 links"),
        ({"board": (2, 2), "boards": (4, 4), "wiring": "wrap"}, "fabric.wiring is 'wrap' for rows of 4 boards"),
        ({"board": (1, 1), "boards": (33, 2), "radix": 6}, "rows of 33 boards; trees of three .* 6 join at most 18 at"),
        ({"board": (2, 2), "boards": (4, 4), "taper": 0}, "fabric.taper is 0; it must be a number > 0 and <= 1"),
        ({"board": (2, 2), "boards": (4, 4), "taper": (0.5, 2)}, r"fabric.taper is \(0.5, 2\); it must be a number"),
        ({"board": (2, 2), "boards": (4, 4), "taper": (0.5,)}, "or two of them: rows, columns"),
        ({"board": (2, 2), "boards": (4, 4), "radix": 2}, "fabric.radix is 2; it must be an integer >= 4"),
        ({"board": (2, 2), "boards": (4, 4), "board_latency": "1 m"}, "fabric.board_latency"),
    ],
)
def test_bad_parameters_name_key_value_and_what_is_allowed(params, message):
    with pytest.raises(ConfigError, match=message):
        build_fabric("hammingmesh", **params)


@pytest.mark.parametrize(("board", "boards"), [((1, 1), (128, 128)), ((2, 2), (64, 64)), ((4, 4), (32, 32))])
def test_a_ring_of_sixteen_thousand_accelerators_is_routed_over_a_step_each(board, boards):
    fabric = mesh(board, boards)
    ring = fabric.ring_order()
    router = fabric.router()
    lengths = [len(router.route(a, b)[0]) for a, b in zip(ring.tolist(), np.roll(ring, -1).tolist(), strict=True)]
    assert len(lengths) == 16384
    assert max(lengths) <= 4


def test_a_taper_that_no_tree_has_is_noted_and_changes_nothing():
    # Two rows of four boards of 2 x 2 fit switches of 64 ports: nothing tapers.
    flat, plain = (build_fabric("hammingmesh", board=(2, 2), boards=(4, 4), taper=taper) for taper in (0.5, 1.0))
    assert (flat.num_switches, flat.num_links) == (plain.num_switches, plain.num_links)
    (note,) = run_collective(flat, "all_reduce", num_bytes="1 MiB", algorithm="ring").notes
    assert note.startswith(
        "fabric.taper is 0.5, which rows of 4 boards (board_row) and columns of 4 boards (board_row) do not read"
    )
    assert run_collective(plain, "all_reduce", num_bytes="1 MiB", algorithm="ring").notes == ()
    # 40 boards along a row: trees of 80 links, of which half go up; columns of one board are joined to themselves.
    tree = build_fabric("hammingmesh", board=(2, 2), boards=(40, 1), taper=0.5)
    assert tree.config.dimensions[0].num_leaves > 1
    (note,) = tree.config.unread_keys()
    assert note.startswith("fabric.taper is 0.5, which columns of 1 board (wrap) do not read")
    assert build_fabric("hammingmesh", board=(2, 2), boards=(40, 40), taper=0.5).config.unread_keys() == ()


# Rows of one-accelerator boards on switches of 8 ports: leaves of two boards (four links down, four up); two levels
# join 8 leaves, 16 boards. 20 boards: 10 leaves in 3 pods of 4 (the last of 2), 4 switches a pod with 4 uplinks each, 2
# cores for each of the four (3 x 4 ports of 8). 64 boards: 32 leaves, 8 pods, 32 ports a group, 4 cores each.
@pytest.mark.parametrize(
    ("boards", "leaves", "pod_switches", "cores"), [(16, 8, 4, 0), (20, 10, 12, 8), (64, 32, 32, 16)]
)
def test_rows_that_two_levels_do_not_join_have_trees_of_three(boards, leaves, pod_switches, cores):
    fabric = mesh((1, 1), (boards, 2), radix=8, wiring=("tree", "board_row"))
    rows, _ = fabric.config.dimensions
    assert (rows.num_leaves, rows.leaf_boards, rows.num_spines, rows.num_cores) == (leaves, 2, pod_switches, cores)
    assert rows.num_levels == (3 if cores else 2)
    # Two rows; a column of two boards is one switch.
    assert fabric.num_switches == 2 * (leaves + pod_switches + cores) + boards
    ports = np.bincount(fabric.links["src"])[fabric.num_accelerators :]
    assert ports.max() <= 8
    bill = fabric.bill_of_materials()
    assert bill.num_switches == fabric.num_switches * fabric.config.parts_per_link
    assert sum(bill.num_cables.values()) == fabric.num_links * fabric.config.parts_per_link


# 72 boards of one accelerator on switches of 12 ports. Leaves of three boards (six links down, six up), 24 of them in
# pods of six; tapered by a half leaves of four boards (eight down, four up), 18 of them. Shifted by half of the row all
# of B leaves each pod, whose cables to the cores hold what its leaves' uplinks do.
@pytest.mark.parametrize(("taper", "leaves", "up"), [(1.0, 24, 6), (0.5, 18, 4)])
def test_a_tree_of_three_levels_carries_what_the_uplinks_of_its_leaves_do(taper, leaves, up):
    fabric = mesh((1, 1), (72, 1), radix=12, taper=(taper, 1.0))
    rows = fabric.config.dimensions[0]
    assert (rows.num_levels, rows.num_leaves, rows.leaf_up) == (3, leaves, up)
    assert saturation_throughput(fabric, "shift", shift=36) == pytest.approx(taper)


def test_rows_and_columns_taper_on_their_own():
    # 64 boards along either dimension; rows' leaves have half as many uplinks as ports down. Boards a leaf away along
    # their row meet the taper, along their column they do not: B is half along rows, half along columns.
    fabric = mesh((1, 1), (64, 64), taper=(0.5, 1.0), wiring="tree")
    rows, columns = fabric.config.dimensions
    assert (rows.leaf_up, columns.leaf_up) == (16, 32)
    along_rows, along_columns = (
        saturation_throughput(fabric, np.roll(fabric.grid(), -16, axis=axis).ravel()[np.argsort(fabric.grid().ravel())])
        for axis in (1, 0)
    )
    assert along_rows == pytest.approx(along_columns / 2)
    both, one = (mesh((1, 1), (64, 64), taper=taper, wiring="tree") for taper in ((0.5, 0.5), 0.5))
    assert both.config.dimensions == one.config.dimensions
    assert both.num_switches < fabric.num_switches < mesh((1, 1), (64, 64), wiring="tree").num_switches


def test_a_note_names_the_dimension_whose_own_taper_is_not_read():
    row = mesh((2, 2), (40, 1), taper=(0.5, 1.0))
    assert row.config.unread_keys() == ()
    (note,) = mesh((2, 2), (40, 1), taper=(1.0, 0.5)).config.unread_keys()
    assert note.startswith("fabric.taper is (1.0, 0.5), which columns of 1 board (wrap) do not read")


@pytest.mark.parametrize("level", [0, 1, 2])
def test_switches_of_three_levels_are_drawn_in_tiers(level):
    fabric = mesh((1, 1), (20, 2), radix=8)
    layout = fabric.config.draw(fabric, level)
    assert {"row switch", "row spine", "row core"} <= set(layout.kind)
