"""Drawings by tiers, the distance from accelerators: in layers, or in circles around the farthest vertices.

Legend: V = vertices. A unit is the switch (leaf, server) that an accelerator hangs on, counted from 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostam_py.fabrics.layout import PLURALS, Layout, make_layout, mean_of, num_vertices

_HUB_RADIUS = 0.55


@dataclass(frozen=True, eq=False)
class _Tiers:
    """row: of every vertex, 0 accelerators, 1 the switches they hang on, ... (V,). kind: words (V,).

    unit: of what lies at or below accelerators, -1 for switches above (V,).
    """

    row: np.ndarray
    kind: list[str]
    unit: np.ndarray


def tiers_of(fabric: Any) -> np.ndarray:
    """Return every vertex' distance from the nearest accelerator [links], int array (V,); loose switches get 1."""
    src, dst = _both_ways(fabric)
    tiers = np.full(num_vertices(fabric), -1)
    tiers[: fabric.num_accelerators] = 0
    for tier in range(1, len(tiers)):
        reached = dst[(tiers[src] == tier - 1) & (tiers[dst] < 0)]
        if not reached.size:
            break
        tiers[reached] = tier
    return np.where(tiers < 0, 1, tiers)


def draw_star(fabric: Any, level: int, *names: str) -> Layout:
    """Draw the farthest vertices in the centre, their neighbours around them and accelerators on the rim, with gaps.

    Args: names: kinds of switches, those that accelerators are on first: one or two.
    """
    tiers = tiers_of(fabric)
    top = int(tiers.max())
    words = ("accelerator", *names)
    here = _Tiers(tiers, [words[tier] for tier in tiers], _units(fabric, tiers.astype(np.float64)))
    unit = here.unit[: fabric.num_accelerators]
    place = np.arange(len(unit)) + (unit if top > 1 else 0)
    around = 2 * np.pi * place / (place[-1] + (2 if top > 1 else 1))
    angle = np.concatenate([around, mean_of(around, unit)])
    angle = np.concatenate([angle, np.zeros(len(tiers))])[: len(tiers)]
    radius = np.where(tiers == 0, 1.0, np.where(tiers == top, 0.0, _HUB_RADIUS))
    group_of = _groups(here, level)
    turn, reach = mean_of(angle, group_of), mean_of(radius, group_of)
    return make_layout(
        here.kind, group_of, reach * np.sin(turn), reach * np.cos(turn), grouping=_grouping(here, level)
    )  # fmt: skip


def draw_layers(fabric: Any, level: int, names: Mapping[int, tuple[str, ...]] | None = None) -> Layout:
    """Draw accelerators at the bottom, with parts of servers, and each tier of switches above what it joins.

    Args: names: kinds of switches from the lowest tier up, by how many tiers there are; "tier-2 switch" without.
    """
    here = _layers(fabric, names or {})
    x, y = _layer_positions(fabric, here)
    group_of = _groups(here, level)
    x, y = mean_of(x, group_of), mean_of(y, group_of)

    def route(source: int, target: int) -> dict[str, Any]:
        if y[source] != y[target]:
            return {}
        rise = 0.15 + 0.5 * abs(x[source] - x[target])
        return {"bend": (float(x[source] + x[target]) / 2, float(y[source] + (rise if y[source] > 0 else -rise)))}

    grouping = _grouping(here, level)
    return make_layout(here.kind, group_of, x, y, grouping=grouping, is_to_scale=False, route=route)


def _both_ways(fabric: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of all links, then of all links turned round."""
    links = fabric.links
    return np.concatenate([links["src"], links["dst"]]), np.concatenate([links["dst"], links["src"]])


def _layers(fabric: Any, names: Mapping[int, tuple[str, ...]]) -> _Tiers:
    """Name switches by tier; vertices that are numbered after them are inside servers: NICs join a switch."""
    first, end = fabric.num_accelerators, fabric.num_accelerators + int(fabric.core.num_switches)
    tiers = tiers_of(fabric)
    row = np.where(np.arange(len(tiers)) < first, 0, tiers - tiers[first:end].min() + 1).astype(np.float64)
    src, dst = _both_ways(fabric)
    is_nic = np.zeros(len(tiers), bool)
    is_nic[src[(src >= end) & (dst >= first) & (dst < end)]] = True
    row[end:] = np.where(is_nic[end:], 0.5, -0.5)
    top = int(row.max())
    words = names.get(top, ("switch",) if top == 1 else tuple(f"tier-{tier} switch" for tier in range(1, top + 1)))
    kind = ["accelerator"] * first + [words[int(tier) - 1] for tier in row[first:end]]
    kind += ["NIC" if nic else "server switch" for nic in is_nic[end:]]
    return _Tiers(row, kind, _units(fabric, row))


def _units(fabric: Any, row: np.ndarray) -> np.ndarray:
    """Return the lowest switch of row 1 that everything below hangs on, over other parts below; -1 above."""
    src, dst = _both_ways(fabric)
    switches = np.flatnonzero(row == 1)
    none = len(switches)
    unit = np.full(len(row), none)
    up = (row[src] < 1) & (row[dst] == 1)
    np.minimum.at(unit, src[up], np.searchsorted(switches, dst[up]))
    below = (row[src] < 1) & (row[dst] < 1)
    for _ in range(2 if none > 0 else 0):  # accelerators over their NICs, then what hangs on accelerators
        np.minimum.at(unit, src[below], unit[dst[below]])
    return np.where(row < 1, unit, -1)


def _groups(here: _Tiers, level: int) -> np.ndarray:
    """Return the group of every vertex: none, by unit, then 2, 4, ... consecutive ones of each tier."""
    if level == 0:
        return np.arange(len(here.row))
    number = np.zeros(len(here.row), np.int64)
    has_units = len(np.unique(here.unit[here.unit >= 0])) > 1
    kinds = {kind: k for k, kind in enumerate(dict.fromkeys(here.kind))}
    kind_of = np.array([kinds[kind] for kind in here.kind])
    for k in kinds.values():
        mine = np.flatnonzero(kind_of == k)
        is_unit = has_units and here.unit[mine[0]] >= 0
        shift = level if not has_units and here.row[mine[0]] == 0 else level - 1
        number[mine] = (here.unit[mine] if is_unit else np.arange(len(mine))) >> shift
    return np.unique(kind_of * len(here.row) + number, return_inverse=True)[1].reshape(-1)


def _grouping(here: _Tiers, level: int) -> str:
    """Return what a group shares: the unit, or several of them; accelerators by number where there is one unit."""
    if level == 0:
        return ""
    if len(np.unique(here.unit[here.unit >= 0])) < 2:
        return f"{2**level} accelerators"
    unit = here.kind[int(np.argmax(here.row == 1))].removesuffix(" switch")
    return unit if level == 1 else f"{2 ** (level - 1)} {PLURALS.get(unit, unit + 's')}"


def _layer_positions(fabric: Any, here: _Tiers) -> tuple[np.ndarray, np.ndarray]:
    """Return x in 0..1 and y of every vertex: switches over the middle of what they join, equals side by side."""
    count, row = fabric.num_accelerators, here.row
    x, y = np.zeros(len(row)), row.copy()
    order = np.argsort(here.unit[:count], kind="stable")
    x[order] = (np.arange(count) + 0.5) / count
    src, dst = _both_ways(fabric)
    for part in np.unique(row[(row < 1) & (row != 0)]):
        low, high = _span(x, src, dst, (row[src] == part) & (row[dst] == 0))
        mine = row == part
        x[mine] = (low[mine] + high[mine]) / 2
    for tier in range(1, int(row.max()) + 1):
        mine = np.flatnonzero(row == tier)
        if tier == row.max():
            x[mine] = (np.arange(len(mine)) + 0.5) / len(mine)
            continue
        low, high = _span(x, src, dst, (row[src] == tier) & (row[dst] < tier))
        _spread(x, mine, low[mine], high[mine])
    return x, y


def _span(x: np.ndarray, src: np.ndarray, dst: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and greatest x that every vertex is joined to over the chosen links; 0 and 1 without any."""
    low, high = np.full(len(x), np.inf), np.full(len(x), -np.inf)
    np.minimum.at(low, src[chosen], x[dst[chosen]])
    np.maximum.at(high, src[chosen], x[dst[chosen]])
    return np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 1.0)


def _spread(x: np.ndarray, mine: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Place switches in the middle of their span, those of one span side by side across it."""
    spans = np.stack([low, high], axis=1).round(9)
    _, span_of, sharing = np.unique(spans, axis=0, return_inverse=True, return_counts=True)
    rank = np.zeros(len(mine), np.int64)
    order = np.argsort(span_of.reshape(-1), kind="stable")
    rank[order] = np.concatenate([np.arange(num) for num in sharing])
    x[mine] = low + (high - low) * (rank + 0.5) / sharing[span_of.reshape(-1)]
