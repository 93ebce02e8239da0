"""Channel dependencies against a search of their own, turn models of every fabric, failures."""

import itertools

import networkx as nx
import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics import FABRICS, build_fabric, example_fabric
from rostam_py.fabrics.dependencies import check_dependencies

DRAGONFLY = {"routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 5}
# Name, parameters, virtual channels that its own turn model needs of a link.
OWN = [
    ("fat_tree", {"num_accelerators": 32, "radix": 8}, 1),
    ("fat_tree", {"num_accelerators": 40, "radix": 8, "levels": 3, "leaf_down": 5, "leaf_up": 3}, 1),
    ("fat_tree", {"num_accelerators": 55, "radix": 8, "levels": 3, "leaf_down": 5, "leaf_up": 3, "pod_leaves": 4}, 1),
    ("fat_tree", {"num_accelerators": 16, "radix": 8, "server_size": 4}, 1),
    ("torus", {"dims": (5,)}, 2),
    ("torus", {"dims": (4, 5)}, 2),
    ("torus", {"dims": (3, 2, 4)}, 2),
    ("hammingmesh", {"board": (2, 2), "boards": (3, 3)}, 3),
    ("hammingmesh", {"board": (4, 4), "boards": (3, 2)}, 3),
    ("hammingmesh", {"board": (2, 3), "boards": (6, 6), "radix": 8}, 3),
    ("hammingmesh", {"board": (1, 1), "boards": (4, 4)}, 2),
    ("hammingmesh", {"board": (4, 4), "boards": (1, 1)}, 3),
    ("hammingmesh", {"board": (1, 1), "boards": (7, 8), "radix": 4}, 2),
    ("hammingmesh", {"board": (2, 2), "boards": (5, 2), "radix": 4, "taper": (0.5, 1.0)}, 3),
    ("hyperx", {"dims": (3, 4), "terminals": 2}, 1),
    ("hyperx", {"dims": (3, 2, 3)}, 1),
    ("dragonfly", DRAGONFLY, 3),
    ("slim_fly", {"q": 5, "terminals_per_switch": 1}, 2),
    ("slim_fly", {"q": 4, "terminals_per_switch": 2}, 2),
]  # fmt: skip


def walked_graph(fabric, routing, channel_of):
    """The dependency graph by walking the steps of every pair, as networkx has it."""
    graph = nx.DiGraph()
    routes = fabric.router(routing, enable_bundling=False)
    for src, dst in itertools.permutations(fabric.healthy_accelerators.tolist(), 2):
        try:
            nodes, hops = routes.steps(src, dst)
        except NoRouteError:
            continue
        into = {}
        depth = {0: 0}
        for index, (_, _, first, end) in enumerate(nodes):
            depth.setdefault(index, 0)
            for link, node, phase in hops[first:end]:
                depth[node] = depth[index] + 1
                channel = (link, channel_of(phase, depth[index]))
                graph.add_node(channel)
                for held in into.get(index, ()):
                    graph.add_edge(held, channel)
                into.setdefault(node, []).append(channel)
    return graph


def ring(count):
    return build_fabric("torus", dims=(count,))


def test_a_ring_with_one_virtual_channel_has_its_cycle():
    found = check_dependencies(ring(6), "spray", virtual_channels="one")
    assert not found.is_deadlock_free
    # Six links one way round: each ends where the next begins.
    assert len(found.cycle) == 6
    for (_, end, channel), (start, _, _) in zip(found.cycle, found.cycle[1:] + found.cycle[:1], strict=True):
        assert (end, channel) == (start, 0)
    assert "these links wait for each other" in str(found)
    assert rostam.check_dependencies(ring(6), "turns").is_deadlock_free
    assert check_dependencies(ring(6), "spray", virtual_channels="hops").num_virtual_channels == 3
    # Rings of up to four take two links at most, opposite ones either way: of three there is none to wait for.
    assert check_dependencies(ring(3), "spray", virtual_channels="one").is_deadlock_free


@pytest.mark.parametrize(("name", "params", "channels"), OWN)
def test_every_turn_model_is_free_of_deadlock_with_its_virtual_channels(name, params, channels):
    fabric = build_fabric(name, **params)
    found = check_dependencies(fabric)
    assert found.is_deadlock_free
    assert found.num_unrouted == 0
    assert found.num_virtual_channels <= channels
    assert found.num_pairs == fabric.num_accelerators * (fabric.num_accelerators - 1)


@pytest.mark.parametrize("name", FABRICS.names())
@pytest.mark.parametrize("routing", ["turns", "up_down"])
def test_the_own_routing_of_every_registered_fabric_passes(name, routing):
    fabric = example_fabric(name)
    if fabric.is_circuit_switched:
        pytest.skip("its links are circuits, set for a demand")
    found = check_dependencies(fabric, routing)
    assert found.is_deadlock_free
    assert found.num_unrouted == 0


@pytest.mark.parametrize("scheme", ["routing", "one", "hops"])
@pytest.mark.parametrize(
    ("name", "params", "routing"),
    [
        ("torus", {"dims": (3, 4)}, "spray"),
        ("torus", {"dims": (3, 4)}, "turns"),
        ("hammingmesh", {"board": (2, 2), "boards": (2, 2)}, "spray"),
        ("slim_fly", {"q": 3, "terminals_per_switch": 1}, "spray"),
        ("slim_fly", {"q": 3, "terminals_per_switch": 1}, "valiant"),
        ("dragonfly", DRAGONFLY | {"terminals_per_router": 1, "num_groups": 3}, "valiant"),
        ("hyperx", {"dims": (3, 3)}, "spray"),
        ("hyperx", {"dims": (3, 3)}, "up_down"),
    ],
)
def test_dependencies_are_those_of_walking_every_path(name, params, routing, scheme):
    fabric = build_fabric(name, **params)
    channel_of = {"routing": lambda phase, _: phase, "one": lambda *_: 0, "hops": lambda _, depth: depth}[scheme]
    graph = walked_graph(fabric, routing, channel_of)
    found = check_dependencies(fabric, routing, virtual_channels=scheme)
    assert found.num_channels == graph.number_of_nodes()
    assert found.num_dependencies == graph.number_of_edges()
    assert found.is_deadlock_free == nx.is_directed_acyclic_graph(graph)
    if scheme == "hops":
        assert found.is_deadlock_free
    if found.cycle:
        links = fabric.links
        ends = {(fabric.vertex_name(int(s)), fabric.vertex_name(int(d))): k
                for k, (s, d) in enumerate(zip(links["src"], links["dst"], strict=True))}  # fmt: skip
        cycle = [(ends[src, dst], channel) for src, dst, channel in found.cycle]
        assert all(graph.has_edge(*pair) for pair in zip(cycle, cycle[1:] + cycle[:1], strict=True))


def test_the_hash_routing_is_checked_over_all_that_it_may_draw():
    fabric = build_fabric("torus", dims=(4, 4))
    drawn, sprayed = check_dependencies(fabric, "hash"), check_dependencies(fabric, "spray")
    assert drawn == sprayed
    assert not drawn.is_deadlock_free


@pytest.mark.parametrize("share", ["1%", "5%", "10%"])
@pytest.mark.parametrize("kind", ["links", "switches"])
@pytest.mark.parametrize(("name", "params"), [
    ("fat_tree", {"num_accelerators": 32, "radix": 8}),
    ("fat_tree", {"num_accelerators": 55, "radix": 8, "levels": 3, "leaf_down": 5, "leaf_up": 3, "pod_leaves": 4}),
    ("hammingmesh", {"board": (2, 2), "boards": (3, 3)}),
    ("hammingmesh", {"board": (1, 1), "boards": (7, 2), "radix": 4}),
    ("hyperx", {"dims": (4, 4)}),
    ("dragonfly", DRAGONFLY),
    ("slim_fly", {"q": 4, "terminals_per_switch": 1}),
    ("torus", {"dims": (4, 5)}),
])  # fmt: skip
def test_after_failures_a_path_is_right_and_free_of_deadlock_or_there_is_none(name, params, kind, share):
    intact = build_fabric(name, **params)
    if kind == "switches" and intact.num_switches == 0:
        pytest.skip("it has no switches")
    for seed in range(3):
        fabric = intact.with_random_failures(kind, max(1, round(float(share[:-1]) / 100 * {
            "links": intact.num_links, "switches": intact.num_switches}[kind])), seed)  # fmt: skip
        links = fabric.links
        for routing in ("turns", "up_down"):
            assert check_dependencies(fabric, routing).is_deadlock_free
        connected = nx.Graph(
            (int(s), int(d))
            for s, d, bad in zip(links["src"], links["dst"], links["is_failed"], strict=True)
            if not bad
        )
        rng = np.random.default_rng(seed)
        for routing in _core.routing_names():
            router = fabric.router(routing, enable_bundling=False)
            for _ in range(25):
                src, dst = (int(one) for one in rng.choice(fabric.healthy_accelerators, 2, replace=False))
                try:
                    route, shares, _ = router.route(src, dst)
                except NoRouteError:
                    assert not nx.has_path(connected, src, dst)
                    continue
                assert not links["is_failed"][route].any()
                net = np.zeros(links["src"].max() + 1)
                np.add.at(net, links["src"][route], shares)
                np.add.at(net, links["dst"][route], -shares)
                assert net[src] == pytest.approx(1)
                assert net[dst] == pytest.approx(-1)
                assert np.abs(np.delete(net, [src, dst])).max() < 1e-9


def in_order(link_between, shape):
    """Ordered pairs of a HyperX that a walk of rising dimensions joins, by trying all orders of all dimensions."""
    cells = list(itertools.product(*map(range, shape)))
    reached = set()
    for start in cells:
        front = {start}
        for dim in range(len(shape)):
            front |= {
                (*cell[:dim], value, *cell[dim + 1 :])
                for cell in front
                for value in range(shape[dim])
                if link_between(cell, (*cell[:dim], value, *cell[dim + 1 :]))
            }
        reached |= {(cells.index(start), cells.index(end)) for end in front}
    return {(a, b) for a, b in reached if a != b}


@pytest.mark.parametrize("seed", range(4))
def test_pairs_that_a_turn_model_leaves_without_a_path_take_up_down_ones_on_the_escape_channel(seed):
    shape = (3, 4)
    intact = build_fabric("hyperx", dims=shape)
    fabric = intact.with_random_failures("links", 1 + seed, seed)
    links, count = fabric.links, fabric.num_accelerators
    works = {(int(s) - count, int(d) - count) for s, d, bad in
             zip(links["src"], links["dst"], links["is_failed"], strict=True) if not bad}  # fmt: skip
    cells = list(itertools.product(*map(range, shape)))
    by_turns = in_order(lambda a, b: (cells.index(a), cells.index(b)) in works, shape)
    turns, tree = (fabric.router(routing, enable_bundling=False) for routing in ("turns", "up_down"))
    before = intact.router("turns", enable_bundling=False)
    escape = len(shape) + 1  # phases of dimension order: one a dimension left, and none
    num_escaped = 0
    for src, dst in itertools.permutations(range(count), 2):
        channels = {channel for _, _, channel in turns.steps(src, dst)[1]}
        if (src, dst) in by_turns:
            assert max(channels) < escape
            if not links["is_failed"][before.route(src, dst)[0]].any():
                assert turns.route(src, dst)[0].tolist() == before.route(src, dst)[0].tolist()
            continue
        num_escaped += 1
        assert min(channels) >= escape
        for own, other in zip(turns.route(src, dst), tree.route(src, dst), strict=True):
            assert np.array_equal(own, other)
    assert num_escaped > 0
    found = check_dependencies(fabric)
    assert found.is_deadlock_free
    assert found.num_unrouted == 0
    assert found.num_virtual_channels <= check_dependencies(intact).num_virtual_channels + 1


@pytest.mark.parametrize("seed", range(2))
def test_a_slim_fly_has_a_channel_for_each_of_four_hops_around_failures(seed):
    # Channel k behind the k-th cable between switches; pairs more than four apart take the escape channel.
    fabric = build_fabric("slim_fly", q=3, terminals_per_switch=1).with_random_failures("links", 24, seed)
    links = fabric.links
    works = nx.Graph(np.stack([links["src"], links["dst"]], axis=1)[~links["is_failed"]].tolist())
    router, found = fabric.router("turns", enable_bundling=False), set()
    for src, dst in itertools.permutations(fabric.healthy_accelerators.tolist(), 2):
        if not nx.has_path(works, src, dst):
            continue
        hops = nx.shortest_path_length(works, src, dst) - 2  # less the accelerators' own links
        channels = {channel for _, _, channel in router.steps(src, dst)[1]}
        assert channels == set(range(hops + 1)) if hops <= 4 else min(channels) >= 5
        found.add(hops)
    assert found >= {3, 4, 5}


def test_turns_take_dimensions_in_order():
    fabric = build_fabric("hyperx", dims=(3, 3))
    links = fabric.links
    route = fabric.router("turns", enable_bundling=False).route(0, 8)[0]  # (0, 0) to (2, 2): by way of (2, 0)
    assert [(int(links["src"][k]), int(links["dst"][k])) for k in route] == [(0, 9), (9, 15), (15, 17), (17, 8)]


@pytest.mark.parametrize(
    ("virtual_channels", "said"), [("hop", "did you mean 'hops'"), ("two", "allowed: routing, one")]
)
def test_another_way_to_number_virtual_channels_is_refused(virtual_channels, said):
    with pytest.raises(ConfigError, match=said):
        check_dependencies(ring(4), "spray", virtual_channels=virtual_channels)
