"""Settings of a ring in turn: legal, what is left alone stays, counts are those of the assignment alone.

Legend: W = wavelengths a fibre, T = turns, P = pairs.
"""

import numpy as np
import pytest

from rostam_py import _core


def demands(count, reach, num_turns, seed):
    """Return sources, destinations (P,) within reach and bytes (T, P), some of them 0."""
    rng = np.random.default_rng(seed)
    gaps = np.array([gap for gap in range(-reach, reach + 1) if gap])
    pairs = [(a, (a + gap) % count) for a in range(count) for gap in gaps if rng.random() < 0.5]
    src, dst = np.array(sorted(set(pairs))).T
    sizes = rng.exponential(size=(num_turns, len(src))) + 1e-3
    return src, dst, np.where(rng.random(sizes.shape) < 0.8, sizes, 0)


def places(src, dst, channel, count, num_wavelengths):
    """Return the segments, driver and receiver of one circuit, each with its wavelength."""
    fibre, wavelength = divmod(channel, num_wavelengths)
    step = 1 - 2 * fibre
    hops = (dst - src) * step % count
    taken = [(fibre, (src + step * hop) % count) for hop in range(hops)]
    return {(place, wavelength) for place in [*taken, ("drives", src), ("receives", dst)]}


def circuits_of(listed, turn):
    """Return (pair, channel) of a turn's circuits, which ascend, each once."""
    own = listed["turn"] == turn
    found = list(zip(listed["pair"][own].tolist(), listed["channel"][own].tolist(), strict=True))
    assert found == sorted(set(found))
    return found


# W whose second fibre begins within a word of 64 channels, at its end and at the beginning of one; light that
# survives both ways round on the last ring.
@pytest.mark.parametrize(
    ("count", "reach", "num_wavelengths"), [(30, 4, 40), (30, 4, 64), (23, 3, 70), (40, 6, 163), (9, 5, 30)]
)
def test_settings_in_turn_are_legal_and_leave_alone_what_they_can(count, reach, num_wavelengths):
    src, dst, sizes = demands(count, reach, 5, seed=num_wavelengths)
    found = _core.set_ring_in_turn(count, src, dst, sizes, num_wavelengths, reach, is_listed=True)
    before = []
    for turn, own in enumerate(sizes):
        planned, kept = circuits_of(found["planned"], turn), circuits_of(found["kept"], turn)
        takes = {one: places(int(src[one[0]]), int(dst[one[0]]), one[1], count, num_wavelengths)
                 for one in [*planned, *before]}  # fmt: skip
        used = set()
        for one in planned:
            assert len(takes[one]) <= reach + 2
            assert used.isdisjoint(takes[one])
            used |= takes[one]
            assert own[one[0]] > 0
        assert kept == sorted({*planned, *(one for one in before if used.isdisjoint(takes[one]))})
        assert found["num_changed"][turn] == len(set(kept) - set(before))
        before = kept


@pytest.mark.parametrize(("count", "reach", "num_wavelengths"), [(40, 6, 163), (33, 8, 320)])
def test_a_setting_has_the_counts_of_the_assignment_alone(count, reach, num_wavelengths):
    src, dst, sizes = demands(count, reach, 4, seed=1)
    found = _core.set_ring_in_turn(count, src, dst, sizes, num_wavelengths, reach, keeps_idle=False, is_listed=True)
    before = []
    for turn, own in enumerate(sizes):
        used = np.flatnonzero(own)
        number = {int(pair): i for i, pair in enumerate(used)}
        held = [(number[pair], *divmod(channel, num_wavelengths)) for pair, channel in before if pair in number]
        alone = _core.set_ring_wavelengths(
            count, src[used], dst[used], own[used], num_wavelengths, reach, may_leave_out=True, held=held
        )
        before = circuits_of(found["planned"], turn)
        counts = np.bincount([pair for pair, _ in before], minlength=len(src))
        assert counts[used].tolist() == alone["count"].tolist()


def test_the_same_demand_changes_little():
    src, dst, sizes = demands(40, 6, 1, seed=3)
    found = _core.set_ring_in_turn(40, src, dst, np.repeat(sizes, 3, axis=0), 128, 6)
    first, *others = found["num_changed"].tolist()
    assert max(others) <= 0.05 * first
