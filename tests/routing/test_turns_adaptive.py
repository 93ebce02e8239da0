"""Walks of turns_adaptive: all minimal hops where there is an escape, which is always there and forms no circle."""

import itertools

import networkx as nx
import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import NoRouteError
from rostam_py.fabrics import FABRICS, build_fabric, example_fabric
from rostam_py.fabrics.dependencies import check_dependencies

DRAGONFLY = {"routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 5}
ESCAPING = [
    ("torus", {"dims": (5,)}),
    ("torus", {"dims": (4, 5)}),
    ("torus", {"dims": (3, 2, 4)}),
    ("dragonfly", DRAGONFLY),
]


def steps_of_pairs(fabric):
    routes = fabric.router("turns_adaptive", enable_bundling=False)
    for src, dst in itertools.permutations(fabric.healthy_accelerators.tolist(), 2):
        try:
            yield src, dst, *routes.steps(src, dst)
        except NoRouteError:
            continue


@pytest.mark.parametrize(("name", "parameters"), ESCAPING)
def test_optional_hops_are_all_that_lead_nearer(name, parameters):
    fabric = build_fabric(name, **parameters)
    links, spray = fabric.links, fabric.router("spray", enable_bundling=False)
    for src, dst, nodes, hops in steps_of_pairs(fabric):
        minimal = set(spray.route(src, dst)[0].tolist())
        assert {link for link, _, _ in hops} == minimal
        # Each link of a minimal path may be had on channel 0, but for the last one of a fabric with terminals.
        optional = {link for link, _, channel in hops if channel == 0}
        assert minimal - optional <= {k for k in minimal if int(links["dst"][k]) == dst or int(links["src"][k]) == src}
        assert nodes[0][0] == src


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize(("name", "parameters"), ESCAPING)
def test_every_place_has_an_escape_and_escapes_form_no_circle(name, parameters, seed):
    fabric = build_fabric(name, **parameters)
    if seed is not None:
        fabric = fabric.with_random_failures("links", 3, seed)
    graph = nx.DiGraph()
    for _, dst, nodes, hops in steps_of_pairs(fabric):
        held = {}
        for index, (vertex, _, first, end) in enumerate(nodes):
            if vertex == dst:
                continue
            waited = [hop for hop in hops[first:end] if hop[2] > 0]
            assert waited
            graph.add_edges_from(
                itertools.product(held.get(index, ()), [(link, channel) for link, _, channel in waited])
            )
            for link, node, channel in hops[first:end]:
                held.setdefault(node, set()).add((link, channel))
    assert nx.is_directed_acyclic_graph(graph)
    found = check_dependencies(fabric, "turns_adaptive")
    assert found.is_deadlock_free
    assert found.num_dependencies == graph.number_of_edges()


@pytest.mark.parametrize("name", FABRICS.names())
def test_every_fabric_passes_the_check_whatever_has_failed(name):
    fabric = example_fabric(name)
    if fabric.is_circuit_switched:
        pytest.skip("no paths before circuits are set")
    for seed in (None, 0, 1):
        if seed is not None and name == "electrical_flat":  # it has no cables but those of its accelerators
            continue
        where = fabric if seed is None else fabric.with_random_failures("links", 2, seed)
        assert check_dependencies(where, "turns_adaptive").is_deadlock_free


def test_all_in_one_channel_form_circles():
    ring = build_fabric("torus", dims=(5,))
    assert not check_dependencies(ring, "turns_adaptive", virtual_channels="one").is_deadlock_free


@pytest.mark.parametrize(
    ("name", "parameters", "same_as"),
    [
        ("torus", {"dims": (4, 5)}, "spray"),
        ("dragonfly", DRAGONFLY, "spray"),
        ("hammingmesh", {"board": (2, 2), "boards": (3, 3)}, "turns"),
        ("slim_fly", {"q": 3, "terminals_per_switch": 1}, "turns"),
        ("fat_tree", {"num_accelerators": 32, "radix": 8}, "turns"),
    ],
)
def test_flows_have_equal_shares(name, parameters, same_as):
    fabric = build_fabric(name, **parameters)
    for pattern in ("all_to_all", "shift"):
        found = rostam.saturation_throughput(fabric, pattern, "turns_adaptive")
        assert found == pytest.approx(rostam.saturation_throughput(fabric, pattern, same_as))
    src, dst = np.arange(6), np.arange(6)[::-1]
    by_flows = [
        rostam.run_flows(fabric, src=src, dst=dst + 6, num_bytes=[10**6] * 6, routing=routing).finish_s.tolist()
        for routing in ("turns_adaptive", same_as)
    ]
    assert by_flows[0] == by_flows[1]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("torus", {"dims": (8, 8)}),
        ("dragonfly", DRAGONFLY),
        ("hammingmesh", {"board": (2, 2), "boards": (3, 3)}),
        ("hammingmesh", {"board": (4, 4), "boards": (2, 2)}),
    ],
)
def test_three_virtual_channels_are_enough(name, parameters):
    assert check_dependencies(build_fabric(name, **parameters), "turns_adaptive").num_virtual_channels <= 3


def test_adaptive_says_where_it_may_lock():
    [note] = build_fabric("torus", dims=(4, 4)).router("adaptive", enable_bundling=False).notes
    assert "may block each other for good on fabric torus" in note
    assert "turns_adaptive" in note
    assert build_fabric("fat_tree", num_accelerators=16, radix=8).router("adaptive", enable_bundling=False).notes == []
