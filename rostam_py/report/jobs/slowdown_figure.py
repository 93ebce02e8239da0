"""Slow-downs by job size: time from submission to end over the time alone, with and without neighbours."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rostam_py.fleet.queueing.result import SHORT_S
from rostam_py.report.drawing.drawing import log_axis, new_plot, paper_log, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import COLOURS
from rostam_py.report.jobs.boxes import SAID, add_boxes, paper_boxes
from rostam_py.report.jobs.load import WITHOUT, JobsData
from rostam_py.report.jobs.size_classes import spread_by_size

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

_ENDS = {"end_s": ("beside neighbours", COLOURS[1]), WITHOUT: ("without network", COLOURS[0])}
_ALONE = ("slow-down", COLOURS[1])


def slowdown_figure(data: JobsData) -> Figure | None:
    """Return a box for each size, two where jobs were also simulated without neighbours; None if no job ended."""
    import polars as pl

    shown = {end: look for end, look in _ENDS.items() if end in data.jobs.columns}
    if not data.has_network:
        shown = {"end_s": _ALONE}
    tables = {look: slowdowns(data, end) for end, look in shown.items()}
    values = [one for table in tables.values() for key in ("p5", "p95", "mean") for one in table[key]]
    if not values:
        return None
    plot = new_plot(
        boxmode="group", scattermode="group", xaxis=quiet_axis("accelerators of a job", type="category"),
        yaxis=log_axis("slow-down", values), showlegend=data.has_network,
    )  # fmt: skip
    for look, table in tables.items():
        add_boxes(plot, table, look, 1.0, "times")
    whole = pl.concat([table.select(pl.lit(look[0]).alias("of"), pl.all()) for look, table in tables.items()])
    words = [
        f"Of jobs that have ended: time from submission to end over the time alone. Jobs below {SHORT_S:g} s count as"
        f" {SHORT_S:g} s. {SAID}"
    ]
    if data.has_network:
        words.append("Without network: the same jobs, each at the pace that it has alone, wherever it is.")
    drawn = {name: (table, colour) for (name, colour), table in tables.items()}
    return Figure("slowdown", "Slow-down by job size", " ".join(words), whole, plot, partial(_paper, drawn, values))


def slowdowns(data: JobsData, end: str = "end_s") -> polars.DataFrame:
    """Return how the slow-downs of each size are spread. Args: end: column of when a job ended."""
    import polars as pl

    took = (pl.col(end) - pl.col("submit_s")).clip(lower_bound=SHORT_S)
    return spread_by_size(
        data.jobs.with_columns(slowdown=took / pl.col("work_s").clip(lower_bound=SHORT_S)), "slowdown"
    )


def _paper(tables: dict[str, tuple[polars.DataFrame, str]], values: list[float], axes: matplotlib.axes.Axes) -> None:
    paper_boxes(axes, tables, 1.0)
    paper_log(axes, "y", values, None)
    axes.set_ylabel("slow-down")
    if len(tables) > 1:
        axes.legend(fontsize="small", frameon=False)
