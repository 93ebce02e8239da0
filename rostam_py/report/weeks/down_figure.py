"""Servers of the cluster that are down, over days."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rostam_py.report.drawing.drawing import new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import COLOURS
from rostam_py.report.weeks.load import WeeksData
from rostam_py.units import format_number_of

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

_SPARES = "#7F7F7F"


def down_figure(data: WeeksData) -> Figure:
    """Return the steps of servers that are down, and the number of spares as a line."""
    faults, spares = data.document["faults"], data.document["num_spares"]
    day, down = [*data.down["day"], data.days], [*data.down["servers_down"], data.down["servers_down"][-1]]
    plot = new_plot(xaxis=quiet_axis("day", range=[0, data.days]), yaxis=quiet_axis("servers down", rangemode="tozero"))
    plot.add_scatter(
        x=day, y=down, mode="lines", name="servers down", line={"shape": "hv", "color": COLOURS[1], "width": 1.5},
        hovertemplate="day %{x:.2f}: %{y:.3g} down<extra></extra>",
    )  # fmt: skip
    if _is_binned(data.down):
        plot.add_scatter(
            x=day, y=[*data.down["most_servers_down"], data.down["most_servers_down"][-1]], mode="lines",
            name="at most", line={"shape": "hv", "color": COLOURS[4], "width": 1},
        )  # fmt: skip
    plot.add_scatter(
        x=[0, data.days], y=[spares, spares], mode="lines", name=f"spares: {spares}",
        line={"dash": "dash", "color": _SPARES, "width": 1.5}, hoverinfo="skip",
    )  # fmt: skip
    words = [
        f"{format_number_of(faults['num_faults'], 'fault')} on {format_number_of(faults['num_servers'], 'server')} of"
        f" the cluster: {faults['mean_servers_down']:.1f} are down on average, {faults['most_servers_down']} at most.",
        "Above the dashed line more servers are down than stand by.",
    ]
    if _is_binned(data.down):
        words.append("Means and maxima of equal stretches, because there are too many changes to draw each.")
    return Figure(
        "servers-down", "Servers that are down", " ".join(words), data.down, plot, partial(_paper, day, down, spares)
    )


def _is_binned(down: polars.DataFrame) -> bool:
    return bool((down["servers_down"] != down["most_servers_down"]).any())


def _paper(day: list[float], down: list[float], spares: int, axes: matplotlib.axes.Axes) -> None:
    axes.step(day, down, where="post", color=COLOURS[1], linewidth=1, label="servers down")
    axes.axhline(spares, color=_SPARES, linestyle="--", linewidth=1, label=f"spares: {spares}")
    axes.set_xlim(0, day[-1])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("day")
    axes.set_ylabel("servers down")
    axes.legend(fontsize="small", frameon=False)
