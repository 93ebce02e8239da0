"""The figures of one run, or of one mix of jobs, from its detail document.

figures = run_figures(read_detail("runs/mine/detail.json.gz"))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rostam_py.extras import Need, require
from rostam_py.plan.tasks import MEMORY_PARTS, RARE_PARTS
from rostam_py.report.drawing.drawing import file_safe, new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import (
    COLOURS,
    SMALL_MEMORY,
    Scale,
    is_communication,
    kind_looks,
    label,
    number,
    size_scale,
    time_scale,
)
from rostam_py.report.run.changes_figure import changes_figure
from rostam_py.report.run.conditions import algorithms_said
from rostam_py.report.run.curve_figure import curve_figure
from rostam_py.report.run.fabric_figure import drawing_figures
from rostam_py.report.run.links_figure import utilization_figure
from rostam_py.report.run.load import load_run
from rostam_py.report.run.memory_figure import memory_over_time_figure
from rostam_py.report.run.path_figure import path_figure, stage_word
from rostam_py.report.run.pipeline_figure import pipeline_figure
from rostam_py.report.run.sensitivity_figure import sensitivity_figure
from rostam_py.report.run.step_figure import step_figure
from rostam_py.report.run.traffic_figure import traffic_figure
from rostam_py.units import format_size

if TYPE_CHECKING:
    from pathlib import Path

    import matplotlib.axes
    import plotly.graph_objects

    from rostam_py.simulation.result import RunResult

_BROWN = "#8C510A"  # besides the others, told apart from them by its darkness
_MEMORY_COLOURS = {
    "parameters": 0, "gradients": 4, "optimizer_state": 2, "activations": 3, "gathered": 1, "staying": 5, "reserved": 6,
    "user_buffers": 6,  # either is held besides, by one program or the other
    "messages": 7,
}  # fmt: skip
_MEMORY = {part: (name, (*COLOURS, _BROWN)[_MEMORY_COLOURS[part]]) for part, name in MEMORY_PARTS.items()}
_JOBS = {
    "ideal_s": ("alone, sprayed", COLOURS[5]), "alone_s": ("alone", COLOURS[0]),
    "iteration_time_s": ("in the mix", COLOURS[1]),
}  # fmt: skip

_TAGS = ("job", "stage", "devices")


def run_figures(detail: Mapping[str, Any], prefix: str = "") -> list[Figure]:
    """Return all figures of a detail document, those that explain most first.

    Args: detail: as ``run_detail`` returns it. prefix: put before every name, so that pages may hold several runs.
    """
    head = f"{file_safe(prefix)}-" if prefix else ""
    figures: list[Figure | None] = [_jobs_figure(detail, head)] if detail["jobs"] else []
    figures += [_breakdown_figure(detail, head), pipeline_figure(detail, head)]
    figures += [changes_figure(detail, head), step_figure(detail, head), sensitivity_figure(detail, head)]
    figures += [memory_over_time_figure(detail, head), path_figure(detail, head)]
    figures += drawing_figures(detail, head)
    figures += [utilization_figure(detail, head), traffic_figure(detail, head), _memory_figure(detail, head)]
    figures.append(curve_figure(detail, head))
    return [figure for figure in figures if figure is not None]


def figures(run: RunResult | str | Path) -> dict[str, Figure]:
    """Return the figures of a result, or of a run's folder, by name; a notebook shows the ``plotly`` of one.

    Example: rostam.figures(rostam.simulate(plan, timeline=True))["pipeline"].plotly
    Model: "pipeline" and "memory-over-time" are there if a device of every stage was recorded.
    """
    require(Need("rostam.figures", "report", ("plotly",)))
    from rostam_py.simulation.detail import run_detail
    from rostam_py.simulation.result import RunResult

    detail = run_detail(run) if isinstance(run, RunResult) else load_run(run)
    return {figure.name: figure for figure in run_figures(detail)}


def _breakdown_figure(detail: Mapping[str, Any], head: str) -> Figure:
    import polars as pl

    rows = detail["breakdown_by_stage"]
    kinds = [kind for kind in dict.fromkeys([*kind_looks(), *rows[0]]) if kind not in _TAGS]
    kinds = [kind for kind in kinds if any(row.get(kind, 0.0) > 0 for row in rows)]
    bars = _Bars.of(detail, rows, {kind: _exposed(kind) for kind in kinds}, "time")
    averaged = detail["result"].get("num_averaged", 1)
    which = "one steady iteration goes" if averaged == 1 else f"an iteration goes, mean of the last {averaged:,}"
    words = f"Where {which}, mean over the devices of each {bars.place}. Communication counts where a"
    words += " device's compute stream waits for it; a bubble is a wait for others. Parts add up to the iteration."
    words += algorithms_said(detail)
    table = pl.DataFrame([{key: row[key] for key in (*_TAGS, *kinds) if key in row} for row in rows])
    title = f"Where an iteration goes, by {_places_word(detail)}"
    return Figure(f"{head}breakdown-by-stage", title, words, table, bars.plot(), bars.draw_paper)


def _memory_figure(detail: Mapping[str, Any], head: str) -> Figure | None:
    import polars as pl

    rows = detail["memory"]
    if not rows:  # a program need not say what its ranks hold
        return None
    absent = {part for part in RARE_PARTS if not any(row.get(part) for row in rows)}
    parts = {part: look for part, look in _MEMORY.items() if part not in absent}
    bars = _Bars.of(detail, rows, parts, "memory per device")
    capacity, most = max(row["capacity"] for row in rows), max(bars.totals)
    is_line = most > SMALL_MEMORY * capacity
    height = capacity * bars.scale.factor
    text = f"capacity {number(height)} {bars.scale.unit}"
    ceiling = 1.1 * max(height, most * bars.scale.factor)
    plot = bars.plot()
    if is_line:
        plot.add_hline(y=height, line={"dash": "dash", "width": 2, "color": "#7F7F7F"},
                       annotation={"text": text, "x": 1, "xanchor": "right", "yanchor": "bottom"})  # fmt: skip
        plot.update_yaxes(range=[0, ceiling])
    words = f"Memory that one device of each {bars.place} needs at its peak: at most {most / capacity:.1%} of its"
    words += f" {format_size(capacity)}{', the dashed line' if is_line else ''}. Working buffers and the framework's"
    words += " own context are not modelled."

    def paper(axes: matplotlib.axes.Axes) -> None:
        bars.draw_paper(axes)
        if is_line:
            axes.axhline(height, linestyle="--", color="#7F7F7F", label=text)
            axes.set_ylim(0, ceiling)
            _paper_legend(axes)

    title = f"Memory per device, by {_places_word(detail)}"
    return Figure(f"{head}memory-by-stage", title, words, pl.DataFrame(rows), plot, paper)


def _exposed(kind: str) -> tuple[str, str]:
    """Return words and colour of a kind in a breakdown, where communication is what nothing hides."""
    words, colour = kind_looks().get(kind, (kind, "#7F7F7F"))
    return (f"exposed {words}" if is_communication(kind) else words), colour


def _places_word(detail: Mapping[str, Any]) -> str:
    return "job and stage" if detail["jobs"] else stage_word(detail)


@dataclass(frozen=True)
class _Bars:
    """Stacked bars, one a stage, jobs side by side.

    rows: of the document, with the parts as keys. parts: key -> words and colour. what: the y axis. place: what a bar
    is. jobs: names, escaped.
    """

    rows: Sequence[Mapping[str, Any]]
    parts: Mapping[str, tuple[str, str]]
    scale: Scale
    what: str
    place: str
    jobs: Sequence[str]

    @classmethod
    def of(
        cls, detail: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], parts: Mapping[str, tuple[str, str]],
        what: str,
    ) -> _Bars:  # fmt: skip
        """Return the bars in the unit that suits the highest."""
        highest = max(sum(row[part] for part in parts) for row in rows)
        scale = time_scale([highest]) if what == "time" else size_scale([highest])
        return cls(rows, parts, scale, what, stage_word(detail), [label(job["name"]) for job in detail["jobs"]])

    @property
    def totals(self) -> list[float]:
        """Heights of all bars, in SI."""
        return [sum(row[part] for part in self.parts) for row in self.rows]

    def plot(self) -> plotly.graph_objects.Figure:
        """Return the drawing on the page."""
        rows, scale = self.rows, self.scale
        stages = [str(row["stage"]) for row in rows]
        places: Any = [[self.jobs[row["job"]] for row in rows], stages] if self.jobs else stages
        axis = {"title": {"text": self.place}, "automargin": True, "showgrid": False}
        axis |= {"type": "multicategory"} if self.jobs else {"type": "category", "nticks": 24}
        plot = new_plot(barmode="stack", bargap=0.25 if len(rows) < 60 else 0.05, xaxis=axis,
                        yaxis=quiet_axis(scale.title(self.what), rangemode="tozero"))  # fmt: skip
        width = 0.12 * len(rows) if len(rows) < 5 and not self.jobs else None
        for part, (words, colour) in self.parts.items():
            hover = [
                f"<b>{self.place} {row['stage']}</b>, {row['devices']:,} devices<br>{words}: "
                f"{number(row[part] * scale.factor)} {scale.unit}, {row[part] / max(total, 1e-300):.1%}"
                for row, total in zip(rows, self.totals, strict=True)
            ]
            plot.add_bar(x=places, y=[row[part] * scale.factor for row in rows], name=words, marker_color=colour,
                         hoverinfo="text", hovertext=hover, width=width)  # fmt: skip
        return plot

    def draw_paper(self, axes: matplotlib.axes.Axes) -> None:
        """Draw the same on static axes."""
        rows = self.rows
        names = [f"{row['job']}.{row['stage']}" if "job" in row else str(row["stage"]) for row in rows]
        positions, bottoms = list(range(len(rows))), [0.0] * len(rows)
        for part, (words, colour) in self.parts.items():
            heights = [row[part] * self.scale.factor for row in rows]
            axes.bar(positions, heights, bottom=bottoms, color=colour, label=words, width=0.75)
            bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
        step = -(-len(names) // 24)
        axes.set_xticks(positions[::step], names[::step])
        middle, reach = (len(rows) - 1) / 2, max(1.6, len(rows) / 2 + 0.1)
        axes.set_xlim(middle - reach, middle + reach)
        axes.set_ylim(0, 1.05 * max(*bottoms, 1e-300))
        axes.set_xlabel("job.stage" if "job" in rows[0] else self.place)
        axes.set_ylabel(self.scale.title(self.what))
        _paper_legend(axes)


def _paper_legend(axes: matplotlib.axes.Axes) -> None:
    axes.legend(fontsize="small", frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)


def _jobs_figure(detail: Mapping[str, Any], head: str) -> Figure:
    import polars as pl

    jobs = detail["jobs"]
    kinds = [kind for kind in _JOBS if any(job.get(kind) is not None for job in jobs)]
    scale = time_scale(job["iteration_time_s"] for job in jobs)
    columns = ["name", "model", "num_accelerators", "start_s", *kinds, "slowdown", "slowdown_ideal", "algorithms"]
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
    caption += f" Routing: {detail['result']['routing']}." + algorithms_said(detail)

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
    if job.get("algorithms"):
        lines.append(label(job["algorithms"]))
    return "<br>".join(lines)
