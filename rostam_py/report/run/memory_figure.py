"""Memory of each stage's device over the last iteration of a run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import COLOURS, Scale, number, size_scale, time_scale
from rostam_py.units import format_size

if TYPE_CHECKING:
    import matplotlib.axes
    import plotly.graph_objects

_MAX_LINES = len(COLOURS)
_NEAR = 0.4  # of the capacity, from which on its line leaves room for the others


def memory_over_time_figure(detail: Mapping[str, Any], head: str) -> Figure | None:
    """Return the drawing; None for a run whose stages' times were not recorded."""
    import polars as pl

    memory = detail.get("memory_over_time")
    if not memory:
        return None
    stages = _shown(memory["stages"])
    times = time_scale([detail["result"]["iteration_time_s"]])
    sizes = size_scale([max(max(one["num_bytes"]) for one in stages)])
    columns = {
        key: [value for one in memory["stages"] for value in _column(one, key)]
        for key in ("stage", "time_s", "num_bytes")
    }
    return Figure(
        name=f"{head}memory-over-time", title="Memory of one device of each stage over time",
        caption=_caption(memory, stages), table=pl.DataFrame(columns),
        plotly=_plot(memory, stages, times, sizes), paper=partial(_paper, stages, times, sizes),
    )  # fmt: skip


def _column(one: Mapping[str, Any], key: str) -> list[Any]:
    value = one[key]
    return list(value) if isinstance(value, list) else [value] * len(one["time_s"])


def _shown(stages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the stages that get a line: all, or some, evenly spaced, the first and the last among them."""
    if len(stages) <= _MAX_LINES:
        return stages
    step = (len(stages) - 1) / (_MAX_LINES - 1)
    return [stages[round(k * step)] for k in range(_MAX_LINES)]


def _caption(memory: Mapping[str, Any], stages: list[dict[str, Any]]) -> str:
    most = max(memory["stages"], key=lambda one: max(one["num_bytes"]))
    words = f"At most {format_size(max(most['num_bytes']))} of {format_size(memory['capacity'])}, on stage"
    words += (
        f" {most['stage']}. A line starts at the constant memory of a device (weights, gradients, optimizer state),"
    )
    words += (
        " rises with the tensors that each forward keeps for its micro-batch's backward and falls as that ends. Times"
        " are those of one device of each stage in the last iteration; its peak is the memory that the plan reports."
    )
    if len(stages) < len(memory["stages"]):
        words += f" {len(stages)} of {len(memory['stages'])} stages are drawn; the table has all."
    return words


def _line(one: Mapping[str, Any], times: Scale, sizes: Scale) -> tuple[list[float], list[float]]:
    """Return a stage's steps in the units drawn, from the beginning of the iteration on."""
    x = [time * times.factor for time in one["time_s"]]
    y = [size * sizes.factor for size in one["num_bytes"]]
    return ([0.0, *x], [one["constant"] * sizes.factor, *y]) if x[0] > 0 else (x, y)


def _plot(
    memory: Mapping[str, Any], stages: list[dict[str, Any]], times: Scale, sizes: Scale
) -> plotly.graph_objects.Figure:
    plot = new_plot(
        xaxis=quiet_axis(times.title("time in the iteration")),
        yaxis=quiet_axis(sizes.title("memory per device"), rangemode="tozero"),
    )
    for one, colour in zip(stages, COLOURS, strict=False):
        hover = [
            f"<b>stage {one['stage']}</b>: {number(size)} {sizes.unit} from {number(time)} {times.unit}"
            for time, size in zip(*_line(one, times, sizes), strict=True)
        ]
        x, y = _line(one, times, sizes)
        plot.add_scatter(
            x=x, y=y, mode="lines", line={"shape": "hv", "width": 1.5, "color": colour}, name=f"stage {one['stage']}",
            hoverinfo="text", hovertext=hover,
        )  # fmt: skip
    if max(max(one["num_bytes"]) for one in stages) > _NEAR * memory["capacity"]:
        height = memory["capacity"] * sizes.factor
        plot.add_hline(y=height, line={"dash": "dash", "width": 2, "color": "#7F7F7F"},
                       annotation={"text": f"capacity {number(height)} {sizes.unit}", "x": 1, "xanchor": "right",
                                   "yanchor": "bottom"})  # fmt: skip
    return plot


def _paper(stages: list[dict[str, Any]], times: Scale, sizes: Scale, axes: matplotlib.axes.Axes) -> None:
    for one, colour in zip(stages, COLOURS, strict=False):
        axes.step(
            *_line(one, times, sizes), where="post", color=colour, linewidth=1.0, label=f"stage {one['stage']}"
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_xlabel(times.title("time in the iteration"))
    axes.set_ylabel(sizes.title("memory per device"))
    axes.legend(fontsize="small", frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
