"""Diameters of every fabric by a breadth-first search of its links alone, against what it states."""

import numpy as np
import pytest

from rostam_py.errors import NoRouteError
from rostam_py.fabrics import FABRICS, build_fabric, example_fabric
from rostam_py.fabrics.slim_fly import constructible

UNREACHABLE = 2**30
CASES_OF_SEVERAL = {
    "dragonfly": {
        "routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 9,
    },
}  # fmt: skip
CASES = [
    *((name, None) for name in FABRICS.names()),
    *(("slim_fly", {"q": q, "terminals_per_switch": 1}) for q in constructible(17)),
    *(("torus", {"dims": dims}) for dims in [(7,), (4, 6), (5, 3, 4), (2, 2, 2), (16, 16)]),
    *(("hyperx", {"dims": dims, "terminals": 2}) for dims in [(5,), (3, 4), (2, 3, 4)]),
    ("dragonfly", {"routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 9}),
    ("dragonfly", {"routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 4}),
    ("dragonfly", {"routers_per_group": 16, "terminals_per_router": 8, "global_links_per_router": 8, "num_groups": 8}),
    ("fat_tree", {"num_accelerators": 16, "radix": 64}),
    ("fat_tree", {"num_accelerators": 128, "radix": 8, "levels": 3}),
    ("fat_tree", {"num_accelerators": 1050, "leaf_down": 42}),
    ("fat_tree", {"num_accelerators": 48, "radix": 8, "server_size": 4}),
    ("fat_tree", {"num_accelerators": 48, "radix": 8, "server_size": 4, "rails": True}),
    ("electrical_cluster", {"num_accelerators": 24, "server_size": 8}),
    ("electrical_cluster", {"num_accelerators": 8, "server_size": 8}),
    ("regional_ocs", {"num_accelerators": 12, "server_size": 4}),
    ("regional_ocs", {"num_accelerators": 70, "server_size": 4, "region_servers": 8}),
    ("hybrid_cube_mesh", {"num_accelerators": 32}),
    *(
        ("hammingmesh", {"board": board, "boards": (4, 4), "wiring": wiring})
        for board in [(1, 1), (2, 2), (4, 4), (2, 4)]
        for wiring in ("board_row", "accelerator_row")
    ),
    ("hammingmesh", {"board": (2, 2), "boards": (8, 8), "wiring": "tree", "radix": 8}),
    ("hammingmesh", {"board": (3, 2), "boards": (8, 1), "radix": 8}),
]  # fmt: skip


def longest_path(fabric):
    """The most links between two accelerators on a shortest path, by search from each of them."""
    links, num = fabric.links, fabric.num_accelerators
    first_plane = links["plane"] == links["plane"][0]
    tail, head = links["src"][first_plane], links["dst"][first_plane]
    count = int(max(tail.max(), head.max())) + 1
    forwards = np.ones(count, dtype=bool)
    forwards[:num] = fabric.core.accelerators_forward
    order = np.argsort(tail, kind="stable")
    begin = np.searchsorted(tail[order], np.arange(count + 1))
    longest = 0
    for source in range(num):
        hops = np.full(count, -1)
        hops[source] = 0
        edge = np.array([source])
        while len(edge):
            level = hops[edge[0]] + 1
            ends = [head[order[begin[v] : begin[v + 1]]] for v in edge.tolist() if v == source or forwards[v]]
            near = np.unique(np.concatenate(ends)) if ends else np.empty(0, dtype=np.int64)
            edge = near[hops[near] < 0]
            hops[edge] = level
        assert (hops[:num] >= 0).all()
        longest = max(longest, int(hops[:num].max()))
    return longest


@pytest.mark.parametrize(("name", "params"), CASES)
def test_the_diameter_is_the_longest_shortest_path(name, params):
    fabric = example_fabric(name) if params is None else build_fabric(name, **params)
    assert fabric.diameter() == longest_path(fabric)


@pytest.mark.parametrize(("kind", "count"), [("links", "5%"), ("switches", 1), ("accelerators", 3)])
@pytest.mark.parametrize("name", ["dragonfly", "slim_fly", "fat_tree", "hyperx", "electrical_cluster", "hammingmesh"])
def test_one_search_for_all_on_a_switch_finds_what_one_for_each_does(name, kind, count):
    """Accelerators with the same neighbours are as far from everything else, after failures too."""
    params = {
        "dragonfly": CASES_OF_SEVERAL["dragonfly"], "slim_fly": {"q": 3, "terminals_per_switch": 3},
        "fat_tree": {"num_accelerators": 96, "radix": 8}, "hyperx": {"dims": (3, 4), "terminals": 3},
        "electrical_cluster": {"num_accelerators": 24, "server_size": 8},
        "hammingmesh": {"board": (1, 1), "boards": (5, 7)},
    }[name]  # fmt: skip
    for seed in range(4):
        fabric = build_fabric(name, **params).with_random_failures(kind, count, seed)
        core, healthy = fabric.core, fabric.healthy_accelerators
        expected = 0
        for target in healthy.tolist():
            hops = core.search_distances(target)[: fabric.num_accelerators]
            expected = max(expected, int(hops[healthy].max()))
        if expected == UNREACHABLE:
            with pytest.raises(NoRouteError):
                fabric.diameter()
        else:
            assert fabric.diameter() == expected


@pytest.mark.parametrize("kind", ["links", "switches"])
def test_planes_that_differ_take_one_search_for_accelerators_alike_in_all_of_them(kind):
    for seed in range(4):
        fabric = build_fabric("dragonfly", planes=3, **CASES_OF_SEVERAL["dragonfly"])
        fabric = fabric.with_random_failures(kind, 3, seed, scope="all" if kind == "links" else "network")
        assert len(fabric.plane_classes) > 1
        healthy = fabric.healthy_accelerators
        of_planes = [build_fabric("dragonfly", **CASES_OF_SEVERAL["dragonfly"]) for _ in range(3)]
        for number, plane in enumerate(of_planes):
            parts = {"links": plane.num_links, "switches": plane.num_switches}
            failed = getattr(fabric.failures, kind)
            own = [one % parts[kind] for one in failed if one // parts[kind] == number]
            of_planes[number] = plane.with_failures(**{kind: own})
        longest = 0
        for target in healthy.tolist():
            hops = np.min([np.asarray(plane.core.search_distances(target)) for plane in of_planes], axis=0)
            longest = max(longest, int(hops[: fabric.num_accelerators][healthy].max()))
        assert fabric.diameter() == longest


def test_accelerators_alike_are_those_with_the_same_working_neighbours():
    # Two on each of 36 switches; accelerator 8 has failed.
    fabric = build_fabric("dragonfly", **CASES_OF_SEVERAL["dragonfly"]).with_failures(accelerators=[8])
    first = fabric.core.first_alike()
    assert first[:10] == [0, 0, 2, 2, 4, 4, 6, 6, -1, 9]
    assert sum(one == k for k, one in enumerate(first)) == 36
    # Those that forward for one another on a torus have neighbours of their own.
    assert build_fabric("torus", dims=(4, 5)).core.first_alike() == list(range(20))
