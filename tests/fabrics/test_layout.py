"""Drawings of fabrics: where vertices lie, what they are called, how links run, what is grouped."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.fabrics import FABRICS, example_fabric
from rostam_py.fabrics.layout import MAX_DRAWN_LINKS, MAX_GROUPS, layout_at, layout_of, num_pairs, num_vertices
from rostam_py.fabrics.traffic import Traffic

# Two racks of two accelerators, their switches joined over a third and directly.
CUSTOM = [("a0", "s0"), ("a1", "s0"), ("a2", "s1"), ("a3", "s1"), ("s0", "s2"), ("s1", "s2"), ("s0", "s1")]
SHAPES = {
    "racks": ("custom", {"links": CUSTOM, "link_bandwidth": "100 Gb/s"}),
    "uneven servers": ("electrical_cluster", {"num_accelerators": 19, "server_size": 4}),
    "three levels": ("fat_tree", {"num_accelerators": 16, "radix": 4, "levels": 3}),
    "a mesh": ("hammingmesh", {"board": (2, 3), "boards": (3, 2)}),
    "a ring": ("sip_ring", {"num_accelerators": 12}),
    "boards on a torus": ("torus", {"dims": (4, 6), "board": (2, 3)}),
    "a tree with servers": ("fat_tree", {"num_accelerators": 16, "radix": 8, "server_size": 4}),
    "one leaf": ("fat_tree", {"num_accelerators": 8}),
    "a mesh with trees": ("hammingmesh", {"board": (2, 2), "boards": (6, 6), "radix": 8}),
    "a mesh that wraps": ("hammingmesh", {"board": (4, 4), "boards": (1, 2)}),
    "boards of one": ("hammingmesh", {"board": (1, 1), "boards": (3, 3)}),
    "three dimensions": ("torus", {"dims": (2, 3, 4)}),
    "five dimensions": ("torus", {"dims": (2, 2, 2, 2, 3)}),
    "a ring of forwarding accelerators": (
        "custom",
        {"links": [("a0", "a1"), ("a1", "a2"), ("a2", "a0")], "forwarding": True, "link_bandwidth": "1 Gb/s"},
    ),
}
CASES = [*FABRICS.names(), *SHAPES]
# More links than are drawn one by one.
LARGE = {
    "fat_tree": {"num_accelerators": 2048, "radix": 64},
    "torus": {"dims": (64, 64)},
    "hammingmesh": {"board": (2, 2), "boards": (32, 32)},
    "electrical_cluster": {"num_accelerators": 4096},
    "electrical_flat": {"num_accelerators": 4096},
    "sip_ring": {"num_accelerators": 4096},
}


def build(case):
    """The example of a registered fabric, or one of SHAPES."""
    if case not in SHAPES:
        return example_fabric(case)
    name, parameters = SHAPES[case]
    return rostam.fabric(name, **parameters)


def kinds_of(layout):
    """Kind -> labels of its groups, in order."""
    found = {}
    for kind, label in zip(layout.kind, layout.label, strict=True):
        found.setdefault(kind, []).append(label)
    return found


@pytest.mark.parametrize("case", CASES)
def test_every_vertex_is_drawn_once_and_nowhere_on_another(case):
    fabric = build(case)
    layout = layout_of(fabric)
    assert layout.group_of.tolist() == list(range(num_vertices(fabric)))
    assert len(set(layout.name_of)) == len(layout.name_of) == num_vertices(fabric)
    places = {(round(x, 6), round(y, 6)) for x, y in zip(layout.x, layout.y, strict=True)}
    assert len(places) == num_vertices(fabric)
    assert layout.kind[: fabric.num_accelerators] == ["accelerator"] * fabric.num_accelerators


@pytest.mark.parametrize("case", CASES)
def test_groups_hold_every_vertex_and_are_of_one_kind(case, told):
    fabric = build(case)
    single = layout_at(fabric, 0)
    for level in (1, 2, 4):
        layout = layout_at(fabric, level)
        with told(level):
            assert layout.count.sum() == num_vertices(fabric)
            assert layout.count.min() >= 1
            assert len(layout.label) == len(set(layout.label)) == len(layout.x) <= len(single.x)
            for group in range(len(layout.x)):
                assert len({single.kind[v] for v in np.flatnonzero(layout.group_of == group)}) == 1


@pytest.mark.parametrize("case", CASES)
def test_links_begin_and_end_at_their_vertices_and_run_back_the_same_way(case, told):
    fabric = build(case)
    for level in (0, 1, 2):
        with told(level):
            check_links(fabric, layout_at(fabric, level))


def check_links(fabric, layout):
    for src, dst in zip(layout.group_of[fabric.links["src"]], layout.group_of[fabric.links["dst"]], strict=True):
        if src == dst:
            continue
        path = layout.route(int(src), int(dst)).get("path")
        if path is not None:
            ends = {(round(p[0], 6), round(p[1], 6)) for p in (path[0], path[-1])}
            assert ends == {(round(float(layout.x[g]), 6), round(float(layout.y[g]), 6)) for g in (src, dst)}
        forth, back = layout.route(int(src), int(dst)), layout.route(int(dst), int(src))
        points = [sorted(p for p in way.get("path", ()) if p is not None) for way in (forth, back)]
        assert np.allclose(*points)
        assert forth.get("bend") == pytest.approx(back.get("bend"))


@pytest.mark.parametrize("name", list(LARGE))
def test_large_fabrics_are_drawn_in_groups_within_the_limits(name):
    fabric = rostam.fabric(name, **LARGE[name])
    assert len(fabric.links) > MAX_DRAWN_LINKS
    layout = layout_of(fabric)
    assert layout.grouping
    assert num_pairs(layout, fabric.links) <= MAX_DRAWN_LINKS
    assert 16 <= len(layout.x) <= MAX_GROUPS


def test_a_tree_is_drawn_in_layers_with_switches_over_the_middle_of_what_they_join():
    # Radix 4: 8 leaves of 2 in 4 pods of 2 leaves and 2 switches; 4 cores.
    layout = layout_of(build("three levels"))
    kinds = kinds_of(layout)
    assert {kind: len(labels) for kind, labels in kinds.items()} == {
        "accelerator": 16, "leaf": 8, "pod switch": 8, "core": 4,
    }  # fmt: skip
    assert [sorted(set(layout.y[np.array(layout.kind) == kind])) for kind in kinds] == [[0], [1], [2], [3]]
    leaves = layout.x[16:24]
    assert leaves == pytest.approx(layout.x[:16].reshape(8, 2).mean(axis=1))
    # both switches of a pod lie between its two leaves, side by side
    pods = layout.x[24:32].reshape(4, 2)
    assert np.all(leaves[::2] < pods[:, 0])
    assert np.all(pods[:, 0] < pods[:, 1])
    assert np.all(pods[:, 1] < leaves[1::2])


def test_servers_of_a_tree_hang_below_its_accelerators_and_nics_stand_between_them_and_leaves():
    layout = layout_of(build("a tree with servers"))
    kinds = np.array(layout.kind)
    assert {kind: len(labels) for kind, labels in kinds_of(layout).items()} == {
        "accelerator": 16, "leaf": 4, "spine": 2, "NIC": 16, "server switch": 4,
    }  # fmt: skip
    rows = {kind: set(layout.y[kinds == kind]) for kind in kinds}
    assert rows["server switch"] < {0} | rows["server switch"]
    assert max(rows["server switch"]) < 0 < min(rows["NIC"]) <= max(rows["NIC"]) < 1
    assert rows["leaf"] == {1}
    assert layout.x[kinds == "NIC"] == pytest.approx(layout.x[:16])
    assert layout.x[kinds == "server switch"] == pytest.approx(layout.x[:16].reshape(4, 4).mean(axis=1))


def test_a_group_of_a_tree_is_a_leaf():
    layout = layout_of(rostam.fabric("fat_tree", num_accelerators=1024, radix=64))
    assert layout.grouping == "leaf"
    # 32 leaves of 32, 16 spines
    assert len(layout.x) == 32 + 32 + 16
    assert layout.group_of[:1024].tolist() == (np.arange(1024) // 32).tolist()
    assert layout.label[1] == "accelerators 32-63"


@pytest.mark.parametrize("case", ["boards on a torus", "a mesh", "a mesh with trees"])
def test_a_grid_is_drawn_as_its_rows_and_columns(case):
    fabric = build(case)
    layout, grid = layout_of(fabric), fabric.grid()
    x, y = layout.x[grid], layout.y[grid]
    assert np.all(np.diff(x, axis=1) > 0)
    assert np.allclose(np.ptp(x, axis=0), 0)
    assert np.all(np.diff(y, axis=0) < 0)
    assert np.allclose(np.ptp(y, axis=1), 0)


def test_boards_are_framed_with_all_their_accelerators_inside():
    # 4 x 6 of boards of 2 x 3: four boards of six.
    layout = layout_of(build("boards on a torus"))
    assert len(layout.boxes) == 4
    for board, (x0, y0, x1, y1) in enumerate(layout.boxes):
        inside = (x0 < layout.x) & (layout.x < x1) & (y0 < layout.y) & (layout.y < y1)
        assert np.flatnonzero(inside).tolist() == list(range(6 * board, 6 * board + 6))


def test_only_links_that_wrap_are_stubs():
    fabric = build("boards on a torus")
    layout = layout_of(fabric)
    stubs = [layout.route(int(s), int(d)) for s, d in zip(fabric.links["src"], fabric.links["dst"], strict=True)]
    # 4 rows and 6 columns wrap once each, in two directions
    assert sum("path" in one for one in stubs) == 2 * (4 + 6)
    assert all(None in one["path"] for one in stubs if one)


def test_row_switches_lie_left_of_all_boards_and_column_switches_above():
    layout = layout_of(build("a mesh"))
    kinds = np.array(layout.kind)
    devices = kinds == "accelerator"
    assert set(kinds) == {"accelerator", "row switch", "column switch"}
    assert layout.x[kinds == "row switch"].max() < layout.x[devices].min()
    assert layout.y[kinds == "column switch"].min() > layout.y[devices].max()


def test_a_group_of_a_mesh_is_a_board_and_names_its_place():
    fabric = rostam.fabric("hammingmesh", board=(2, 2), boards=(16, 16))
    layout = layout_of(fabric)
    assert layout.grouping == "board"
    assert layout.group_of[:1024].tolist() == (np.arange(1024) // 4).tolist()
    assert layout.label[17] == "boards of row 1, column 1"
    assert layout.name_of[17] == "accelerator 17"


def test_a_ring_is_a_circle_in_order():
    layout = layout_of(build("a ring"))
    turn = np.unwrap(np.arctan2(layout.y, layout.x))
    assert np.hypot(layout.x, layout.y) == pytest.approx(np.ones(12))
    assert np.diff(turn) == pytest.approx(np.full(11, -2 * np.pi / 12))
    assert layout.route(0, 1) == {}
    # the farther apart, the nearer to the centre
    depths = [np.hypot(*layout.route(0, k)["bend"]) for k in range(2, 6)]
    assert depths == sorted(depths, reverse=True)


def test_circuits_are_drawn_between_accelerators_without_switches():
    fabric = rostam.fabric("sip_ocs", num_accelerators=8, num_ocs=2)
    assert kinds_of(layout_of(fabric))["optical switch"] == ["optical switch 0", "optical switch 1"]
    traffic = Traffic.from_messages(8, [0, 1], [1, 2], [5, 5])
    assert set(layout_of(fabric.with_circuits(traffic)).kind) == {"accelerator"}


def test_servers_surround_their_network():
    layout = layout_of(build("uneven servers"))
    kinds, radius = np.array(layout.kind), np.hypot(layout.x, layout.y)
    assert radius[kinds == "network"] == pytest.approx(0)
    assert np.all(radius[kinds == "server switch"] < 0.9)
    assert radius[kinds == "accelerator"] == pytest.approx(1)
    # each server's switch is nearer to its own accelerators than to any other's: servers of 4, the last of 3
    for switch in range(5):
        at = np.flatnonzero(kinds == "server switch")[switch]
        far = np.hypot(layout.x[:19] - layout.x[at], layout.y[:19] - layout.y[at])
        own = np.arange(19) // 4 == switch
        assert far[own].max() < far[~own].min()


def test_custom_switches_lie_in_layers_by_their_distance_from_accelerators():
    layout = layout_of(build("racks"))
    assert layout.y.tolist() == [0, 0, 0, 0, 1, 1, 2]
    assert layout.kind[4:] == ["tier-1 switch", "tier-1 switch", "tier-2 switch"]
    # a link within a layer is bent around what lies between
    assert "bend" in layout.route(4, 5)
