"""Valiant routing against sums over intermediate vertices written out, and its worst case."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.throughput import link_loads

CASES = [
    ("slim_fly", {"q": 3, "terminals_per_switch": 2}),
    ("hyperx", {"dims": (3, 4), "terminals": 2}),
    ("torus", {"dims": (3, 4)}),
    ("fat_tree", {"num_accelerators": 16, "radix": 8}),
    ("fat_tree", {"num_accelerators": 16, "radix": 8, "server_size": 4}),
    ("dragonfly", {"routers_per_group": 2, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 5}),
    ("electrical_flat", {"num_accelerators": 5}),
]


@pytest.mark.parametrize(("name", "params"), CASES)
def test_loads_of_many_flows_are_the_sums_of_their_routes(name, params):
    fabric = build_fabric(name, **params)
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, fabric.num_accelerators, (2, 40))
    sizes = rng.random(40)
    routes = fabric.router("valiant", enable_bundling=False)
    expected = np.zeros(len(fabric.links))
    for s, d, size in zip(src.tolist(), dst.tolist(), sizes.tolist(), strict=True):
        if s != d:
            links, shares, _ = routes.route(s, d)
            expected[links] += size * shares
    assert link_loads(fabric, src, dst, sizes, "valiant") == pytest.approx(expected, abs=1e-12)


def test_a_way_by_an_intermediate_switch_is_two_minimal_ones():
    # A complete graph of 4 switches: to the next switch, 2 of 4 intermediate ones leave the way direct.
    fabric = build_fabric("hyperx", dims=(4,), link_latency="20 ns", switch_latency="40 ns")
    links, shares, latency_ps = fabric.router("valiant").route(0, 1)
    table = fabric.links
    found = {(int(table["src"][k]), int(table["dst"][k])): share for k, share in zip(links, shares, strict=True)}
    assert found == {(0, 4): 1, (5, 1): 1, (4, 5): 0.5, (4, 6): 0.25, (6, 5): 0.25, (4, 7): 0.25, (7, 5): 0.25}
    assert latency_ps == 4 * 20_000 + 3 * 40_000


def test_accelerators_of_one_server_stay_inside_it():
    fabric = build_fabric("fat_tree", num_accelerators=16, radix=8, server_size=4)
    valiant, spray = fabric.router("valiant"), fabric.router("spray")
    _, shares, latency_ps = valiant.route(0, 3)
    assert list(shares) == [1, 1]  # to the server's own switch and back
    assert latency_ps == spray.route(0, 3)[2]
    assert valiant.route(0, 12)[2] > spray.route(0, 12)[2]  # by way of another leaf


def test_valiant_evens_out_the_worst_pattern_of_a_dragonfly():
    # All of a group send to the next group: minimal ways share that pair's only cable; Valiant's use all.
    a, p, h, g = 4, 2, 2, 9
    fabric = build_fabric(
        "dragonfly", routers_per_group=a, terminals_per_router=p, global_links_per_router=h, num_groups=g
    )
    ranks = np.arange(fabric.num_accelerators)
    pattern = (ranks + a * p) % len(ranks)
    minimal = rostam.saturation_throughput(fabric, pattern, "spray")
    valiant = rostam.saturation_throughput(fabric, pattern, "valiant")
    assert minimal == pytest.approx(1 / (a * p))
    assert valiant > 2.5 * minimal


def test_valiant_all_to_all_takes_twice_the_network_of_minimal_ways():
    # Complete graph of n switches with one accelerator each: loads of minimal ways are 1/(n-1) of a port's. By way of n
    # intermediate switches each link carries 2/n of the cases that are direct and 2 of n ways' halves.
    n = 5
    fabric = build_fabric("hyperx", dims=(n,))
    src, dst = np.nonzero(~np.eye(n, dtype=bool))
    loads = link_loads(fabric, src, dst, np.full(len(src), 1 / (n - 1)), "valiant")
    between = loads[fabric.links["src"] >= n][fabric.links["dst"][fabric.links["src"] >= n] >= n]
    # Of a pair's n ways 2 take one link between switches and n - 2 take two: 2 (n - 1) / n links in the mean, over
    # n (n - 1) links for n senders of 1.
    assert between == pytest.approx(np.full(n * (n - 1), 2 / n))
