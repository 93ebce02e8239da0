"""The traffic matrix of a run as a heat map: bytes from each sender to each receiver in one iteration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import GRID, new_plot
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import log_ticks
from rostam_py.units import format_size

if TYPE_CHECKING:
    import matplotlib.axes
    import numpy as np
    import plotly.graph_objects

_NUM_TICKS, _FEW_TICKS = 16, 8  # few where numbers have three digits or more
# From light green to violet: lightness falls, and both ends are seen on white and on black.
_RAMP = ["#BFE3C0", "#7FCDBB", "#41B6C4", "#2C8CC9", "#4263C9", "#6440BE", "#861DA3"]


def traffic_figure(detail: Mapping[str, Any], head: str) -> Figure | None:
    """Return the heat map; None for a run without any communication."""
    import numpy as np
    import polars as pl

    traffic = detail["traffic"]
    matrix = np.array(traffic["matrix"], dtype=np.float64)
    if not matrix.any():
        return None
    per_bin, used = traffic["accelerators_per_bin"], traffic["num_accelerators"]
    labels = bin_labels(per_bin, used)
    senders, receivers = np.nonzero(matrix)
    table = pl.DataFrame({
        "sender": [labels[k] for k in senders], "receiver": [labels[k] for k in receivers],
        "num_bytes": matrix[senders, receivers],
    })  # fmt: skip
    words = f"Bytes that accelerators send to one another in one iteration, {format_size(matrix.sum())} in all, over"
    words += " all planes, collectives included; the colour is logarithmic, blank cells exchange nothing."
    if per_bin > 1:
        words += (
            f" Each cell stands for {per_bin} x {per_bin} accelerators; traffic within one cell is on the diagonal."
        )
    names = "Accelerators are numbered consecutively within boards, leaves and servers."

    def paper(axes: matplotlib.axes.Axes) -> None:
        _paper(matrix, per_bin, axes)

    return Figure(f"{head}traffic", "Traffic matrix", f"{words} {names}", table,
                  _plot(matrix, labels), paper)  # fmt: skip


def bin_labels(per_bin: int, used: int) -> list[str]:
    """Return the accelerators of every bin: "0-7", or "0" of single ones."""
    if per_bin == 1:
        return [str(first) for first in range(used)]
    return [f"{first}-{min(first + per_bin, used) - 1}" for first in range(0, used, per_bin)]


def _plot(matrix: np.ndarray, labels: list[str]) -> plotly.graph_objects.Figure:
    import numpy as np

    shade = np.log10(np.where(matrix > 0, matrix, np.nan))
    low, high = float(np.nanmin(shade)), float(np.nanmax(shade))
    low = min(low, high - 1)
    ticks = log_ticks(10**low, 10**high)
    step = -(-len(labels) // (_NUM_TICKS if len(labels[-1].split("-")[-1]) < 3 else _FEW_TICKS))
    axis = {
        "type": "category", "tickvals": labels[::step], "ticktext": [name.split("-")[0] for name in labels[::step]],
        "tickangle": 0, "showgrid": False, "showline": True, "mirror": True, "linecolor": GRID,
        "automargin": True, "constrain": "domain",
    }  # fmt: skip
    plot = new_plot(
        560, xaxis=axis | {"title": {"text": "receiving accelerator"}, "side": "bottom"},
        yaxis=axis | {"title": {"text": "sending accelerator"}, "autorange": "reversed", "scaleanchor": "x"},
    )  # fmt: skip
    plot.add_heatmap(
        z=shade, x=labels, y=labels, customdata=matrix, zmin=low, zmax=high, colorscale=_RAMP, hoverongaps=False,
        hovertemplate="accelerator %{y} to %{x}<br><b>%{customdata:.4s}B</b><extra></extra>",
        colorbar={"title": {"text": "bytes"}, "tickvals": [math.log10(tick) for tick in ticks], "thickness": 14,
                  "ticktext": [format_size(tick) for tick in ticks]},
    )  # fmt: skip
    return plot


def _paper(matrix: np.ndarray, per_bin: int, axes: matplotlib.axes.Axes) -> None:
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    shown = np.ma.masked_equal(matrix, 0)
    extent = (0, matrix.shape[1] * per_bin, matrix.shape[0] * per_bin, 0)
    high = float(shown.max())
    norm = LogNorm(min(float(shown.min()), high / 10), high)
    image = axes.imshow(
        shown,
        norm=norm,
        cmap=LinearSegmentedColormap.from_list("traffic", _RAMP),
        interpolation="nearest",
        extent=extent,
    )
    axes.set_xlabel("receiving accelerator")
    axes.set_ylabel("sending accelerator")
    axes.figure.colorbar(image, ax=axes, label="bytes in one iteration", shrink=0.85)
