"""Where to draw the vertices of a fabric, and how to draw fewer of them on a large one.

Example:
    layout = layout_of(rostam.fabric("fat_tree", num_accelerators=1024))
    layout.grouping, layout.label[layout.group_of[0]]       # "leaf", "accelerators 0-31"

A layout has a level: at 0 every vertex is drawn by itself; from 1 on groups are (of a leaf, a server, a board, a ring
segment), and each further level puts twice as many into one, along each dimension of a grid.
Legend: V = vertices of one plane, G = groups.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# A drawing of more directed links than this shows groups; of more joined pairs or groups than these, larger groups.
MAX_DRAWN_LINKS = 3_000
MAX_GROUPS = 330
PLURALS = {"leaf": "leaves", "switch": "switches"}


def _straight(source: int, target: int) -> dict[str, Any]:
    return {}


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout:
    """A drawing of a fabric: positions, kinds and names of vertices or groups of them.

    group_of: group of every vertex, int64 array (V,). x, y: of every group, float64 arrays (G,), y upwards.
    kind, label: of every group: "accelerator", "leaf", ...; "leaf 3", "accelerators 96-127".
    name_of: of every vertex by itself (V,). grouping: what shares a group ("leaf"), "" where nothing does.
    is_to_scale: x and y have one unit (grids, circles). boxes: (x0, y0, x1, y1) of boards to frame.
    note: a sentence on how to read the drawing, "" where nothing needs saying.
    route: (source group, target group) -> how their link runs: {} straight; {"path": points, None between strokes};
        {"bend": control point of a quadratic curve}. Both directions run alike.
    """

    group_of: np.ndarray
    x: np.ndarray
    y: np.ndarray
    kind: list[str]
    label: list[str]
    name_of: list[str]
    grouping: str = ""
    is_to_scale: bool = True
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)
    note: str = ""
    route: Callable[[int, int], dict[str, Any]] = _straight

    @property
    def count(self) -> np.ndarray:
        """Vertices of every group, int array (G,)."""
        return np.bincount(self.group_of, minlength=len(self.x))


def layout_of(fabric: Any, max_links: int = MAX_DRAWN_LINKS) -> Layout:
    """Return the drawing of a fabric as it is routed: with circuits, its accelerators and a link a connected pair.

    Model: each fabric's Config draws it at a level (``FabricConfig.draw``); this picks the lowest that is small enough.
    Args: max_links: above this many directed links groups are drawn; of groups, this many joined pairs at most.
    Cost: links x levels, at most about ten.
    Source: own; tests/fabrics/test_layout.py.
    """
    links = fabric.links
    links = links[links["plane"] == links["plane"].min(initial=0)]
    level = 0 if len(links) <= max_links else 1
    while True:
        layout = layout_at(fabric, level)
        is_small = len(layout.x) <= MAX_GROUPS and num_pairs(layout, links) <= max_links
        if level == 0 or is_small or len(layout.x) <= 8:
            return layout
        level += 1


def layout_at(fabric: Any, level: int) -> Layout:
    """Return the drawing of a fabric at one level of grouping."""
    layout: Layout = fabric.config.draw(fabric, level)
    return layout


def num_vertices(fabric: Any) -> int:
    """Return the vertices that links join: accelerators, switches and parts of servers, in one plane."""
    links = fabric.links
    known = fabric.num_accelerators + int(fabric.core.num_switches)
    return max(known, 1 + int(links["src"].max(initial=-1)), 1 + int(links["dst"].max(initial=-1)))


def num_pairs(layout: Layout, links: np.ndarray) -> int:
    """Return how many pairs of groups the links join, either direction, links inside groups apart."""
    ends = np.sort(np.stack([layout.group_of[links["src"]], layout.group_of[links["dst"]]]), axis=0)
    apart = ends[:, ends[0] != ends[1]]
    return len(np.unique(apart[0] * len(layout.x) + apart[1]))


def make_layout(kind_of: list[str], group_of: np.ndarray, x: np.ndarray, y: np.ndarray, **options: Any) -> Layout:
    """Return a layout whose groups are named after their members, all of one kind.

    Args: kind_of: of every vertex. group_of: (V,). x, y: of every group (G,).
    """
    number = np.zeros(len(kind_of), np.int64)
    kinds = np.array(kind_of)
    for kind in dict.fromkeys(kind_of):
        mine = np.flatnonzero(kinds == kind)
        number[mine] = np.arange(len(mine))
    order = np.argsort(group_of, kind="stable")
    bounds = np.searchsorted(group_of[order], np.arange(len(x) + 1)).tolist()
    members = [order[begin:end] for begin, end in zip(bounds[:-1], bounds[1:], strict=True)]
    kinds_of = [kind_of[of[0]] for of in members]
    single = {name for name in dict.fromkeys(kind_of) if kind_of.count(name) == 1 and name != "accelerator"}
    label = [name if name in single else _label(name, number[of]) for name, of in zip(kinds_of, members, strict=True)]
    names = [name if name in single else f"{name} {k}" for name, k in zip(kind_of, number.tolist(), strict=True)]
    return Layout(group_of=group_of, x=x, y=y, kind=kinds_of, label=label, name_of=names, **options)


def mean_of(values: np.ndarray, group_of: np.ndarray) -> np.ndarray:
    """Return the mean of every group's members, float array (G,)."""
    return np.bincount(group_of, weights=values) / np.bincount(group_of)


def _label(kind: str, numbers: np.ndarray) -> str:
    first, last = int(numbers[0]), int(numbers[-1])
    if len(numbers) == 1:
        return f"{kind} {first}"
    head, _, noun = kind.rpartition(" ")
    plural = f"{head} {PLURALS.get(noun, noun + 's')}".strip()
    is_run = last - first == len(numbers) - 1
    return f"{plural} {first}-{last}" if is_run else f"{len(numbers):,} {plural} from {first} to {last}"
