"""Layers of forwarding tables, walked; disjoint paths; sizes that addresses allow."""

import itertools

import networkx as nx
import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.forwarding import (
    addressed_slim_fly,
    disjoint_layers,
    forwarding_tables,
    largest_slim_fly,
    path_of,
)
from rostam_py.fabrics.lids import check_lids
from rostam_py.fabrics.routings import check_routing, layers_of, told_once
from rostam_py.fabrics.slim_fly import constructible


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


# Shares of the 2,450 pairs of the deployed Slim Fly (q = 5) with three paths or more without a common cable.
@pytest.mark.parametrize(("num_layers", "share"), [(1, 0.0), (2, 0.0), (4, 0.663), (8, 0.936), (16, 0.993)])
def test_layers_of_the_deployed_slim_fly_give_most_pairs_three_disjoint_paths(num_layers, share):
    found = rostam.count_disjoint_paths(build_fabric("slim_fly", q=5), num_layers)
    assert (found.num_layers, found.num_pairs, found.num_with[0]) == (num_layers, 50 * 49, 50 * 49)
    assert found.share_with(3) == pytest.approx(share, abs=5e-4)
    assert found.num_lids == 200 * num_layers + 50
    assert str(found).startswith(f"{num_layers} layer")


@pytest.mark.parametrize("num_layers", [2, 4, 7])
def test_disjoint_paths_are_counted_as_every_subset_of_paths_has_them(slim_fly, num_layers):
    # Every subset of the layers' paths is tried; max-flow over the cables that they use, by networkx, bounds them.
    tables = forwarding_tables(slim_fly, num_layers)
    count = tables.shape[1]
    most = np.zeros(count * count, dtype=int)
    for k, (source, target) in enumerate(itertools.product(range(count), repeat=2)):
        if source == target:
            continue
        most[k] = disjoint_layers(tables, source, target)
        if k % 37 == 0:
            used = nx.Graph()
            for layer in range(num_layers):
                nx.add_path(used, path_of(tables, layer, source, target))
            assert most[k] <= nx.edge_connectivity(used, source, target)
    found = rostam.count_disjoint_paths(slim_fly, num_layers, most=4)
    assert found.num_with == tuple(int((most >= k).sum()) for k in (1, 2, 3, 4))


def test_counts_of_disjoint_paths_know_failures_and_refuse_other_numbers():
    fabric = build_fabric("slim_fly", q=4, terminals_per_switch=1).with_failures(switches=[3])
    assert rostam.count_disjoint_paths(fabric, 2).num_pairs == 31 * 30
    for wrong in ({"most": 0}, {"most": 9}, {"num_layers": 0}, {"num_layers": 1.5}):
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))} is "):
            rostam.count_disjoint_paths(fabric, **wrong)
    with pytest.raises(ConfigError, match="paths is 4; 1 to 3 were counted"):
        rostam.count_disjoint_paths(fabric, 2).share_with(4)


def test_a_path_fixes_the_next_hop_of_all_that_come_by(slim_fly):
    # Destination-based: the rest of a path is the path of every switch on it.
    tables = forwarding_tables(slim_fly, 3)
    for layer, source, target in itertools.product(
        range(3), range(0, tables.shape[1], 7), range(0, tables.shape[1], 5)
    ):
        if source != target:
            path = path_of(tables, layer, source, target)
            assert all(path_of(tables, layer, one, target) == path[k:] for k, one in enumerate(path[:-1]))


@pytest.mark.parametrize(("routing", "num_layers"), [("layers", 4), ("layers:1", 1), ("layers:6", 6)])
def test_shares_of_the_routing_are_those_of_its_tables(slim_fly, routing, num_layers):
    tables = forwarding_tables(slim_fly, num_layers)
    links, first = slim_fly.links, slim_fly.num_accelerators
    router = slim_fly.router(routing, enable_bundling=False)
    for src, dst in [(0, 1), (0, first - 1), (5, 9), (first - 2, 3)]:
        expected = {}
        for layer in range(num_layers):
            way = [src, *(first + s for s in path_of(tables, layer, src, dst)), dst]
            for pair in itertools.pairwise(way):
                expected[pair] = expected.get(pair, 0) + 1 / num_layers
        found, shares, _ = router.route(src, dst)
        assert {
            (int(links["src"][k]), int(links["dst"][k])): share for k, share in zip(found, shares, strict=True)
        } == pytest.approx(expected, rel=1e-12)


def test_layers_are_a_number_of_the_routing():
    fabric = build_fabric("slim_fly", q=5)
    default, four, eight = (
        rostam.run_collective(fabric, "all_to_all", num_bytes="1 MiB", algorithm="direct", routing=routing)
        for routing in ("layers", "layers:4", "layers:8")
    )
    assert default.time_ps == four.time_ps != eight.time_ps
    assert layers_of("layers:8") == 8
    assert (layers_of("layers"), layers_of("spray")) == (4, 0)
    assert rostam.check_dependencies(fabric, "layers:8").is_deadlock_free


@pytest.mark.parametrize(
    ("routing", "message"),
    [
        ("layers:0", "routing is 'layers:0'; layers takes its number of layers behind the colon, .* from 1 to 128"),
        ("layers:129", "routing is 'layers:129'.* from 1 to 128"),
        ("layers:many", "routing is 'layers:many'.* from 1 to 128"),
        ("layers:", "routing is 'layers:'.* from 1 to 128"),
        ("spray:2", "routing is 'spray:2', but spray takes no number"),
        ("layer:2", "unknown routing 'layer(:2)?'"),
    ],
)
def test_other_numbers_of_layers_are_refused(routing, message):
    fabric = build_fabric("slim_fly", q=3)
    for refused in (check_routing, fabric.router, lambda one: rostam.check_dependencies(fabric, one)):
        with pytest.raises(ConfigError, match=message):
            refused(routing)


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


# Blach et al.: layers, switches, endnodes, endnodes of a switch, radix; 40-port switches, 49,151 LIDs. Printed rows; q
# is an integer there, whether a field of q elements exists or not.
TABLE = [(1, 578, 7514, 13, 25), (4, 578, 7514, 13, 25), (16, 288, 2592, 9, 18), (64, 98, 588, 6, 11)]


def largest_integer(layers, ports=40, lids=49_151):
    """The table's formula: (q, switches, endnodes, endnodes of a switch, radix) of the largest q, of four kinds: k' =
    (3 q - delta) / 2, delta = q mod 4, where 3 counts as -1 and 2, of which there is no field, as 0."""
    best = None
    for q in range(3, ports):
        radix = (3 * q - {0: 0, 1: 1, 2: 0, 3: -1}[q % 4]) // 2
        per_switch = (radix + 1) // 2
        switches = 2 * q * q
        if radix + per_switch <= ports and switches * per_switch * layers + switches <= lids:
            best = q, switches, switches * per_switch, per_switch, radix
    return best


@pytest.mark.parametrize("row", TABLE)
def test_the_lid_table_is_met_where_it_can_be_built_and_refused_with_the_nearest_q_where_not(row):
    layers, *printed = row
    q, *by_formula = largest_integer(layers)
    assert by_formula == printed
    if layers == 16:
        with pytest.raises(ConfigError, match=r"fabric.q is 12: no prime power .* nearest that is allowed is 11"):
            addressed_slim_fly(q, layers, ports=40)
        return
    found = addressed_slim_fly(q, layers, ports=40)
    assert found == largest_slim_fly(layers, ports=40)
    assert [found.num_switches, found.num_endpoints, found.endpoints_per_switch, found.radix] == printed
    fabric = build_fabric("slim_fly", q=q)
    assert [fabric.num_switches, fabric.num_accelerators] == printed[:2]
    assert found.num_lids == fabric.num_accelerators * layers + fabric.num_switches <= 49_151


# The rows between: by the table's formula q = 15, 12 and 6 among them, which are no prime powers.
@pytest.mark.parametrize(
    ("layers", "q", "nearest"),
    [(1, 17, 17), (2, 17, 17), (4, 17, 17), (8, 15, 13), (16, 12, 11), (32, 9, 9), (64, 7, 7), (128, 6, 5)],
)
def test_every_power_of_two_of_layers_has_a_row(layers, q, nearest):
    assert largest_integer(layers)[0] == q
    assert largest_slim_fly(layers, ports=40).q == nearest
    if q != nearest:
        with pytest.raises(
            ConfigError, match=f"fabric.q is {q}: no prime power .* nearest that is allowed is {nearest}"
        ):
            addressed_slim_fly(q, layers, ports=40)
    larger = next(one for one in constructible(128) if one > nearest)
    with pytest.raises(ConfigError, match=f"fabric.q is {larger}: .* the nearest that is allowed is {nearest}"):
        addressed_slim_fly(larger, layers, ports=40)


def test_a_routing_of_more_layers_than_addresses_is_refused_with_what_fits():
    # q = 13: 338 switches of 10. 14 layers take 47,658 addresses, 15 take 51,038.
    fabric = build_fabric("slim_fly", q=13)
    assert 3380 * 14 + 338 <= 49_151 < 3380 * 15 + 338
    check_lids("layers:14", 14, 3380, 338)
    with pytest.raises(ConfigError, match=r"'layers:15': .* 51,038 addresses .* at most layers:14 fits .*q .* is 11$"):
        fabric.router("layers:15")
    # By hand: 9 has 162 x 7 x 40 + 162 = 45,522; 11 has 242 x 9 x 40 = 87,120.
    with pytest.raises(ConfigError, match=r"the nearest fabric.q that 40 layers fit is 9$"):
        fabric.router("layers:40")
    tree = build_fabric("fat_tree", num_accelerators=16_384)
    with pytest.raises(ConfigError, match=r"'layers': 4 layers of 16,384 .* at most layers:2 fits this fabric$"):
        tree.router("layers")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"layers": 5000, "ports": 40}, "layers is 5000; with 49,151 LIDs the smallest slim fly, .* at most 909"),
        ({"layers": 1, "ports": 7}, "ports is 7; the smallest slim fly, fabric.q 3, needs 8"),
        ({"layers": 0, "ports": 40}, "layers is 0; it must be an integer >= 1"),
        ({"layers": 1.5, "ports": 40}, "layers is 1.5; it must be an integer >= 1"),
        ({"layers": 1, "ports": "many"}, "ports is 'many'; it must be an integer >= 1"),
        ({"layers": 1, "ports": 40, "lids": -1}, "lids is -1; it must be an integer >= 1"),
    ],
)
def test_limits_that_no_slim_fly_meets_are_named(limits, message):
    with pytest.raises(ConfigError, match=message):
        largest_slim_fly(**limits)


def test_a_q_beyond_ports_or_addresses_is_refused_by_what_it_needs():
    with pytest.raises(ConfigError, match=r"fabric.q is 17: switches of 38 ports, where ports is 36; .* is 16$"):
        addressed_slim_fly(17, 1, ports=36)
    with pytest.raises(ConfigError, match=r"fabric.q is 13: 54,418 addresses with layers 16, where .* is 11$"):
        addressed_slim_fly(13, 16, ports=40)
    for wrong in (0, 5.5, "five"):
        with pytest.raises(ConfigError, match=f"fabric.q is {wrong!r}; it must be an integer >= 1"):
            addressed_slim_fly(wrong, 1, ports=40)
    with pytest.raises(ConfigError, match=r"fabric.q is 12, .* the nearest is 11 or 13"):
        build_fabric("slim_fly", q=12)


@pytest.mark.parametrize(("text", "once"), [("layers", "layers"), ("layers:4", "layers"), ("layers:08", "layers:8")])
def test_a_number_of_layers_is_written_one_way(text, once):
    assert told_once(text) == once
    assert layers_of(once) == layers_of(text)


@pytest.mark.parametrize(
    ("num_layers", "message"),
    [
        (300, r"routing is 'layers:300'.*an integer from 1 to 128"),
        (2**31, r"routing is 'layers:2147483648'.*an integer from 1 to 128"),
        (128, r"routing is 'layers:128': 128 layers of 3,380 accelerators.*has 49,151; at most layers:14 fits"),
    ],
)
def test_layers_beyond_what_there_are_addresses_for_are_not_counted(num_layers, message):
    fabric = build_fabric("slim_fly", q=13)
    with pytest.raises(ConfigError, match=message):
        rostam.count_disjoint_paths(fabric, num_layers)
