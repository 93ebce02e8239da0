"""The best strategy of every place as a heat map: fabric by bandwidth, or fabric by model where nothing else varies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import category_axis, file_safe, new_plot
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import label, number, paper_label, short_strategy
from rostam_py.report.sweep.reading import ModelPoints, Reading

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

# Columns up to which a cell has room for its strategy.
_MOST_WRITTEN = 12
_MOST_SHADES = 8.0
# Blue is best, orange slowest: told apart by colour-blind readers, and black can be read on all of it.
_SHADES = ("#7FBCE0", "#F4F3EE", "#EFA35C")
_INK = "#14171c"


def strategy_figures(reading: Reading) -> list[Figure]:
    """Return one heat map per model, over lines and x; without an x, one over lines and models."""
    import polars as pl

    if reading.x is None:
        cells = [_cells(one, pl.lit(one.model)) for one in reading.models]
        if len(cells) < 2:
            return []
        goals = {one.goal_words for one in reading.models}
        table = pl.concat(cells, how="vertical")
        return [_figure(reading, table, "strategy", "Best strategy by model", " or ".join(sorted(goals)), None)]
    figures = []
    for one in reading.models:
        table = _cells(one, pl.col(reading.x))
        title = f"{one.model}: best strategy per point"
        figures.append(_figure(reading, table, file_safe("strategy", one.model), title, one.goal_words, one))
    return figures


def _cells(points: ModelPoints, column: Any) -> polars.DataFrame:
    """Return line, column, time, ratio to the best of the column, strategy, global_batch."""
    import polars as pl

    strategy = pl.col("strategy") if "strategy" in points.best.columns else pl.lit(None, pl.String).alias("strategy")
    batch = pl.col("global_batch") if "global_batch" in points.best.columns else pl.lit(None, pl.Int64).alias("batch")
    cells = points.best.select(
        "line", column.alias("column"), pl.col(points.goal).alias("time_s"), strategy, batch.alias("global_batch")
    )
    return cells.with_columns((pl.col("time_s") / pl.col("time_s").min().over("column")).alias("ratio"))


def _figure(
    reading: Reading, table: polars.DataFrame, name: str, title: str, goal: str, points: ModelPoints | None
) -> Figure:
    across = reading.x_words() if reading.x else "model"
    words = [
        f"Cell: the strategy with the least {goal}, and how many times the best of its column it takes; blue is best.",
        f"The shades end at {_MOST_SHADES:g}x." if table["ratio"].max() > _MOST_SHADES else "",  # type: ignore[operator]
        reading.standing(points) if points else "",
    ]
    columns = table["column"].unique(maintain_order=True).to_list()
    columns = sorted(columns) if reading.x else columns
    import polars as pl

    kept = [name for name in table.columns if name not in ("line", "column")]
    return Figure(
        name=name, title=title, caption=" ".join(word for word in words if word),
        table=reading.figure_table(table, pl.col("column").alias(reading.x or "model"), *kept),
        plotly=_plot(reading, table, columns, across), paper=partial(_paper, reading, table, columns, across),
    )  # fmt: skip


def _grid(reading: Reading, table: polars.DataFrame, columns: Sequence[Any]) -> tuple[list[str], list[list[Any]]]:
    """Return the rows' lines and, for each, its cells (mappings or None)."""
    found = {(row["line"], row["column"]): row for row in table.to_dicts()}
    lines = [line for line in reading.lines if any((line, column) in found for column in columns)]
    return lines, [[found.get((line, column)) for column in columns] for line in lines]


def _shade(cell: Any) -> float | None:
    return None if cell is None else math.log2(min(cell["ratio"], _MOST_SHADES))


def _written(cell: Any, num_columns: int) -> str:
    """Return a cell's text: the strategy, degree below degree where columns are narrow, and the ratio."""
    if cell is None:
        return ""
    strategy = short_strategy(cell["strategy"])
    if num_columns > 4:
        strategy = strategy.replace(" x ", "\n")
    ratio = "best" if cell["ratio"] == 1 else f"{cell['ratio']:.2f}x"
    return f"{strategy}{chr(10) if strategy else ''}{ratio}"


def _ticks(columns: Sequence[Any], reading: Reading) -> list[str]:
    return [number(one * reading.x_scale().factor) if reading.x else label(one) for one in columns]


def _top(table: polars.DataFrame) -> float:
    """Return the end of the shades (of log2 of the ratio)."""
    return max(0.2, math.log2(min(float(table["ratio"].max()), _MOST_SHADES)))  # type: ignore[arg-type]


def _marks(top: float) -> list[float]:
    marks = (1, 2, 3, 4, 6, 8) if top > 2 else (1, 1.5, 2, 3, 4) if top > 0.9 else (1, 1.2, 1.4, 1.6, 1.8)
    return [float(one) for one in (marks if top > 0.4 else (1, 1.1, 1.2, 1.3)) if math.log2(one) <= top + 1e-9]


def _plot(reading: Reading, table: polars.DataFrame, columns: Sequence[Any], across: str) -> Any:
    lines, cells = _grid(reading, table, columns)
    top, is_written = _top(table), len(columns) <= _MOST_WRITTEN
    marks = _marks(top)
    rows_of_text = max(_written(one, len(columns)).count("\n") + 1 for row in cells for one in row)
    plot = new_plot(
        max(240, 130 + len(lines) * (18 * rows_of_text + 8 if is_written else 24)),
        xaxis={"title": {"text": across}, "type": "category", "automargin": True, "showgrid": False},
        yaxis=category_axis(showgrid=False),
    )
    hover = [[_hover(reading, line, one) for one in row] for line, row in zip(lines, cells, strict=True)]
    plot.add_heatmap(
        z=[[_shade(one) for one in row] for row in cells],
        x=_ticks(columns, reading), y=[label(line) for line in lines],
        text=[[label(_written(one, len(columns))).replace("\n", "<br>") for one in row] for row in cells],
        texttemplate="%{text}" if is_written else None,
        textfont={"size": 12 if len(columns) <= 6 else 10, "color": _INK},
        hoverinfo="text", hovertext=hover,
        colorscale=[[0, _SHADES[0]], [0.5, _SHADES[1]], [1, _SHADES[2]]], zmin=0, zmax=top,
        xgap=2, ygap=2, hoverongaps=False,
        colorbar={"title": {"text": "times<br>the best"}, "tickvals": [math.log2(one) for one in marks],
                  "ticktext": [f"{one:g}" for one in marks], "thickness": 14},
    )  # fmt: skip
    return plot


def _hover(reading: Reading, line: str, cell: Any) -> str:
    if cell is None:
        return ""
    where = reading.x_label(cell["column"]) if reading.x else label(cell["column"])
    batch = f", batch {cell['global_batch']:,}" if cell["global_batch"] else ""
    strategy = f"<br>{label(short_strategy(cell['strategy']))}{batch}" if cell["strategy"] else ""
    return f"<b>{label(line)}</b>, {where}{strategy}<br>{cell['ratio']:.3f} times the best of the column"


def _paper(
    reading: Reading, table: polars.DataFrame, columns: Sequence[Any], across: str, axes: matplotlib.axes.Axes
) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    lines, cells = _grid(reading, table, columns)
    top = _top(table)
    shades: Any = [[math.nan if one is None else _shade(one) for one in row] for row in cells]
    sheet: Any = axes.figure
    sheet.set_size_inches(max(4.0, 1.6 + 0.95 * len(columns)), max(2.2, 1.0 + 0.5 * len(lines)))
    colours = LinearSegmentedColormap.from_list("ratio", _SHADES)
    image = axes.imshow(shades, cmap=colours, vmin=0, vmax=top, aspect="auto")
    for y, row in enumerate(cells):
        for x, cell in enumerate(row):
            if cell is not None and len(columns) <= _MOST_WRITTEN:
                text = paper_label(_written(cell, len(columns)))
                axes.text(x, y, text, ha="center", va="center", fontsize=6, color=_INK)
    axes.set_xticks(range(len(columns)), _ticks(columns, reading), fontsize="small")
    axes.set_yticks(range(len(lines)), [paper_label(line) for line in lines], fontsize="small")
    axes.set_xlabel(across)
    marks = _marks(top)
    bar = sheet.colorbar(image, ax=axes, label="times the best")
    bar.set_ticks([math.log2(one) for one in marks], labels=[f"{one:g}" for one in marks])
