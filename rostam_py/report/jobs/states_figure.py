"""What the accelerators of the cluster did, over days: stacked shares that add up to all of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rostam_py.fleet.queueing.timeline import MEANINGS
from rostam_py.report.drawing.drawing import new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.jobs.load import JobsData, state_column
from rostam_py.report.jobs.stretches import each_said, middles, stretches

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

# Held time is green; what no job can take is warm, what none wants grey.
STATE_COLOURS = {
    "held": "#009E73", "spare": "#56B4E9", "down": "#4D4D4D", "idle": "#B8B8B8", "scattered": "#E69F00",
    "too few": "#D55E00",
}  # fmt: skip


def states_figure(data: JobsData) -> Figure | None:
    """Return bars of each stretch by state; None of no time."""
    table = _table(data)
    if not len(table):
        return None
    plot = new_plot(
        barmode="stack", bargap=0, xaxis=quiet_axis("day", range=[0, data.days]),
        yaxis=quiet_axis("share of the accelerators [%]", range=[0, 100]),
    )  # fmt: skip
    width = [b - a for a, b in zip(table["from_day"], table["to_day"], strict=True)]
    for state, colour in STATE_COLOURS.items():
        if not any(table[state]):
            continue
        plot.add_bar(
            x=middles(table), y=[100 * one for one in table[state]], width=width, name=state,
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate=f"day %{{x:.2f}}<br>{state}: <b>%{{y:.1f}}%</b><extra></extra>",
        )  # fmt: skip
    return Figure(
        "states", "What the accelerators do", _caption(data, table), table, plot, partial(_paper, table, data.days)
    )


def _table(data: JobsData) -> polars.DataFrame:
    """Return from_day, to_day and the share of each state."""
    import polars as pl

    total = data.document["accelerators"]
    shares = [(pl.col(state_column(state)) / total).alias(state) for state in STATE_COLOURS]
    return stretches(data).select("from_day", "to_day", *shares)


def _caption(data: JobsData, table: polars.DataFrame) -> str:
    hours = data.document["cluster_accelerator_hours"]
    words = [f"Jobs hold {data.document['utilisation']:.1%} of the time of all accelerators.", each_said(table)]
    words += [f"{state.capitalize()}: {MEANINGS[state]}." for state in STATE_COLOURS if hours[state] > 0]
    return " ".join(words)


def _paper(table: polars.DataFrame, days: float, axes: matplotlib.axes.Axes) -> None:
    left, below = table["from_day"].to_list(), [0.0] * len(table)
    width = (table["to_day"] - table["from_day"]).to_list()
    for state, colour in STATE_COLOURS.items():
        shares = [100 * one for one in table[state]]
        if any(shares):
            axes.bar(left, shares, width=width, bottom=below, align="edge", color=colour, label=state)
        below = [a + b for a, b in zip(below, shares, strict=True)]
    axes.set_xlim(0, days)
    axes.set_ylim(0, 100)
    axes.set_xlabel("day")
    axes.set_ylabel("share of the accelerators [%]")
    axes.legend(fontsize="x-small", ncols=3, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
