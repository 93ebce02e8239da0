"""Jobs on sub-meshes of a HammingMesh: which boards they get, in which order, and how settings choose."""

import dataclasses
import itertools
import time

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fleet import Job
from rostam_py.fleet.allocation import allocate
from rostam_py.fleet.allocators import Room, make_allocator
from rostam_py.fleet.allocators.submesh import SubmeshConfig, job_shapes


def allocator(boards=(8, 8), failed=(), board=(2, 2), wiring="auto", **options):
    """Return an allocator over x by y boards, some of which have failed."""
    fabric = HammingMeshConfig(board=board, boards=boards, wiring=wiring)
    is_working = np.ones(boards[0] * boards[1], dtype=bool)
    is_working[list(failed)] = False
    each = np.repeat(is_working, board[0] * board[1])
    return make_allocator("submesh", Room(fabric, each, np.zeros_like(each)), options)


def machine(sides=(4, 4), **failed):
    fabric = rostam.fabric("hammingmesh", board=(2, 2), boards=sides)
    return rostam.Machine(fabric=fabric.with_failures(**failed) if failed else fabric)


def job(gpt, name, dp, tp=1, **options):
    return Job(name, gpt, rostam.Strategy(dp=dp, tp=tp, precision="bf16_mixed"), dp, **options)


def given(jobs, on, **options):
    return allocate(jobs, on, allocation="submesh", host_size=8, seed=0, options=options)


@pytest.mark.parametrize("options", [{}, {"aspect_ratio": 8}, {"locality": True}, {"exhaustive": True}])
@pytest.mark.parametrize("seed", range(3))
def test_jobs_that_come_and_go_never_overlap_and_their_rows_share_columns(options, seed):
    rng = np.random.default_rng(seed)
    failed = set(rng.choice(64, 9, replace=False).tolist())
    machine = allocator(failed=failed, **options)
    held = []
    for size in rng.integers(1, 40, 400):
        found = machine.take(int(size))
        if found is None and held:
            machine.give_back(held.pop(int(rng.integers(len(held)))))
        elif found is not None:
            held.append(found)
            assert len(found.accelerators) == size
        units = [unit for one in held for unit in one.units]
        assert len(units) == len(set(units))
        assert not failed & set(units)
        assert machine.num_free == 55 - len(units)
        assert machine.mesh.num_free == machine.num_free
        for one in held:
            rows, columns = ({unit // 8 for unit in one.units}, {unit % 8 for unit in one.units})
            assert set(one.units) == {8 * r + c for r in rows for c in columns}
            assert {a // 4 for a in one.accelerators} <= set(one.units)


def test_a_job_is_numbered_as_a_hammingmesh_of_its_shape():
    # Columns 0 and 2 of rows 0 and 3 are free on 4 x 4 boards: ranks 0 to 3 on board 0, then boards 2, 12 and 14.
    machine = allocator((4, 4), failed=set(range(16)) - {0, 2, 12, 14})
    ids = machine.take(16).accelerators
    assert ids == (*range(4), *range(8, 12), *range(48, 52), *range(56, 60))
    own = HammingMeshConfig(board=(2, 2), boards=(2, 2)).grid()
    whole = HammingMeshConfig(board=(2, 2), boards=(4, 4)).grid()
    rows, columns = (np.flatnonzero(np.isin(whole, ids).any(axis=axis)) for axis in (1, 0))
    assert np.array(ids)[own].tolist() == whole[np.ix_(rows, columns)].tolist()


def test_boards_without_exact_factors_that_fit_stay_idle():
    # 17 boards have no factors that fit 4 rows of 8, 18 are 3 x 6; the last board is held though no rank runs on it.
    machine = allocator((8, 4))
    found = machine.take(4 * 17)
    assert (len(found.units), len(found.accelerators)) == (18, 68)
    machine.give_back(found)
    assert machine.num_free == 32
    assert machine.take(4 * 33) is None


def shapes(asked, room=(16, 16), **options):
    return job_shapes(asked, room, SubmeshConfig(**options))


def test_shapes_are_tried_as_asked_then_transposed_then_less_square():
    assert shapes((2, 3), transpose=False) == [(2, 3)]
    assert shapes((3, 2)) == [(3, 2), (2, 3)]
    assert shapes((4, 4), aspect_ratio=8) == [(4, 4), (2, 8), (8, 2)]
    assert shapes((4, 4), aspect_ratio=3) == [(4, 4)]
    assert shapes((3, 4), aspect_ratio=8) == [(3, 4), (4, 3), (2, 6), (6, 2)]
    assert shapes((3, 4), aspect_ratio=8, transpose=False) == [(3, 4), (2, 6)]
    # What a job asks for counts whatever its aspect; what does not fit the machine is left out.
    assert shapes((1, 11)) == [(1, 11), (11, 1)]
    assert shapes((2, 5), room=(4, 8)) == [(2, 5)]


def test_transposed_and_less_square_jobs_find_places_that_others_do_not():
    # Free: a column of 6 boards on 8 x 8. 6 boards ask for 2 x 3, whose transpose fits no better; 1 x 6 upright does.
    failed = set(range(64)) - {8 * row + 5 for row in range(6)}
    assert allocator(failed=failed).take(24) is None
    assert allocator(failed=failed, aspect_ratio=6).take(24).units == tuple(8 * row + 5 for row in range(6))
    assert allocator(failed=failed, transpose=False, aspect_ratio=6).take(24) is None
    assert allocator(failed=failed, transpose=False).take(8) is None
    assert allocator(failed=failed).take(8).units == (5, 13)


def pairs_apart(rows, columns, leaf):
    """Return the share of crossings that leave their leaf, pair by pair."""
    crossings = apart = 0
    for (r, c), (s, d) in itertools.permutations(list(itertools.product(rows, columns)), 2):
        crossings += (r != s) + (c != d)
        apart += (r // leaf != s // leaf) + (c // leaf != d // leaf)
    return apart / crossings if crossings else 0.0


@pytest.mark.parametrize("seed", range(6))
def test_locality_is_never_worse_than_the_first_and_rarely_than_the_best(seed):
    # Radix 8 gives leaves of 2 boards. All choices of rows and columns of 6 x 6 boards are tried.
    rng = np.random.default_rng(seed)
    free = rng.random((6, 6)) < 0.75
    fabric = HammingMeshConfig(board=(1, 1), boards=(6, 6), wiring="tree", radix=8)
    room = Room(fabric, free.ravel(), np.zeros(36, dtype=bool))
    first, local = (make_allocator("submesh", room, {"locality": on}) for on in (False, True))
    leaf = local.leaves.along_row
    assert leaf == local.leaves.along_column == 2
    for shape in ((1, 2), (2, 2), (2, 3), (3, 3)):
        found = [one.find(shape) for one in (first, local)]
        choices = [
            pairs_apart(rows, columns, leaf)
            for u, v in {shape, shape[::-1]}
            for rows in itertools.combinations(range(6), u)
            for columns in itertools.combinations(range(6), v)
            if free[np.ix_(rows, columns)].all()
        ]
        if found[0] is None:
            assert found[1] is None
            continue
        of_first, of_local = (pairs_apart(one.rows, one.columns, leaf) for one in found)
        assert min(choices) <= of_local <= of_first
        assert of_local <= min(choices) + 0.34


def test_jobs_of_a_mix_get_sub_meshes_in_their_order_or_the_largest_first(gpt):
    # 2 x 4 boards. In order a takes board 0 and b, 6 boards of 2 x 3, the rest but one; by size b comes first.
    on = machine((4, 2))
    jobs = [job(gpt, "a", 4), job(gpt, "b", 24)]
    first, second = given(jobs, on)
    assert {a // 4 for a in first} == {0}
    assert {a // 4 for a in second} == {1, 2, 3, 5, 6, 7}
    first, second = given(jobs, on, largest_first=True)
    assert {a // 4 for a in second} == {0, 1, 2, 4, 5, 6}
    assert {a // 4 for a in first} == {3}


def test_failed_boards_and_named_ones_are_never_given(gpt):
    on = machine((2, 2), accelerators=[5])
    jobs = [job(gpt, "named", 1, accelerators=(8,)), job(gpt, "a", 4), job(gpt, "b", 4)]
    assert given(jobs, on)[1:] == [(0, 1, 2, 3), (12, 13, 14, 15)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aspect_ratio": 9}, "mix.allocation_options.aspect_ratio is 9; it must be an integer from 1 to 8"),
        ({"transpose": 2}, "mix.allocation_options.transpose is 2; it must be true or false"),
        ({"largest_first": "yes"}, "mix.allocation_options.largest_first is 'yes'; it must be true or false"),
        ({"locality": True, "exhaustive": True}, "locality and .exhaustive are both true"),
        ({"aspects": 2}, r"no key 'aspects' for mix.allocation=submesh; it has: largest_first, transpose, "),
        (5, "mix.allocation_options is 5; it must hold keys with values"),
    ],
)
def test_bad_settings_name_the_key(options, message):
    with pytest.raises(ConfigError, match=message):
        make_allocator("submesh", Room(HammingMeshConfig.example(), np.ones(16, bool), np.zeros(16, bool)), options)


def test_what_finds_no_place_is_named(gpt):
    torus = rostam.Machine(fabric=rostam.fabric("torus", dims=(4, 4)))
    with pytest.raises(
        ConfigError, match=r"mix.allocation is 'submesh', but the fabric is a Torus; it is for a Hamming"
    ):
        given([job(gpt, "a", 4)], torus)
    # Boards 1 and 2 of 2 x 2 are free, in no row or column of their own.
    apart = machine((2, 2), boards=[0, 3])
    with pytest.raises(
        DegreeError, match="job a asks for 8 accelerators, for which no sub-mesh of free boards is left"
    ):
        given([job(gpt, "a", 8)], apart)
    with pytest.raises(DegreeError, match=r"jobs ask for 3 boards of 4 accelerators \(a: 12\), but 2 whole boards of"):
        given([job(gpt, "a", 12)], apart)


def test_settings_are_explained_one_by_one():
    words = SubmeshConfig.__doc__
    assert all(
        f"{entry.name}:" in words for entry in dataclasses.fields(SubmeshConfig) if entry.name != "largest_first"
    )


@pytest.mark.slow
def test_a_hundred_thousand_jobs_on_16384_accelerators_take_a_minute_at_most():
    # Jobs of n^-1.5 up to 2,000 accelerators; where one finds no place a running one, drawn evenly, ends.
    machine = allocator((64, 64), aspect_ratio=8)
    rng = np.random.default_rng(1)
    sizes = np.minimum(rng.zipf(1.5, 100_000), 2_000)
    held = []
    begin = time.process_time()
    for size in sizes:
        while (found := machine.take(int(size))) is None:
            machine.give_back(held.pop(int(rng.integers(len(held)))))
        held.append(found)
    assert time.process_time() - begin <= 60
