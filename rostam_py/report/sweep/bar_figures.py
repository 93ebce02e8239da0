"""Bars of the best points: where an iteration goes, and memory per device against capacity."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.costs import ACCELERATORS
from rostam_py.report.drawing.drawing import category_axis, file_safe, new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import (
    SMALL_MEMORY,
    Scale,
    breakdown_looks,
    label,
    number,
    paper_label,
    short_strategy,
    size_scale,
    time_scale,
)
from rostam_py.report.sweep.reading import ModelPoints, Reading, has_values
from rostam_py.units import format_size

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

# More bars than this cannot be read; then the least, middle and largest x are kept, then the best lines.
MOST_BARS = 40

_LABEL_HEIGHT = 17  # of a capacity's label [pixels]


def breakdown_figure(reading: Reading, points: ModelPoints) -> Figure | None:
    """Return stacked bars of an iteration's parts, one a place; None if no point has a breakdown."""
    known = [kind for kind in breakdown_looks() if has_values(points.best, kind)]
    kinds = [kind for kind in known if points.best[kind].max() > 0]  # type: ignore[operator]
    if not kinds:
        return None
    best, left_out = bars_of(reading, points)
    table = reading.figure_table(best, "iteration_time_s", *kinds, "strategy", "global_batch", "key")
    words = ["Where one steady iteration goes on the mean device; the parts add up to the iteration time.", left_out]
    words.append(unsteady_words(best))
    if has_values(best, "global_batch") and best["global_batch"].n_unique() > 1:
        words.append("Global batches differ between bars: compare shares (the button), not lengths.")
    scale = time_scale(best["iteration_time_s"].to_list())
    return Figure(
        name=file_safe("breakdown", points.model), title=f"{points.model}: where an iteration goes",
        caption=" ".join(word for word in (*words, reading.standing(points)) if word), table=table,
        plotly=_breakdown(reading, best, kinds, scale), paper=partial(_paper_breakdown, reading, best, kinds, scale),
    )  # fmt: skip


def unsteady_words(table: polars.DataFrame) -> str:
    """Return a sentence on points of a table that are not steady, "" without any."""
    count = 0 if "is_steady" not in table.columns else int((~table["is_steady"].fill_null(True)).sum())
    if not count:
        return ""
    return f"Not steady are {count:,} of {len(table):,}: theirs is the mean of their last iterations."


def memory_figure(reading: Reading, points: ModelPoints) -> Figure | None:
    """Return bars of memory per device, capacity as a line where the accelerator is a known one."""
    if not has_values(points.best, "memory_bytes"):
        return None
    import polars as pl

    best, left_out = bars_of(reading, points)
    known = _capacities(best)
    if known:
        best = best.with_columns(pl.col("accelerator").replace_strict(known, default=None).alias("capacity_bytes"))
    table = reading.figure_table(best, "memory_bytes", "capacity_bytes", "accelerator", "strategy", "key")
    words = ["Memory that the plan needs on its fullest device.", left_out]
    most: Any = best["memory_bytes"].max()
    drawn = {name: capacity for name, capacity in known.items() if most > SMALL_MEMORY * capacity}
    words.append("Vertical lines: capacity." if drawn else "" if known else "The accelerator's capacity is not known.")
    words += [f"It is at most {most / capacity:.1%} of the {format_size(capacity)} of {name}, which is not drawn."
              for name, capacity in known.items() if name not in drawn]  # fmt: skip
    scale = size_scale([max(most, *drawn.values())] if drawn else [most])
    return Figure(
        name=file_safe("memory", points.model), title=f"{points.model}: memory per device",
        caption=" ".join(word for word in (*words, reading.standing(points)) if word), table=table,
        plotly=_memory(reading, best, drawn, scale), paper=partial(_paper_memory, reading, best, drawn, scale),
    )  # fmt: skip


def bars_of(reading: Reading, points: ModelPoints) -> tuple[polars.DataFrame, str]:
    """Return the places that get a bar, grouped by x, and what was left out in words."""
    import polars as pl

    best, said = points.best, ""
    if reading.x and len(best) > MOST_BARS:
        values = best[reading.x].unique().sort().to_list()
        kept = sorted({values[0], values[len(values) // 2], values[-1]})
        best = best.filter(pl.col(reading.x).is_in(kept))
        said = f"Bars at {len(kept)} of {len(values)} x values: the least, the middle, the largest."
    if len(best) > MOST_BARS:
        groups = best[reading.x].n_unique() if reading.x else 1
        ranked = best.group_by("line").agg(pl.col(points.goal).min()).sort(points.goal, "line")["line"]
        best = best.filter(pl.col("line").is_in(ranked.head(max(1, MOST_BARS // groups)).to_list()))
        said += f" Only the {best['line'].n_unique()} fastest of {len(ranked)} lines."
    return (best.sort(reading.x, maintain_order=True) if reading.x else best), said.strip()


def _capacities(best: polars.DataFrame) -> dict[str, int]:
    """Return each accelerator's memory [bytes]: as the points say, else by its data sheet."""
    if "accelerator" not in best.columns:
        return {}
    names = best["accelerator"].drop_nulls().unique().sort().to_list()
    known = {name: ACCELERATORS[name].memory_bytes for name in names if name in ACCELERATORS}
    if "memory_capacity_bytes" in best.columns:
        said = best.select("accelerator", "memory_capacity_bytes").drop_nulls().sort("memory_capacity_bytes")
        known |= dict(said.iter_rows())
    return known


def _places(reading: Reading, best: polars.DataFrame) -> list[str]:
    """Return the y categories: lines, with their x where there is one."""
    names = [f"{label(line)}\u00a0" for line in best["line"]]
    if not reading.x:
        return names
    return [f"{reading.x_label(one)}: {name}" for one, name in zip(best[reading.x], names, strict=True)]


def _horizontal(reading: Reading, best: polars.DataFrame, title: str, **more: Any) -> Any:
    rows: dict[str, str] = {}
    for place, line, x in zip(_places(reading, best), best["line"], best[reading.x or "line"], strict=True):
        if reading.x:  # a row of its own heads the bars of each x
            rows.setdefault(reading.x_label(x), f"<b>{reading.x_label(x)}</b>\u00a0")
        rows[place] = f"{label(line)}\u00a0"
    places = category_axis(
        categoryorder="array", categoryarray=list(rows), tickvals=list(rows), ticktext=list(rows.values()),
        autorange=False, range=[len(rows) - 0.5, -0.5],
    )  # fmt: skip
    return new_plot(
        max(260, 130 + 22 * len(rows)), barmode="stack", bargap=0.25, yaxis=places,
        xaxis=quiet_axis(title, rangemode="tozero"), **more,
    )  # fmt: skip


def _breakdown(reading: Reading, best: polars.DataFrame, kinds: list[str], scale: Scale) -> Any:
    title = scale.title("iteration time")
    plot = _horizontal(reading, best, title)
    totals = best["iteration_time_s"].to_list()
    strategies = best["strategy"].to_list() if "strategy" in best.columns else [None] * len(best)
    places = _places(reading, best)
    for kind in kinds:
        words, colour = breakdown_looks()[kind]
        values = best[kind].fill_null(0.0).to_list()
        hover = [
            f"<b>{label(line)}</b><br>{words}: {number(value * scale.factor)} {scale.unit}, {value / total:.1%} of "
            f"{number(total * scale.factor)} {scale.unit}"
            + (f"<br>{label(short_strategy(strategy))}" if strategy else "")
            for line, value, total, strategy in zip(best["line"], values, totals, strategies, strict=True)
        ]
        plot.add_bar(x=[value * scale.factor for value in values], y=places, orientation="h", name=words,
                     marker_color=colour, hoverinfo="text", hovertext=hover)  # fmt: skip
    buttons = [
        {"label": "time", "method": "relayout", "args": [{"barnorm": "", "xaxis.title.text": title}]},
        {"label": "share", "method": "relayout",
         "args": [{"barnorm": "percent", "xaxis.title.text": "share of the iteration [%]"}]},
    ]  # fmt: skip
    plot.update_layout(height=plot.layout.height + 36, margin={"b": 92})
    plot.update_layout(updatemenus=[{"type": "buttons", "direction": "right", "buttons": buttons, "x": 1, "y": 0,
                                     "xanchor": "right", "yanchor": "top", "pad": {"t": 58},
                                     "showactive": True}])  # fmt: skip
    return plot


def _memory(reading: Reading, best: polars.DataFrame, known: dict[str, int], scale: Scale) -> Any:
    plot = _horizontal(reading, best, scale.title("memory per device"))
    values = [None if one is None else one * scale.factor for one in best["memory_bytes"]]
    hover = [f"<b>{label(row['line'])}</b><br>{number(row['memory_bytes'] * scale.factor)} {scale.unit}"
             + (f" of {number(row['capacity_bytes'] * scale.factor)} {scale.unit}" if row.get("capacity_bytes") else "")
             + (f"<br>{label(row['strategy'])}" if row.get("strategy") else "")
             if row["memory_bytes"] is not None else "" for row in best.to_dicts()]  # fmt: skip
    plot.add_bar(x=values, y=_places(reading, best), orientation="h", hoverinfo="text", hovertext=hover,
                 showlegend=False, marker_color=[reading.looks[line].colour for line in best["line"]])  # fmt: skip
    # A row for each capacity's label, above one another: capacities may be close together.
    for row, (name, capacity) in enumerate(sorted(known.items(), key=lambda one: one[1])):
        plot.add_vline(x=capacity * scale.factor, line={"dash": "dash", "width": 2, "color": "#7F7F7F"},
                       annotation={"text": f"{label(name)}: {number(capacity * scale.factor)} {scale.unit}",
                                   "yref": "paper", "y": 1, "yanchor": "bottom", "xanchor": "right",
                                   "yshift": _LABEL_HEIGHT * row})  # fmt: skip
    more = _LABEL_HEIGHT * max(0, len(known) - 1)
    plot.update_layout(height=plot.layout.height + more, margin={"t": plot.layout.margin.t + more})
    ends = [one for one in (*values, *(capacity * scale.factor for capacity in known.values())) if one]
    plot.update_xaxes(range=[0, max(ends, default=1) * 1.05])
    return plot


def _paper_rows(reading: Reading, best: polars.DataFrame, axes: matplotlib.axes.Axes) -> list[int]:
    """Label the rows of a static bar figure and return their positions."""
    names = [paper_label(line) for line in best["line"]]
    if reading.x:
        names = [f"{name}, {reading.x_label(one)}" for name, one in zip(names, best[reading.x], strict=True)]
    positions = list(range(len(names)))
    axes.figure.set_size_inches(6.4, max(2.4, 1.4 + 0.2 * len(names)))  # type: ignore[union-attr]
    axes.set_yticks(positions, names, fontsize="small")
    axes.invert_yaxis()
    return positions


def _paper_breakdown(
    reading: Reading, best: polars.DataFrame, kinds: list[str], scale: Scale, axes: matplotlib.axes.Axes
) -> None:
    positions = _paper_rows(reading, best, axes)
    lefts = [0.0] * len(best)
    for kind in kinds:
        words, colour = breakdown_looks()[kind]
        values = [value * scale.factor for value in best[kind].fill_null(0.0)]
        axes.barh(positions, values, left=lefts, color=colour, label=words)
        lefts = [left + value for left, value in zip(lefts, values, strict=True)]
    axes.set_xlabel(scale.title("iteration time"))
    axes.legend(fontsize="small", frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)


def _paper_memory(
    reading: Reading, best: polars.DataFrame, known: dict[str, int], scale: Scale, axes: matplotlib.axes.Axes
) -> None:
    positions = _paper_rows(reading, best, axes)
    values = [(one or 0) * scale.factor for one in best["memory_bytes"]]
    axes.barh(positions, values, color=[reading.looks[line].colour for line in best["line"]])
    for name, capacity in known.items():
        axes.axvline(capacity * scale.factor, linestyle="--", color="#7F7F7F", label=f"capacity of {name}")
    if known:
        axes.legend(fontsize="small", frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
    axes.set_xlabel(scale.title("memory per device"))
