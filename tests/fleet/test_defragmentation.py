"""Jobs that move so that another finds a place: as few as a search of all sets needs, and nothing where none does."""

import itertools

import numpy as np
import pytest

from rostam_py.errors import ConfigError
from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fleet.allocators import Room, make_allocator
from rostam_py.fleet.defragmentation import Running, repack, restart_s


def mesh(sides=(4, 4)):
    count = sides[0] * sides[1]
    fabric = HammingMeshConfig(board=(1, 1), boards=sides)
    return make_allocator("submesh", Room(fabric, np.ones(count, bool), np.zeros(count, bool)))


def running(allocator, **sizes):
    return {name: Running(allocator.take(size), size) for name, size in sizes.items()}


def test_a_job_that_has_a_place_moves_none():
    one = mesh()
    jobs = running(one, a=4, b=2)
    packed = repack(one, jobs, "new", 4)
    assert packed.moved == ()
    assert {name: packed.given[name] for name in jobs} == {name: job.given for name, job in jobs.items()}


def test_small_jobs_on_a_diagonal_move_aside():
    # Boards 0, 5, 10 and 15 of 4 x 4 are held: 3 x 3 is not free, and is once two of the four jobs have moved.
    one = mesh()
    singles = [one.take(1) for _ in range(16)]
    for given in singles:
        if given.units[0] not in (0, 5, 10, 15):
            one.give_back(given)
    jobs = {f"j{k}": Running(singles[unit], 1) for k, unit in enumerate((0, 5, 10, 15))}
    assert one.take(9) is None
    packed = repack(one, jobs, "new", 9)
    assert len(packed.given["new"].units) == 9
    held = [unit for given in packed.given.values() for unit in given.units]
    assert len(held) == len(set(held)) == 13 == 16 - one.num_free
    assert 0 < len(packed.moved) <= 3
    assert all(packed.given[name] != jobs[name].given for name in packed.moved)
    # Every 3 x 3 of any rows and columns has two boards of a diagonal at least, so that one move is never enough.
    crossings = (
        sum(r in rows and r in columns for r in range(4))
        for rows in itertools.combinations(range(4), 3)
        for columns in itertools.combinations(range(4), 3)
    )
    assert min(crossings) == 2
    assert len(packed.moved) >= 2


def test_a_job_without_a_place_leaves_all_as_it_was():
    one = mesh()
    jobs = running(one, a=4, b=4, c=4)
    before, free = list(one.mesh.free_columns), one.is_free.copy()
    assert repack(one, jobs, "new", 6) is None
    assert one.mesh.free_columns == before
    assert (one.is_free == free).all()
    with pytest.raises(ConfigError, match="job 'a' runs already"):
        repack(one, jobs, "a", 1)


@pytest.mark.parametrize("seed", range(10))
def test_shuffles_keep_every_job_and_share_nothing(seed):
    rng = np.random.default_rng(seed)
    one = mesh((8, 8))
    jobs = {}
    for number in range(60):
        size = int(rng.integers(1, 17))
        packed = repack(one, jobs, str(number), size)
        if packed is None:
            jobs_left = sorted(jobs)
            one.give_back(jobs.pop(jobs_left[int(rng.integers(len(jobs_left)))]).given)
            continue
        sizes = {name: job.num_accelerators for name, job in jobs.items()} | {str(number): size}
        jobs = {name: Running(packed.given[name], sizes[name]) for name in sizes}
        held = [unit for job in jobs.values() for unit in job.given.units]
        assert len(held) == len(set(held)) == 64 - one.num_free == 64 - one.mesh.num_free
        assert all(len(job.given.accelerators) == job.num_accelerators for job in jobs.values())


def test_a_restart_writes_and_reads_memory_once():
    assert restart_s(64 * 2**30, 800e9) == pytest.approx(2 * 85.9e-3, rel=1e-3)
