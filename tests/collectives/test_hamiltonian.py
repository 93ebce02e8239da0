"""The two cycles of Bae, AlBdaiwi and Bose: Hamiltonian, on torus links, edge-disjoint; refused otherwise."""

import math
from collections import Counter

import pytest

from rostam_py import _core
from rostam_py.errors import ConfigError

SHAPES = [(2, 2), (4, 2), (3, 3), (4, 4), (8, 4), (9, 3), (3, 9), (7, 7), (16, 8), (8, 16), (32, 32), (128, 128)]


def torus_cables(rows, columns):
    """Cables between neighbours, two where a dimension is of size 2: {unordered pair: count}."""
    cables = Counter()
    for i in range(rows):
        for j in range(columns):
            here = i * columns + j
            if rows > 1:
                cables[frozenset((here, (i + 1) % rows * columns + j))] += 1
            if columns > 1:
                cables[frozenset((here, i * columns + (j + 1) % columns))] += 1
    return cables


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_both_cycles_visit_every_rank_once_and_take_each_cable_of_the_torus_exactly_once(rows, columns):
    # r c ranks have 2 r c cables; two cycles of r c steps that share none use all of them.
    used = Counter()
    for cycle in _core.hamiltonian_cycles(rows, columns):
        ranks = cycle.tolist()
        assert sorted(ranks) == list(range(rows * columns))
        used.update(frozenset(step) for step in zip(ranks, ranks[1:] + ranks[:1], strict=True))
    assert used == torus_cables(rows, columns)


@pytest.mark.parametrize(("rows", "columns", "match"), [
    (6, 3, r"gcd\(r, c - 1\) = 1, and gcd\(6, 2\) is 2"),
    (4, 12, r"gcd\(r, c - 1\) = 1, and gcd\(12, 3\) is 3"),
    (1, 4, r"gcd\(r, c - 1\) = 1, and gcd\(4, 0\) is 4"),
    (6, 4, r"r = k c, one size a multiple of the other, and gcd\(r, c - 1\) = 1"),
])  # fmt: skip
def test_other_grids_are_refused_with_the_condition(rows, columns, match):
    with pytest.raises(ConfigError, match=match):
        _core.hamiltonian_cycles(rows, columns)
    with pytest.raises(ConfigError, match=match):
        _core.Schedule("all_reduce", "dual_hamiltonian_rings", rows * columns, 1, (rows, columns))


def test_every_grid_up_to_16_x_16_has_cycles_exactly_where_the_condition_holds():
    for rows in range(1, 17):
        for columns in range(1, 17):
            r, c = max(rows, columns), min(rows, columns)
            if r % c == 0 and math.gcd(r, c - 1) == 1:
                assert len(_core.hamiltonian_cycles(rows, columns)[0]) == rows * columns
            else:
                with pytest.raises(ConfigError):
                    _core.hamiltonian_cycles(rows, columns)
