"""Layers of forwarding tables, walked; disjoint paths; sizes that addresses allow."""

import itertools

import networkx as nx
import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.forwarding import disjoint_layers, forwarding_tables, largest_slim_fly, path_of


def graph_of(fabric):
    links, first = fabric.links, fabric.num_accelerators
    return nx.Graph(
        (int(s) - first, int(d) - first)
        for s, d, bad in zip(links["src"], links["dst"], links["is_failed"], strict=True)
        if min(s, d) >= first and not bad
    )


@pytest.fixture(scope="module", params=[3, 4, 5])
def slim_fly(request):
    return build_fabric("slim_fly", q=request.param, terminals_per_switch=1)


def test_layer_zero_is_minimal_and_every_layer_reaches_every_switch_over_cables(slim_fly):
    graph = graph_of(slim_fly)
    tables = forwarding_tables(slim_fly, 4)
    count = graph.number_of_nodes()
    assert tables.shape == (4, count, count)
    hops = dict(nx.all_pairs_shortest_path_length(graph))
    longer = np.zeros(4)
    for layer, (source, target) in itertools.product(range(4), itertools.permutations(range(count), 2)):
        path = path_of(tables, layer, source, target)
        assert len(set(path)) == len(path)
        assert all(graph.has_edge(*pair) for pair in itertools.pairwise(path))
        longer[layer] += len(path) - 1 > hops[source][target]
        if layer == 0:
            assert len(path) - 1 == hops[source][target]
    assert longer[0] == 0
    assert longer[1:].min() > 0.5 * count * (count - 1)  # most pairs get an almost-minimal path in a layer
    assert (tables[:, range(count), range(count)] == -1).all()


def test_layers_of_a_deployed_slim_fly_have_three_disjoint_paths_for_most_pairs(slim_fly):
    if slim_fly.config.q != 5:
        pytest.skip("the deployed one has q = 5")
    tables = forwarding_tables(slim_fly, 6)
    graph = graph_of(slim_fly)
    rng = np.random.default_rng(0)
    pairs = [tuple(rng.choice(50, 2, replace=False).tolist()) for _ in range(200)]
    found = np.array([disjoint_layers(tables, *pair) for pair in pairs])
    assert (found >= 3).mean() > 0.6
    for (source, target), count in list(zip(pairs, found, strict=True))[:20]:
        assert count <= nx.edge_connectivity(graph, source, target)


def test_a_path_fixes_the_next_hop_of_all_that_come_by(slim_fly):
    # Destination-based: the rest of a path is the path of every switch on it.
    tables = forwarding_tables(slim_fly, 3)
    for layer, source, target in itertools.product(
        range(3), range(0, tables.shape[1], 7), range(0, tables.shape[1], 5)
    ):
        if source != target:
            path = path_of(tables, layer, source, target)
            assert all(path_of(tables, layer, one, target) == path[k:] for k, one in enumerate(path[:-1]))


def test_shares_of_the_routing_are_those_of_its_tables(slim_fly):
    tables = forwarding_tables(slim_fly, 4)
    links, first = slim_fly.links, slim_fly.num_accelerators
    router = slim_fly.router("layers", enable_bundling=False)
    for src, dst in [(0, 1), (0, first - 1), (5, 9), (first - 2, 3)]:
        expected = {}
        for layer in range(4):
            way = [src, *(first + s for s in path_of(tables, layer, src, dst)), dst]
            for pair in itertools.pairwise(way):
                expected[pair] = expected.get(pair, 0) + 0.25
        found, shares, _ = router.route(src, dst)
        assert {
            (int(links["src"][k]), int(links["dst"][k])): share for k, share in zip(found, shares, strict=True)
        } == expected


def test_layers_relieve_a_permutation_that_collides_on_the_only_shortest_path():
    # All 4 accelerators of a switch send to those of another one: its only minimal path carries 4 of them.
    fabric = build_fabric("slim_fly", q=5)
    pattern = np.arange(200)
    pattern[:4], pattern[100:104] = np.arange(100, 104), np.arange(4)
    minimal = rostam.saturation_throughput(fabric, pattern, "spray")
    layered = rostam.saturation_throughput(fabric, pattern, "layers")
    assert minimal == pytest.approx(1 / 4)
    assert layered > 1.9 * minimal


def test_tables_know_failures():
    intact = build_fabric("slim_fly", q=4, terminals_per_switch=1)
    for seed in range(3):
        fabric = intact.with_random_failures("links", "10%", seed).with_random_failures("switches", 1, seed)
        graph = graph_of(fabric)
        tables = forwarding_tables(fabric, 3)
        for layer, (source, target) in itertools.product(range(3), itertools.permutations(range(32), 2)):
            if not (graph.has_node(source) and graph.has_node(target) and nx.has_path(graph, source, target)):
                with pytest.raises(NoRouteError):
                    path_of(tables, layer, source, target)
                continue
            path = path_of(tables, layer, source, target)
            assert all(graph.has_edge(*pair) for pair in itertools.pairwise(path))
        assert rostam.check_dependencies(fabric, "layers").is_deadlock_free


def test_no_layer_is_refused(slim_fly):
    with pytest.raises(ConfigError, match="num_layers is 0"):
        forwarding_tables(slim_fly, 0)


# Blach et al.: layers, switches, endnodes, endnodes of a switch, radix; 40-port switches, 49,151 LIDs.
@pytest.mark.parametrize(
    ("layers", "row"), [(1, (578, 7514, 13, 25)), (4, (578, 7514, 13, 25)), (64, (98, 588, 6, 11))]
)
def test_rows_of_the_lid_table_are_met_where_they_can_be_built(layers, row):
    found = largest_slim_fly(layers, ports=40)
    assert (found.num_switches, found.num_endpoints, found.endpoints_per_switch, found.radix) == row
    fabric = build_fabric("slim_fly", q=found.q)
    assert (fabric.num_switches, fabric.num_accelerators) == row[:2]


def test_the_row_of_sixteen_layers_has_no_graph_and_the_nearest_that_fits_is_smaller():
    # Printed: 288 switches, q = 12.
    with pytest.raises(ConfigError, match=r"fabric.q is 12, .* the nearest is 11 or 13"):
        build_fabric("slim_fly", q=12)
    found = largest_slim_fly(16, ports=40)
    assert (found.q, found.num_switches, found.num_endpoints) == (11, 242, 2178)
    assert found.num_endpoints * 16 + found.num_switches <= 49_151
    assert 338 * 10 * 16 + 338 > 49_151  # q = 13
    with pytest.raises(ConfigError, match="no slim fly has 5000 layers"):
        largest_slim_fly(5000, ports=40)
