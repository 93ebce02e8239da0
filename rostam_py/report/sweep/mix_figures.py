"""Slow-downs of job mixes: by number of jobs, by model, and their whole distribution."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import file_safe, new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import Look, label, looks, number, paper_label
from rostam_py.report.sweep.reading import Reading, has_values

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

_MEANINGS = {
    "slowdown": ("slow-down", "iteration time in the mix over that of the same job alone, same routing and seed"),
    "slowdown_ideal": ("slow-down against ideal", "iteration time in the mix over that of the same job alone, sprayed"),
}
_STEPS = 200


def mix_figures(reading: Reading) -> list[Figure]:
    """Return the figures of a sweep of mixes; none where no point has jobs."""
    jobs = jobs_of(reading)
    if jobs is None:
        return []
    found = [_boxes(reading, jobs, "slowdown", "num_jobs"), _boxes(reading, jobs, "slowdown", "model")]
    found.append(_shares(reading, jobs))
    if has_values(jobs, "slowdown_ideal"):
        found.append(_boxes(reading, jobs, "slowdown_ideal", "num_jobs"))
    return found


def jobs_of(reading: Reading) -> polars.DataFrame | None:
    """Return one row per job of every finished mix: line, num_jobs, name, model, slowdown, ...; None without jobs."""
    import polars as pl

    table = reading.table
    if not has_values(table, "jobs"):
        return None
    counts = pl.col("jobs").list.len().cast(pl.Int64).alias("num_jobs")
    jobs = table.filter(pl.col("jobs").list.len() > 0).select("index", "line", counts, "jobs").explode("jobs")
    jobs = jobs.unnest("jobs")
    if "slowdown" not in jobs.columns:
        return None
    jobs = jobs.filter(pl.col("slowdown").is_finite())
    return jobs if len(jobs) else None


def _boxes(reading: Reading, jobs: polars.DataFrame, value: str, by: str) -> Figure:
    import polars as pl

    words, meaning = _MEANINGS[value]
    conditions = reading.conditions(reading.table)
    jobs = jobs.filter(pl.col(value).is_finite(), pl.col(by).is_not_null())
    column = pl.col(value)
    quantiles = {"q1": 0.25, "median": 0.5, "q3": 0.75, "p95": 0.95, "p99": 0.99}
    table = jobs.group_by("line", by).agg(
        pl.len().alias("num_values"), column.min().alias("least"),
        *(column.quantile(at, "linear").alias(name) for name, at in quantiles.items()), column.max().alias("most"),
    )  # fmt: skip
    table = table.with_columns(pl.col("line").cast(pl.Enum(reading.lines))).sort(by, "line")
    table = table.with_columns(pl.col("line").cast(pl.String))
    across = {"num_jobs": "jobs that share the fabric", "model": "model of the job"}[by]
    caption = (
        f"{words.capitalize()}: {meaning}; 1 is undisturbed. Box: the middle half; its line: the median; whiskers: the"
        f" least and the most of all jobs over {', '.join(reading.seeds) or 'all points'}. The CSV has the 95th and"
        " 99th percentiles as well." + (f" {conditions}" if conditions else "")
    )
    return Figure(
        name=file_safe(value.replace("_", "-"), "by", by.replace("_", "-")),
        title=f"{words.capitalize()} by {'number of jobs' if by == 'num_jobs' else 'model'}", caption=caption,
        table=reading.figure_table(table, *table.columns[1:]), plotly=_box_plot(reading, table, by, words, across),
        paper=partial(_paper_boxes, reading, table, by, words, across),
    )  # fmt: skip


def _box_plot(reading: Reading, table: polars.DataFrame, by: str, words: str, across: str) -> Any:
    import polars as pl

    plot = new_plot(
        boxmode="group", yaxis=quiet_axis(words),
        xaxis={"title": {"text": across}, "type": "category", "automargin": True, "categoryorder": "array",
               "categoryarray": [label(one) for one in table[by].unique(maintain_order=True)]},
    )  # fmt: skip
    plot.add_hline(y=1, line={"color": "#7F7F7F", "dash": "dash", "width": 1})
    lines = [line for line in reading.lines if line in set(table["line"])]
    for line in lines:
        rows = table.filter(pl.col("line") == line)
        plot.add_box(
            x=[label(one) for one in rows[by]], q1=rows["q1"].to_list(), median=rows["median"].to_list(),
            q3=rows["q3"].to_list(), lowerfence=rows["least"].to_list(), upperfence=rows["most"].to_list(),
            name=label(line), marker_color=reading.looks[line].colour, showlegend=len(lines) > 1,
        )  # fmt: skip
    return plot


def _paper_boxes(
    reading: Reading, table: polars.DataFrame, by: str, words: str, across: str, axes: matplotlib.axes.Axes
) -> None:
    from matplotlib.patches import Patch

    groups = table[by].unique(maintain_order=True).to_list()
    lines = [line for line in reading.lines if line in set(table["line"])]
    width = 0.8 / len(lines)
    for row in table.to_dicts():
        place = groups.index(row[by]) + (lines.index(row["line"]) - (len(lines) - 1) / 2) * width
        colour = reading.looks[row["line"]].colour
        box = {"med": row["median"], "q1": row["q1"], "q3": row["q3"], "whislo": row["least"], "whishi": row["most"]}
        axes.bxp([box], positions=[place], widths=width * 0.8, showfliers=False, patch_artist=True,
                 boxprops={"facecolor": colour, "alpha": 0.5}, medianprops={"color": "black"})  # fmt: skip
    axes.axhline(1, color="#7F7F7F", linestyle="--", linewidth=0.8)
    axes.set_xticks(range(len(groups)), [paper_label(one) for one in groups])
    axes.set_xlabel(across)
    axes.set_ylabel(words)
    if len(lines) > 1:
        handles = [Patch(color=reading.looks[line].colour, alpha=0.5, label=paper_label(line)) for line in lines]
        axes.legend(handles=handles, fontsize="small", frameon=False)


def _shares(reading: Reading, jobs: polars.DataFrame) -> Figure:
    """Return the share of jobs that are slowed at most so much: a line per fabric, or per number of jobs."""
    import polars as pl

    most: Any = jobs["num_jobs"].max()
    is_by_line = jobs["line"].n_unique() > 1
    group = "line" if is_by_line else "num_jobs"
    rows = jobs.filter(pl.col("num_jobs") == most) if is_by_line else jobs
    names = [one for one in reading.lines if one in set(rows["line"])] if is_by_line else None
    names = names or rows["num_jobs"].unique().sort().to_list()
    steps = [step / _STEPS for step in range(_STEPS + 1)]
    parts = []
    for name in names:
        values = rows.filter(pl.col(group) == name)["slowdown"]
        at = steps if len(values) > _STEPS else [step / max(1, len(values) - 1) for step in range(len(values))]
        quantiles = [values.quantile(one, "nearest") for one in at]
        said = str(name) if is_by_line else f"{name} {'job' if name == 1 else 'jobs'}"
        parts.append(pl.DataFrame({"group": said, "share_of_jobs": at, "slowdown": quantiles}))
    table = pl.concat(parts)
    drawn = looks([str(one) for one in names])
    styles = {part["group"][0]: drawn[str(name)] for part, name in zip(parts, names, strict=True)}
    which = f" Mixes of {most} jobs, the most." if is_by_line else ""
    caption = (
        "Share of jobs (upward) that are slowed down by at most so much (to the right): the further left, the better."
        f"{which} Distributions of more than {_STEPS + 1} jobs are drawn at {_STEPS + 1} evenly spaced quantiles."
    )
    conditions = reading.conditions(reading.table)
    caption += f" {conditions}" if conditions else ""
    return Figure(
        name="slowdown-distribution", title="Distribution of slow-downs", caption=caption, table=table,
        plotly=_share_plot(table, styles), paper=partial(_paper_shares, table, styles),
    )  # fmt: skip


def _share_plot(table: polars.DataFrame, styles: dict[str, Look]) -> Any:
    import polars as pl

    plot = new_plot(xaxis=quiet_axis("slow-down"), yaxis=quiet_axis("share of jobs [%]", range=[0, 101]))
    for name, look in styles.items():
        rows = table.filter(pl.col("group") == name)
        hover = [f"<b>{label(name)}</b><br>{share:.0%} of the jobs: at most {number(slow)}x"
                 for share, slow in zip(rows["share_of_jobs"], rows["slowdown"], strict=True)]  # fmt: skip
        plot.add_scatter(
            x=rows["slowdown"].to_list(), y=(rows["share_of_jobs"] * 100).to_list(), mode="lines", name=label(name),
            line={"shape": "hv", "color": look.colour, "dash": look.dash, "width": 2}, showlegend=True,
            hoverinfo="text", hovertext=hover,
        )  # fmt: skip
    return plot


def _paper_shares(table: polars.DataFrame, styles: dict[str, Look], axes: matplotlib.axes.Axes) -> None:
    import polars as pl

    for name, look in styles.items():
        rows = table.filter(pl.col("group") == name)
        axes.step(
            rows["slowdown"], rows["share_of_jobs"] * 100, where="post", color=look.colour, label=paper_label(name)
        )
    axes.set_xlabel("slow-down")
    axes.set_ylabel("share of jobs [%]")
    axes.legend(fontsize="small", frameon=False)
