"""Drawings of grids: tori with stubs where they wrap, HammingMesh boards with row and column switches on lanes.

Rows run downwards, as in print. Lanes lie in the gaps between boards: all cables of a network share one.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from rostam_py.fabrics.hammingmesh import Dimension
from rostam_py.fabrics.layout import Layout, draw_circle, make_layout, mean_of

_BOARD_GAP = 0.6  # between boards of a torus, in steps between accelerators
_STUB = 0.55  # of a cable that wraps
_LANE_GAP = 2.0  # between boards of a HammingMesh
_RISER = 0.4  # from the end of a board to where its cables turn towards a lane
_FRAME = 0.3  # from the outer accelerators of a board to its frame
_SWITCH_STEP = 0.9  # between leaves and spines of one network


def draw_torus(fabric: Any, level: int) -> Layout:
    """Draw a torus as a grid, a third dimension along short diagonals; from level 1 on, blocks of 2 a side.

    One dimension is a ring.
    """
    dims = np.array(fabric.config.dims)
    if int((dims > 1).sum()) == 1:
        return draw_circle(fabric, level)
    board = np.array(fabric.config.board or dims)
    parts = torus_cells(dims, board) >> level
    sizes = ((dims - 1) >> level) + 1
    group_of = np.arange(len(parts)) if level == 0 else np.ravel_multi_index(tuple(parts.T), tuple(sizes))
    at = np.stack([mean_of(column, group_of) for column in parts.T], axis=1)
    steps = _torus_steps(sizes)
    is_framed = level == 0 and bool((board < dims).any()) and len(dims) == 2
    board_at = (at // board).astype(np.int64)
    x, y = ((at + board_at * _BOARD_GAP if is_framed else at) @ steps).T

    def route(source: int, target: int) -> dict[str, Any]:
        gap = at[target] - at[source]
        wrapped = np.flatnonzero((np.abs(gap) > sizes / 2) & (sizes > 2))
        return _stub(x, y, source, target, steps[wrapped[0]] * np.sign(gap[wrapped[0]])) if wrapped.size else {}

    boxes = _frames(x, y, np.ravel_multi_index(tuple(board_at.T), tuple(dims // board))) if is_framed else []
    layout = make_layout(["accelerator"] * len(parts), group_of, x, y, boxes=boxes, route=route)
    if level == 0:
        return layout
    names = ("accelerators of row", "column") if len(dims) == 2 else [f"dimension {d}" for d in range(len(dims))]
    label = _block_labels(at.astype(np.int64), 2**level, tuple(dims.tolist()), *names)
    return replace(layout, label=label, grouping="block of " + " x ".join([str(2**level)] * len(dims)))


def torus_cells(dims: np.ndarray, board: np.ndarray) -> np.ndarray:
    """Return the coordinates of every accelerator, numbered row-major within a board, boards row-major (MODEL C11)."""
    size = int(board.prod())
    number = np.arange(int(dims.prod()))
    outer = np.stack(np.unravel_index(number // size, tuple(dims // board)), axis=1)
    return outer * board + np.stack(np.unravel_index(number % size, tuple(board)), axis=1)


def _torus_steps(sizes: np.ndarray) -> np.ndarray:
    """Return what one step along each dimension moves in x and y, float array (dimensions, 2)."""
    steps = [(1.0, 0.0), (0.0, -1.0)]
    if len(sizes) > 2:
        steps.append((0.7 / sizes[-3], 0.45 / sizes[-3]))
    while len(steps) < len(sizes):  # further dimensions are copies side by side
        steps.append((1.4 * float(np.prod(sizes[len(sizes) - len(steps) : -3])) * sizes[-1], 0.0))
    return np.array(steps[: len(sizes)][::-1])


def _stub(x: np.ndarray, y: np.ndarray, source: int, target: int, step: np.ndarray) -> dict[str, Any]:
    """Draw a cable that wraps as a stub at both ends; ``step`` points from source to target across the grid."""
    dx, dy = (float(part) * _STUB for part in step)
    near, far = (float(x[source]), float(y[source])), (float(x[target]), float(y[target]))
    return {"path": [near, (near[0] - dx, near[1] - dy), None, (far[0] + dx, far[1] + dy), far]}


def _frames(x: np.ndarray, y: np.ndarray, board_of: np.ndarray) -> list[tuple[float, float, float, float]]:
    frames = []
    for board in range(int(board_of.max()) + 1):
        mine = board_of == board
        low_x, low_y, high_x, high_y = x[mine].min(), y[mine].min(), x[mine].max(), y[mine].max()
        frames.append((float(low_x) - _FRAME, float(low_y) - _FRAME, float(high_x) + _FRAME, float(high_y) + _FRAME))
    return frames


class _Networks:
    """The switches of one dimension: their kinds, groups and places along and across the lanes that lead to them."""

    def __init__(self, name: str, dimension: Dimension, across: tuple[int, float], level: int) -> None:
        """Number them as the core does; ``across``: lines of a board, and the distance between boards, across."""
        per_network = max(1, dimension.num_leaves + dimension.num_spines)
        network, slot = np.divmod(np.arange(dimension.num_switches), per_network)
        num_lanes = 1 if dimension.wiring == "board_row" else across[0]
        is_spine = slot >= dimension.num_leaves
        self.kind = [f"{name} spine" if spine else f"{name} switch" for spine in is_spine]
        line, lane = network // num_lanes, network % num_lanes
        if level > 0:
            line, lane, slot = line >> (level - 1), np.zeros_like(lane), is_spine.astype(np.int64)
        self.key = (line * num_lanes + lane) * per_network + slot
        self.depth = _LANE_GAP / 2 + 1.0 + _SWITCH_STEP * slot
        offset = 0.0 if level > 0 else (lane - (num_lanes - 1) / 2) * 0.7 / num_lanes
        self.lane = line * across[1] - _LANE_GAP / 2 + offset


def draw_mesh(fabric: Any, level: int) -> Layout:
    """Draw a HammingMesh: framed boards, row switches to the left and column switches above; then blocks of boards."""
    config = fabric.config
    rows, columns = config.dimensions
    (a, b), (num_x, num_y) = config.board, config.boards
    number = np.arange(fabric.num_accelerators)
    board, j, i = number // (a * b), number // a % b, number % a
    board_x, board_y = board % num_x, board // num_x
    keys = number
    if level > 0:
        board_x, board_y, i, j, a, b = board_x >> (level - 1), board_y >> (level - 1), i * 0, j * 0, 1, 1
        keys = board_y * num_x + board_x
    pitch_x, pitch_y = a - 1 + _LANE_GAP, b - 1 + _LANE_GAP
    row = _Networks("row", rows, (columns.length, pitch_y), level)
    column = _Networks("column", columns, (rows.length, pitch_x), level)
    group_of = _one_numbering([keys, row.key, column.key])
    x = mean_of(np.concatenate([board_x * pitch_x + i, -row.depth, column.lane]), group_of)
    y = mean_of(np.concatenate([-board_y * pitch_y - j, -row.lane, column.depth]), group_of)
    grouping = "" if level == 0 else ("board" if level == 1 else f"{2 ** (level - 1)} x {2 ** (level - 1)} boards")
    layout = make_layout(
        ["accelerator"] * len(number) + row.kind + column.kind, group_of, x, y, grouping=grouping,
        boxes=_frames(x[number], y[number], board) if level == 0 else [],
    )  # fmt: skip
    ends = np.stack([i, j], axis=1) if level == 0 else None
    if level > 0:
        num_blocks = int(group_of[number[-1]]) + 1
        places = np.zeros((num_blocks, 2), np.int64)
        places[group_of[number]] = np.stack([board_y, board_x], axis=1)
        labels = _block_labels(places, 2 ** (level - 1), (num_y, num_x), "boards of row", "column")
        kinds, labels = ["board"] * num_blocks + layout.kind[num_blocks:], labels + layout.label[num_blocks:]
        layout = replace(layout, kind=kinds, label=labels)
    return replace(layout, route=_Lanes(layout, ends).route)


def _block_labels(at: np.ndarray, side: int, sizes: tuple[int, ...], *names: str) -> list[str]:
    """Return labels such as "boards of row 0-3, column 4-7" of blocks at ``at`` in units of ``side``."""

    def part(name: str, place: int, size: int) -> str:
        first, last = place * side, min((place + 1) * side, size) - 1
        return f"{name} {first}" if first == last else f"{name} {first}-{last}"

    return [", ".join(part(*one) for one in zip(names, place, sizes, strict=True)) for place in at.tolist()]


class _Lanes:
    """How the cables of a HammingMesh run: straight on a board, along a lane to a switch."""

    def __init__(self, layout: Layout, ends: np.ndarray | None) -> None:
        """``ends``: column and row of every accelerator on its board; None where boards are drawn whole."""
        self.x, self.y, self.kind, self.ends = layout.x, layout.y, layout.kind, ends

    def route(self, source: int, target: int) -> dict[str, Any]:
        """Return how a link runs, see Layout."""
        is_switch = [self.kind[end] not in ("accelerator", "board") for end in (source, target)]
        if all(is_switch):
            return self._between_switches(source, target)
        if not any(is_switch):
            return self._on_board(source, target)
        device, switch = (target, source) if is_switch[0] else (source, target)
        return {
            "path": self._to_row(device, switch)
            if self.kind[switch].startswith("row")
            else self._to_column(device, switch)
        }

    def _to_row(self, device: int, switch: int) -> list[tuple[float, float]]:
        x, y = self.x[device], self.y[device]
        side = 0.0 if self.ends is None else (-_RISER if self.ends[device][0] == 0 else _RISER)
        points = [(x, y), (x + side, y), (x + side, self.y[switch]), (self.x[switch], self.y[switch])]
        return _points(points)

    def _to_column(self, device: int, switch: int) -> list[tuple[float, float]]:
        x, y = self.x[device], self.y[device]
        side = 0.0 if self.ends is None else (_RISER if self.ends[device][1] == 0 else -_RISER)
        points = [(x, y), (x, y + side), (self.x[switch], y + side), (self.x[switch], self.y[switch])]
        return _points(points)

    def _on_board(self, source: int, target: int) -> dict[str, Any]:
        step = np.array([self.x[target] - self.x[source], self.y[target] - self.y[source]])
        return {} if np.abs(step).sum() < 1.5 else _stub(self.x, self.y, source, target, np.sign(step))

    def _between_switches(self, source: int, target: int) -> dict[str, Any]:
        middle = (self.x[source] + self.x[target]) / 2, (self.y[source] + self.y[target]) / 2
        is_row = self.kind[source].startswith("row")
        return {"bend": (float(middle[0] + (0 if is_row else 0.5)), float(middle[1] + (0.5 if is_row else 0)))}


def _points(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return plain points without repetitions."""
    plain = [(float(x), float(y)) for x, y in points]
    return [point for k, point in enumerate(plain) if k == 0 or point != plain[k - 1]]


def _one_numbering(keys: list[np.ndarray]) -> np.ndarray:
    """Return groups 0, 1, ... of vertices that come in several lists, each with keys of its own."""
    parts, first = [], 0
    for key in keys:
        found = np.unique(key, return_inverse=True)[1].reshape(-1)
        parts.append(first + found)
        first += int(found.max(initial=-1)) + 1
    return np.concatenate(parts)
