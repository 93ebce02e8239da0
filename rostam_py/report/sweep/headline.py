"""What the report of a sweep says first, in sentences computed from the data: what is best, and by how much."""

from __future__ import annotations

from typing import Any

from rostam_py.report.drawing.scales import count_scale, number, short_strategy
from rostam_py.report.sweep.load import SweepData
from rostam_py.report.sweep.mix_figures import jobs_of
from rostam_py.report.sweep.prices import BASIS, NETWORK, priced
from rostam_py.report.sweep.reading import SIZE, ModelPoints, Reading
from rostam_py.units import format_time

# "Little more" than the least time, where a cheaper network is worth a sentence.
_NEAR = 1.1


def sweep_headline(data: SweepData) -> list[str]:
    """Return a sentence or a few per model, or about a mix' slow-downs."""
    reading = Reading(data)
    said = [_of_model(reading, one) for one in reading.models]
    jobs = jobs_of(reading)
    if jobs is not None:
        said += _of_mix(reading, jobs)
    if not said:
        return ["No point of this sweep finished: see the errors below." if len(data.failed()) else "No points."]
    return said


def _of_model(reading: Reading, points: ModelPoints) -> str:
    """Return the fastest case for a model, by how much over the next line there, and what the x axis bought it."""
    import polars as pl

    best = points.best.sort(points.goal, "index")
    sizes = SIZE in best.columns and reading.x != SIZE and best[SIZE].n_unique() > 1
    first = best.row(0, named=True)
    where = f" at {reading.x_label(first[reading.x])}" if reading.x else ""
    how = f" with {short_strategy(first['strategy'])}" if first.get("strategy") else ""
    size = f" on {first[SIZE]:,} accelerators" if sizes else ""
    said = f"{points.model}: {first['line']}{size}{where}{how} has the least {points.goal_words}, "
    said += format_time(first[points.goal])
    here = best.filter(pl.col(reading.x) == first[reading.x]) if reading.x else best
    if len(here) > 1:
        second, last = here.row(1, named=True), here.row(-1, named=True)
        ratio = second[points.goal] / first[points.goal]
        said += f"; {second['line']}{_size(second, sizes)} " + (
            f"takes {ratio:.2f}x as long" if ratio >= 1.01 else "is within 1% of it"
        )
        if len(here) > 2 and points.num_lines == points.best["line"].n_unique():
            said += f", {last['line']}{_size(last, sizes)}, the last, {last[points.goal] / first[points.goal]:.2f}x"
    said += "."
    if reading.x:
        own = best.filter(pl.col("line") == first["line"]).sort(reading.x)
        least, most = own.row(0, named=True), own.row(-1, named=True)
        if len(own) > 1:
            said += (
                f" From {reading.x_label(least[reading.x])} to {reading.x_label(most[reading.x])} it gains"
                f" {number(least[points.goal] / most[points.goal])}x."
            )
    return said + _cheaper(reading, points, first)


def _cheaper(reading: Reading, points: ModelPoints, first: dict[str, Any]) -> str:
    """Return which network is the cheapest of those that take little more than the least time, if it is cheaper."""
    import polars as pl

    rows = priced(points.settings)
    near = rows.filter(pl.col(points.goal) <= _NEAR * first[points.goal])
    if not len(near):
        return ""
    cheapest = near.sort(NETWORK, points.goal, "index").row(0, named=True)
    own = first[NETWORK] if first["index"] in rows["index"] else None
    if cheapest["index"] == first["index"] or (own and cheapest[NETWORK] >= own):
        return ""
    where = f" at {reading.x_label(cheapest[reading.x])}" if reading.x else ""
    against = f" against {_dollars(own)}" if own else ""
    longer = cheapest[points.goal] / first[points.goal]
    return (
        f" The cheapest network within {_NEAR - 1:.0%} of that time: {cheapest['line']}{where},"
        f" {_dollars(cheapest[NETWORK])}{against}, {longer:.2f}x as long ({BASIS})."
    )


def _dollars(value: float) -> str:
    scale = count_scale([value], "")
    return f"US$ {number(value * scale.factor)} {scale.unit}".strip()


def _size(row: dict[str, Any], is_said: bool) -> str:
    return f" ({row[SIZE]:,} accelerators)" if is_said else ""


def _of_mix(reading: Reading, jobs: Any) -> list[str]:
    """Return how far jobs slow each other down at the largest number of jobs, line by line."""
    import polars as pl

    most = jobs["num_jobs"].max()
    rows = jobs.filter(pl.col("num_jobs") == most)
    groups = rows.group_by("line").agg(
        pl.col("slowdown").median().alias("median"), pl.col("slowdown").quantile(0.95, "linear").alias("p95"),
        pl.col("slowdown").max().alias("most"), pl.len().alias("count"),
    ).sort("median", "line")  # fmt: skip
    if rows["slowdown"].max() < 1.001:
        return [
            "A job alone is not slowed down."
            if most == 1
            else f"{most} jobs on one fabric do not slow each other down."
        ]
    said = []
    for row in groups.head(4).to_dicts():
        of_line = f"{row['line']}, " if len(groups) > 1 else ""
        said.append(
            f"{of_line}{most} {'job' if most == 1 else 'jobs'} on one fabric: half of the jobs slow down by at most"
            f" {number(row['median'])}x, 95% by at most {number(row['p95'])}x, the worst by {number(row['most'])}x"
            f" ({row['count']:,} jobs)."
        )
    if len(groups) > 4:
        said.append(f"{len(groups) - 4} more below.")
    return said
