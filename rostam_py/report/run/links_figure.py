"""Utilisation of all links of a run, in descending order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import COLOURS, label
from rostam_py.report.run.conditions import algorithms_said

if TYPE_CHECKING:
    import matplotlib.axes
    import plotly.graph_objects


def utilization_figure(detail: Mapping[str, Any], head: str) -> Figure:
    """Return the utilisation of all links, the busiest first."""
    import polars as pl

    values, count = detail["link_utilization"], detail["num_links"]
    # samples stand in the middle of equal shares of the links
    shares = [(k + 0.5) / len(values) for k in range(len(values))]
    idle = sum(value == 0 for value in values) / max(1, len(values))
    busiest = detail["busiest_links"]
    plane = "every plane that differs" if len(detail["drawing"]["planes"]) > 1 else "one plane"
    words = f"All {count:,} working directed links of {plane}, the busiest at the left: bytes in one iteration over"
    words += f" bandwidth times iteration time. Routing: {detail['result']['routing']}."
    words += algorithms_said(detail)
    words += f" {idle:.0%} of them carry nothing." if idle else " All of them carry something."
    if busiest:
        words += f" The busiest is {busiest[0]['name']} with {busiest[0]['utilization']:.1%}."
    plot = new_plot(
        xaxis=quiet_axis("links, busiest first [%]", range=[0, 100]),
        yaxis=quiet_axis("utilisation [%]", range=[0, 100]),
    )  # fmt: skip
    plot.add_scatter(
        x=[100 * share for share in shares], y=[100 * value for value in values], mode="lines", fill="tozeroy",
        line={"shape": "hvh", "color": COLOURS[1], "width": 2}, fillcolor="rgba(213,94,0,0.15)", showlegend=False,
        hovertemplate="%{x:.1f}% of the links carry at least<br><b>%{y:.3g}%</b> of their bandwidth<extra></extra>",
    )  # fmt: skip
    if busiest:
        _mark_busiest(plot, busiest, is_low=values[int(0.4 * len(values))] < 0.6)

    def paper(axes: matplotlib.axes.Axes) -> None:
        axes.fill_between([100 * share for share in shares], [100 * value for value in values], step="mid",
                          color=COLOURS[1], alpha=0.15)  # fmt: skip
        axes.step([100 * share for share in shares], [100 * value for value in values], where="mid", color=COLOURS[1])
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 100)
        axes.set_xlabel("links, busiest first [%]")
        axes.set_ylabel("utilisation [%]")

    table = pl.DataFrame({"share_of_links": shares, "utilization": values})
    return Figure(f"{head}link-utilization", "Utilisation of all links", words, table, plot, paper)


def _mark_busiest(plot: plotly.graph_objects.Figure, busiest: Sequence[Mapping[str, Any]], is_low: bool) -> None:
    """List the busiest links in the corner that a descending curve leaves free, or below a high flat one."""
    lines = [f"{label(link['name'])}: <b>{link['utilization']:.1%}</b>" for link in busiest[:6]]
    plot.add_annotation(
        text="<br>".join(["busiest links", *lines]), x=0.99, y=0.98 if is_low else 0.03, xref="paper", yref="paper",
        xanchor="right", yanchor="top" if is_low else "bottom", align="right", showarrow=False, font={"size": 12},
    )  # fmt: skip
