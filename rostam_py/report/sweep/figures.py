"""All figures of a sweep, in sections; only those that its points can fill."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import category_axis, new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure, Section, unique_names
from rostam_py.report.drawing.scales import label, paper_label
from rostam_py.report.sweep.bar_figures import breakdown_figure, memory_figure
from rostam_py.report.sweep.cost_figures import cost_figures
from rostam_py.report.sweep.engine_figure import engine_figure
from rostam_py.report.sweep.load import SweepData
from rostam_py.report.sweep.mix_figures import mix_figures
from rostam_py.report.sweep.reading import Reading
from rostam_py.report.sweep.strategy_figures import strategy_figures
from rostam_py.report.sweep.time_figure import time_figure

if TYPE_CHECKING:
    import matplotlib.axes
    import polars


def sweep_sections(data: SweepData) -> list[Section]:
    """Return the sections that have figures.

    Cost: about a second for 100,000 points.
    """
    reading = Reading(data)
    models = reading.models
    sections = [
        Section("Time", [time_figure(reading, one) for one in models]),
        Section("Slow-downs", mix_figures(reading)),
        Section("Best strategy", strategy_figures(reading)),
        Section("Engines", _existing([engine_figure(data)])),
        Section("Where the time goes", _existing(breakdown_figure(reading, one) for one in models)),
        Section("Cost", [figure for one in models for figure in cost_figures(reading, one)]),
        Section("Memory", _existing(memory_figure(reading, one) for one in models)),
        Section("Errors", _existing([error_figure(data)])),
    ]
    return [section for section in sections if section.figures]


def sweep_figures(data: SweepData) -> list[Figure]:
    """Return all figures of a sweep, names unique."""
    return unique_names([figure for section in sweep_sections(data) for figure in section.figures])


def error_figure(data: SweepData) -> Figure | None:
    """Return bars of failed points by type of error; None if none failed."""
    import polars as pl

    failed = data.failed()
    if not len(failed):
        return None
    columns = {"error_type": pl.String, "error": pl.String}
    missing = [pl.lit(None, kind).alias(name) for name, kind in columns.items() if name not in failed.columns]
    failed = failed.with_columns(*missing).with_columns(pl.col("error_type").fill_null("unknown"))
    table = failed.group_by("error_type", maintain_order=True).agg(
        pl.len().alias("num_points"), pl.col("error").first().alias("first_message"), pl.col("key").first().alias("key")
    )
    table = table.sort(["num_points", "error_type"], descending=[True, False])
    share = f"{len(failed):,} of {len(data.table):,}"
    return Figure(
        name="errors", title="Points that ended with an error", table=table, plotly=_error_plot(table),
        caption=f"{share} points failed; all other figures leave them out. The pointer shows the first message of each"
        " type; points.csv has all of them.",
        paper=partial(_paper_errors, table),
    )  # fmt: skip


def _error_plot(table: polars.DataFrame) -> Any:
    top: Any = table["num_points"].max()
    plot = new_plot(max(200, 100 + 34 * len(table)), bargap=0.4,
                    xaxis=quiet_axis("points", rangemode="tozero", tickformat=",d", nticks=min(8, 1 + top)),
                    yaxis=category_axis())  # fmt: skip
    plot.add_bar(
        x=table["num_points"].to_list(), y=[label(one) for one in table["error_type"]], orientation="h",
        marker_color="#D55E00", text=[f"{one:,}" for one in table["num_points"]], hoverinfo="text",
        hovertext=[_wrapped(f"{row['error_type']}: {row['first_message'] or ''}") for row in table.to_dicts()],
    )  # fmt: skip
    return plot


def _wrapped(text: str) -> str:
    import textwrap

    return "<br>".join(label(line) for line in textwrap.wrap(text[:600], 80))


def _paper_errors(table: polars.DataFrame, axes: matplotlib.axes.Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.barh([paper_label(one) for one in table["error_type"]], table["num_points"].to_list(), color="#D55E00")
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("points")


def _existing(figures: Any) -> list[Figure]:
    return [figure for figure in figures if figure is not None]
