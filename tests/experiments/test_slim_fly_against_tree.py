"""Slim Fly against the tree: the machines are those of the slides, and what slows the ring is counted by hand."""

import json
from collections import Counter

import networkx as nx
import numpy as np
import pytest

from rostam_py.reproduction import experiments_in

STUDY = experiments_in()["slim_fly_against_tree"]


@pytest.fixture(scope="module")
def module():
    return STUDY.load()


@pytest.fixture(scope="module")
def points():
    return json.loads((STUDY.folder / "points.json").read_text())["points"]


def switch_graph(fabric):
    """Return the graph of switches, cables counted."""
    graph = nx.MultiGraph()
    links = fabric.links
    for src, dst in zip(links["src"].tolist(), links["dst"].tolist(), strict=True):
        if min(src, dst) >= fabric.num_accelerators and src < dst:
            graph.add_edge(src, dst)
    return graph


def switch_of(fabric, node):
    links = fabric.links
    return int(links["dst"][links["src"] == node][0])


def test_both_networks_are_of_36_port_switches(module):
    tree, slim = module.on("tree")[0], module.on("dfsssp")[0]
    assert tree.num_accelerators == slim.num_accelerators == 200
    leaves = Counter(switch_of(tree, node) for node in range(200))
    assert len(leaves) == 13
    assert max(leaves.values()) == 16
    cables = Counter(frozenset(edge[:2]) for edge in switch_graph(tree).edges)
    assert len(cables) == 13 * 8
    assert set(cables.values()) == {2}
    graph = switch_graph(slim)
    assert graph.number_of_edges() == 175
    assert {degree for _, degree in graph.degree} == {7}


def most_on_a_cable(fabric, order):
    """Return how many hops of a ring over these nodes share the fullest cable in a direction, on shortest paths."""
    graph = nx.Graph(switch_graph(fabric))
    used = Counter()
    for src, dst in zip(order, [*order[1:], order[0]], strict=True):
        ends = switch_of(fabric, src), switch_of(fabric, dst)
        (path,) = nx.all_shortest_paths(graph, *ends)  # a Slim Fly has one
        used.update(zip(path, path[1:], strict=False))
    return max(used.values())


@pytest.mark.parametrize("count", [64, 128, 200])
def test_a_ring_shares_cables_in_the_second_half_alone(count, module, points):
    fabric = module.on("dfsssp")[0]
    shared = most_on_a_cable(fabric, list(range(count)))
    assert shared == (1 if count <= 100 else 2)
    assert most_on_a_cable(fabric, module.along_neighbours()[:count]) == 1
    for how, factor in (("as numbered", shared), ("along neighbours", 1)):
        times = points[f"ring | {count} nodes | {how}"]
        assert times["layers:1"] / times["tree"] == pytest.approx(factor, rel=0.025)  # starts of messages are on both


def test_the_tree_gives_a_ring_the_full_rate_on_static_paths(points):
    """2 (n - 1) chunks of S / n at 56 Gb/s, and a start of 1 us with each."""
    for count in (64, 128, 200):
        by_hand = 2 * (count - 1) * (2**26 / count / 7e9 + 1e-6)
        assert points[f"ring | {count} nodes | as numbered"]["tree"] == pytest.approx(by_hand, rel=0.005)


def test_printed_digits_are_those_that_the_slides_are_quoted_with(module):
    bcast, reduce = module.printed("broadcast"), module.printed("all_reduce")
    assert {len(column) for column in bcast.values()} == {26}
    assert {len(column) for column in reduce.values()} == {24}
    assert tuple(bcast) == tuple(reduce) == module.NUM_NODES
    assert all(0.9 <= np.median(column) <= 1.05 for column in (*bcast.values(), *reduce.values()))
    assert all(2.6 <= one <= 3.1 for one in reduce[200][:4])


def test_placing_all_nodes_at_random_changes_no_exchange_of_all_at_once(points):
    linear, drawn = (points[f"all_to_all | direct | 200 nodes | {one}"]["1 MiB"] for one in ("linear", "random"))
    for scheme, times in linear.items():
        assert drawn[scheme] == pytest.approx(times * len(drawn[scheme]), rel=1e-6)
