"""Steps of sampled fleets as a histogram."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rostam_py.report.drawing.drawing import new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import Scale, number, time_scale
from rostam_py.units import format_time

if TYPE_CHECKING:
    import matplotlib.axes

_MARKS = (("nominal_s", "without variability", "#7F7F7F"), ("p50_s", "p50", "#0072B2"), ("p95_s", "p95", "#D55E00"))


def step_figure(detail: Mapping[str, Any], head: str) -> Figure | None:
    """Return the drawing; None for a run without variability."""
    import polars as pl

    found = detail.get("variability")
    if not found:
        return None
    steps = found["steps_s"]
    scale = time_scale(steps)
    counts, edges = np.histogram([step * scale.factor for step in steps], bins=_bins(len(steps)))
    plot = new_plot(
        bargap=0.02, xaxis=quiet_axis(scale.title("step")), yaxis=quiet_axis("fleets", rangemode="tozero"),
        showlegend=False,
    )  # fmt: skip
    middles = ((edges[:-1] + edges[1:]) / 2).tolist()
    hover = [
        f"{number(low)} to {number(high)} {scale.unit}: {count:,} of {len(steps):,}"
        for low, high, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    ]
    plot.add_bar(
        x=middles, y=counts.tolist(), width=np.diff(edges).tolist(), marker_color="#56B4E9", hoverinfo="text",
        hovertext=hover,
    )  # fmt: skip
    for key, words, colour in _MARKS:
        plot.add_vline(
            x=found[key] * scale.factor, line={"dash": "dash", "width": 2, "color": colour},
            annotation={"text": words, "font": {"color": colour}},
        )  # fmt: skip
    table = pl.DataFrame({"sample": range(len(steps)), "step_s": steps, "slowest_accelerator": found["slowest"]})
    paper = partial(_paper, found, scale)
    return Figure(f"{head}variability", "Step of fleets that vary", _caption(found), table, plot, paper)


def _bins(count: int) -> int:
    """Return about the root of the samples: each bar of a smooth distribution holds as many as there are bars."""
    return max(5, min(60, round(count**0.5 * 2)))


def _caption(found: Mapping[str, Any]) -> str:
    varied = ", ".join(f"{key} {found[key]:.1%}" for key in ("devices", "links", "kernels") if found[key])
    words = f"Each of {len(found['steps_s']):,} fleets is simulated for a step: {varied} (relative standard deviation,"
    words += (
        f" {found['distribution']}, of mean 1). Half of the steps take at most {format_time(found['p50_s'])}, 95% at"
    )
    words += f" most {format_time(found['p95_s'])}; without variability a step takes {format_time(found['nominal_s'])}."
    words += f" In {found['slowest_share']:.1%} of a step the mean accelerator waits for the slowest one's kernels."
    return words


def _paper(found: Mapping[str, Any], scale: Scale, axes: matplotlib.axes.Axes) -> None:
    axes.hist([step * scale.factor for step in found["steps_s"]], bins=_bins(len(found["steps_s"])), color="#56B4E9")
    for key, words, colour in _MARKS:
        axes.axvline(found[key] * scale.factor, color=colour, linestyle="--", linewidth=1.2, label=words)
    axes.set_xlabel(scale.title("step"))
    axes.set_ylabel("fleets")
    axes.legend(fontsize="small", frameon=False)
