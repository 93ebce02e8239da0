"""Drawings of boards with row and column switches: framed boards, cables on lanes in the gaps between them.

All cables of a network share a lane. Rows run downwards, as in print.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rostam_py.fabrics.layout import Layout, make_layout, mean_of
from rostam_py.fabrics.layout_grids import block_labels, draw_stub, frames_of

_LANE_GAP = 2.0  # between boards
_RISER = 0.4  # from the end of a board to where its cables turn towards a lane
_SWITCH_STEP = 0.9  # between the switches of one network
_TIERS = ("switch", "spine", "core")
_LANES_WIDTH = 1.1  # of all lanes of a gap, between the risers on either side


@dataclass(frozen=True, slots=True)
class LaneSwitches:
    """The switches of one dimension, numbered network by network, in each its leaves, then its spines, then its cores.

    lanes: networks of one row (column) of boards. num_networks: of all rows. num_leaves, num_spines, num_cores: of a
    network.
    """

    num_networks: int
    lanes: int
    num_leaves: int
    num_spines: int = 0
    num_cores: int = 0


class _Networks:
    """The switches of one dimension: their kinds, groups and places along and across the lanes that lead to them."""

    def __init__(self, name: str, switches: LaneSwitches, pitch: float, level: int) -> None:
        """``pitch``: the distance between boards across the lanes."""
        of_tiers = [switches.num_leaves, switches.num_spines, switches.num_cores]
        per_network = max(1, sum(of_tiers))
        network, slot = np.divmod(np.arange(switches.num_networks * sum(of_tiers)), per_network)
        num_lanes = switches.lanes
        tier = np.searchsorted(np.cumsum(of_tiers), slot, side="right")
        self.kind = [f"{name} {_TIERS[one]}" for one in tier]
        line, lane = network // num_lanes, network % num_lanes
        if level > 0:
            line, lane, slot = line >> (level - 1), np.zeros_like(lane), tier
        self.key = (line * num_lanes + lane) * per_network + slot
        self.depth = _LANE_GAP / 2 + 1.0 + _SWITCH_STEP * slot
        offset = 0.0 if level > 0 else (lane - (num_lanes - 1) / 2) * _LANES_WIDTH / num_lanes
        self.lane = line * pitch - _LANE_GAP / 2 + offset


def draw_boards(
    fabric: Any,
    level: int,
    sizes: tuple[tuple[int, int], tuple[int, int]],
    rows: LaneSwitches,
    columns: LaneSwitches,
) -> Layout:
    """Draw framed boards, row switches to the left and column switches above; from level 1 on, blocks of boards.

    Args:
        sizes: accelerators of a board along its row and its column, boards along a row and a column; numbers run
            row-major within a board, boards row-major, then switches of rows, then of columns.
        rows, columns: the switches.
    """
    (a, b), (num_x, num_y) = sizes
    number = np.arange(fabric.num_accelerators)
    board, j, i = number // (a * b), number // a % b, number % a
    board_x, board_y = board % num_x, board // num_x
    keys = number
    if level > 0:
        board_x, board_y, i, j, a, b = board_x >> (level - 1), board_y >> (level - 1), i * 0, j * 0, 1, 1
        keys = board_y * num_x + board_x
    pitch_x, pitch_y = a - 1 + _LANE_GAP, b - 1 + _LANE_GAP
    row = _Networks("row", rows, pitch_y, level)
    column = _Networks("column", columns, pitch_x, level)
    group_of = _one_numbering([keys, row.key, column.key])
    x = mean_of(np.concatenate([board_x * pitch_x + i, -row.depth, column.lane]), group_of)
    y = mean_of(np.concatenate([-board_y * pitch_y - j, -row.lane, column.depth]), group_of)
    grouping = "" if level == 0 else ("board" if level == 1 else f"{2 ** (level - 1)} x {2 ** (level - 1)} boards")
    layout = make_layout(
        ["accelerator"] * len(number) + row.kind + column.kind, group_of, x, y, grouping=grouping,
        boxes=frames_of(x[number], y[number], board) if level == 0 else [],
        note="Cables to a row or column switch share a lane between the boards, the busiest on top.",
    )  # fmt: skip
    ends = np.stack([i, j], axis=1) if level == 0 else None
    if level > 0:
        num_blocks = int(group_of[number[-1]]) + 1
        places = np.zeros((num_blocks, 2), np.int64)
        places[group_of[number]] = np.stack([board_y, board_x], axis=1)
        labels = block_labels(places, 2 ** (level - 1), (num_y, num_x), "boards of row", "column")
        kinds, labels = ["board"] * num_blocks + layout.kind[num_blocks:], labels + layout.label[num_blocks:]
        layout = replace(layout, kind=kinds, label=labels)
    return replace(layout, route=_Lanes(layout, ends).route)


class _Lanes:
    """How cables run: straight on a board, along a lane to a switch."""

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
        return {} if np.abs(step).sum() < 1.5 else draw_stub(self.x, self.y, source, target, np.sign(step))

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
