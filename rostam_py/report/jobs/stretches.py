"""Means over stretches of time that a page can draw: rows of series.csv joined where there are very many."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.report.jobs.load import JobsData
from rostam_py.units import format_time

if TYPE_CHECKING:
    import polars

MOST = 370


def stretches(data: JobsData) -> polars.DataFrame:
    """Return from_day, to_day and the mean of each column of the series, in at most MOST rows; none of no time.

    Model: so many consecutive rows to each, weighted by their lengths; the last one may be shorter.
    """
    import polars as pl

    series = data.series
    each = max(1, math.ceil(len(series) / MOST))
    names = [name for name in series.columns if name not in ("start_s", "end_s")]
    length = pl.col("end_s") - pl.col("start_s")
    return (
        series.with_columns(part=pl.int_range(pl.len()) // each)
        .group_by("part", maintain_order=True)
        .agg(
            pl.col("start_s").first().truediv(DAY_S).alias("from_day"),
            pl.col("end_s").last().truediv(DAY_S).alias("to_day"),
            *((pl.col(name) * length).sum().truediv(length.sum()).alias(name) for name in names),
        )
        .drop("part")
    )


def each_said(table: polars.DataFrame) -> str:
    """Return how long a stretch is, in words."""
    return f"Means of {format_time((table['to_day'][0] - table['from_day'][0]) * DAY_S)} each."


def middles(table: polars.DataFrame) -> list[float]:
    """Return the middle of each stretch [days]."""
    return [(a + b) / 2 for a, b in zip(table["from_day"], table["to_day"], strict=True)]


def steps(table: polars.DataFrame, column: str) -> tuple[list[float], list[float]]:
    """Return days and values of a line of steps, the last one drawn to the end."""
    return [*table["from_day"], table["to_day"][-1]], [*table[column], table[column][-1]]
