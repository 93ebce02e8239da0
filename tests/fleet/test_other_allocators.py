"""Blocks of a torus, leaves and pods of a fat tree, arcs of a ring: each against a search of all places."""

import itertools

import numpy as np
import pytest

from rostam_py.errors import ConfigError
from rostam_py.fabrics.fat_tree import FatTreeConfig
from rostam_py.fabrics.sip_ring import SipRingConfig
from rostam_py.fabrics.torus import TorusConfig
from rostam_py.fleet.allocators import ALLOCATORS, Room, make_allocator
from rostam_py.fleet.allocators.leaves import group_sizes

SMALL = {
    "arcs": SipRingConfig(num_accelerators=24), "blocks": TorusConfig(dims=(4, 6)),
    "leaves": FatTreeConfig(num_accelerators=24, radix=8), "linear": TorusConfig(dims=(4, 6)),
    "random": TorusConfig(dims=(4, 6)), "submesh": None,
}  # fmt: skip


def allocator(name, fabric, failed=(), taken=(), host_size=1, seed=0):
    count = int(np.prod(fabric.dims)) if hasattr(fabric, "dims") else fabric.num_accelerators
    is_working, is_taken = np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
    is_working[list(failed)] = False
    is_taken[list(taken)] = True
    return make_allocator(name, Room(fabric, is_working, is_taken, host_size, seed))


def test_every_allocator_is_tested_here_or_by_itself():
    assert set(SMALL) == set(ALLOCATORS)


@pytest.mark.parametrize("name", [name for name, fabric in SMALL.items() if fabric])
@pytest.mark.parametrize("seed", range(3))
def test_jobs_that_come_and_go_never_overlap_and_repeat_by_seed(name, seed):
    def run():
        rng = np.random.default_rng(seed)
        one, held, seen = allocator(name, SMALL[name], failed=[5], taken=[7, 8], seed=seed), [], []
        for size in rng.integers(1, 9, 200):
            found = one.take(int(size))
            if found is None:
                one.give_back(held.pop(int(rng.integers(len(held)))))
                continue
            held.append(found)
            seen.append(found.accelerators)
            ids = [a for given in held for a in given.accelerators]
            assert len(found.accelerators) == size
            assert len(ids) == len(set(ids))
            assert not {5, 7, 8} & set(ids)
        return seen

    assert run() == run()


def boxes_by_corner(shape, number):
    """Yield every box of that many cells, across wrapped ends: its sides, and its cells row-major."""
    for sides in itertools.product(*(range(1, size + 1) for size in shape)):
        if np.prod(sides) == number:
            for corner in itertools.product(*(range(size) for size in shape)):
                along = [
                    [(start + k) % size for k in range(side)]
                    for start, side, size in zip(corner, sides, shape, strict=True)
                ]
                yield sides, [tuple(cell) for cell in itertools.product(*along)]


@pytest.mark.parametrize("shape", [(4, 6), (3, 3, 4)])
@pytest.mark.parametrize("seed", range(5))
def test_blocks_are_the_squarest_boxes_that_are_free_anywhere(shape, seed):
    rng = np.random.default_rng(seed)
    failed = np.flatnonzero(rng.random(int(np.prod(shape))) < 0.3)
    is_free = np.ones(shape, dtype=bool)
    is_free.ravel()[failed] = False
    for number in (1, 2, 3, 4, 6, 8, 9, 12):
        found = allocator("blocks", TorusConfig(dims=shape), failed).take(number)
        places = [(max(s) / min(s), cells) for s, cells in boxes_by_corner(shape, number)]
        free = [(aspect, cells) for aspect, cells in places if all(is_free[cell] for cell in cells)]
        if not free:
            assert found is None
            continue
        ids = list(found.accelerators)
        least = min(aspect for aspect, _ in free)
        squarest = [[int(np.ravel_multi_index(c, shape)) for c in cells] for aspect, cells in free if aspect == least]
        assert ids in squarest  # row-major from a corner on


def test_a_block_of_boards_is_numbered_as_a_torus_of_its_size():
    # Boards of 2 x 2 on 4 x 4: a job of 8 takes boards 0 and 1, a torus of 2 x 4.
    fabric = TorusConfig(dims=(4, 4), board=(2, 2))
    one = allocator("blocks", fabric)
    assert one.take(8).accelerators == tuple(range(8))
    cells = [tuple(int(k) for k in np.argwhere(fabric.grid() == a)[0]) for a in range(8)]
    own = TorusConfig(dims=(2, 4), board=(2, 2)).grid()
    assert [cells[a] for a in own.ravel()] == list(itertools.product(range(2), range(4)))
    # 5 ranks hold two boards, 3 accelerators idle.
    second = one.take(5)
    assert (second.accelerators, second.units) == (tuple(range(8, 13)), (2, 3))


def fewest_groups(is_free, size, count):
    """Return the fewest groups of ``size`` consecutive hosts that hold ``count`` free ones: all choices are tried."""
    free = [int(is_free[k : k + size].sum()) for k in range(0, len(is_free), size)]
    for number in range(1, len(free) + 1):
        if any(sum(one) >= count for one in itertools.combinations(free, number)):
            return number
    return None


@pytest.mark.parametrize("seed", range(8))
def test_leaves_take_as_few_leaves_as_any_choice_and_leave_whole_ones(seed):
    # 6 leaves of 4 accelerators. A job that fits one leaf takes one whose free hosts it fills best.
    rng = np.random.default_rng(seed)
    is_free = rng.random(24) < 0.6
    for count in range(1, int(is_free.sum()) + 1):
        found = allocator("leaves", SMALL["leaves"], np.flatnonzero(~is_free)).take(count)
        ids = list(found.accelerators)
        assert ids == sorted(ids)
        assert len({a // 4 for a in ids}) == fewest_groups(is_free, 4, count)
        if len({a // 4 for a in ids}) == 1:
            enough = [n for n in (int(is_free[k : k + 4].sum()) for k in range(0, 24, 4)) if n >= count]
            assert is_free[ids[0] // 4 * 4 :][:4].sum() == min(enough)
    assert allocator("leaves", SMALL["leaves"], np.flatnonzero(~is_free)).take(int(is_free.sum()) + 1) is None


def test_leaves_stay_in_a_pod_where_one_has_room():
    # Radix 4, three levels: leaves of 2, pods of 2 leaves. Pod 0 has 3 free accelerators, pod 1 has 4, pod 2 has 1.
    fabric = FatTreeConfig(num_accelerators=12, radix=4, levels=3)
    assert group_sizes(fabric) == [4, 2]
    failed = [1, 8, 9, 10]
    assert allocator("leaves", fabric, failed).take(3).accelerators == (0, 2, 3)
    assert allocator("leaves", fabric, failed).take(4).accelerators == (4, 5, 6, 7)
    assert allocator("leaves", fabric, failed).take(5).accelerators == (4, 5, 6, 7, 11)
    # With rails all servers of a unit share leaves: 4 servers of 2 on leaves of 4 ports.
    rails = FatTreeConfig(num_accelerators=16, radix=8, server_size=2, rails=True)
    assert group_sizes(rails) == [8]


@pytest.mark.parametrize("seed", range(8))
def test_arcs_are_in_the_shortest_free_gap_around_the_ring(seed):
    rng = np.random.default_rng(seed)
    failed = [3, 17]
    taken = sorted({*rng.choice(24, 5, replace=False).tolist()} - {*failed})
    ring = [a for a in range(24) if a not in failed]  # light passes failed ones
    for count in range(1, 18):
        found = allocator("arcs", SMALL["arcs"], failed, taken).take(count)
        gaps = {}  # length of the gap -> starts of arcs at its begin
        for start in range(len(ring)):
            if ring[start - 1] in taken and ring[start] not in taken:
                length = next(k for k in range(len(ring)) if ring[(start + k) % len(ring)] in taken)
                gaps.setdefault(length, []).append([ring[(start + k) % len(ring)] for k in range(count)])
        fitting = [length for length in gaps if length >= count]
        if not fitting:
            assert found is None
            continue
        assert list(found.accelerators) in gaps[min(fitting)]


def test_an_arc_of_a_torus_follows_its_ring():
    fabric = TorusConfig(dims=(4, 4))
    ids = allocator("arcs", fabric, host_size=2).take(6).accelerators
    assert list(ids) == fabric.ring_order()[:6]


@pytest.mark.parametrize(
    ("name", "fabric", "wanted"),
    [("blocks", SMALL["arcs"], "a SipRing; it is for a torus"), ("leaves", SMALL["blocks"], "for a fat tree")],
)
def test_a_fabric_that_an_allocator_is_not_for_is_refused(name, fabric, wanted):
    with pytest.raises(ConfigError, match=wanted):
        allocator(name, fabric)
