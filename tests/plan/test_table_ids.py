"""Distinct rows of a draw against random draws, sums over every id, and the counts of the profile itself."""

import random

import numpy as np
import pytest

from rostam_py.models import dlrm
from rostam_py.plan.table_ids import IdFrequencies, frequencies, uniform_rows


def probabilities(one):
    """One number for each id, from the definition: three ranges of ranks with their shares, rank^-exponent inside."""
    ranks = np.arange(1, one.num_ids + 1)
    weights, bounds = ranks**-one.exponent, [0, max(1, one.num_ids // 100), max(1, one.num_ids // 10), one.num_ids]
    for first, last, share in zip(bounds[:-1], bounds[1:], np.diff([0, one.head, one.middle, 1]), strict=True):
        if last > first:
            weights[first:last] *= share / weights[first:last].sum()
    return weights


def criteo():
    return frequencies("criteo_1tb", dlrm.TABLE_ROWS, "dlrm", 55_296)


def test_uniform_rows_are_those_of_a_draw():
    rng = random.Random(1)
    for num_rows, num_ids in ((1, 5), (3, 2), (1000, 50), (1000, 5000)):
        draws = [len({rng.randrange(num_rows) for _ in range(num_ids)}) for _ in range(400)]
        assert uniform_rows(num_rows, num_ids) == pytest.approx(sum(draws) / len(draws), rel=0.02)
    assert uniform_rows(10, 2) == pytest.approx(1.9)  # the second is another one in nine of ten
    assert uniform_rows(40_000_000, 100) == pytest.approx(100, rel=1e-5)
    for num_ids in (1, 10, 10_000):
        assert uniform_rows(100, num_ids) <= min(100, num_ids) + 1e-9


@pytest.mark.parametrize("num_draws", [1, 100, 5_000])
def test_distinct_ids_are_those_of_a_draw(num_draws):
    one = IdFrequencies(4_000, 3_000, 1.1, 0.6, 0.9)
    rng = np.random.default_rng(2)
    draws = [len(np.unique(rng.choice(3_000, num_draws, p=probabilities(one)))) for _ in range(50)]
    assert one.distinct_ids(num_draws) == pytest.approx(np.mean(draws), rel=0.02)
    assert one.distinct_rows(num_draws / 4, 4) == one.distinct_ids(num_draws)


def test_ranges_of_ranks_sum_as_every_rank_does():
    for one in criteo():
        each = -np.expm1(55_296 * np.log1p(-np.minimum(probabilities(one), 1 - 1e-15))).sum()
        assert one.distinct_ids(55_296) == pytest.approx(each, rel=1e-4)


def test_as_many_samples_as_were_counted_draw_most_ids_that_were_seen():
    """Ids of p = 1/N are missed by 1/e of N draws; the shape gives the rarest of those seen once a little less."""
    for one in criteo():
        assert 0.99 * (1 - 1 / np.e) * one.num_ids <= one.distinct_ids(one.num_samples) <= one.num_ids * (1 + 1e-9)


def test_frequencies_between_head_and_middle_are_those_counted():
    """The 99th percentile of counts is the source's too (p99_freq), and no input: ranks before and after hold it."""
    for table, count in {0: 27, 9: 46, 10: 416, 19: 25, 20: 114, 21: 32, 22: 504}.items():
        one = criteo()[table]
        edge = one.num_ids // 100
        expected = probabilities(one)[[edge - 1, edge]] * one.num_samples
        assert expected.min() * 0.7 <= count <= expected.max() * 1.4, (table, expected)


def test_sets_of_an_id_are_the_same_for_every_sample():
    """As MLPerf's data are made: an id stands for itself and three rows, drawn once for all."""
    one = IdFrequencies(2_000, 500, 1.0, 0.3, 0.7, is_set_fixed=True)
    rng = np.random.default_rng(3)
    found = []
    for _ in range(100):
        sets = np.column_stack([np.arange(2_000), rng.integers(0, 2_000, (2_000, 3))])
        found.append(len(np.unique(sets[rng.choice(500, 400, p=probabilities(one))])))
    assert one.distinct_rows(400, 4) == pytest.approx(np.mean(found), rel=0.02)
    assert one.distinct_rows(400, 1) == one.distinct_ids(400)


def test_measured_ids_draw_fewer_rows_than_uniform_ones():
    for one, hot in zip(criteo(), dlrm.HOTNESS, strict=True):
        assert one.distinct_rows(55_296, hot) <= uniform_rows(one.num_rows, 55_296 * hot) * (1 + 1e-9)
