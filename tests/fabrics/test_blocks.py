"""Compact blocks: boxes of least mean distance, against searches of the fabrics' own graphs."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.fabrics.blocks import neighbour_path

TORUS_SIZES = ((8, 8), (4, 16), (3, 8), (4, 4, 4), (2, 3, 4))
MESHES = (((1, 1), (4, 4)), ((2, 2), (2, 4)), ((4, 4), (2, 2)), ((4, 2), (1, 3)), ((3, 3), (2, 1)))
HYPERX = (((4, 4), 1), ((2, 8), 2), ((4, 6), 4))


def graph_of(fabric):
    graph = nx.DiGraph()
    graph.add_edges_from(zip(fabric.links["src"].tolist(), fabric.links["dst"].tolist(), strict=True))
    return graph


def mean_hops(fabric, groups):
    """Mean links between two members of a group, of all groups, themselves included."""
    hops = {a: nx.single_source_shortest_path_length(graph_of(fabric), a) for a in range(fabric.num_accelerators)}
    return np.mean([hops[a][b] for group in groups.tolist() for a in group for b in group])


def places_of(fabric):
    config = fabric.config
    if config.grid() is not None:
        return config.grid()
    return np.arange(fabric.num_accelerators).reshape(*config.dims, config.terminals)


def all_boxes(places, degree):
    """Groups of every shape of box that tiles the grid."""
    divisors = [[side for side in range(1, size + 1) if size % side == 0] for size in places.shape]
    for box in itertools.product(*divisors):
        if math.prod(box) == degree:
            parts = [n for size, side in zip(places.shape, box, strict=True) for n in (size // side, side)]
            axes = [2 * d for d in range(places.ndim)] + [2 * d + 1 for d in range(places.ndim)]
            yield places.reshape(parts).transpose(axes).reshape(-1, degree)


FABRICS = [
    *(("torus", {"dims": dims}) for dims in TORUS_SIZES),
    # Of rows in a switch each, so that hops along rows and columns add up.
    *(("hammingmesh", {"board": board, "boards": boards, "wiring": "accelerator_row"}) for board, boards in MESHES),
    *(("hyperx", {"dims": dims, "terminals": terminals}) for dims, terminals in HYPERX),
]


@pytest.mark.parametrize(("name", "parameters"), FABRICS, ids=str)
@pytest.mark.parametrize("degree", [2, 4, 6, 8])
def test_the_first_order_has_the_boxes_of_least_mean_hops(name, parameters, degree):
    fabric = rostam.fabric(name, **parameters)
    count = fabric.num_accelerators
    if count % degree:
        pytest.skip("does not divide the machine")
    boxes = list(all_boxes(places_of(fabric), degree))
    orders = fabric.config.compact_orders((degree,), count // degree)
    if not boxes:
        assert not orders
        return
    least = min(mean_hops(fabric, groups) for groups in boxes)
    assert mean_hops(fabric, orders[0].order.reshape(-1, degree)) == pytest.approx(least)
    for one in orders:
        assert sorted(one.order.tolist()) == list(range(count))
        assert one.num_covered == count


@pytest.mark.parametrize("dims", TORUS_SIZES)
def test_blocks_of_cp_are_made_of_blocks_of_tp(dims):
    fabric = rostam.fabric("torus", dims=dims)
    places = {a: cell for cell, a in np.ndenumerate(fabric.config.grid())}
    for one in fabric.config.compact_orders((4, 2), fabric.num_accelerators // 8):
        sides = [np.prod(pair) for pair in zip(*one.sides, strict=True)]
        for block in one.order[: one.num_covered].reshape(-1, 8):
            cells = np.array([places[a] for a in block])
            assert (np.ptp(cells, axis=0) + 1 == sides).all()
            for inner in cells.reshape(2, 4, -1):
                assert (np.ptp(inner, axis=0) + 1 == one.sides[0]).all()


@pytest.mark.parametrize("box", [(2, 2), (2, 4), (4, 4), (3, 4), (2, 2, 2), (3, 3, 2), (5, 3), (3, 3, 3), (4,), (1, 6)])
def test_neighbours_follow_each_other_and_close_where_the_grid_has_a_cycle(box):
    path = neighbour_path(box)
    grid = nx.grid_graph(dim=box[::-1]) if len(box) > 1 else nx.path_graph(box[0])
    nodes = [cell if len(box) > 1 else cell[0] for cell in path]
    assert sorted(nodes) == sorted(grid.nodes)
    assert all(grid.has_edge(a, b) for a, b in itertools.pairwise(nodes))
    # A grid with an even number of cells, and more than one side, has a Hamiltonian cycle; an odd one is bipartite.
    has_cycle = math.prod(box) % 2 == 0 and sum(side > 1 for side in box) > 1
    assert grid.has_edge(nodes[-1], nodes[0]) == has_cycle


def test_what_no_whole_boxes_hold_has_no_blocks():
    config = rostam.fabric("torus", dims=(6, 6)).config
    assert config.compact_orders((8,), 4) == []  # 2 x 4 boxes: three in a row of 6 x 4, none in the 6 x 2 left
    assert config.compact_orders((7,), 1) == []
    assert {one.sides for one in config.compact_orders((8,), 3)} == {((2, 4),), ((4, 2),)}


def test_fabrics_whose_numbering_serves_have_none():
    assert rostam.fabric("electrical_flat", num_accelerators=16).config.compact_orders((4,), 4) == []
