"""The queue over days: jobs that wait, and the accelerators that they ask for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rostam_py.report.drawing.drawing import new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import COLOURS, number
from rostam_py.report.jobs.load import WAITED_FOR, WAITING, JobsData
from rostam_py.report.jobs.stretches import each_said, steps, stretches

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

_CLUSTER = "#7F7F7F"


def queue_figure(data: JobsData) -> Figure | None:
    """Return two panels over the same days, jobs above accelerators; None of no time."""
    table = stretches(data).select("from_day", "to_day", WAITING, WAITED_FOR)
    if not len(table):
        return None
    total = data.document["accelerators"]
    plot = new_plot(
        height=480, xaxis=quiet_axis("", range=[0, data.days], anchor="y", matches="x2", showticklabels=False),
        yaxis=quiet_axis("jobs waiting", domain=[0.55, 1], rangemode="tozero"),
        xaxis2=quiet_axis("day", range=[0, data.days], anchor="y2"),
        yaxis2=quiet_axis("accelerators", domain=[0, 0.45], rangemode="tozero"),
    )  # fmt: skip
    for column, place, colour, words in (
        (WAITING, "", COLOURS[0], "jobs waiting"),
        (WAITED_FOR, "2", COLOURS[1], "accelerators that they ask for"),
    ):
        day, values = steps(table, column)
        plot.add_scatter(
            x=day, y=values, mode="lines", name=words, xaxis=f"x{place}", yaxis=f"y{place}", fill="tozeroy",
            line={"shape": "hv", "color": colour, "width": 1.5},
            hovertemplate=f"day %{{x:.2f}}: <b>%{{y:.4g}}</b> {words}<extra></extra>",
        )  # fmt: skip
    plot.add_scatter(
        x=[0, data.days], y=[total, total], mode="lines", name=f"the cluster: {total:,}", xaxis="x2", yaxis="y2",
        line={"dash": "dash", "color": _CLUSTER, "width": 1.5}, hoverinfo="skip",
    )  # fmt: skip
    return Figure("queue", "The queue", _caption(data, table), table, plot, partial(_paper, table, data.days))


def _caption(data: JobsData, table: polars.DataFrame) -> str:
    jobs, waited = data.series[WAITING], data.series[WAITED_FOR]
    length = data.series["end_s"] - data.series["start_s"]
    mean = float((jobs * length).sum()) / data.window_s
    most, most_waited = (float(one.to_numpy().max()) for one in (jobs, waited))
    return (
        f"{number(mean)} jobs wait on average; in the fullest stretch of series.csv {number(most)} do,"
        f" and jobs ask for {number(most_waited)} accelerators. {each_said(table)} Jobs that a fault has cut"
        " wait again and count."
    )


def _paper(table: polars.DataFrame, days: float, axes: matplotlib.axes.Axes) -> None:
    other = axes.twinx()
    for on, column, (colour, dash), words in (
        (axes, WAITING, (COLOURS[0], "-"), "jobs waiting"),
        (other, WAITED_FOR, (COLOURS[1], "--"), "accelerators that they ask for"),
    ):
        day, values = steps(table, column)
        on.step(day, values, where="post", color=colour, linestyle=dash, linewidth=1)
        on.set_ylim(bottom=0)
        on.set_ylabel(words, color=colour)
    axes.set_xlim(0, days)
    axes.set_xlabel("day")
