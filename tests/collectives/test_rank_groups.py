"""Ranks on a fabric's grid: whole, in part, or given by hand."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives.rank_groups import (
    boxes_of,
    grid_of_ranks,
    group_size,
    in_grid_order,
    place_on_grid,
    unit_size,
)
from rostam_py.errors import ConfigError


def torus(*dims, board=None):
    return rostam.fabric("torus", dims=dims, board=board)


def test_a_torus_has_its_rows_and_columns_as_grid_and_boards_renumber_them():
    assert torus(2, 3).grid().tolist() == [[0, 1, 2], [3, 4, 5]]
    # Boards of 2 x 2 on 4 x 4, numbered inside first:  0  1 |  4  5
    #                                                   2  3 |  6  7 ...
    grid = torus(4, 4, board=(2, 2)).grid()
    assert grid.tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]


@pytest.mark.parametrize(
    ("dims", "board"), [((8, 6), (1, 1)), ((8, 6), (2, 2)), ((8, 6), (4, 2)), ((7,), None), ((4, 6, 2), (2, 3, 1))]
)
def test_neighbours_on_the_grid_are_one_link_apart(dims, board):
    fabric = torus(*dims, board=board)
    grid = fabric.grid()
    links = {(int(a), int(b)) for a, b in zip(fabric.links["src"], fabric.links["dst"], strict=True)}
    for axis in range(grid.ndim):
        beside = np.roll(grid, 1, axis=axis)
        assert {(int(a), int(b)) for a, b in zip(grid.flat, beside.flat, strict=True)} <= links


def test_tori_of_any_number_of_sides_have_a_grid_other_fabrics_and_failed_accelerators_leave_none():
    assert torus(8).grid().tolist() == list(range(8))
    assert torus(2, 2, 2).grid().tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
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
    # Of 2 x 3 x 4: a plane, a line, the ends of two lines; not the same number of ranks elsewhere.
    cube = torus(2, 3, 4)
    assert grid_of_ranks(cube, range(12)).tolist() == [np.arange(12).reshape(3, 4).tolist()]
    assert grid_of_ranks(cube, [16, 4]).tolist() == [[[4]], [[16]]]
    assert grid_of_ranks(cube, [0, 3, 8, 11]).tolist() == [[[0, 3], [8, 11]]]
    assert grid_of_ranks(cube, [0, 3, 8, 10]) is None


@pytest.mark.parametrize("dims", [(4, 4), (2, 3, 4), (12,)])
def test_boxes_of_many_groups_are_those_of_each(dims):
    rng, fabric = np.random.default_rng(0), torus(*dims)
    for size in (1, 2, 4):
        count = fabric.num_accelerators // size
        groups = np.stack([rng.choice(fabric.num_accelerators, size, replace=False) for _ in range(count)])
        aligned = np.arange(count * size).reshape(count, size)
        for some in (groups, aligned, aligned[::-1, ::-1]):
            ordered, sides = boxes_of(fabric, some)
            for group, own, box in zip(some, ordered, sides, strict=True):
                alone = grid_of_ranks(fabric, group)
                assert box.tolist() == ([0] * len(dims) if alone is None else list(alone.shape))
                assert alone is None or own.tolist() == alone.ravel().tolist()
    with pytest.raises(ConfigError, match="there is no grid that these ranks fill"):
        in_grid_order(torus(4, 4), np.array([[0, 1, 4, 5], [0, 1, 4, 6]]))


def test_a_grid_given_by_hand_takes_ranks_row_by_row_and_must_hold_them():
    flat = rostam.fabric("electrical_flat", num_accelerators=6)
    assert place_on_grid(flat, [5, 4, 3, 2], (2, 2)).tolist() == [[5, 4], [3, 2]]
    assert place_on_grid(flat, None, (3, 2)).tolist() == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ConfigError, match=r"grid is \(2, 2\) for 6 ranks"):
        place_on_grid(flat, None, (2, 2))
    with pytest.raises(
        ConfigError, match=r"electrical_flat.*there is no grid; name ranks, row-major, and its sides, grid="
    ):
        place_on_grid(flat, None, None)
    with pytest.raises(ConfigError, match="there is no grid that these ranks fill"):
        place_on_grid(torus(4, 4), [0, 1, 6], None)


def test_units_are_servers_leaves_boards_or_rows():
    assert unit_size(rostam.fabric("electrical_cluster", num_accelerators=16, server_size=4)) == 4
    assert unit_size(rostam.fabric("fat_tree", num_accelerators=16, radix=8)) == 4
    assert unit_size(rostam.fabric("hammingmesh", board=(2, 3), boards=(2, 2))) == 6
    assert unit_size(torus(4, 6)) == 6
    assert unit_size(rostam.fabric("electrical_flat", num_accelerators=16)) == 8
    assert [group_size(12, unit) for unit in (1, 5, 8, 100)] == [1, 4, 6, 12]
