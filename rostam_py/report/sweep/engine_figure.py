"""Bars of how much longer each point takes with the other engines of an axis fidelity than with its first one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import category_axis, new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import label, paper_label
from rostam_py.report.sweep.load import SweepData
from rostam_py.spec.sweep_options import OVER_FIRST

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

_AXIS = "fidelity"
_MOST_BARS = 40
_COLOUR = "#0072B2"


def engine_figure(data: SweepData) -> Figure | None:
    """Return bars of the differences, the largest first; None for a sweep without several engines."""
    import polars as pl

    finished = data.finished()
    if OVER_FIRST not in finished.columns or _AXIS not in data.axes:
        return None
    first = data.axes[_AXIS][0]
    rows = finished.filter(pl.col(OVER_FIRST).is_not_null() & (pl.col(_AXIS).cast(pl.String) != first))
    if not len(rows):
        return None
    varied = [key for key, labels in data.axes.items() if key == _AXIS or len(labels) > 1]
    names = zip(*(data.labels_of(rows, key) for key in varied), strict=True)
    table = pl.DataFrame({"point": [", ".join(map(str, one)) for one in names], OVER_FIRST: rows[OVER_FIRST],
                          "key": rows["key"]})  # fmt: skip
    table = table.sort(pl.col(OVER_FIRST).abs(), "point", descending=[True, False])
    shown = table.head(_MOST_BARS)
    count = f"the {_MOST_BARS} largest of {len(table):,} differences" if len(table) > _MOST_BARS else "all differences"
    return Figure(
        name="engines", title=f"Other engines' times over those of {first}", table=table, plotly=_plot(shown),
        caption=f"A point's time over that of the same point with fidelity={first}, less 1; {count}, the largest first."
        f" The column {OVER_FIRST} of points.csv has them.",
        paper=partial(_paper, shown),
    )  # fmt: skip


def _plot(table: polars.DataFrame) -> Any:
    shares = [100 * one for one in table[OVER_FIRST]]
    plot = new_plot(max(200, 100 + 26 * len(table)), bargap=0.4,
                    xaxis=quiet_axis("longer than with the first engine [%]"), yaxis=category_axis())  # fmt: skip
    plot.add_bar(
        x=shares, y=[label(one) for one in table["point"]], orientation="h", marker_color=_COLOUR,
        text=[f"{one:+.2f}%" for one in shares], hoverinfo="text",
        hovertext=[f"{label(name)}: {one:+.2f}%" for name, one in zip(table["point"], shares, strict=True)],
    )  # fmt: skip
    return plot


def _paper(table: polars.DataFrame, axes: matplotlib.axes.Axes) -> None:
    axes.barh([paper_label(one) for one in table["point"]], [100 * one for one in table[OVER_FIRST]], color=_COLOUR)
    axes.invert_yaxis()
    axes.set_xlabel("longer than with the first engine [%]")
