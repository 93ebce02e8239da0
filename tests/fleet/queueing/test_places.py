"""Places: best fit by hand, and random takings, returns, faults and repairs that are counted a second time."""

import random

import numpy as np
import pytest

from rostam_py.fabrics.fat_tree import FatTreeConfig
from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fabrics.torus import TorusConfig
from rostam_py.fleet.allocators import ALLOCATORS, Room, make_allocator
from rostam_py.fleet.queueing.names import PLACES
from rostam_py.fleet.queueing.places.units import Units

FABRICS = {
    "submesh": HammingMeshConfig(board=(2, 2), boards=(4, 4)), "blocks": TorusConfig(dims=(4, 4, 4)),
    "leaves": FatTreeConfig(num_accelerators=64, levels=2, leaf_down=16, leaf_up=16),
}  # fmt: skip
TREE = FABRICS["leaves"]


def units(name, server_size=4):
    is_working = np.ones(64, bool)
    room = Room(FABRICS.get(name, TREE), is_working, ~is_working, 4)
    return Units(make_allocator(name, room), server_size)


def all_places():
    for name in PLACES:
        yield name, lambda name=name: PLACES.get(name)(np.ones(64, bool), 4)
    for name in ALLOCATORS:
        yield name, lambda name=name: units(name)
        yield f"{name}, servers of 8", lambda name=name: units(name, 8)


MAKERS = dict(all_places())


def test_small_jobs_fill_the_fullest_server_and_larger_ones_take_empty_ones():
    places = PLACES.get("servers")(np.ones(24, bool), 8)
    first, second, third = places.take(3), places.take(6), places.take(2)
    assert [one.servers for one in (first, second, third)] == [(0,), (1,), (1,)]  # 5 and 2 were free: 2 is enough
    assert places.take(17) is None  # two whole servers and one more: one is empty
    assert places.take(9).servers == (2, 0)
    assert places.num_free == 4
    assert places.take(5) is None  # 4 in one server


def test_count_splits_a_job_over_the_servers_with_most_room():
    places = PLACES.get("count")(np.ones(24, bool), 8)
    for size in (3, 6, 7):
        places.take(size)
    found = places.take(7)  # 5, 2 and 1 are left
    assert found.servers == (0, 1)
    assert found.accelerators() == (3, 4, 5, 6, 7, 14, 15)
    assert places.take(1).servers == (2,)
    assert places.take(1) is None


def test_a_server_with_failed_accelerators_is_smaller():
    is_working = np.ones(16, bool)
    is_working[3] = False
    places = PLACES.get("servers")(is_working, 8)
    assert places.num_working == 15
    assert places.take(16) is None
    assert places.take(8).servers == (1,)
    assert places.take(7).accelerators() == (0, 1, 2, 4, 5, 6, 7)


def test_small_jobs_share_a_unit_and_the_last_one_gives_it_back():
    places = units("submesh")
    held = [places.take(size) for size in (1, 2, 3)]
    assert [one.accelerators() for one in held] == [(0,), (1, 2), (4, 5, 6)]
    assert places.take(1).accelerators() == (3,)
    assert places.allocator.num_free == 14
    for one in held[:2]:
        places.give_back(one)
    assert places.num_free == 64 - 4
    places.give_back(held[2])
    assert places.allocator.num_free == 15


def test_what_a_job_leaves_of_its_last_unit_is_spare():
    found = units("leaves").take(9)
    assert (found.size, found.held) == (9, 12)


def recount(places, held, faults, server_size):
    """Return how many accelerators are free: those of no unit that is held in full, failed or shared out."""
    taken = {one for place in held for one in place.accelerators()}
    whole = sum(place.held - place.size for place in held)
    if not isinstance(places, Units):
        down = {one for one in range(64) if faults.get(one // server_size)}
        return 64 - len(taken | down) - whole
    down_units = [
        unit for unit in places.allocator.units.tolist() if any(faults.get(one // server_size) for one in unit)
    ]
    down = {one for unit in down_units for one in unit}
    spare = {
        one
        for place in held
        if place.held > place.size
        for unit in place.units.units
        for one in places.allocator.units[unit].tolist()
    }
    return 64 - len(taken | down | spare)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("seed", range(4))
def test_no_accelerator_is_given_twice_and_all_are_counted(name, seed):
    draw, places = random.Random(seed), MAKERS[name]()
    server_size = 64 // places.num_servers
    held, faults = [], {}
    for _ in range(250):
        step = draw.random()
        if step < 0.5:
            place = places.take(draw.choice([1, 1, 2, 3, 4, 5, 8, 12, 16]))
            if place is not None:
                assert not {one // server_size for one in place.accelerators() if faults.get(one // server_size)}
                assert set(place.servers) == {one // server_size for one in place.accelerators()}
                held.append(place)
        elif step < 0.8 and held:
            places.give_back(held.pop(draw.randrange(len(held))))
        elif step < 0.9:
            server = draw.randrange(places.num_servers)
            faults[server] = faults.get(server, 0) + 1
            places.fail(server)
        elif down := [server for server, number in faults.items() if number]:
            server = draw.choice(down)
            faults[server] -= 1
            places.repair(server)
        given = [one for place in held for one in place.accelerators()]
        assert len(given) == len(set(given))
        assert places.num_free == recount(places, held, faults, server_size)
    for place in held:
        places.give_back(place)
    for server, number in faults.items():
        for _ in range(number):
            places.repair(server)
    assert places.num_free == 64
    assert places.take(64) is not None


@pytest.mark.parametrize("name", MAKERS)
def test_a_copy_goes_its_own_way_and_takes_again_what_was_given(name):
    places = MAKERS[name]()
    first, small = places.take(8), places.take(1)
    copy = places.copy()
    copy.give_back(first)
    copy.give_back(small)
    assert (places.num_free, copy.num_free) == (55, 64) if name in PLACES else places.num_free < copy.num_free == 64
    whole = copy.take(64)
    assert whole is not None
    copy.give_back(whole)
    copy.take_again(first)
    copy.take_again(small)
    assert copy.num_free == places.num_free
    assert copy.take(64) is None
