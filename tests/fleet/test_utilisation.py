"""Utilisation of drawn mixes: replayed with sets of places, and with draws of another generator."""

import itertools

import numpy as np
import pytest

from rostam_py.errors import ConfigError
from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fleet.job_sizes import draw_mixes
from rostam_py.fleet.utilisation import Draws, asked_shapes, draw_failed_boards, fill_draws, fill_mesh

MESH = HammingMeshConfig(board=(2, 2), boards=(16, 16))
GREEDY = {"transpose": False}
SORTED = {"largest_first": True}


class SetMesh:
    """The greedy search by sets of free places: no bits, no allocator."""

    def __init__(self, side, failed=()):
        self.free = {row: {c for c in range(side) if row * side + c not in failed} for row in range(side)}

    def take(self, u, v):
        fitting = [row for row in self.free if len(self.free[row]) >= v]
        for k, start in enumerate(fitting):
            rows, common = [start], self.free[start]
            for row in fitting[k + 1 :]:
                if len(rows) < u and len(common & self.free[row]) >= v:
                    rows, common = [*rows, row], common & self.free[row]
            if len(rows) == u:
                for row in rows:
                    self.free[row] = self.free[row] - set(sorted(common)[:v])
                return True
        return False


def squarest(size):
    u = next(u for u in range(int(size**0.5), 0, -1) if size % u == 0)
    return u, size // u


def replayed(mix, side=16, failed=(), enable_transpose=True, is_sorted=False):
    """Return the share of working boards that jobs asking upright take."""
    mesh, held = SetMesh(side, set(failed)), 0
    for size in sorted(mix, reverse=True) if is_sorted else mix:
        u, v = squarest(size)
        if mesh.take(v, u) or (enable_transpose and mesh.take(u, v)):
            held += size
    return held / (side * side - len(failed))


@pytest.mark.parametrize("family", ["n^-1.5", "mixed"])
@pytest.mark.parametrize("share", [0.15, 0.5])
@pytest.mark.parametrize("num_failed", [0, 40])
def test_utilisations_are_those_of_a_replay_with_sets(family, share, num_failed):
    draws = Draws(family, share, num_failed=num_failed, num_draws=6, seed=2)
    mixes = draw_mixes(
        family, num_boards=256 - num_failed, largest=int(share * 256), room=(16, 16), num_mixes=6, seed=2
    )
    failed = [draw_failed_boards(256, num_failed, 2, draw) for draw in range(6)]
    for options, how in (
        (GREEDY, {"enable_transpose": False}), ({}, {}), (SORTED, {"is_sorted": True}),
    ):  # fmt: skip
        own = [one.utilisation for one in fill_draws(MESH, draws, options)]
        assert own == [replayed(mix, failed=dead, **how) for mix, dead in zip(mixes, failed, strict=True)]


def mixes_by_hand(rng, exponent, largest, count):
    """Return full mixes of a power law from a generator of their own."""
    sizes = [n for n in range(1, largest + 1) if squarest(n)[1] <= 16]
    chances = np.array(sizes, dtype=float) ** -exponent
    kept, mixes = [], []
    for _ in range(count):
        mix, later = [], []
        while sum(mix) < 256:
            size = kept.pop(0) if kept else int(rng.choice(sizes, p=chances / chances.sum()))
            (mix if sum(mix) + size <= 256 else later).append(size)
        kept = later + kept
        mixes.append(mix)
    return mixes


@pytest.mark.parametrize(("family", "exponent"), [("n^-2", 2.0), ("n^-1", 1.0)])
def test_means_of_60_draws_are_those_of_other_draws(family, exponent):
    mixes = mixes_by_hand(np.random.default_rng(11), exponent, 38, 60)
    for options, how in ((GREEDY, {"enable_transpose": False}), ({}, {})):
        own = [one.utilisation for one in fill_draws(MESH, Draws(family, 0.15), options)]
        other = [replayed(mix, **how) for mix in mixes]
        error = np.hypot(np.std(own), np.std(other)) / np.sqrt(60)
        assert abs(np.mean(own) - np.mean(other)) < 4 * error


def test_a_filled_machine_holds_what_it_says():
    (filled,) = fill_draws(MESH, Draws("n^-1", 0.5, num_failed=40, num_draws=1), {"aspect_ratio": 8})
    failed = set(draw_failed_boards(256, 40, 0, 0))
    boards = [
        16 * row + column
        for found in filled.placed if found
        for row, column in itertools.product(found.rows, found.columns)
    ]  # fmt: skip
    assert len(boards) == len(set(boards))
    assert not failed & set(boards)
    assert (filled.num_working, filled.utilisation) == (216, len(boards) / 216)
    assert filled.all_to_all_share == filled.ring_share == 0.0  # one switch a row: no upper levels


def test_shares_are_means_of_jobs_by_their_boards():
    # Leaves of two boards of a row of four: jobs of columns 0, 1, 2 and of column 3 alone.
    mesh = HammingMeshConfig(board=(1, 1), boards=(4, 4), wiring="tree", radix=8)
    filled = fill_mesh(mesh, [(1, 3), (1, 1), (1, 2), (1, 2)], GREEDY)
    # Of 3 columns 4 of 6 ordered pairs, and 2 of 3 steps, leave their leaf; both pairs of columns stay on one.
    assert filled.all_to_all_share == pytest.approx((3 * 4 / 6) / 7)
    assert filled.ring_share == pytest.approx((3 * 2 / 3) / 7)


def test_jobs_lie_the_way_they_ask():
    mix = [1, 2, 6, 12, 16] * 20
    assert asked_shapes(mix[:5], (16, 16), "flat") == [(1, 1), (1, 2), (2, 3), (3, 4), (4, 4)]
    assert asked_shapes(mix[:5], (16, 16), "upright") == [(1, 1), (2, 1), (3, 2), (4, 3), (4, 4)]
    either = asked_shapes(mix, (16, 16), "either", seed=1)
    assert 10 < sum(shape == (3, 2) for shape in either) + sum(shape == (2, 1) for shape in either) < 30
    assert asked_shapes(mix, (16, 16), "either", seed=1) == either != asked_shapes(mix, (16, 16), "either", seed=2)


def test_failed_boards_are_even_and_differ_between_draws():
    counts = np.bincount(np.concatenate([draw_failed_boards(64, 40, 0, draw) for draw in range(400)]), minlength=64)
    assert counts.sum() == 16_000
    assert abs(counts - 250).max() < 5 * np.sqrt(400 * 0.625 * 0.375)
    assert draw_failed_boards(64, 40, 0, 1) == draw_failed_boards(64, 40, 0, 1) != draw_failed_boards(64, 40, 0, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: asked_shapes([4], (4, 4), "up"), "way is 'up'; it must be one of: flat, upright, either"),
        (lambda: asked_shapes([17], (16, 16), "flat"), "asks for 17 boards, which no block of 16 x 16"),
        (lambda: draw_failed_boards(64, 64, 0, 0), "num_failed is 64; it must be from 0 to 63"),
        (lambda: fill_mesh(MESH, [(1, 1)], {}, [256]), "failed names board 256; the machine has 0 to 255"),
    ],
)
def test_bad_arguments_name_the_key(call, message):
    with pytest.raises(ConfigError, match=message):
        call()
