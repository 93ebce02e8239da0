"""How long jobs wait until they first start, by size."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rostam_py.report.drawing.drawing import new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import COLOURS, Scale, time_scale
from rostam_py.report.jobs.boxes import SAID, add_boxes, paper_boxes
from rostam_py.report.jobs.load import JobsData
from rostam_py.report.jobs.size_classes import spread_by_size
from rostam_py.units import format_number_of

if TYPE_CHECKING:
    import matplotlib.axes
    import polars


def waiting_figure(data: JobsData) -> Figure:
    """Return a box for each size; jobs that have not started count as far as they have waited."""
    table = waits(data)
    scale = time_scale([*table["p95"], *table["mean"]])
    plot = new_plot(
        xaxis=quiet_axis("accelerators of a job", type="category"),
        yaxis=quiet_axis(scale.title("waiting"), rangemode="tozero"),
        showlegend=False,
    )  # fmt: skip
    add_boxes(plot, table, ("waiting", COLOURS[0]), scale.factor, scale.unit)
    words = [f"From submission to the first start. {SAID}"]
    if count := data.document["num_not_started"]:
        words.append(f"{format_number_of(count, 'job')} never started: waiting counts until the end of the window.")
    return Figure("waiting", "Waiting by job size", " ".join(words), table, plot, partial(_paper, table, scale))


def waits(data: JobsData) -> polars.DataFrame:
    """Return how the waiting times of each size are spread [s]."""
    import polars as pl

    start = pl.col("first_start_s").fill_null(data.window_s)
    return spread_by_size(data.jobs.with_columns(wait_s=start - pl.col("submit_s")), "wait_s")


def _paper(table: polars.DataFrame, scale: Scale, axes: matplotlib.axes.Axes) -> None:
    paper_boxes(axes, {"waiting": (table, COLOURS[0])}, scale.factor)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(scale.title("waiting"))
