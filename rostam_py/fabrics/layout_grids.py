"""Drawings of grids, with stubs where cables wrap to the opposite side. Rows run downwards, as in print."""

from dataclasses import replace
from typing import Any

import numpy as np

from rostam_py.fabrics.layout import Layout, make_layout, mean_of
from rostam_py.fabrics.layout_circle import draw_circle

_BOARD_GAP = 0.6  # between boards, in steps between accelerators
_STUB = 0.55  # of a cable that wraps
_FRAME = 0.3  # from the outer accelerators of a board to its frame


def draw_grid(fabric: Any, level: int, sides: tuple[int, ...], board_sides: tuple[int, ...]) -> Layout:
    """Draw accelerators on a wrapped grid, a third dimension along short diagonals.

    One dimension is a ring; from level 1 on, blocks of two a side are drawn as one.
    Args:
        sides: of the grid, the last one across.
        board_sides: of a board, each a divisor; numbers run row-major within a board, boards row-major.
    """
    dims, board = np.array(sides), np.array(board_sides)
    if int((dims > 1).sum()) == 1:
        return draw_circle(fabric, level)
    parts = grid_cells(dims, board) >> level
    sizes = ((dims - 1) >> level) + 1
    group_of = np.arange(len(parts)) if level == 0 else np.ravel_multi_index(tuple(parts.T), tuple(sizes))
    at = np.stack([mean_of(column, group_of) for column in parts.T], axis=1)
    steps = _steps(sizes)
    is_framed = level == 0 and bool((board < dims).any()) and len(dims) == 2
    board_at = (at // board).astype(np.int64)
    x, y = ((at + board_at * _BOARD_GAP if is_framed else at) @ steps).T

    def route(source: int, target: int) -> dict[str, Any]:
        gap = at[target] - at[source]
        wrapped = np.flatnonzero((np.abs(gap) > sizes / 2) & (sizes > 2))
        return draw_stub(x, y, source, target, steps[wrapped[0]] * np.sign(gap[wrapped[0]])) if wrapped.size else {}

    boxes = frames_of(x, y, np.ravel_multi_index(tuple(board_at.T), tuple(dims // board))) if is_framed else []
    layout = make_layout(["accelerator"] * len(parts), group_of, x, y, boxes=boxes, route=route)
    if level == 0:
        return layout
    names = ("accelerators of row", "column") if len(dims) == 2 else [f"dimension {d}" for d in range(len(dims))]
    label = block_labels(at.astype(np.int64), 2**level, tuple(dims.tolist()), *names)
    return replace(layout, label=label, grouping="block of " + " x ".join([str(2**level)] * len(dims)))


def grid_cells(dims: np.ndarray, board: np.ndarray) -> np.ndarray:
    """Return the coordinates of every accelerator, numbered row-major within a board, boards row-major (MODEL C11)."""
    size = int(board.prod())
    number = np.arange(int(dims.prod()))
    outer = np.stack(np.unravel_index(number // size, tuple(dims // board)), axis=1)
    return outer * board + np.stack(np.unravel_index(number % size, tuple(board)), axis=1)


def _steps(sizes: np.ndarray) -> np.ndarray:
    """Return what one step along each dimension moves in x and y, float array (dimensions, 2)."""
    steps = [(1.0, 0.0), (0.0, -1.0)]
    if len(sizes) > 2:
        steps.append((0.7 / sizes[-3], 0.45 / sizes[-3]))
    while len(steps) < len(sizes):  # further dimensions are copies side by side
        steps.append((1.4 * float(np.prod(sizes[len(sizes) - len(steps) : -3])) * sizes[-1], 0.0))
    return np.array(steps[: len(sizes)][::-1])


def draw_stub(x: np.ndarray, y: np.ndarray, source: int, target: int, step: np.ndarray) -> dict[str, Any]:
    """Draw a cable that wraps as a stub at both ends; ``step`` points from source to target across the grid."""
    dx, dy = (float(part) * _STUB for part in step)
    near, far = (float(x[source]), float(y[source])), (float(x[target]), float(y[target]))
    return {"path": [near, (near[0] - dx, near[1] - dy), None, (far[0] + dx, far[1] + dy), far]}


def frames_of(x: np.ndarray, y: np.ndarray, board_of: np.ndarray) -> list[tuple[float, float, float, float]]:
    """Return a box round the accelerators of every board."""
    frames = []
    for board in range(int(board_of.max()) + 1):
        mine = board_of == board
        low_x, low_y, high_x, high_y = x[mine].min(), y[mine].min(), x[mine].max(), y[mine].max()
        frames.append((float(low_x) - _FRAME, float(low_y) - _FRAME, float(high_x) + _FRAME, float(high_y) + _FRAME))
    return frames


def block_labels(at: np.ndarray, side: int, sizes: tuple[int, ...], *names: str) -> list[str]:
    """Return labels such as "boards of row 0-3, column 4-7" of blocks at ``at`` in units of ``side``."""

    def part(name: str, place: int, size: int) -> str:
        first, last = place * side, min((place + 1) * side, size) - 1
        return f"{name} {first}" if first == last else f"{name} {first}-{last}"

    return [", ".join(part(*one) for one in zip(names, place, sizes, strict=True)) for place in at.tolist()]
