"""What all plotly drawings of sweeps share: margins, legend above, quiet grids, readable logarithmic axes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.scales import log_range, log_ticks, number

if TYPE_CHECKING:
    import matplotlib.axes
    import plotly.graph_objects

GRID = "rgba(128,128,128,0.25)"
HEIGHT = 420


def new_plot(height: int = HEIGHT, **layout: Any) -> plotly.graph_objects.Figure:
    """Return an empty figure in the house's layout; the page sets its width and the colour of its text."""
    import plotly.graph_objects as go

    return go.Figure(
        layout={
            "template": None, "height": height, "margin": {"l": 70, "r": 20, "t": 24, "b": 56},
            "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": "system-ui, sans-serif", "size": 13},
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
            "hoverlabel": {"align": "left"}, "hovermode": "closest", **layout,
        }
    )  # fmt: skip


def plot_height(lines: Iterable[str]) -> int:
    """Return a height that leaves room above the drawing for a legend of the lines."""
    names = set(lines)
    characters = max((len(name) for name in names), default=0) + 6
    rows = -(-len(names) * characters // 72)
    return HEIGHT + 20 * max(0, rows - 2)


def category_axis(**more: Any) -> dict[str, Any]:
    """Return a vertical axis of names, the first on top."""
    return {
        "autorange": "reversed", "automargin": True, "type": "category", "ticks": "outside", "ticklen": 6,
        "tickcolor": "rgba(0,0,0,0)", **more,
    }  # fmt: skip


def quiet_axis(title: str, **more: Any) -> dict[str, Any]:
    """Return a linear axis with a thin grid."""
    return {
        "title": {"text": title}, "gridcolor": GRID, "zeroline": False, "automargin": True, "ticks": "outside",
        "tickcolor": GRID, "linecolor": GRID, "showline": True, "separatethousands": True, "minexponent": 6, **more,
    }  # fmt: skip


def log_axis(title: str, values: Sequence[float], ticks: Sequence[float] | None = None) -> dict[str, Any]:
    """Return a logarithmic axis over positive values, with ticks at round numbers or at those given."""
    import math

    low, high = log_range(values)
    marks = list(ticks) if ticks else log_ticks(low, high)
    return quiet_axis(
        title, type="log", range=[math.log10(low), math.log10(high)], tickvals=marks,
        ticktext=[number(mark) for mark in marks],
    )  # fmt: skip


def spaced_ticks(values: Sequence[float], most: int = 10) -> list[float] | None:
    """Return the values themselves as ticks of a logarithmic axis if they are few and not too close; else None."""
    ordered = sorted(set(values))
    if not 1 < len(ordered) <= most:
        return None
    span = ordered[-1] / ordered[0]
    closest = min(high / low for low, high in zip(ordered, ordered[1:], strict=False))
    return ordered if closest >= span ** (1 / 18) else None


def paper_log(axes: matplotlib.axes.Axes, which: str, values: Sequence[float], ticks: Sequence[float] | None) -> None:
    """Make the "x" or "y" axis of a static figure logarithmic, with the same ticks as on the page."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    low, high = log_range(values)
    marks = list(ticks) if ticks else log_ticks(low, high)
    getattr(axes, f"set_{which}scale")("log")
    getattr(axes, f"set_{which}lim")(low, high)
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(marks))
    axis.set_major_formatter(FixedFormatter([number(mark) for mark in marks]))
    axis.set_minor_locator(NullLocator())


def file_safe(*parts: str) -> str:
    """Return a figure's name of a-z, 0-9, _ and -."""
    return "-".join(re.sub(r"[^a-z0-9_]+", "-", part.lower()).strip("-_") or "x" for part in parts)
