"""Routings where one direction of a cable is gone: circuits are one-way, and so is a transceiver's failure."""

import networkx as nx
import numpy as np
import pytest

import rostam
from rostam_py import _core
from rostam_py.errors import ConfigError, NoRouteError


@pytest.mark.parametrize("routing", _core.routing_names())
def test_what_leaves_arrives_over_links_of_its_direction(routing):
    # Seven servers of one, each on the network and, in regions of three, on circuits of one direction to the others.
    params = {"num_accelerators": 7, "server_size": 1, "region_servers": 3, "num_ocs": 2, "num_electrical": 1}
    for seed in range(6):
        fabric = rostam.fabric("regional_ocs", **params).with_random_failures("links", 2, seed, scope="network")
        table = fabric.links
        try:
            router = fabric.router(routing)
        except ConfigError:  # not a routing for such a fabric
            return
        for src, dst in np.argwhere(~np.eye(7, dtype=bool)).tolist():
            try:
                links, shares, _ = router.route(src, dst, 0)
            except NoRouteError:
                continue
            net = np.zeros(int(table["dst"].max()) + 1)
            np.add.at(net, table["src"][links], shares)
            np.add.at(net, table["dst"][links], -np.asarray(shares))
            assert not table["is_failed"][links].any()
            assert net[src] == pytest.approx(1)
            assert net[dst] == pytest.approx(-1)


@pytest.mark.parametrize("forwards", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_up_down_joins_all_that_links_of_one_direction_join_and_has_no_cycle(forwards, seed):
    # Random directed links, of which few lead both ways; accelerators that do not forward send and receive over others.
    rng = np.random.default_rng([seed, forwards])
    count = int(rng.integers(4, 10))
    first = 0 if forwards else 4
    links = [
        one
        for a in range(first)
        for one in ((a, first + int(rng.integers(count))), (first + int(rng.integers(count)), a))
    ]
    for v in range(count):
        links.append((first + v, first + (v + 1 + (int(rng.integers(count - 1)) if seed % 3 else 0)) % count))
        links.append(tuple((first + rng.choice(count, 2, replace=False)).tolist()))
    num = count if forwards else first
    src, dst = zip(*links, strict=True)
    router = rostam.fabric(
        "custom", links={"src": src, "dst": dst}, num_accelerators=num, duplex=False, forwarding=forwards,
        link_bandwidth=1e9,
    ).router("up_down", enable_bundling=False)  # fmt: skip
    graph = nx.DiGraph(links)
    for a, b in np.argwhere(~np.eye(num, dtype=bool)).tolist():
        between = graph if forwards else graph.subgraph([v for v in graph if v >= first or v in (a, b)])
        if nx.has_path(between, a, b):
            router.route(a, b, 0)
        else:
            with pytest.raises(NoRouteError):
                router.route(a, b, 0)
    (found,) = _core.channel_dependencies(router, list(range(num)), _core.channel_schemes()[0])
    assert not found["cycle"]
    assert found["num_virtual_channels"] <= 2
