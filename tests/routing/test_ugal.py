"""UGAL: its choices by hand, loads without time against a linear program, paced traffic, what sessions make of it."""

import numpy as np
import pytest
from scipy.optimize import linprog

import rostam_py as rostam
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.dependencies import check_dependencies
from rostam_py.fabrics.throughput import link_loads

DRAGONFLY = {"routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 9}
SIZE = 10**6


@pytest.fixture
def complete():
    """Four switches, each joined to every other one, two accelerators on each."""
    return build_fabric("hyperx", dims=(4,), terminals=2, link_bandwidth="10 GB/s", link_latency=0, switch_latency=0)


def between(fabric, result, src, dst):
    """Bytes on the link between two switches."""
    links, first = fabric.links, fabric.num_accelerators
    is_it = (links["src"] == first + src) & (links["dst"] == first + dst)
    return float(result.link_bytes[is_it].sum())


def test_a_message_on_an_idle_network_takes_minimal_paths(complete):
    found = rostam.run_flows(complete, src=[0], dst=[2], num_bytes=[SIZE], routing="ugal")
    minimal = rostam.run_flows(complete, src=[0], dst=[2], num_bytes=[SIZE], routing="spray")
    assert found.finish_s == minimal.finish_s
    assert (found.link_bytes == minimal.link_bytes).all()


def test_the_second_message_goes_round_what_the_first_has_left_to_send(complete):
    # Minimal: the cable carries the first meanwhile, the second waits for all of it. Valiant's take the cable for half
    # and each of the others for a quarter: the excess on the cable is half as much, on half of the bytes. So the second
    # takes Valiant's paths; half of it and all of the first share the cable at equal rates, 2/3 of its bandwidth, and
    # end together.
    found = rostam.run_flows(complete, src=[0, 1], dst=[2, 3], num_bytes=[SIZE, SIZE], routing="ugal")
    assert between(complete, found, 0, 1) == pytest.approx(1.5 * SIZE)
    assert between(complete, found, 0, 2) == between(complete, found, 3, 1) == pytest.approx(SIZE / 4)
    assert found.finish_s == pytest.approx([1.5 * SIZE / 10e9] * 2)


@pytest.mark.parametrize(("latency_s", "round_about"), [(52.0e-6, 1.0), (52.3e-6, 0.0)])
def test_a_longer_way_is_worth_what_it_saves_of_waiting(latency_s, round_about):
    # A message alone takes t = 100 us. Beside the first, minimal paths wait for t; on Valiant's the cable would take
    # 3/2 t with its half of the bytes, which counts as (1/2 (1/2)^16)^(1/16) t = 47.88 us. Valiant's are one cable and
    # one switch longer: worth it up to 52.12 us.
    fabric = build_fabric(
        "hyperx", dims=(4,), terminals=2, link_bandwidth="10 GB/s", link_latency=latency_s - 1e-6, switch_latency=1e-6
    )
    found = rostam.run_flows(fabric, src=[0, 1], dst=[2, 3], num_bytes=[SIZE, SIZE], routing="ugal")
    assert between(fabric, found, 0, 2) == pytest.approx(round_about * SIZE / 4)


@pytest.mark.parametrize(("wait_s", "round_about"), [(70e-6, 1.0), (20e-6, 1.0), (101e-6, 0.0)])
def test_a_message_that_is_through_holds_up_no_other(complete, wait_s, round_about):
    # The first is through after 100 us.
    found = rostam.run_flows(
        complete, src=[0, 1], dst=[2, 3], num_bytes=[SIZE, SIZE], start_s=[0, wait_s], routing="ugal"
    )
    assert between(complete, found, 0, 2) == pytest.approx(round_about * SIZE / 4)


def shares_of(fabric, routing, src, dst):
    """Share of every link, shape (flows, links)."""
    router = fabric.router(routing, enable_bundling=False)
    shares = np.zeros((len(src), len(fabric.links)))
    for row, (one, other) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        links, part, _ = router.route(one, other)
        shares[row, links] = part
    return shares


def fullest_at_best(minimal, round_about, sizes, capacities):
    """The least that the fullest link takes [s] where each flow divides its bytes between both ways."""
    num_flows, num_links = minimal.shape
    more = ((round_about - minimal) * sizes[:, None] / capacities).T
    found = linprog(
        np.append(np.zeros(num_flows), 1),
        A_ub=np.hstack([more, -np.ones((num_links, 1))]),
        b_ub=-(minimal * sizes[:, None]).sum(axis=0) / capacities,
        bounds=[(0, 1)] * num_flows + [(0, None)],
    )
    assert found.status == 0
    return found.fun


def is_division(loads, minimal, round_about, sizes):
    """True if some division of every flow between both ways puts these loads on links."""
    scale = loads.max()
    found = linprog(
        np.zeros(len(sizes)),
        A_eq=((round_about - minimal) * sizes[:, None] / scale).T,
        b_eq=(loads - (minimal * sizes[:, None]).sum(axis=0)) / scale,
        bounds=[(0, 1)] * len(sizes),
    )
    return found.status == 0


SETTLED = [
    ("dragonfly", DRAGONFLY | {"num_groups": 4}, 0),
    ("dragonfly", DRAGONFLY, 0),
    ("dragonfly", DRAGONFLY, 5),
    ("hyperx", {"dims": (4, 4), "terminals": 2}, 0),
    ("slim_fly", {"q": 4, "terminals_per_switch": 2}, 0),
    ("torus", {"dims": (4, 4)}, 0),
    ("fat_tree", {"num_accelerators": 32, "radix": 8}, 0),
    ("fat_tree", {"num_accelerators": 16, "radix": 8, "server_size": 4}, 0),
]


@pytest.mark.parametrize(("name", "params", "num_failed"), SETTLED)
@pytest.mark.parametrize("pattern", ["shift", "random"])
def test_loads_without_time_divide_bytes_nearly_as_well_as_can_be(name, params, num_failed, pattern):
    fabric = build_fabric(name, **params)
    if num_failed > 0:
        fabric = fabric.with_random_failures("links", num_failed, seed=0)
    count = fabric.num_accelerators
    rng = np.random.default_rng(5)
    if pattern == "shift":
        src, dst, sizes = np.arange(count), (np.arange(count) + 8) % count, np.full(count, 1e6)
    else:
        src, dst = rng.integers(0, count, (2, 60))
        sizes = rng.integers(1, 10**6, 60).astype(float)
    src, dst, sizes = src[src != dst], dst[src != dst], sizes[src != dst]
    minimal, round_about = (shares_of(fabric, routing, src, dst) for routing in ("spray", "valiant"))
    capacities = fabric.links["bandwidth_bytes_per_s"]
    loads = link_loads(fabric, src, dst, sizes, "ugal")
    fullest = (loads / capacities).max()
    best = fullest_at_best(minimal, round_about, sizes, capacities)
    assert best * (1 - 1e-6) <= fullest <= 1.04 * best
    assert is_division(loads, minimal, round_about, sizes)


def test_loads_of_all_to_all_are_those_of_its_flows():
    fabric = build_fabric("dragonfly", **DRAGONFLY | {"num_groups": 4})
    count = fabric.num_accelerators
    src, dst = np.nonzero(~np.eye(count, dtype=bool))
    loads = link_loads(fabric, src, dst, np.full(len(src), 1 / (count - 1)), "ugal")
    assert rostam.saturation_throughput(fabric, "all_to_all", "ugal") == pytest.approx(min(1, 1 / loads.max()))


def test_flows_without_bytes_or_way_put_nothing_on_links():
    fabric = build_fabric("dragonfly", **DRAGONFLY)
    assert not link_loads(fabric, [0, 3], [5, 3], [0, 10], "ugal").any()


def paced(fabric, routing, load, size=2**17, num_rounds=40):
    """Share of bandwidth that a shift of one group gets through where each offers `load`, and the mean latency [s]."""
    count = fabric.num_accelerators
    period_s = size / 50e9 / load
    phases = np.random.default_rng(0).random(count) * period_s
    starts = np.round((np.arange(num_rounds)[:, None] * period_s + phases).ravel(), 12)
    src = np.tile(np.arange(count), num_rounds)
    run = rostam.run_flows(
        fabric, src=src, dst=(src + 8) % count, num_bytes=[size] * len(src), start_s=starts, routing=routing
    )
    return num_rounds * size / 50e9 / run.finish_s.max(), (run.finish_s - starts).mean()


def test_it_carries_nearly_what_valiant_does_where_minimal_paths_are_worst():
    # Minimal paths carry 1/8 and Valiant's 0.529; queues grow without end above.
    fabric = build_fabric("dragonfly", **DRAGONFLY, link_bandwidth="400 Gb/s")
    for load in (0.1, 0.3, 0.4, 0.5):
        (accepted, latency_s), (best, least_s) = (paced(fabric, routing, load) for routing in ("ugal", "valiant"))
        assert accepted > 0.98 * best
        assert latency_s < 2.5 * least_s
    # 64 messages of each at once: all of them divide with the others what they find.
    count = fabric.num_accelerators
    src = np.tile(np.arange(count), 64)
    end_s = {
        routing: rostam.run_flows(
            fabric, src=src, dst=(src + 8) % count, num_bytes=[2**18] * len(src), routing=routing
        ).finish_s.max()
        for routing in ("spray", "valiant", "ugal")
    }
    assert end_s["ugal"] < 1.1 * end_s["valiant"] < 0.3 * end_s["spray"]


def test_it_is_near_minimal_paths_where_they_are_best_and_leaves_them_where_they_are_worst():
    fabric = build_fabric("dragonfly", **DRAGONFLY)
    ranks = np.arange(fabric.num_accelerators)
    worst = (ranks + 8) % len(ranks)  # all of a group send to the next one, over the only cable between the two
    times = {
        routing: (
            rostam.run_collective(fabric, "all_to_all", num_bytes="7.2 MB", algorithm="direct", routing=routing).time_s,
            rostam.run_flows(fabric, src=ranks, dst=worst, num_bytes=[SIZE] * len(ranks), routing=routing)
            .finish_s.max(),
        )
        for routing in ("spray", "valiant", "ugal")
    }  # fmt: skip
    even, uneven = zip(*times.values(), strict=True)
    assert even[2] < 1.1 * even[0] < 0.8 * even[1]
    assert uneven[2] < 0.9 * uneven[0]
    assert uneven[1] < uneven[2]


def test_sessions_choose_for_every_message_and_fold_nothing():
    fabric = build_fabric("dragonfly", **DRAGONFLY)
    first, again = (
        rostam.run_collective(fabric, "all_reduce", num_bytes="1 MB", algorithm="ring", routing="ugal")
        for _ in range(2)
    )
    assert first.num_simulated_ranks == fabric.num_accelerators
    assert first.bytes_sent == first.bytes_received == 2 * 71 * -(-(10**6) // 72) * 72
    assert first.time_ps == again.time_ps
    assert (first.link_bytes == again.link_bytes).all()
    minimal = rostam.run_collective(fabric, "all_reduce", num_bytes="1 MB", algorithm="ring", routing="spray")
    assert first.time_ps < 1.1 * minimal.time_ps


def test_planes_that_differ_are_read_each_by_itself():
    fabric = build_fabric("hyperx", dims=(4,), terminals=2, planes=2).with_failures(links=[0])
    cut = fabric.links["cable"][fabric.links["is_failed"]]
    assert len(set(cut.tolist())) == 1
    found = rostam.run_flows(fabric, src=[1, 3, 1], dst=[3, 1, 5], num_bytes=[SIZE] * 3, routing="ugal")
    assert np.isfinite(found.finish_s).all()


def test_dependencies_are_of_both_ways():
    fabric = build_fabric("dragonfly", **DRAGONFLY | {"num_groups": 3})
    both, valiant = check_dependencies(fabric, "ugal"), check_dependencies(fabric, "valiant")
    minimal = check_dependencies(fabric, "spray")
    assert both.is_deadlock_free
    assert max(valiant.num_dependencies, minimal.num_dependencies) < both.num_dependencies
    assert both.num_dependencies <= valiant.num_dependencies + minimal.num_dependencies
