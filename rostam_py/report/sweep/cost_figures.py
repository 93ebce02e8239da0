"""Cost against time: every setting a mark, and the Pareto front, the settings that none beats in both."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import file_safe, log_axis, new_plot, paper_log, plot_height
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import (
    PAPER_SYMBOLS,
    Scale,
    count_scale,
    label,
    number,
    paper_label,
    short_strategy,
    time_scale,
)
from rostam_py.report.sweep.prices import BASIS, NETWORK, left_out, priced
from rostam_py.report.sweep.reading import BANDWIDTH, ModelPoints, Reading, has_values

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

# Column -> words, title of the axis, unit.
COSTS = {
    NETWORK: ("price of the network", "price of the network in 400 Gb/s parts", "US$ of 2022"),
    "accelerator_hours": ("accelerator hours", "accelerator hours", ""),
    "cost_usd": ("cost of training", "cost of training", "US$"),
}
_NETWORK_WORDS = (
    f"Prices: {BASIS} (HammingMesh's list of April 2022; no NICs, nothing inside servers). A link below 400 Gb/s costs"
    " as much as one of 400."
)
# Marks above which only one a cell of a grid over the drawn area is kept, besides the front.
MOST_MARKS = 1500
_CELLS = 40
# Up to so many marks, those off the front are drawn nearly as large as those on it.
_FEW_MARKS = 150
_FRONT = "Pareto front"


def cost_figures(reading: Reading, points: ModelPoints) -> list[Figure]:
    """Return a figure for each kind of cost that says more than the time does."""
    return [_figure(reading, points, column) for column in COSTS if _is_telling(points, column)]


def _is_telling(points: ModelPoints, column: str) -> bool:
    """Say whether a cost differs between points, and is not just the time in another unit."""
    rows = _rows(points, column)
    ratio = rows[column] / rows[points.goal] if len(rows) else None
    differs = len(rows) > 0 and rows[column].n_unique() > 1
    return bool(differs and ratio.max() > 1.001 * ratio.min())  # type: ignore[union-attr,operator]


def _rows(points: ModelPoints, column: str) -> polars.DataFrame:
    """Return the settings that have a cost."""
    import polars as pl

    if not has_values(points.settings, column):
        return points.settings.clear()
    return priced(points.settings) if column == NETWORK else points.settings.filter(pl.col(column) > 0)


def pareto_front(table: polars.DataFrame, cost: str, time: str) -> polars.DataFrame:
    """Return the rows that no other row beats in both cost and time, by rising cost.

    Of equal rows the first stays; a row of equal cost and longer time is beaten, and the other way round.
    """
    import polars as pl

    ordered = table.sort(cost, time, maintain_order=True)
    before = pl.col(time).cum_min().shift(1)
    return ordered.filter(before.is_null() | (pl.col(time) < before))


def _figure(reading: Reading, points: ModelPoints, column: str) -> Figure:
    words, _, unit = COSTS[column]
    rows = _rows(points, column)
    front = pareto_front(rows, column, points.goal)
    shown = _thinned(rows, front["index"], column, points.goal)
    scales = count_scale(rows[column].to_list(), unit), time_scale(rows[points.goal].to_list())
    said = [
        "Left and low is better. Each mark is one setting: filled on the front, open off it.",
        "The line joins the Pareto front: those that no other beats in both.",
        _NETWORK_WORDS if column == NETWORK else "",
        f"On the front: {len(front):,}.",
        f"{len(shown):,} of {len(rows):,} marks are drawn: the front, and of each cell of a {_CELLS} x {_CELLS} grid"
        " the fastest of every line." if len(shown) < len(rows) else "",
        "Of several seeds the middle one counts." if rows["num_seeds"].max() > 1 else "",  # type: ignore[operator]
    ]  # fmt: skip
    unpriced = [line for line in points.best["line"].unique(maintain_order=True) if line not in set(rows["line"])]
    if column == NETWORK:
        said.append(left_out(points.settings))
    elif unpriced:
        said.append(f"Not drawn, since they have no {words}: {', '.join(unpriced)}.")
    kept = dict.fromkeys([column, points.goal, "on_front", BANDWIDTH, "strategy", "global_batch", "key"])
    return Figure(
        name=file_safe("cost", column, points.model), title=f"{points.model}: {words} against {points.goal_words}",
        caption=" ".join(word for word in said if word),
        table=reading.figure_table(shown, *kept),
        plotly=_plot(reading, points, shown, column, scales),
        paper=partial(_paper, reading, points, shown, column, scales),
    )  # fmt: skip


def _thinned(rows: polars.DataFrame, front: polars.Series, cost: str, time: str) -> polars.DataFrame:
    """Return rows with "on_front", thinned to a grid where they are too many to draw, the front always whole."""
    import polars as pl

    rows = rows.with_columns(pl.col("index").is_in(front.to_list()).alias("on_front"))
    if len(rows) <= MOST_MARKS:
        return rows.sort(cost, time, "index")

    def cell(column: str) -> pl.Expr:
        value = pl.col(column).log()
        return ((value - value.min()) / (value.max() - value.min()).clip(1e-9) * _CELLS).floor().clip(0, _CELLS - 1)

    others = rows.filter(~pl.col("on_front")).with_columns(cell(cost).alias("_x"), cell(time).alias("_y"))
    others = others.sort(time, "index").unique(["line", "_x", "_y"], keep="first", maintain_order=True)
    return pl.concat([rows.filter("on_front"), others.drop("_x", "_y")]).sort(cost, time, "index")


def _plot(
    reading: Reading, points: ModelPoints, shown: polars.DataFrame, column: str, scales: tuple[Scale, Scale]
) -> Any:
    import polars as pl

    cost, time = scales
    xs, ys = (shown[column] * cost.factor).to_list(), (shown[points.goal] * time.factor).to_list()
    plot = new_plot(
        plot_height([*shown["line"].to_list(), _FRONT]),
        xaxis=log_axis(cost.title(COSTS[column][1]), xs),
        yaxis=log_axis(time.title(points.goal_words), ys),
    )
    front = shown.filter("on_front").sort(column)
    beaten = 10 if len(shown) <= _FEW_MARKS else 6
    plot.add_scatter(
        x=(front[column] * cost.factor).to_list(), y=(front[points.goal] * time.factor).to_list(), mode="lines",
        line={"shape": "hv", "color": "#7F7F7F", "width": 2}, name=_FRONT, hoverinfo="skip",
    )  # fmt: skip
    for line in reading.lines:
        rows, look = shown.filter(pl.col("line") == line), reading.looks[line]
        if not len(rows):
            continue
        on_front = rows["on_front"].to_list()
        plot.add_scatter(
            x=(rows[column] * cost.factor).to_list(), y=(rows[points.goal] * time.factor).to_list(), mode="markers",
            name=label(line), hoverinfo="text",
            hovertext=[_hover(reading, points, row, column, scales) for row in rows.to_dicts()],
            marker={"symbol": [look.symbol + ("" if one else "-open") for one in on_front], "color": look.colour,
                    "size": [13 if one else beaten for one in on_front], "opacity": 1,
                    "line": {"color": ["#444444" if one else look.colour for one in on_front], "width": 1.5}},
        )  # fmt: skip
    return plot


def _hover(reading: Reading, points: ModelPoints, row: dict[str, Any], column: str, scales: tuple[Scale, Scale]) -> str:
    cost, time = scales
    where = f", {reading.x_label(row[reading.x])}" if reading.x else ""
    said = [f"<b>{label(row['line'])}</b>{where}" + (" (on the front)" if row["on_front"] else "")]
    if row.get("strategy"):
        said.append(label(short_strategy(row["strategy"])))
    said.append(f"{number(row[points.goal] * time.factor)} {time.unit}")
    said.append(f"{COSTS[column][0]}: {number(row[column] * cost.factor)} {cost.unit}")
    return "<br>".join(said)


def _paper(
    reading: Reading, points: ModelPoints, shown: polars.DataFrame, column: str, scales: tuple[Scale, Scale],
    axes: matplotlib.axes.Axes,
) -> None:  # fmt: skip
    import polars as pl

    cost, time = scales
    front = shown.filter("on_front").sort(column)
    x, y = front[column] * cost.factor, front[points.goal] * time.factor
    axes.step(x, y, where="post", color="#7F7F7F", label=_FRONT, zorder=1)
    for line in reading.lines:
        rows, look = shown.filter(pl.col("line") == line), reading.looks[line]
        if not len(rows):
            continue
        for is_front, size in ((False, 22), (True, 40)):
            some = rows.filter(pl.col("on_front") == is_front)
            name = paper_label(line) if is_front == bool(rows["on_front"].any()) else None
            axes.scatter(some[column] * cost.factor, some[points.goal] * time.factor, s=size, label=name,
                         facecolors=look.colour if is_front else "none", edgecolors=look.colour, linewidths=0.9,
                         marker=PAPER_SYMBOLS[look.symbol], zorder=2 + is_front)  # fmt: skip
    paper_log(axes, "x", (shown[column] * cost.factor).to_list(), None)
    paper_log(axes, "y", [one * time.factor for one in shown[points.goal] if math.isfinite(one)], None)
    axes.set_xlabel(cost.title(COSTS[column][1]))
    axes.set_ylabel(time.title(points.goal_words))
    axes.legend(fontsize="small", frameon=False)
