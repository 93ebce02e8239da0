"""What the accelerator-hours that jobs asked for went to, and goodput in its three factors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rostam_py.fleet.queueing.run import CAUSES
from rostam_py.report.drawing.drawing import category_axis, new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import COLOURS, count_scale, number
from rostam_py.report.jobs.load import JobsData
from rostam_py.report.weeks.goodput_figure import CAUSE_COLOURS

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

_COLOURS = CAUSE_COLOURS | {"moved": "#7A6FAC"}
_HOURS = "accelerator-hours"
FACTORS = {
    "scheduling": "what jobs held of all accelerators' time",
    "runtime": "less what faults, checkpoints, restarts and moves took",
    "program": "pace beside neighbours over the pace alone",
    "whole": "the product of the three",
}


def hours_figure(data: JobsData) -> Figure:
    """Return a bar for each cause."""
    import polars as pl

    hours = data.document["job_accelerator_hours"]
    whole = sum(hours.values())
    named = [cause for cause in CAUSES if hours[cause] > 0]
    shares = [hours[cause] / whole for cause in named]
    table = pl.DataFrame(
        {"cause": named, "accelerator_hours": [hours[cause] for cause in named], "share": shares},
        schema={"cause": pl.String, "accelerator_hours": pl.Float64, "share": pl.Float64},
    )
    scale = count_scale([max(hours.values())], _HOURS)
    x = [scale.factor * one for one in table["accelerator_hours"]]
    plot = new_plot(
        height=110 + 42 * max(len(named), 2), showlegend=False,
        xaxis=quiet_axis(scale.unit, rangemode="tozero", range=[0, 1.18 * max(x, default=1.0)]), yaxis=category_axis(),
    )  # fmt: skip
    plot.add_bar(
        x=x, y=named, orientation="h", marker={"color": [_COLOURS[cause] for cause in named]},
        text=[f"{share:.1%}" for share in shares], textposition="outside", cliponaxis=False, hoverinfo="text",
        hovertext=[f"<b>{row['cause']}</b>: {number(row['accelerator_hours'])} {_HOURS}, {row['share']:.2%}<br>"
                   f"{CAUSES[row['cause']]}" for row in table.to_dicts()],
    )  # fmt: skip
    words = [f"{whole:,.0f} accelerator-hours: the time of each job from submission to end, times its accelerators."]
    words += [f"{cause.capitalize()}: {CAUSES[cause]}." for cause in named]
    title = "Accelerator-hours by cause"
    return Figure("hours", title, " ".join(words), table, plot, partial(_paper_hours, table, scale.factor, scale.unit))


def goodput_figure(data: JobsData) -> Figure:
    """Return bars of the three factors and of their product, and without neighbours where that is known."""
    import polars as pl

    found = {"": data.document["goodput"]}
    if "without_network" in data.document:
        found = {"beside neighbours": found[""], "without network": data.document["without_network"]["goodput"]}
    plot = new_plot(
        barmode="group", showlegend=len(found) > 1, xaxis=quiet_axis("", type="category"),
        yaxis=quiet_axis("share [%]", range=[0, 112], tickvals=[0, 20, 40, 60, 80, 100]),
    )  # fmt: skip
    rows = []
    for place, (name, parts) in enumerate(found.items()):
        colour = COLOURS[1 - place] if len(found) > 1 else COLOURS[2]
        plot.add_bar(
            x=list(FACTORS), y=[100 * parts[key] for key in FACTORS], name=name, marker={"color": colour},
            text=[f"{parts[key]:.1%}" for key in FACTORS], textposition="outside", cliponaxis=False,
            hoverinfo="text", hovertext=[f"<b>{key}</b>: {parts[key]:.2%}<br>{FACTORS[key]}" for key in FACTORS],
        )  # fmt: skip
        rows += [{"of": name, "factor": key, "share": parts[key]} for key in FACTORS]
    words = [f"{key.capitalize()}: {said}." for key, said in FACTORS.items()]
    words.append("Program is 100% of jobs without a model: they keep their durations.")
    schema = {"of": pl.String, "factor": pl.String, "share": pl.Float64}
    table = pl.DataFrame(rows, schema=schema)
    return Figure("goodput", "Goodput", " ".join(words), table, plot, partial(_paper_goodput, table))


def _paper_hours(table: polars.DataFrame, factor: float, unit: str, axes: matplotlib.axes.Axes) -> None:
    colours = [_COLOURS[cause] for cause in table["cause"]]
    bars = axes.barh(table["cause"].to_list(), [factor * one for one in table["accelerator_hours"]], color=colours)
    axes.bar_label(bars, [f"{share:.1%}" for share in table["share"]], padding=2, fontsize="small")
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(unit)


def _paper_goodput(table: polars.DataFrame, axes: matplotlib.axes.Axes) -> None:
    names = table["of"].unique(maintain_order=True).to_list()
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        shares = [100 * one for one in table.filter(of=name)["share"]]
        at = [k + (place - (len(names) - 1) / 2) * width for k in range(len(FACTORS))]
        bars = axes.bar(at, shares, width, label=name, color=COLOURS[1 - place] if len(names) > 1 else COLOURS[2])
        axes.bar_label(bars, [f"{one:.1f}%" for one in shares], fontsize="small")
    axes.set_xticks(range(len(FACTORS)), list(FACTORS))
    axes.set_ylim(0, 112)
    axes.set_ylabel("share [%]")
    if len(names) > 1:
        axes.legend(fontsize="small", frameon=False)
