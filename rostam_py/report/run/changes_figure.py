"""What changed in the network during a run: dark circuits, failed parts, new routes and restarts over time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import COLOURS, Scale, number, time_scale
from rostam_py.simulation.changes import LANES
from rostam_py.units import format_time

if TYPE_CHECKING:
    import matplotlib.axes
    import plotly.graph_objects

_COLOURS = dict(zip(LANES, (COLOURS[1], "#B00020", COLOURS[4], COLOURS[2], COLOURS[6]), strict=True))
_MOST_ENDS = 60  # iterations whose ends are drawn


def changes_figure(detail: Mapping[str, Any], head: str) -> Figure | None:
    """Return the drawing; None for a run in which the network stayed as it was."""
    import polars as pl

    found = detail.get("changes")
    if not found:
        return None
    scale = time_scale([found["iteration_ends_s"][-1]])
    return Figure(
        name=f"{head}changes", title="Changes of the network over the run", caption=_caption(detail, found),
        table=pl.DataFrame(found["marks"]), plotly=_plot(found, scale), paper=partial(_paper, found, scale),
    )  # fmt: skip


def _caption(detail: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    with_failures = detail.get("outages")
    words = "The iterations with failures. " if with_failures else ""
    words += "Time from the start of the run; thin lines end iterations. Bars are times in which circuits are dark,"
    words += " parts have failed, messages on failed links wait for new routes, or take them (the first of each time),"
    words += " or a job is cut until it resumes."
    switched = detail["result"].get("reconfigurations")
    if switched:
        words += f" {switched['num_reconfigurations']:,} reconfigurations ({switched['control']}) of"
        words += f" {switched['num_changed_circuits']:,} circuits, duty cycle {switched['duty_cycle']:.1%}."
    lost = sum(one["start_s"] - one["cut_s"] for one in (with_failures or detail["result"]).get("restarts", ()))
    if lost:
        words += f" Between cuts and restarts: {format_time(lost)}, and the work since the last checkpoint is repeated."
    shown = len(found["marks"]["lane"])
    if shown < found["num_changes"]:
        words += f" Only the first {shown:,} of {found['num_changes']:,} changes are drawn."
    return words


def _rows(found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the marks of each lane that has some, in the order of lanes."""
    marks = found["marks"]
    rows = [dict(zip(marks, values, strict=True)) for values in zip(*marks.values(), strict=True)]
    by_lane = {lane: [row for row in rows if row["lane"] == lane] for lane in LANES}
    return {lane: mine for lane, mine in by_lane.items() if mine}


def _plot(found: Mapping[str, Any], scale: Scale) -> plotly.graph_objects.Figure:
    rows, ends = _rows(found), found["iteration_ends_s"]
    plot = new_plot(
        44 * len(rows) + 110, barmode="overlay", showlegend=False, margin={"l": 110, "r": 20, "t": 30, "b": 50},
        xaxis=quiet_axis(scale.title("time in the run"), range=[0, ends[-1] * scale.factor]),
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False},
    )  # fmt: skip
    for end in ends[:_MOST_ENDS]:
        plot.add_vline(x=end * scale.factor, line={"width": 0.5, "color": "#9E9E9E"})
    for lane, mine in rows.items():
        hover = [
            f"<b>{row['words']}</b><br>{number((row['end_s'] - row['begin_s']) * scale.factor)} {scale.unit} from"
            f" {number(row['begin_s'] * scale.factor)}"
            for row in mine
        ]
        plot.add_bar(
            base=[row["begin_s"] * scale.factor for row in mine], y=[lane] * len(mine),
            x=[(row["end_s"] - row["begin_s"]) * scale.factor for row in mine], orientation="h", width=0.6, name=lane,
            marker={"color": _COLOURS[lane], "opacity": 0.7}, hoverinfo="text", hovertext=hover,
        )  # fmt: skip
    return plot


def _paper(found: Mapping[str, Any], scale: Scale, axes: matplotlib.axes.Axes) -> None:
    rows = _rows(found)
    for place, (lane, mine) in enumerate(rows.items()):
        widths = [(row["end_s"] - row["begin_s"]) * scale.factor for row in mine]
        axes.barh(
            [place] * len(mine), widths, 0.6, left=[row["begin_s"] * scale.factor for row in mine],
            color=_COLOURS[lane], alpha=0.7,
        )  # fmt: skip
    for end in found["iteration_ends_s"][:_MOST_ENDS]:
        axes.axvline(end * scale.factor, color="#9E9E9E", linewidth=0.4)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlabel(scale.title("time in the run"))
