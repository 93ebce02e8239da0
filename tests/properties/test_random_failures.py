"""Random small fabrics with 1 to 10% of their links or switches failed, under every routing, on all tiers: link
loads, flows, and packets, whose buffers are as small as can be where the routing promises that they do not lock.

Never a wrong path, never above capacity, bytes conserved at every vertex, no circle of channel dependencies where the
routing promises none; a pair without a path is a NoRouteError, and only where there is none, under every routing.
"""

import networkx as nx
import numpy as np
import pytest

import rostam_py as rostam
from rostam_py import PacketOptions, _core
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics import FABRICS
from rostam_py.fabrics.dependencies import check_dependencies
from rostam_py.fabrics.routings import base_of
from rostam_py.fabrics.throughput import link_loads

SAFE = ("turns", "up_down", "dfsssp")  # free of deadlock on any fabric, whatever has failed
SHARES = (0.01, 0.05, 0.1)
NUM_FLOWS = 12
MOST_CHANNELS = 16  # that a link of these has under a routing of SAFE
CHECKED = 5  # one of so many cases has its dependencies checked


def pick(rng, *options):
    return options[rng.integers(len(options))]


def parameters(name, rng):
    """Random parameters of a small fabric."""
    return {
        "custom": lambda: custom(rng),
        "dragonfly": lambda: {
            "routers_per_group": 4, "terminals_per_router": int(rng.integers(1, 3)), "global_links_per_router": 2,
            "num_groups": int(rng.integers(3, 9)), "routers_per_switch": int(pick(rng, 1, 2)),
        },
        "electrical_cluster": lambda: {
            "num_accelerators": int(rng.integers(4, 20)), "server_size": int(rng.integers(2, 6))},
        "electrical_flat": lambda: {"num_accelerators": int(rng.integers(3, 12))},
        "fat_tree": lambda: {"num_accelerators": int(rng.integers(6, 40)), "radix": 8} | pick(
            rng, {}, {"leaf_down": 5, "leaf_up": 3}, {"levels": 3}, {"server_size": 4},
            {"server_size": 2, "rails": True}, {"levels": 3, "leaf_down": 2, "leaf_up": 3, "pod_leaves": 3}),
        "hammingmesh": lambda: pick(rng, {
            "board": pick(rng, (1, 1), (2, 2), (2, 3), (4, 4)), "boards": pick(rng, (2, 2), (3, 2), (3, 3)),
            "wiring": pick(rng, "auto", "board_row", "accelerator_row"),
        }, {"board": pick(rng, (1, 1), (2, 1)), "boards": pick(rng, (5, 2), (7, 1), (2, 8)), "radix": 4}),
        "hybrid_cube_mesh": lambda: {"num_accelerators": int(8 * rng.integers(1, 4))},
        "hyperx": lambda: {"dims": pick(rng, (5,), (3, 4), (2, 3, 3)), "terminals": int(rng.integers(1, 3))},
        "photonic_rails": lambda: rails(rng),
        "regional_ocs": lambda: {
            "num_accelerators": int(rng.integers(6, 20)), "server_size": int(rng.integers(1, 4)),
            "region_servers": int(rng.integers(1, 4)), "num_ocs": int(rng.integers(1, 4)),
            "num_electrical": int(rng.integers(1, 3))},
        "sip_ocs": lambda: {"num_accelerators": 8},
        "sip_ring": lambda: {"num_accelerators": int(rng.integers(5, 12))},
        "slim_fly": lambda: {"q": int(pick(rng, 3, 4, 5)), "terminals_per_switch": int(rng.integers(1, 3))},
        "torus": lambda: {"dims": pick(rng, (7,), (4, 5), (3, 3), (2, 3, 4), (4, 4))},
    }[name]()  # fmt: skip


def rails(rng):
    """Servers of a few accelerators, each on a rail with as many circuits back as forth, which up_down needs."""
    size = int(rng.integers(1, 5))
    return {
        "num_accelerators": size * int(rng.integers(2, 6)),
        "server_size": size,
        "num_ocs": int(2 * rng.integers(1, 3)),
    }


def custom(rng):
    """A random tree of accelerators that forward, with some more cables."""
    count = int(rng.integers(4, 14))
    src = [int(rng.integers(k)) for k in range(1, count)]
    dst = list(range(1, count))
    for _ in range(count):
        one, other = rng.choice(count, 2, replace=False).tolist()
        src, dst = [*src, one], [*dst, other]
    return {"links": {"src": src, "dst": dst}, "num_accelerators": count, "forwarding": True}


def with_failures(fabric, rng):
    """A share of its links or switches failed."""
    kind = pick(rng, "links", "switches") if fabric.num_switches else "links"
    total = fabric.num_switches if kind == "switches" else fabric.num_links
    count = max(1, round(float(pick(rng, *SHARES)) * total))
    scope = pick(rng, "network", "all") if kind == "links" else "network"
    try:
        return fabric.with_random_failures(
            kind, count, int(rng.integers(2**31)), scope=scope, planes=pick(rng, "one", "all")
        )
    except ConfigError:  # fewer of that kind than drawn
        return fabric


def graph_of(fabric):
    """What works, over all planes: an accelerator that forwards nothing is an end alone, in and out apart."""
    links, num = fabric.links, fabric.num_accelerators
    forwards = fabric.core.accelerators_forward
    graph = nx.DiGraph()
    for src, dst, failed, plane in zip(*(links[key].tolist() for key in ("src", "dst", "is_failed", "plane")),
                                       strict=True):  # fmt: skip
        if failed:
            continue
        tail = (src, plane if forwards or src >= num else "out")
        head = (dst, plane if forwards or dst >= num else "in")
        graph.add_edge(tail, head)
    return graph


def is_joined(fabric, graph, src, dst):
    planes = sorted(set(fabric.links["plane"].tolist()))
    if fabric.core.accelerators_forward:
        ways = [((src, plane), (dst, plane)) for plane in planes]
    else:
        ways = [((src, "out"), (dst, "in"))]
    return any(a in graph and b in graph and nx.has_path(graph, a, b) for a, b in ways)


def check_route(fabric, links, shares, src, dst):
    """Shares begin at the source, are handed on whole, end at the destination, over what works."""
    table = fabric.links
    assert not table["is_failed"][links].any()
    net = np.zeros(int(max(table["src"].max(), table["dst"].max())) + 1)
    np.add.at(net, table["src"][links], shares)
    np.add.at(net, table["dst"][links], -np.asarray(shares))
    assert net[src] == pytest.approx(-net[dst])
    assert net[src] > 0.99
    assert np.abs(np.delete(net, [src, dst])).max(initial=0) < 1e-9


def run_case(seed):
    """One case. Returns (fabric, routing) of one that sent something, None where nothing could be."""
    rng = np.random.default_rng(seed)
    name = pick(rng, *FABRICS.names())
    params = parameters(name, rng)
    planes = {} if name in ("custom", "regional_ocs", "sip_ocs", "sip_ring") else {"planes": int(pick(rng, 1, 1, 2))}
    fabric = with_failures(rostam.fabric(name, link_bandwidth=5e10, **planes, **params), rng)
    routing = pick(rng, *_core.routing_names())
    if routing == "layers":
        routing += pick(rng, "", ":1", ":7")
    healthy = fabric.healthy_accelerators
    if len(healthy) < 2:
        return None
    src = rng.choice(healthy, NUM_FLOWS)
    dst = rng.choice(healthy, NUM_FLOWS)
    src, dst = src[src != dst], dst[src != dst]
    sizes = rng.integers(0, 10**6, len(src))
    if fabric.is_circuit_switched:
        try:
            fabric = rostam_circuits(fabric, src, dst, sizes)
        except ConfigError:  # a demand that is beyond its ports, or light that would fade
            return None
        graph = None
    else:
        graph = graph_of(fabric)
    routes, joined = fabric.router(routing, enable_bundling=False), []
    for number, (one, other) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        try:
            links, shares, _ = routes.route(one, other, number)
        except NoRouteError:
            assert graph is None or not is_joined(fabric, graph, one, other)
            continue
        assert graph is None or is_joined(fabric, graph, one, other)
        if len(fabric.plane_classes) == 1:
            check_route(fabric, links, shares, one, other)
        joined.append(number)
    if seed % CHECKED == 0 and not fabric.is_circuit_switched and fabric.num_accelerators <= 64:
        found = check_dependencies(fabric, pick(rng, *SAFE))
        assert found.is_deadlock_free
    if not joined:
        return None
    src, dst, sizes = src[joined], dst[joined], sizes[joined]
    run = rostam.run_flows(fabric, src=src, dst=dst, num_bytes=sizes.tolist(), routing=routing, seed=int(seed))
    check_run(fabric, run, src, dst, sizes, float(run.sent_s.max()))
    run_packets(fabric, routing, src, dst, sizes, seed)
    whole = len(fabric.plane_classes) == 1
    if routing not in ("hash", "adaptive") and whole and fabric.planes == 1:
        loads = link_loads(fabric, src, dst, sizes, routing)
        if routing == "ugal":  # without time each flow divides its bytes, in time each message decides
            check_loads(fabric, loads, src, dst, sizes)
        else:
            assert loads == pytest.approx(run.link_bytes, rel=1e-6, abs=1e-3)
    return name, base_of(routing)


def rostam_circuits(fabric, src, dst, sizes):
    from rostam_py.fabrics.circuits import with_circuits_for

    return with_circuits_for(fabric, src, dst, sizes)


def run_packets(fabric, routing, src, dst, sizes, seed):
    """The same flows as packets of random sizes."""
    rng = np.random.default_rng(seed + 2**32)
    size = int(pick(rng, 700, 4096, 8192))
    buffer = size * int(rng.integers(MOST_CHANNELS, 2 * MOST_CHANNELS)) if routing in SAFE else "32 MB"
    options = PacketOptions(
        packet_bytes=size, flit_bytes=int(pick(rng, 0, 256, size)), buffer_bytes=buffer,
        crossbar_speedup=int(rng.integers(1, 4)),
    )  # fmt: skip
    run = rostam.run_flows(
        fabric, src=src, dst=dst, num_bytes=sizes.tolist(), routing=routing, seed=int(seed), fidelity="packet",
        packets=options,
    )  # fmt: skip
    check_run(fabric, run, src, dst, sizes, float(run.finish_s.max()))


def check_run(fabric, run, src, dst, sizes, span_s):
    """Everything arrives, within capacity, conserved at every vertex."""
    links = fabric.links
    assert np.isfinite(run.finish_s).all()
    assert run.link_bytes[links["is_failed"]].sum() == 0
    assert (run.link_bytes <= links["bandwidth_bytes_per_s"] * span_s * (1 + 1e-9) + 1e-6).all()
    # Of one plane of each class: what each carries of a message adds up over the planes.
    weight = np.zeros(len(links))
    for planes in fabric.plane_classes:
        weight[links["plane"] == planes[0]] = len(planes)
    net = np.zeros(int(max(links["src"].max(), links["dst"].max())) + 1)
    np.add.at(net, links["src"], run.link_bytes * weight)
    np.add.at(net, links["dst"], -run.link_bytes * weight)
    np.add.at(net, src, -sizes.astype(float))
    np.add.at(net, dst, sizes.astype(float))
    assert np.abs(net).max() <= 4 * len(src) * fabric.planes  # each plane's part is rounded up to bytes


def check_loads(fabric, loads, src, dst, sizes):
    """Conserved at every vertex, over what works."""
    links = fabric.links
    assert loads[links["is_failed"]].sum() == 0
    net = np.zeros(int(max(links["src"].max(), links["dst"].max())) + 1)
    np.add.at(net, links["src"], loads)
    np.add.at(net, links["dst"], -loads)
    np.add.at(net, src, -sizes.astype(float))
    np.add.at(net, dst, sizes.astype(float))
    assert np.abs(net).max() <= 1e-9 * max(1, sizes.sum())


@pytest.mark.parametrize("part", range(4))
def test_a_random_case_is_right(part):
    sent = [run_case(seed) for seed in range(60 * part, 60 * (part + 1))]
    assert sum(one is not None for one in sent) > 40


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand_random_cases_are_right(part):
    sent = [run_case(seed) for seed in range(1000 + 500 * part, 1000 + 500 * (part + 1))]
    seen = {one for one in sent if one is not None}
    assert sum(one is not None for one in sent) > 350
    assert {name for name, _ in seen} == set(FABRICS.names())
    assert {routing for _, routing in seen} == set(_core.routing_names())
