"""Reduction tables walked packet by packet: right sums whatever is evicted, and rates by the forms of Klenk et al.

Every walk checks that each accelerator ends with the sum of every address's drawn integers, once.
"""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives.table_walk import walk_all_reduce
from rostam_py.errors import ConfigError

RATE = 10e9
FORMS = {"pull": lambda p: 1 + 1 / p, "push": lambda p: 1.0}


def one_switch(size=4, **more):
    return rostam.fabric(
        "electrical_flat", num_accelerators=size, accelerator_bandwidth=RATE, in_network_reduction=True, **more
    )


def leaf_spine(size=16, **more):
    return rostam.fabric(
        "fat_tree", num_accelerators=size, radix=8, leaf_down=4, leaf_up=4, num_spines=4, accelerator_bandwidth=RATE,
        in_network_reduction=True, **more,
    )  # fmt: skip


def two_boards():
    links = [(f"gpu{k}", f"sw{k // 8}") for k in range(16)] + [("sw0", "sw1")] * 8
    return rostam.fabric("custom", links=links, link_bandwidth="25 GB/s", planes=6, in_network_reduction=True)


@pytest.mark.parametrize("algorithm", FORMS)
@pytest.mark.parametrize("size", [4, 16])
def test_links_carry_the_form_and_time_is_theirs(algorithm, size):
    fabric, num_bytes = one_switch(size, latency="100 ns"), 2**17 * size
    walk = walk_all_reduce(fabric, algorithm, num_bytes)
    moved = round(FORMS[algorithm](size) * num_bytes)
    assert (np.asarray(walk.link_bytes) == moved).all()
    assert walk.data_s == pytest.approx(moved / RATE, rel=0.02)


@pytest.mark.parametrize("make", [one_switch, leaf_spine, two_boards])
@pytest.mark.parametrize("algorithm", FORMS)
def test_links_of_accelerators_carry_what_flows_carry(make, algorithm):
    fabric = make()
    size = fabric.num_accelerators
    num_bytes = size * 128 * 24
    walk = walk_all_reduce(fabric, algorithm, num_bytes)
    flow = rostam.run_collective(fabric, "all_reduce", num_bytes=num_bytes, algorithm=algorithm, fold=False)
    assert walk.num_evicted == walk.num_passed == 0
    links = fabric.links
    for ends in ("src", "dst"):  # of every vertex: parallel ways are chosen by other rules
        walked, flowed = (
            np.bincount(links[ends], weights=one) for one in (walk.link_bytes, flow.link_bytes * fabric.planes)
        )
        assert walked == pytest.approx(flowed)


@pytest.mark.parametrize("draws_victims", [False, True])
@pytest.mark.parametrize("make", [one_switch, leaf_spine])
@pytest.mark.parametrize("seed", range(4))
def test_evictions_leave_right_sums(make, seed, draws_victims):
    fabric = make(latency="1 us", reduction_table=5 * 128) if make is one_switch else make(reduction_table=5 * 128)
    walk = walk_all_reduce(fabric, "push", 2**15, seed=seed, skew_s=1e-6, draws_victims=draws_victims)
    assert walk.num_evicted > 0
    assert walk.most_entries == 5
    whole = walk_all_reduce(make(), "push", 2**15, seed=seed)
    assert sum(walk.link_bytes) > sum(whole.link_bytes)


@pytest.mark.parametrize("seed", range(4))
def test_full_tables_between_pass_on_and_leave_right_sums(seed):
    walk = walk_all_reduce(leaf_spine(reduction_table=3 * 128), "pull", 2**15, seed=seed)
    assert walk.num_passed > 0
    assert walk.most_entries == 3


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_tables_below_the_round_trip_slow_a_pull_in_proportion(share):
    access_s, crossing_s, num_bytes = 10e-6, 10e-6, 2**22
    table = round(share * RATE * (crossing_s + access_s))
    fabric = one_switch(16, latency=crossing_s, reduction_memory=access_s, reduction_table=table)
    # Without what the first packet takes: request, access, response and sum, a write and its copy.
    data_s = walk_all_reduce(fabric, "pull", num_bytes).data_s - 3 * crossing_s - access_s
    assert num_bytes / RATE / data_s == pytest.approx(share, rel=0.05)


@pytest.mark.parametrize("algorithm", FORMS)
@pytest.mark.parametrize("speedup", [1.0, 1.5])
def test_speedup_below_two_slows_by_half_of_it(algorithm, speedup):
    full, slow = (
        walk_all_reduce(one_switch(16, latency="10 ns", reduction_speedup=one), algorithm, 2**18).data_s
        for one in (2.0, speedup)
    )
    assert full / slow == pytest.approx(speedup / 2, rel=0.05)


@pytest.mark.parametrize(("wave", "count"), [(2**13, 1), (2**14, 2), (2**16, 2)])
def test_few_waves_leave_links_idle(wave, count):
    crossing_s = 2e-6
    fabric = one_switch(latency=crossing_s, reduction_wave=wave, reduction_waves=count)
    walk = walk_all_reduce(fabric, "push", 2**19)
    expected = min(1, count * wave / (wave + RATE * crossing_s))
    assert 2**19 / RATE / walk.data_s == pytest.approx(expected, rel=0.05)


def test_injection_limits_the_rate():
    walk = walk_all_reduce(one_switch(latency="10 ns", reduction_injection=0.5), "push", 2**18)
    assert walk.data_s == pytest.approx(2 * 2**18 / RATE, rel=0.02)


def test_headers_are_carried():
    walk = walk_all_reduce(one_switch(reduction_flit="16 B"), "push", 2**14)
    assert (np.asarray(walk.link_bytes) == 2**14 * 9 // 8).all()


@pytest.mark.parametrize("size", [4, 16])
def test_small_messages_gain_by_the_crossings_saved(size):
    crossing, flag, access = 5e-7, 2e-7, 3e-7
    fabric = rostam.fabric(
        "electrical_flat", num_accelerators=size, accelerator_bandwidth=150e9, in_network_reduction=True,
        latency=crossing, reduction_flag=flag, reduction_memory=access,
    )  # fmt: skip
    ring = rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm="ring").time_s
    form = 2 * (size - 1) * (crossing + flag) / (2 * crossing + access + flag)
    assert ring / walk_all_reduce(fabric, "push", size).time_s == pytest.approx(form, rel=0.05)


def test_barriers_are_as_given():
    times = [walk_all_reduce(one_switch(), "push", 4096, barrier_s=barrier).time_s for barrier in (0.0, 3e-6)]
    assert times[1] - times[0] == pytest.approx(3e-6)


def test_bad_input_is_refused():
    for given, words in (
        ((one_switch(), "ring", 8), "algorithm is 'ring'"),
        ((one_switch(), "push", 0), "num_bytes is 0"),
        ((rostam.fabric("electrical_flat", num_accelerators=4), "push", 8), "do not reduce"),
    ):
        with pytest.raises(ConfigError, match=words):
            walk_all_reduce(*given)
