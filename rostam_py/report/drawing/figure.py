"""One figure of a report: drawn twice, for the page (plotly) and for papers (matplotlib), from one table.

figure = Figure(name="memory", title="Memory", caption="What is drawn, how to read it.", table=table, plotly=drawn)
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rostam_py.errors import InternalError

if TYPE_CHECKING:
    import matplotlib.axes
    import plotly.graph_objects
    import polars

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True)
class Figure:
    """A drawing, the numbers in it, and the words below it.

    name: of files and anchors (lower case, digits, _ and -), unique in a page. title: one line. caption: what is
    drawn, how to read it, what was left out; plain text. table: the numbers drawn, which "CSV" downloads. plotly: the
    drawing on the page. paper: draws the same numbers on matplotlib axes; None if the figure has no static form.
    """

    name: str
    title: str
    caption: str
    table: polars.DataFrame
    plotly: plotly.graph_objects.Figure
    paper: Callable[[matplotlib.axes.Axes], None] | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InternalError(f"figure name {self.name!r} is not a file name of a-z, 0-9, _ and -")


@dataclass(frozen=True)
class Section:
    """Figures of one kind below one heading."""

    title: str
    figures: list[Figure]


def unique_names(figures: list[Figure]) -> list[Figure]:
    """Return figures with names that differ: equal ones get -2, -3, ..."""
    taken: set[str] = set()
    found = []
    for figure in figures:
        name, turn = figure.name, 1
        while name in taken:
            turn += 1
            name = f"{figure.name}-{turn}"
        taken.add(name)
        found.append(dataclasses.replace(figure, name=name) if name != figure.name else figure)
    return found
