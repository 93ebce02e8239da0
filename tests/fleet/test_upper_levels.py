"""Traffic over upper levels, pair by pair and step by step."""

import itertools

import numpy as np
import pytest

from rostam_py.fleet.allocators.board_mesh import SubMesh, bit_set
from rostam_py.fleet.allocators.upper_levels import (
    LeafBoards,
    all_to_all_share,
    columns_on_fewest_leaves,
    ring_share,
)


def drawn(rng):
    sides = rng.integers(1, 6, 2)
    rows, columns = (tuple(sorted(rng.choice(12, side, replace=False).tolist())) for side in sides)
    return SubMesh(rows, columns), LeafBoards(*rng.integers(1, 7, 2).tolist())


@pytest.mark.parametrize("seed", range(20))
def test_all_to_all_shares_are_those_of_all_pairs_of_boards(seed):
    found, leaves = drawn(np.random.default_rng(seed))
    crossings = leaving = 0
    boards = list(itertools.product(found.rows, found.columns))
    for (r, c), (other_r, other_c) in itertools.permutations(boards, 2):
        crossings += (r != other_r) + (c != other_c)
        leaving += c // leaves.along_row != other_c // leaves.along_row
        leaving += r // leaves.along_column != other_r // leaves.along_column
    assert all_to_all_share(found, leaves) == pytest.approx(leaving / crossings if crossings else 0.0, abs=1e-15)


@pytest.mark.parametrize("seed", range(20))
def test_ring_shares_are_those_of_all_steps_of_rows_and_columns(seed):
    found, leaves = drawn(np.random.default_rng(seed))
    steps = []
    for row in found.rows:
        line = [(row, c) for c in found.columns]
        steps += list(zip(line, line[1:] + line[:1], strict=True)) if len(line) > 1 else []
    for column in found.columns:
        line = [(r, column) for r in found.rows]
        steps += list(zip(line, line[1:] + line[:1], strict=True)) if len(line) > 1 else []
    leaving = [
        a[0] // leaves.along_column != b[0] // leaves.along_column
        or a[1] // leaves.along_row != b[1] // leaves.along_row
        for a, b in steps
    ]
    assert ring_share(found, leaves) == pytest.approx(np.mean(leaving) if steps else 0.0, abs=1e-15)


@pytest.mark.parametrize("seed", range(30))
def test_columns_lie_on_as_few_leaves_as_any_choice(seed):
    rng = np.random.default_rng(seed)
    common = sorted(rng.choice(12, int(rng.integers(1, 9)), replace=False).tolist())
    count, leaf = int(rng.integers(1, len(common) + 1)), int(rng.integers(1, 5))
    chosen = columns_on_fewest_leaves(bit_set(common), count, leaf)
    fewest = min(len({c // leaf for c in one}) for one in itertools.combinations(common, count))
    assert set(chosen) <= set(common)
    assert list(chosen) == sorted(set(chosen))
    assert (len(chosen), len({c // leaf for c in chosen})) == (count, fewest)
