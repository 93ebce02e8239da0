"""Drawings on a circle: rings, circuits, and accelerators that are joined without order."""

from typing import Any

import numpy as np

from rostam_py.fabrics.layout import Layout, make_layout, num_vertices

CIRCUITS = "Links are optical circuits, as set for this traffic."


def draw_circle(fabric: Any, level: int, inside: str = "switch") -> Layout:
    """Draw accelerators clockwise from the top, ``2 ** level`` consecutive ones a group.

    Args: inside: the kind of the switches, on a circle inside.
    """
    count = fabric.num_accelerators
    num_inside = num_vertices(fabric) - count
    segment = np.arange(count) >> level
    rim = int(segment[-1]) + 1
    outer, inner = _on_circle(rim, 1.0), _on_circle(num_inside, 0.4)
    x, y = (np.concatenate([outer[axis], inner[axis]]) for axis in (0, 1))
    return make_layout(
        ["accelerator"] * count + [inside] * num_inside,
        np.concatenate([segment, rim + np.arange(num_inside)]), x, y,
        grouping="" if level == 0 else f"segment of {2**level}",
        note=CIRCUITS if fabric.is_circuit_switched and num_inside == 0 else "", route=lambda a, b: _chord(x, y, a, b),
    )  # fmt: skip


def _on_circle(count: int, radius: float) -> tuple[np.ndarray, np.ndarray]:
    angle = np.pi / 2 - 2 * np.pi * np.arange(count) / max(1, count)
    return radius * np.cos(angle), radius * np.sin(angle)


def _chord(x: np.ndarray, y: np.ndarray, source: int, target: int) -> dict[str, Any]:
    """Bend a link towards the centre: neighbours along the rim, short ones clear of it, opposite ones through it."""
    rim = np.count_nonzero(np.hypot(x, y) > 0.99)
    middle = np.array([x[source] + x[target], y[source] + y[target]]) / 2
    depth = float(np.hypot(*middle))  # the cosine of half the angle between two ends on the rim
    steps = np.arccos(min(1.0, depth)) / np.pi * rim
    if steps < 1.5 or depth < 1e-6:
        return {}
    reach = 1 - ((steps - 1) / max(1.0, rim / 2 - 1)) ** 0.4
    return {"bend": (float(middle[0] / depth * reach), float(middle[1] / depth * reach))}
