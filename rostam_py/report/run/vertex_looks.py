"""How the vertices of a fabric look on its drawing: by what they do and where they come, never by their names.

Example:
    looks = vertex_looks(drawing["vertices"])
    looks["leaf"].colour
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rostam_py.report.drawing.scales import COLOURS


@dataclass(frozen=True)
class Look:
    """colour, symbol (plotly's word) and size relative to an accelerator's, of one kind of vertex."""

    colour: str
    symbol: str
    size: float


# Of each role: the looks of its kinds in order of appearance; the last one is taken again.
_LOOKS = {
    "accelerator": (Look("#44546A", "circle", 1.0), Look("#44546A", "square", 1.3)),
    "inside": (Look("#9AA5B1", "diamond", 0.8), Look(COLOURS[5], "square", 1.2)),
    "switch": (
        Look(COLOURS[0], "square", 1.5), Look(COLOURS[2], "square", 1.5), Look(COLOURS[3], "square", 1.5),
        Look(COLOURS[5], "diamond", 1.5), Look(COLOURS[6], "diamond", 1.5),
    ),
}  # fmt: skip
_LONE_SIZE = 2.2  # of the only switch of its kind


def vertex_looks(vertices: Sequence[Mapping[str, Any]]) -> dict[str, Look]:
    """Return the look of every kind of vertex, in the order of a legend.

    Model: accelerators are dark circles, or squares where boards of them are drawn whole; parts inside servers are
        small; kinds of switches take colours in the order in which the fabric numbers them.
    Args: vertices: of a document's drawing, with kind and role.
    """
    number = Counter(vertex["kind"] for vertex in vertices)
    found = {}
    for role, looks in _LOOKS.items():
        kinds = list(dict.fromkeys(vertex["kind"] for vertex in vertices if vertex["role"] == role))
        for place, kind in enumerate(kinds):
            look = looks[min(place, len(looks) - 1)]
            if role == "accelerator":
                look = looks[0 if kind == role else 1]
            if role == "switch" and number[kind] == 1:
                look = replace(look, size=_LONE_SIZE)
            found[kind] = look
    return found
