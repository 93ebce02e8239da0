"""UGAL-L: its choices by hand, loads without time against flows that start together, what sessions make of it."""

import numpy as np
import pytest

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
    # Minimal: S waits for the cable, one long: S. Valiant's first links are the cable (1/2), and those to the two other
    # switches (1/4 each): S/2 waits in the mean, 3/2 long: 3/4 S. So the second takes Valiant's paths; half of it and
    # all of the first share the cable at equal rates, 2/3 of its bandwidth, and end together.
    found = rostam.run_flows(complete, src=[0, 1], dst=[2, 3], num_bytes=[SIZE, SIZE], routing="ugal")
    assert between(complete, found, 0, 1) == pytest.approx(1.5 * SIZE)
    assert between(complete, found, 0, 2) == between(complete, found, 3, 1) == pytest.approx(SIZE / 4)
    assert found.finish_s == pytest.approx([1.5 * SIZE / 10e9] * 2)


@pytest.mark.parametrize(("wait_s", "round_about"), [(70e-6, 1.0), (20e-6, 1.0), (101e-6, 0.0)])
def test_what_has_been_sent_waits_no_more(complete, wait_s, round_about):
    # The first is through after 100 us; until then some of it waits, and 3/4 of that is less than all of it.
    found = rostam.run_flows(
        complete, src=[0, 1], dst=[2, 3], num_bytes=[SIZE, SIZE], start_s=[0, wait_s], routing="ugal"
    )
    assert between(complete, found, 0, 2) == pytest.approx(round_about * SIZE / 4)


@pytest.mark.parametrize(
    ("name", "params"),
    [("dragonfly", DRAGONFLY), ("slim_fly", {"q": 4, "terminals_per_switch": 2}), ("torus", {"dims": (4, 4)})],
)
def test_loads_without_time_are_those_of_flows_that_start_together(name, params):
    fabric = build_fabric(name, **params)
    rng = np.random.default_rng(5)
    src, dst = rng.integers(0, fabric.num_accelerators, (2, 150))
    src, dst = src[src != dst], dst[src != dst]
    sizes = rng.integers(1, 10**6, len(src))
    run = rostam.run_flows(fabric, src=src, dst=dst, num_bytes=sizes.tolist(), routing="ugal")
    assert link_loads(fabric, src, dst, sizes, "ugal") == pytest.approx(run.link_bytes)
    assert run.link_bytes != pytest.approx(link_loads(fabric, src, dst, sizes, "valiant"))


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
