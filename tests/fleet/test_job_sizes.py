"""Job sizes: chances by rejection, mixes that are full, seeds."""

import json

import numpy as np
import pytest

from rostam_py.errors import ConfigError
from rostam_py.fleet.job_sizes import FAMILIES, draw_mixes, size_chances

KEYS = {"num_boards": 256, "largest": 38, "room": (16, 16), "num_mixes": 60}


def has_factors(size, room):
    return any(size % u == 0 and u <= room[0] and size // u <= room[1] for u in range(1, size + 1))


def drawn_again(family, largest, room, count, rng):
    """Return sizes drawn by hand: any size of the family, again where it has no factors that fit."""
    weights = {"n^-2": 2.0, "n^-1.5": 1.5, "n^-1": 1.0}
    every = np.arange(1, largest + 1)

    def power_law(exponent):
        chances = every ** -float(exponent)
        return int(rng.choice(every, p=chances / chances.sum()))

    def mixed():
        kind = rng.random()
        if kind < 0.6:
            return 2 ** int(rng.integers(0, int(np.log2(largest)) + 1))
        return power_law(1.5) if kind < 0.8 else 10 * int(rng.integers(1, largest // 10 + 1))

    sizes = []
    while len(sizes) < count:
        size = mixed() if family == "mixed" else power_law(weights[family])
        if has_factors(size, room):
            sizes.append(size)
    return sizes


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("largest", [38, 128])
def test_chances_are_those_of_drawing_again(family, largest):
    count = 20_000
    found = np.bincount(drawn_again(family, largest, (16, 16), count, np.random.default_rng(1)), minlength=largest + 1)
    chances = size_chances(family, largest, (16, 16))
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    deviation = np.sqrt(chances * (1 - chances) / count)
    assert (np.abs(found[1:] / count - chances) <= 5 * deviation + 1e-12).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_mix_is_full_and_no_job_is_lost(family):
    mixes = draw_mixes(family, **KEYS)
    assert [sum(mix) for mix in mixes] == [256] * 60
    assert all(has_factors(size, (16, 16)) and 1 <= size <= 38 for mix in mixes for size in mix)
    # What a mix has no room for comes first in the next: sizes have the family's mean, within five deviations.
    sizes = np.concatenate(mixes)
    chances, every = size_chances(family, 38, (16, 16)), np.arange(1, 39)
    mean = (chances * every).sum()
    deviation = np.sqrt((chances * (every - mean) ** 2).sum() / len(sizes))
    assert abs(sizes.mean() - mean) < 5 * deviation


def test_a_job_that_does_not_fit_comes_first_in_the_next_mix():
    # On 4 boards in a row with jobs of up to 4: a replay by hand, job by job.
    keys = {"num_boards": 4, "largest": 4, "room": (1, 4), "seed": 5}
    rng = np.random.default_rng([5, *b"job sizes n^-1"])
    edges = np.cumsum(np.array([1, 1 / 2, 1 / 3, 1 / 4]))
    kept, mixes = [], []
    for _ in range(20):
        mix, waiting = [], []
        while sum(mix) < 4:
            size = kept.pop(0) if kept else 1 + int((edges / edges[-1] <= rng.random()).sum())
            (mix if sum(mix) + size <= 4 else waiting).append(size)
        kept = waiting + kept
        mixes.append(mix)
    assert draw_mixes("n^-1", num_mixes=20, **keys) == mixes
    assert any(len(mix) > 1 for mix in mixes)


def test_equal_seeds_give_equal_bytes_and_mixes_of_a_seed_grow_by_adding_some():
    texts = {json.dumps(draw_mixes("mixed", seed=3, **KEYS)) for _ in range(2)}
    assert len(texts) == 1
    assert draw_mixes("mixed", seed=3, **{**KEYS, "num_mixes": 5}) == json.loads(texts.pop())[:5]
    assert draw_mixes("mixed", seed=4, **KEYS) != draw_mixes("mixed", seed=3, **KEYS)
    assert draw_mixes("n^-1", seed=3, **KEYS) != draw_mixes("n^-2", seed=3, **KEYS)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"family": "uniform"}, r"family is 'uniform'; it must be one of: n\^-2, n\^-1.5, n\^-1, mixed"),
        ({"largest": 0}, "largest is 0; it must be an integer from 1 to 256"),
        ({"largest": 257, "num_boards": 300}, "largest is 257; it must be an integer from 1 to 256"),
        ({"largest": 38, "num_boards": 24}, "largest is 38; it must be at most num_boards, 24"),
        ({"num_mixes": 0}, "num_mixes is 0; it must be an integer >= 1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_draws_name_the_key(changed, message):
    keys = {"family": "n^-2", **KEYS, **changed}
    with pytest.raises(ConfigError, match=message):
        draw_mixes(keys.pop("family"), **keys)
