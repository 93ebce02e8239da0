"""Time to accuracy (or a sample) against bandwidth, number of accelerators, or case; a line per fabric."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import (
    category_axis,
    file_safe,
    log_axis,
    new_plot,
    paper_log,
    plot_height,
    quiet_axis,
    spaced_ticks,
)
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import (
    PAPER_DASHES,
    PAPER_SYMBOLS,
    Scale,
    label,
    log_range,
    number,
    paper_label,
    short_strategy,
    time_scale,
)
from rostam_py.report.sweep.reading import BANDWIDTH, SIZE, ModelPoints, Reading, has_values

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

# Share of a figure's height below which two lines look like one.
_SAME_HEIGHT = 0.012


def time_figure(reading: Reading, points: ModelPoints) -> Figure:
    """Return a model's times: lines over x, or a bar per line where there is no x."""
    scale = time_scale(points.best[points.goal].to_list())
    against = "by case" if reading.x is None else "against bandwidth" if reading.x == BANDWIDTH else "against size"
    draw, paper = (_bars, _paper_bars) if reading.x is None else (_lines, _paper_lines)
    return Figure(
        name=file_safe(points.goal.removesuffix("_s").replace("_", "-"), points.model),
        title=f"{points.model}: {points.goal_words} {against}",
        caption=_caption(reading, points),
        table=time_table(reading, points),
        plotly=draw(reading, points, scale),
        paper=partial(paper, reading, points, scale),
    )


def time_table(reading: Reading, points: ModelPoints) -> polars.DataFrame:
    """Return the numbers drawn, in SI."""
    import polars as pl

    return reading.figure_table(
        points.best, points.goal, pl.col("goal_min").alias(f"{points.goal}_min"),
        pl.col("goal_max").alias(f"{points.goal}_max"), "num_seeds", "num_settings", "strategy", "algorithms",
        "global_batch", "num_accelerators", "is_extrapolated", "key",
    )  # fmt: skip


def hover_text(reading: Reading, points: ModelPoints, row: dict[str, Any], scale: Scale) -> str:
    """Return what a place says under the pointer: where, how long, by which strategy, how sure."""
    where = f", {reading.x_label(row[reading.x])}" if reading.x else ""
    said = [f"<b>{label(row['line'])}</b>{where}", f"{points.goal_words}: {number(row[points.goal] * scale.factor)} "
            f"{scale.unit}"]  # fmt: skip
    if row.get("strategy"):
        said.append(
            label(short_strategy(row["strategy"]))
            + (f", batch {row['global_batch']:,}" if row.get("global_batch") else "")
        )
    if row.get("routing"):
        said.append(f"routing {label(row['routing'])}")
    if row.get("algorithms"):
        said.append(label(row["algorithms"]))
    if row["num_seeds"] > 1:
        low, high = (number(row[key] * scale.factor) for key in ("goal_min", "goal_max"))
        said.append(f"{row['num_seeds']} seeds: {low} to {high} {scale.unit}")
    if row["num_settings"] > 1:
        said.append(f"best of {row['num_settings']:,} settings")
    if row.get("is_extrapolated"):
        said.append("extrapolated beyond the curve's measured batches")
    return "<br>".join(said)


def _caption(reading: Reading, points: ModelPoints) -> str:
    import polars as pl

    words = [f"{points.goal_words.capitalize()} of {points.model}; lower is better."]
    if points.goal == "time_per_sample_s":
        words.append("Iteration time over global batch: no convergence curve was given.")
    words.append(reading.standing(points))
    if reading.x != SIZE and has_values(points.best, SIZE) and points.best[SIZE].n_unique() > 1:
        ends: Any = points.best.select(pl.col(SIZE).min().alias("least"), pl.col(SIZE).max().alias("most")).row(0)
        words.append(f"Machines differ in size: {ends[0]:,} to {ends[1]:,} accelerators.")
    if (points.best["goal_max"] > points.best["goal_min"]).any():
        words.append(f"The {'bands' if reading.x else 'error bars'} span all seeds, from the least to the most.")
    if reading.x and any(covered(reading, points).values()):
        words.append("A line that others lie on is drawn broader, below them.")
    if _extrapolated(points).any():
        words.append("Open marks are extrapolated beyond the batches that the convergence curve measured.")
    left_out = len(reading.data.failed())
    if left_out:
        words.append(f"{left_out:,} points of the sweep ended with an error and are not drawn.")
    return " ".join(word for word in words if word)


def _extrapolated(points: ModelPoints) -> polars.Series:
    import polars as pl

    if "is_extrapolated" not in points.best.columns:
        return pl.Series([False] * len(points.best))
    return points.best["is_extrapolated"].cast(pl.Boolean).fill_null(False)


def _of_line(points: ModelPoints, line: str) -> polars.DataFrame:
    import polars as pl

    return points.best.with_columns(_extrapolated(points).alias("open")).filter(pl.col("line") == line)


def _ends(reading: Reading, points: ModelPoints, scale: Scale) -> tuple[list[float], list[float]]:
    """Return the drawn x values and y ends."""
    xs = (points.best[reading.x] * reading.x_scale().factor).to_list()  # type: ignore[index]
    return xs, [one * scale.factor for key in ("goal_min", "goal_max") for one in points.best[key].to_list()]


def covered(reading: Reading, points: ModelPoints) -> dict[str, int]:
    """Return how many of the lines drawn after it lie on each line, at half or more of the x that they share.

    Such a line is drawn broader, with larger marks, and so is seen on both sides of those on top; at most thrice.
    """
    import polars as pl

    low, high = (math.log(one) for one in log_range(points.best[points.goal].to_list()))
    places = {}
    for line in reading.lines:
        rows = points.best.filter(pl.col("line") == line)
        heights = ((math.log(one) - low) / (high - low) for one in rows[points.goal])
        places[line] = dict(zip(rows[reading.x], heights, strict=True)) if reading.x else {}
    found = dict.fromkeys(reading.lines, 0)
    for turn, line in enumerate(reading.lines):
        for other in reading.lines[turn + 1 :]:
            shared = places[line].keys() & places[other].keys()
            close = sum(abs(places[line][x] - places[other][x]) < _SAME_HEIGHT for x in shared)
            found[line] += bool(shared) and 2 * close >= len(shared)
    return {line: min(3, count) for line, count in found.items()}


def _lines(reading: Reading, points: ModelPoints, scale: Scale) -> Any:
    xs, ys = _ends(reading, points, scale)
    plot = new_plot(
        plot_height(points.best["line"].to_list()),
        xaxis=log_axis(reading.x_words(), xs, spaced_ticks(xs)),
        yaxis=log_axis(scale.title(points.goal_words), ys),
    )
    under = covered(reading, points)
    for line in reading.lines:
        rows, look = _of_line(points, line), reading.looks[line]
        if not len(rows):
            continue
        x = (rows[reading.x] * reading.x_scale().factor).to_list()  # type: ignore[index]
        if (rows["goal_max"] > rows["goal_min"]).any():
            low, high = ((rows[key] * scale.factor).to_list() for key in ("goal_min", "goal_max"))
            plot.add_scatter(
                x=x + x[::-1], y=high + low[::-1], fill="toself", fillcolor=look.colour, opacity=0.18, line_width=0,
                mode="lines", hoverinfo="skip", showlegend=False, legendgroup=line,
            )  # fmt: skip
        symbols = [look.symbol + ("-open" if is_open else "") for is_open in rows["open"]]
        plot.add_scatter(
            x=x, y=(rows[points.goal] * scale.factor).to_list(), mode="lines+markers", name=label(line),
            legendgroup=line, line={"color": look.colour, "dash": look.dash, "width": 2 + 4 * under[line]},
            marker={"symbol": symbols, "size": 9 + 5 * under[line], "color": look.colour}, hoverinfo="text",
            hovertext=[hover_text(reading, points, row, scale) for row in rows.to_dicts()],
        )  # fmt: skip
    return plot


def _paper_lines(reading: Reading, points: ModelPoints, scale: Scale, axes: matplotlib.axes.Axes) -> None:
    xs, ys = _ends(reading, points, scale)
    under = covered(reading, points)
    for line in reading.lines:
        rows, look = _of_line(points, line), reading.looks[line]
        if not len(rows):
            continue
        x = (rows[reading.x] * reading.x_scale().factor).to_list()  # type: ignore[index]
        low, high = ((rows[key] * scale.factor).to_list() for key in ("goal_min", "goal_max"))
        axes.fill_between(x, low, high, color=look.colour, alpha=0.18, linewidth=0)
        y = (rows[points.goal] * scale.factor).to_list()
        style: Any = {"color": look.colour, "marker": PAPER_SYMBOLS[look.symbol],
                      "markersize": 5 + 4 * under[line], "linewidth": 1.5 + 3 * under[line]}  # fmt: skip
        axes.plot(x, y, PAPER_DASHES[look.dash], label=paper_label(line), **style)
    paper_log(axes, "x", xs, spaced_ticks(xs))
    paper_log(axes, "y", ys, None)
    axes.set_xlabel(reading.x_words())
    axes.set_ylabel(scale.title(points.goal_words))
    axes.legend(fontsize="small", frameon=False)


def _bars(reading: Reading, points: ModelPoints, scale: Scale) -> Any:
    rows = points.best.to_dicts()
    height = max(220, 110 + 30 * len(rows))
    plot = new_plot(height, xaxis=quiet_axis(scale.title(points.goal_words), rangemode="tozero"),
                    yaxis=category_axis())  # fmt: skip
    values = [row[points.goal] * scale.factor for row in rows]
    spread = {
        "array": [row["goal_max"] * scale.factor - value for row, value in zip(rows, values, strict=True)],
        "arrayminus": [value - row["goal_min"] * scale.factor for row, value in zip(rows, values, strict=True)],
    }
    plot.add_bar(
        x=values, y=[label(row["line"]) for row in rows], orientation="h", text=[number(value) for value in values],
        marker_color=[reading.looks[row["line"]].colour for row in rows], hoverinfo="text", showlegend=False,
        textposition="inside", insidetextanchor="start",
        hovertext=[hover_text(reading, points, row, scale) for row in rows],
        error_x={"type": "data", "symmetric": False, "visible": any(map(any, spread.values())), **spread},
    )  # fmt: skip
    return plot


def _paper_bars(reading: Reading, points: ModelPoints, scale: Scale, axes: matplotlib.axes.Axes) -> None:
    rows = points.best.to_dicts()
    values = [row[points.goal] * scale.factor for row in rows]
    ends = [[value - row["goal_min"] * scale.factor for row, value in zip(rows, values, strict=True)],
            [row["goal_max"] * scale.factor - value for row, value in zip(rows, values, strict=True)]]  # fmt: skip
    colours = [reading.looks[row["line"]].colour for row in rows]
    names = [paper_label(row["line"]) for row in rows]
    axes.barh(names, values, color=colours, xerr=ends if any(map(any, ends)) else None)
    axes.invert_yaxis()
    axes.set_xlabel(scale.title(points.goal_words))
