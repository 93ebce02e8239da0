"""Compact blocks: orders of a fabric's accelerators in which consecutive ones lie close together, on any grid.

Legend: a place is a cell of the grid; a level is a degree of parallelism, the innermost first.

Example:
    square = np.arange(16).reshape(4, 4)
    path = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    compact_orders(square, [path, path], (4,), 4)[0].order[:4]      # [0, 1, 4, 5]: a block of 2 x 2
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

# Blocks of each level that are tried: those of least mean distance, which on a square are n x m and m x n.
MOST_BLOCKS = 3

Sides = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CompactOrder:
    """An order of all accelerators of a fabric.

    order: ids; each consecutive ``degrees[0]`` of whole blocks fill a block of ``sides[0]``, each consecutive
    ``degrees[0] x degrees[1]`` a block of such blocks, ``sides[1]`` along each dimension, and so on. What blocks leave
    of the grid comes last, behind the ``num_covered`` first. mean_distances: between two of the next level's members,
    mean over a block, by level.
    """

    order: np.ndarray
    num_covered: int
    sides: tuple[Sides, ...]
    mean_distances: tuple[float, ...]


def compact_orders(
    places: np.ndarray, distances: Sequence[np.ndarray], degrees: Sequence[int], num_blocks: int
) -> list[CompactOrder]:
    """Return orders whose blocks are the most compact ones: least mean distance, innermost level first.

    Model: a block is a box. Distances of two places add up over the dimensions. Members of a box are taken row-major,
        or along a path of neighbours that closes where a box has such a cycle; of each both orders are returned.
    Args: places: accelerators by place, int array of the grid's sides. distances: of each dimension, float array
        (size, size). degrees: members of a block of each level, in units of the level below. num_blocks: of the last
        level that are needed.
    Returns: none where no boxes of whole numbers hold that many blocks.
    """
    found: list[CompactOrder] = []
    for sides in _boxes_by_level(places.shape, distances, degrees, num_blocks):
        means = tuple(_mean_distance(distances, sides, level) for level in range(len(sides)))
        for walks in itertools.product(*(_walks(box) for box in sides)):
            covered = _ordered(places, sides, walks)
            order = np.concatenate([covered, places[~np.isin(places, covered)]])
            found.append(CompactOrder(order, len(covered), sides, means))
    return found


def _boxes_by_level(
    shape: Sides, distances: Sequence[np.ndarray], degrees: Sequence[int], num_blocks: int
) -> Iterator[tuple[Sides, ...]]:
    """Yield the boxes of all levels, the most compact ones of each level inside out."""
    chosen: list[tuple[Sides, ...]] = [()]
    for level, degree in enumerate(degrees):
        needed = num_blocks * math.prod(degrees[level + 1 :])
        following = []
        for inner in chosen:
            taken = [math.prod(sides) for sides in zip(*inner, strict=True)] or [1] * len(shape)
            room = [size // part for size, part in zip(shape, taken, strict=True)]
            boxes = [
                box
                for box in _boxes(room, degree)
                if math.prod(size // side for size, side in zip(room, box, strict=True)) >= needed
            ]
            boxes.sort(key=lambda box: (round(_mean_distance(distances, (*inner, box), level), 9), box))
            following += [(*inner, box) for box in boxes[:MOST_BLOCKS]]
        chosen = following
    yield from chosen


def _boxes(room: Sequence[int], degree: int) -> Iterator[Sides]:
    """Yield all boxes of so many places that lie within the room."""
    if not room:
        if degree == 1:
            yield ()
        return
    for side in range(1, min(room[0], degree) + 1):
        if degree % side == 0:
            for others in _boxes(room[1:], degree // side):
                yield (side, *others)


def _mean_distance(distances: Sequence[np.ndarray], sides: tuple[Sides, ...], level: int) -> float:
    """Return the mean distance of two members of a level's blocks, over all blocks of the grid."""
    total = 0.0
    for dim, apart in enumerate(distances):
        step = math.prod(box[dim] for box in sides[:level])
        length = sides[level][dim]
        starts = range(0, len(apart) - step * length + 1, step * length)
        lines = (apart[np.ix_(*[start + step * np.arange(length)] * 2)] for start in starts)
        total += float(np.mean([line.mean() for line in lines]))
    return total


def _walks(box: Sides) -> list[list[Sides]]:
    """Return the orders in which a box's members are numbered: row-major, and by neighbours where that is another."""
    rows = list(itertools.product(*(range(side) for side in box)))
    path = neighbour_path(box)
    return [rows] if path == rows else [rows, path]


def neighbour_path(box: Sides) -> list[Sides]:
    """Return all cells of a box so that each is one step from the next, and the last from the first where it can be.

    Model: back and forth. A cycle exists where a side is even and the others hold more than one cell: rows of the
        others' path, all but its first cell back and forth, and home along the first cells.
    """
    even = next((d for d, side in enumerate(box) if side % 2 == 0 and math.prod(box) > side), None)
    if even is None:
        return _back_and_forth(box)
    others = _back_and_forth((*box[:even], *box[even + 1 :]))
    out = [(row, k) for row in range(box[even]) for k in range(1, len(others))[:: 1 if row % 2 == 0 else -1]]
    home = [(row, 0) for row in reversed(range(box[even]))]
    cells = [home[-1], *out, *home[:-1]]
    return [(*others[k][:even], row, *others[k][even:]) for row, k in cells]


def _back_and_forth(box: Sides) -> list[Sides]:
    path: list[Sides] = [()]
    for side in box:
        path = [
            (*cell, x)
            for number, cell in enumerate(path)
            for x in (range(side) if number % 2 == 0 else reversed(range(side)))
        ]
    return path


def _ordered(places: np.ndarray, sides: tuple[Sides, ...], walks: Sequence[list[Sides]]) -> np.ndarray:
    """Return the accelerators of whole blocks block by block, row-major over the last level's blocks."""
    num_dims = places.ndim
    block = [math.prod(one) for one in zip(*sides, strict=True)]
    counts = [size // part for size, part in zip(places.shape, block, strict=True)]
    covered = places[tuple(slice(count * part) for count, part in zip(counts, block, strict=True))]
    axes = [n for d in range(num_dims) for n in (counts[d], *(box[d] for box in reversed(sides)))]
    by_axis = covered.reshape(axes)
    depth = 1 + len(sides)
    # Blocks first, then from the outermost level to the innermost.
    by_level = by_axis.transpose([d * depth + level for level in range(depth) for d in range(num_dims)])
    whole = by_level.reshape(math.prod(counts), *(math.prod(box) for box in reversed(sides)))
    for level, (box, walk) in enumerate(zip(sides, walks, strict=True)):
        cells = np.ravel_multi_index(tuple(np.array(walk).T), box)
        whole = np.take(whole, cells, axis=len(sides) - level)
    return whole.reshape(-1)
