"""DFSSSP against Dijkstra's algorithm written out, its layers against networkx, its rival on a Slim Fly."""

import heapq
import itertools

import networkx as nx
import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.dependencies import check_dependencies
from rostam_py.fabrics.forwarding import virtual_layers

DRAGONFLY = {"routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 5}
CASES = [
    ("torus", {"dims": (3, 4)}),
    ("fat_tree", {"num_accelerators": 16, "radix": 8}),
    ("fat_tree", {"num_accelerators": 16, "radix": 8, "server_size": 4}),
    ("slim_fly", {"q": 3, "terminals_per_switch": 2}),
    ("hyperx", {"dims": (3, 3), "terminals": 2}),
    ("hammingmesh", {"board": (2, 2), "boards": (2, 3)}),
    ("dragonfly", DRAGONFLY),
]  # fmt: skip


def dijkstra_routes(fabric):
    """The links of every pair: weights are a number above all path counts, plus the paths on the link so far."""
    links, healthy = fabric.links, set(fabric.healthy_accelerators.tolist())
    ends = list(zip(links["src"].tolist(), links["dst"].tolist(), links["is_failed"].tolist(), strict=True))
    forwards = forwarding_accelerators(fabric)
    into, out = {}, {}
    for k, (src, dst, failed) in enumerate(ends):
        if not failed:
            into.setdefault(dst, []).append(k)
            out.setdefault(src, []).append(k)
    heavy, loads, routes = 10**9, [0] * len(ends), {}
    for dst in sorted(healthy):
        cost, queue = {dst: 0}, [(0, dst)]
        while queue:
            spent, at = heapq.heappop(queue)
            if spent > cost[at] or (at != dst and at < fabric.num_accelerators and not forwards):
                continue
            for k in into.get(at, ()):
                near = ends[k][0]
                if spent + heavy + loads[k] < cost.get(near, 10**18):
                    cost[near] = spent + heavy + loads[k]
                    heapq.heappush(queue, (cost[near], near))
        before = list(loads)
        for src in sorted(healthy - {dst}):
            at, way = src, []
            while at != dst:
                passable = [
                    k for k in out[at]
                    if ends[k][1] in cost and (ends[k][1] == dst or ends[k][1] >= fabric.num_accelerators or forwards)
                ]  # fmt: skip
                at_k = min(passable, key=lambda k: (cost[ends[k][1]] + heavy + before[k], ends[k][1], k))
                way.append(at_k)
                at = ends[at_k][1]
            for k in way:
                loads[k] += 1
            routes[src, dst] = way
    return routes


def forwarding_accelerators(fabric):
    """Whether some minimal path goes through an accelerator."""
    return fabric.name in ("torus", "hammingmesh")


@pytest.mark.parametrize(("name", "params"), CASES)
def test_paths_are_those_of_dijkstra_with_growing_weights(name, params):
    fabric = build_fabric(name, **params)
    router = fabric.router("dfsssp", enable_bundling=False)
    expected = dijkstra_routes(fabric)
    for (src, dst), way in expected.items():
        links, shares, _ = router.route(src, dst)
        assert list(links) == way, (src, dst)
        assert list(shares) == [1] * len(way)


@pytest.mark.parametrize(("name", "params"), CASES)
def test_paths_follow_tables_by_destination_and_layers_hold_no_circle(name, params):
    fabric = build_fabric(name, **params)
    router = fabric.router("dfsssp", enable_bundling=False)
    source = fabric.links["src"]
    graphs, next_link = {}, {}
    for src, dst in itertools.permutations(range(fabric.num_accelerators), 2):
        nodes, hops = router.steps(src, dst)
        way, layers = [link for link, _, _ in hops], {layer for _, _, layer in hops}
        assert len(nodes) == len(hops) + 1
        assert len(layers) == 1
        graphs.setdefault(layers.pop(), nx.DiGraph()).add_edges_from(itertools.pairwise(way))
        for link in way:
            assert next_link.setdefault((int(source[link]), dst), link) == link
    assert len(graphs) == virtual_layers(fabric)
    assert all(nx.is_directed_acyclic_graph(graph) for graph in graphs.values())
    assert check_dependencies(fabric, "dfsssp").is_deadlock_free


def test_layers_are_as_few_as_by_hand():
    # Up and down in a tree closes no circle. A ring of 4 has no three links in a row that any path takes, but all pairs
    # of links: 4 dependencies each way round, so a second layer; a ring of 3 has none.
    assert virtual_layers(build_fabric("fat_tree", num_accelerators=32, radix=8)) == 1
    assert virtual_layers(build_fabric("torus", dims=(3,))) == 1
    assert virtual_layers(build_fabric("torus", dims=(5,))) == 2
    assert not check_dependencies(build_fabric("torus", dims=(5,)), "dfsssp", virtual_channels="one").is_deadlock_free
    with pytest.raises(ConfigError, match="fabric is 'torus'"):
        virtual_layers("torus")


@pytest.mark.parametrize("seed", range(3))
def test_after_failures_every_connected_pair_has_its_path(seed):
    fabric = build_fabric("slim_fly", q=4, terminals_per_switch=1).with_random_failures("links", "10%", seed)
    fabric = fabric.with_random_failures("switches", 2, seed)
    found = check_dependencies(fabric, "dfsssp")
    assert found.is_deadlock_free
    assert found.num_unrouted == 0
    if fabric.failures.accelerators:
        with pytest.raises(NoRouteError, match="has failed"):
            fabric.router("dfsssp").route(fabric.failures.accelerators[0], int(fabric.healthy_accelerators[0]))


def test_layers_of_a_slim_fly_beat_its_one_path_a_pair():
    # Blach et al.: flows of a random permutation collide on the single shortest paths; detours settle most collisions.
    fabric = build_fabric("slim_fly", q=5)
    patterns = [np.random.default_rng(seed).permutation(fabric.num_accelerators) for seed in range(20)]
    one, many = (
        [rostam.saturation_throughput(fabric, pattern, routing) for pattern in patterns]
        for routing in ("dfsssp", "layers")
    )
    assert np.mean(many) > 1.2 * np.mean(one)
    assert sum(a > b for a, b in zip(many, one, strict=True)) >= 15
