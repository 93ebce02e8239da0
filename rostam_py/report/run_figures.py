"""The figures of one run, or of one mix of jobs, from its detail document.

figures = run_figures(read_detail("runs/mine/detail.json.gz"))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing import file_safe, new_plot, quiet_axis
from rostam_py.report.figure import Figure
from rostam_py.report.run_figures_fabric import drawing_figure
from rostam_py.report.run_figures_links import utilization_figure
from rostam_py.report.run_figures_path import KINDS, path_figure
from rostam_py.report.run_figures_traffic import traffic_figure
from rostam_py.report.scales import COLOURS, Scale, label, number, size_scale, time_scale
from rostam_py.units import format_size

if TYPE_CHECKING:
    import matplotlib.axes
    import plotly.graph_objects

_MEMORY = {
    "parameters": ("parameters", COLOURS[0]), "gradients": ("gradients", COLOURS[4]),
    "optimizer_state": ("optimizer state", COLOURS[2]), "activations": ("activations", COLOURS[3]),
}  # fmt: skip
_JOBS = {
    "ideal_s": ("alone, sprayed", COLOURS[5]), "alone_s": ("alone", COLOURS[0]),
    "iteration_time_s": ("in the mix", COLOURS[1]),
}  # fmt: skip

# Memory below this share of the capacity is drawn without it: the bars would not be seen.
_SMALL = 0.05


def run_figures(detail: Mapping[str, Any], prefix: str = "") -> list[Figure]:
    """Return all figures of a detail document, those that explain most first.

    Args: detail: as ``run_detail`` returns it. prefix: put before every name, so that pages may hold several runs.
    """
    head = f"{file_safe(prefix)}-" if prefix else ""
    figures: list[Figure | None] = [_jobs_figure(detail, head)] if detail["jobs"] else []
    figures += [_breakdown_figure(detail, head), path_figure(detail, head), drawing_figure(detail, head)]
    figures += [utilization_figure(detail, head), traffic_figure(detail, head), _memory_figure(detail, head)]
    return [figure for figure in figures if figure is not None]


def _breakdown_figure(detail: Mapping[str, Any], head: str) -> Figure:
    import polars as pl

    rows = detail["breakdown_by_stage"]
    kinds = [kind for kind in KINDS if any(row.get(kind, 0.0) > 0 for row in rows)]
    parts = {kind: _exposed(kind) for kind in kinds}
    scale = time_scale(sum(row[kind] for kind in kinds) for row in rows)
    words = "Where one steady iteration goes, mean over the devices of each pipeline stage. Communication counts where"
    words += (
        " a device's compute stream waits for it; a bubble is a wait for other stages. Parts add up to the iteration."
    )
    columns = ["job", "stage", "devices", *kinds]
    return Figure(
        name=f"{head}breakdown-by-stage", title=f"Where an iteration goes, by {_places_word(detail)}", caption=words,
        table=pl.DataFrame([{key: row[key] for key in columns if key in row} for row in rows]),
        plotly=_stacked(rows, parts, scale, "time", detail), paper=partial(_paper_stacked, rows, parts, scale, "time"),
    )  # fmt: skip


def _memory_figure(detail: Mapping[str, Any], head: str) -> Figure:
    import polars as pl

    rows = detail["memory"]
    capacity, most = max(row["capacity"] for row in rows), max(_total(row, _MEMORY) for row in rows)
    is_line = most > _SMALL * capacity
    scale = size_scale([capacity if is_line else most])
    plot = _stacked(rows, _MEMORY, scale, "memory per device", detail)
    text = f"capacity {number(capacity * scale.factor)} {scale.unit}"
    if is_line:
        plot.add_hline(y=capacity * scale.factor, line={"dash": "dash", "width": 2, "color": "#7F7F7F"},
                       annotation={"text": text, "x": 1, "xanchor": "right", "yanchor": "bottom"})  # fmt: skip
        plot.update_yaxes(range=[0, 1.1 * scale.factor * max(capacity, most)])
    words = f"Memory that one device of each stage needs at its peak: at most {most / capacity:.1%} of its"
    words += f" {format_size(capacity)}{', the dashed line' if is_line else ''}. Working buffers and the framework's"
    words += " own context are not modelled."

    def paper(axes: matplotlib.axes.Axes) -> None:
        _paper_stacked(rows, _MEMORY, scale, "memory per device", axes)
        if is_line:
            axes.axhline(capacity * scale.factor, linestyle="--", color="#7F7F7F", label=text)
            axes.set_ylim(0, 1.1 * scale.factor * max(capacity, most))
            _paper_legend(axes)

    title = f"Memory per device, by {_places_word(detail)}"
    return Figure(f"{head}memory-by-stage", title, words, pl.DataFrame(rows), plot, paper)


def _exposed(kind: str) -> tuple[str, str]:
    """Return words and colour of a kind in a breakdown, where communication is what nothing hides."""
    words, colour = KINDS[kind]
    return (words if kind in ("compute", "launch", "bubble") else f"exposed {words}"), colour


def _total(row: Mapping[str, Any], parts: Mapping[str, Any]) -> float:
    return sum(row[part] for part in parts)


def _places_word(detail: Mapping[str, Any]) -> str:
    return "job and stage" if detail["jobs"] else "stage"


def _stacked(
    rows: Sequence[Mapping[str, Any]], parts: Mapping[str, tuple[str, str]], scale: Scale, what: str,
    detail: Mapping[str, Any],
) -> plotly.graph_objects.Figure:  # fmt: skip
    """Return stacked bars of the parts, one a stage, jobs side by side."""
    jobs = [label(job["name"]) for job in detail["jobs"]]
    stages = [str(row["stage"]) for row in rows]
    places: Any = [[jobs[row["job"]] for row in rows], stages] if jobs else stages
    axis = {"title": {"text": "stage"}, "automargin": True, "showgrid": False}
    if not jobs:
        axis |= {"type": "category", "nticks": 24}
    plot = new_plot(barmode="stack", bargap=0.25 if len(rows) < 60 else 0.05, xaxis=axis,
                    yaxis=quiet_axis(scale.title(what), rangemode="tozero"))  # fmt: skip
    width = min(0.6, 0.12 * len(rows)) if len(rows) < 5 and not jobs else None
    for part, (words, colour) in parts.items():
        hover = [
            f"<b>stage {row['stage']}</b>, {row['devices']:,} devices<br>{words}: {number(row[part] * scale.factor)} "
            f"{scale.unit}, {row[part] / max(_total(row, parts), 1e-300):.1%}"
            for row in rows
        ]
        plot.add_bar(x=places, y=[row[part] * scale.factor for row in rows], name=words, marker_color=colour,
                     hoverinfo="text", hovertext=hover, width=width)  # fmt: skip
    return plot


def _paper_stacked(
    rows: Sequence[Mapping[str, Any]], parts: Mapping[str, tuple[str, str]], scale: Scale, what: str,
    axes: matplotlib.axes.Axes,
) -> None:  # fmt: skip
    names = [f"{row['job']}.{row['stage']}" if "job" in row else str(row["stage"]) for row in rows]
    positions, bottoms = list(range(len(rows))), [0.0] * len(rows)
    for part, (words, colour) in parts.items():
        heights = [row[part] * scale.factor for row in rows]
        axes.bar(positions, heights, bottom=bottoms, color=colour, label=words, width=0.75)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    step = -(-len(names) // 24)
    axes.set_xticks(positions[::step], names[::step])
    axes.set_xlim(
        (len(rows) - 1) / 2 - max(1.6, len(rows) / 2 + 0.1), (len(rows) - 1) / 2 + max(1.6, len(rows) / 2 + 0.1)
    )
    axes.set_ylim(0, 1.05 * max(bottoms))
    axes.set_xlabel("job.stage" if "job" in rows[0] else "stage")
    axes.set_ylabel(scale.title(what))
    _paper_legend(axes)


def _paper_legend(axes: matplotlib.axes.Axes) -> None:
    axes.legend(fontsize="small", frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)


def _jobs_figure(detail: Mapping[str, Any], head: str) -> Figure:
    import polars as pl

    jobs = detail["jobs"]
    kinds = [kind for kind in _JOBS if any(job.get(kind) is not None for job in jobs)]
    scale = time_scale(job["iteration_time_s"] for job in jobs)
    columns = ["name", "model", "num_accelerators", "start_s", *kinds, "slowdown", "slowdown_ideal"]
    names = [label(job["name"]) for job in jobs]
    plot = new_plot(barmode="group", bargap=0.3, xaxis={"type": "category", "automargin": True},
                    yaxis=quiet_axis(scale.title("iteration time"), rangemode="tozero"))  # fmt: skip
    for kind in kinds:
        words, colour = _JOBS[kind]
        values = [None if job.get(kind) is None else job[kind] * scale.factor for job in jobs]
        plot.add_bar(x=names, y=values, name=words, marker_color=colour, hoverinfo="text",
                     hovertext=[_job_hover(job, kind, words, scale) for job in jobs])  # fmt: skip
    caption = "Mean iteration time of each job in the mix and, where it was simulated, alone on the same accelerators"
    caption += " with the same routing, and alone with its traffic sprayed over all shortest paths."

    def paper(axes: matplotlib.axes.Axes) -> None:
        width = 0.8 / len(kinds)
        for k, kind in enumerate(kinds):
            values = [(job.get(kind) or 0.0) * scale.factor for job in jobs]
            axes.bar([j + (k - (len(kinds) - 1) / 2) * width for j in range(len(jobs))], values, width,
                     color=_JOBS[kind][1], label=_JOBS[kind][0])  # fmt: skip
        axes.set_xticks(range(len(jobs)), [job["name"] for job in jobs], rotation=30 if len(jobs) > 4 else 0)
        axes.set_ylabel(scale.title("iteration time"))
        _paper_legend(axes)

    table = pl.DataFrame([{key: job.get(key) for key in columns} for job in jobs])
    return Figure(f"{head}jobs", "Jobs in the mix and alone", caption, table, plot, paper)


def _job_hover(job: Mapping[str, Any], kind: str, words: str, scale: Scale) -> str:
    lines = [f"<b>{label(job['name'])}</b>: {label(job['model'])} on {job['num_accelerators']:,} accelerators"]
    if job.get(kind) is not None:
        lines.append(f"{words}: {number(job[kind] * scale.factor)} {scale.unit}")
    if job.get("slowdown") is not None:
        lines.append(f"slow-down: {number(job['slowdown'])}x alone")
    return "<br>".join(lines)
