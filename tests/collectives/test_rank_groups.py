"""Ranks on a fabric's 2D grid: whole, in part, or given by hand."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives.rank_groups import grid_of_ranks, group_size, place_on_grid, unit_size
from rostam_py.errors import ConfigError


def torus(*dims, board=None):
    return rostam.fabric("torus", dims=dims, board=board)


def test_a_torus_has_its_rows_and_columns_as_grid_and_boards_renumber_them():
    assert torus(2, 3).grid().tolist() == [[0, 1, 2], [3, 4, 5]]
    # Boards of 2 x 2 on 4 x 4, numbered inside first:  0  1 |  4  5
    #                                                   2  3 |  6  7 ...
    grid = torus(4, 4, board=(2, 2)).grid()
    assert grid.tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]


@pytest.mark.parametrize("board", [(1, 1), (2, 2), (4, 2)])
def test_neighbours_on_the_grid_are_one_link_apart(board):
    fabric = torus(8, 6, board=board)
    grid = fabric.grid()
    links = {(int(a), int(b)) for a, b in zip(fabric.links["src"], fabric.links["dst"], strict=True)}
    for axis in (0, 1):
        beside = np.roll(grid, 1, axis=axis)
        assert {(int(a), int(b)) for a, b in zip(grid.flat, beside.flat, strict=True)} <= links


def test_other_dimensions_other_fabrics_and_failed_accelerators_leave_no_grid():
    assert torus(8).grid() is None
    assert torus(2, 2, 2).grid() is None
    assert rostam.fabric("electrical_flat", num_accelerators=4).grid() is None
    assert torus(4, 4).with_failures(accelerators=[5]).grid() is None
    assert torus(4, 4).with_failures(links=[0]).grid() is not None


def test_ranks_that_fill_rows_and_columns_in_any_order_stand_on_a_grid_of_their_own():
    fabric = torus(4, 4)
    assert grid_of_ranks(fabric, [13, 5, 7, 15]).tolist() == [[5, 7], [13, 15]]
    assert grid_of_ranks(fabric, range(16)).tolist() == fabric.grid().tolist()
    assert grid_of_ranks(fabric, [0, 1, 4]) is None
    assert grid_of_ranks(fabric, [0, 1, 4, 6]) is None
    # What is left of a torus with a hole still has rectangles.
    assert grid_of_ranks(fabric.with_failures(accelerators=[0]), [5, 6, 9, 10]).tolist() == [[5, 6], [9, 10]]


def test_a_grid_given_by_hand_takes_ranks_row_by_row_and_must_hold_them():
    flat = rostam.fabric("electrical_flat", num_accelerators=6)
    assert place_on_grid(flat, [5, 4, 3, 2], (2, 2)).tolist() == [[5, 4], [3, 2]]
    assert place_on_grid(flat, None, (3, 2)).tolist() == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ConfigError, match=r"grid is \(2, 2\) for 6 ranks"):
        place_on_grid(flat, None, (2, 2))
    with pytest.raises(ConfigError, match=r"electrical_flat.*there is no 2D grid; name ranks, row-major, and grid"):
        place_on_grid(flat, None, None)
    with pytest.raises(ConfigError, match="there is no 2D grid that these ranks fill"):
        place_on_grid(torus(4, 4), [0, 1, 6], None)


def test_units_are_servers_leaves_boards_or_rows():
    assert unit_size(rostam.fabric("electrical_cluster", num_accelerators=16, server_size=4)) == 4
    assert unit_size(rostam.fabric("fat_tree", num_accelerators=16, radix=8)) == 4
    assert unit_size(rostam.fabric("hammingmesh", board=(2, 3), boards=(2, 2))) == 6
    assert unit_size(torus(4, 6)) == 6
    assert unit_size(rostam.fabric("electrical_flat", num_accelerators=16)) == 8
    assert [group_size(12, unit) for unit in (1, 5, 8, 100)] == [1, 4, 6, 12]
