"""Classes of jobs by size, and how some figure of theirs is spread in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars

_MOST = 12  # sizes that are classes of their own
QUANTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}


def size_classes(sizes: Sequence[int]) -> dict[str, tuple[int, int]]:
    """Return name -> (least, most) of classes that hold all sizes, ascending.

    Model: the sizes themselves where there are few, else powers of two: 1, 2, 3 to 4, 5 to 8, and so on; empty ones are
        left out.
    """
    own = sorted(set(sizes))
    if len(own) <= _MOST:
        return {f"{size:,}": (size, size) for size in own}
    found, most, least = {}, 1, 1
    while least <= own[-1]:
        if any(least <= size <= most for size in own):
            found[f"{least:,}" if least == most else f"{least:,}-{most:,}"] = (least, most)
        least, most = most + 1, 2 * most
    return found


def spread_by_size(jobs: polars.DataFrame, column: str) -> polars.DataFrame:
    """Return accelerators (a class), num_jobs, mean and QUANTILES of a column, a row for each class that has any.

    Model: quantiles are interpolated linearly between the values; null values are left out.
    """
    import polars as pl

    rows: list[dict[str, Any]] = []
    for name, (least, most) in size_classes(jobs["accelerators"].to_list()).items():
        values = jobs.filter(pl.col("accelerators").is_between(least, most))[column].drop_nulls()
        if len(values):
            spread = {key: values.quantile(share, "linear") for key, share in QUANTILES.items()}
            rows.append({"accelerators": name, "num_jobs": len(values), "mean": values.mean()} | spread)
    schema = {"accelerators": pl.String, "num_jobs": pl.Int64, "mean": pl.Float64}
    return pl.DataFrame(rows, schema=schema | dict.fromkeys(QUANTILES, pl.Float64))
