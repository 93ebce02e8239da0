"""Routes over several planes, routes that are set, and the steps that packets walk."""

import collections

import numpy as np
import pytest

from rostam_py import _core
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics import build_fabric

# Two links per direction between neighbours of a ring of four: 0 - 1 - 2 - 3 - 0, 1 GB/s each, 10 ns each.
RING = {"dims": (4,), "link_bandwidth": 1e9, "link_latency": 10e-9}


def ring(**failed):
    fabric = build_fabric("torus", **RING)
    return fabric.with_failures(**failed) if failed else fabric


def table(*planes, routing="spray", bundling=True):
    return _core.make_routes(routing, [(fabric.core, count) for fabric, count in planes], 0.0, bundling)


def test_planes_that_are_alike_have_one_plane_of_links_and_no_lanes():
    routes = table((ring(), 3))
    assert len(routes.capacities) == 8
    assert routes.lanes(0, 2, num_bytes=300) == []


def test_a_message_is_split_in_proportion_to_what_each_plane_offers_the_pair():
    # 0 to 2 is sprayed over both ways round: 2 GB/s in an intact plane, three of which are alike. In the plane without
    # the cable of 0 - 1 one way is left: 1 GB/s. So S is split 2 + 2 + 2 + 1.
    intact = ring()
    cable = int(next(link["cable"] for link in intact.links if {link["src"], link["dst"]} == {0, 1}))
    routes = table((intact, 3), (ring(links=[cable]), 1))
    first, second = routes.lanes(0, 2, num_bytes=700)
    assert [first[3], first[4], first[5]] == [3, 2e9, 200]
    assert [second[3], second[4], second[5]] == [1, 1e9, 100]
    links, shares, latency_ps = routes.route(0, 2)
    assert latency_ps == 60_000  # two links, and the 40 ns of the accelerator between them
    assert sorted(shares[: first[1]]) == [0.5] * 4
    assert shares[second[0] : second[1]].tolist() == [1.0, 1.0]
    # The second plane's links are numbered on behind the first one's.
    assert set(links[: first[1]]) <= set(range(8))
    assert set(links[second[0] : second[1]]) <= set(range(8, 16))
    assert [member for members in routes.members for member in members] == list(range(16))
    # Bytes that do not divide are rounded up, and no part is larger than the message.
    assert [lane[5] for lane in routes.lanes(0, 2, num_bytes=701)] == [201, 101]
    assert [lane[5] for lane in routes.lanes(0, 2, num_bytes=1)] == [1, 1]


def test_a_plane_in_which_the_pair_is_cut_apart_carries_nothing_and_all_of_them_are_an_error():
    intact, cut = ring(), ring(links=[0, 1, 2, 3])
    assert [lane[3:] for lane in table((cut, 1), (intact, 1)).lanes(0, 2, num_bytes=10)] == [(1, 2e9, 10)]
    with pytest.raises(NoRouteError, match="no path"):
        table((cut, 1), (cut, 2)).route(0, 2)


def test_planes_that_offer_the_same_share_equally_to_the_byte():
    # A failure elsewhere leaves the pair 0 -> 1 its 1 GB/s: three planes, a third each.
    intact = ring()
    cable = int(next(link["cable"] for link in intact.links if {link["src"], link["dst"]} == {2, 3}))
    routes = table((intact, 2), (ring(links=[cable]), 1))
    for size in (3, 10, 10**15 + 1):
        assert [lane[5] for lane in routes.lanes(0, 1, num_bytes=size)] == [-(-size // 3)] * 2


def test_a_route_that_is_set_goes_before_the_policy_and_counts_as_a_new_version():
    routes = table((ring(), 1), bundling=False)
    long_way = routes.route(0, 2)[0]
    assert routes.version == 0
    assert routes.is_hash_free
    routes.set_route(0, 1, 7, [3], [1.0], 5)
    assert routes.version == 1
    assert not routes.is_hash_free
    assert routes.route(0, 1, 7)[0].tolist() == [3]
    assert routes.route(0, 1, 8)[0].tolist() != [3]
    routes.unset_route(0, 1, 7)
    assert routes.version == 2
    assert routes.route(0, 2)[0].tolist() == long_way.tolist()
    with pytest.raises(ConfigError, match="takes link 99"):
        routes.set_route(0, 1, 7, [99], [1.0], 5)


def test_a_system_needs_planes():
    with pytest.raises(ConfigError, match="at least one plane"):
        table()
    with pytest.raises(ConfigError, match="0 planes"):
        table((ring(), 0))


@pytest.mark.parametrize("routing", _core.routing_names())
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("torus", {"dims": (4, 4)}),
        ("fat_tree", {"num_accelerators": 32, "radix": 8, "levels": 3}),
        ("hammingmesh", {"board": (2, 2), "boards": (3, 3)}),
    ],
)
def test_steps_walked_with_equal_shares_load_the_links_of_the_route(routing, name, params):
    fabric = build_fabric(name, link_bandwidth=1e9, **params)
    routes = table((fabric, 1), routing=routing, bundling=False)
    ends = np.stack([fabric.links["src"], fabric.links["dst"]], axis=1)
    rng = np.random.default_rng(1)
    for _ in range(20):
        src, dst = (int(one) for one in rng.choice(fabric.num_accelerators, 2, replace=False))
        seed = int(rng.integers(2**40))
        nodes, hops = routes.steps(src, dst, seed)
        links, shares, _ = routes.route(src, dst, seed)
        assert nodes[0][0] == src
        assert nodes[-1][0] == dst
        # One graph of paths, or several side by side that take equal parts.
        starts = set(range(len(nodes))) - {node for _, node, _ in hops}
        ends_of_graphs = [index for index, (_, _, first, end) in enumerate(nodes) if end == first]
        assert {nodes[index][0] for index in starts} == {src}
        assert {nodes[index][0] for index in ends_of_graphs} == {dst}
        assert routing in ("layers", "valiant") or len(starts) == 1
        held = collections.Counter(dict.fromkeys(starts, 1 / len(starts)))
        loads = collections.Counter()
        for index, (vertex, _, first, end) in enumerate(nodes):
            # An escape beside the minimal hops has no share of its own.
            has_escape = routing == "turns_adaptive" and name == "torus"
            shared = [hop for hop in hops[first:end] if hop[2] == 0 or not has_escape]
            for link, node, _ in hops[first:end]:
                assert node > index
                assert ends[link].tolist() == [vertex, nodes[node][0]]
            for link, node, _ in shared:
                loads[link] += held[index] / len(shared)
                held[node] += held[index] / len(shared)
        assert sum(held[index] for index in ends_of_graphs) == pytest.approx(1)
        assert loads == pytest.approx(dict(zip(links.tolist(), shares.tolist(), strict=True)))
