"""Sensitivities of a run as bars to both sides: what 10% of each input makes of its time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import HEIGHT, category_axis, new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import label, paper_label

if TYPE_CHECKING:
    import matplotlib.axes

_SHOWN = 20
_SIDES = (("better_s", "#009E73", "better"), ("worse_s", "#D55E00", "worse"))


def sensitivity_figure(detail: Mapping[str, Any], head: str) -> Figure | None:
    """Return the drawing; None for a run without sensitivities."""
    import polars as pl

    found = detail.get("sensitivity")
    if not found or not found["rows"]:
        return None
    total_s, step = detail["result"]["iteration_time_s"], found["step"]
    rows = found["rows"][:_SHOWN]
    names = [row["name"] for row in rows]
    plot = new_plot(
        height=max(HEIGHT // 2, 90 + 24 * len(rows)), barmode="overlay", bargap=0.35, yaxis=category_axis(),
        xaxis=quiet_axis("change of time [%]", zeroline=True),
    )  # fmt: skip
    for side, colour, word in _SIDES:
        shares = [100 * row[side] / total_s for row in rows]
        hover = [
            f"<b>{label(name)}</b> {step:.0%} {word}: {share:+.2f}%" for name, share in zip(names, shares, strict=True)
        ]
        plot.add_bar(
            x=shares, y=[label(name) for name in names], orientation="h", name=f"{step:.0%} {word}",
            marker_color=colour, hoverinfo="text", hovertext=hover,
        )  # fmt: skip
    caption = (
        f"Change of the iteration's time where one input of the machine is {step:.0%} better (a rate multiplied by"
    )
    caption += (
        f" {1 + step:g}, a time divided by it) or worse, in a simulation each. Held fixed: {found['held_fixed']}."
    )
    caption += (
        " Limits (peak, memory bandwidth, fixed times) and efficiencies by family are two views of the same time,"
    )
    caption += " as are all links and their levels."
    if len(found["rows"]) > len(rows):
        caption += f" The largest {len(rows)} of {len(found['rows'])} are drawn; the table has all."
    table = pl.DataFrame(found["rows"])
    title = f"Sensitivity to {step:.0%} of each input"
    return Figure(f"{head}sensitivity", title, caption, table, plot, partial(_paper, rows, total_s, step))


def _paper(rows: list[dict[str, Any]], total_s: float, step: float, axes: matplotlib.axes.Axes) -> None:
    names = [paper_label(row["name"]) for row in rows]
    for side, colour, word in _SIDES:
        axes.barh(names, [100 * row[side] / total_s for row in rows], color=colour, label=f"{step:.0%} {word}")
    axes.invert_yaxis()
    axes.axvline(0, color="#7F7F7F", linewidth=0.8)
    axes.set_xlabel("change of time [%]")
    axes.legend(fontsize="small", frameon=False)
