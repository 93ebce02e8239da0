"""The pipeline of a run: micro-batches and chunks of each stage over time, as they ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.plan.phases import BACKWARD, FORWARD, FULL, WEIGHT
from rostam_py.report.drawing.drawing import new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import COLOURS, Scale, kind_looks, number, time_scale
from rostam_py.simulation.phase_spans import OPTIMIZER

if TYPE_CHECKING:
    import matplotlib.axes
    import plotly.graph_objects

_LOOKS = {
    FORWARD: ("forward", COLOURS[0]), BACKWARD: ("backward", COLOURS[1]), WEIGHT: ("weight gradients", COLOURS[2]),
    FULL: ("backward with weight gradients", COLOURS[3]), OPTIMIZER: ("optimizer", COLOURS[6]),
}  # fmt: skip
_PALEST = 0.6  # of the way to white, of the last chunk
_WIDTH_PX, _DIGIT_PX, _NUMBER_PX = 900, 7, 6  # of the drawing, of a digit, around a number
_OUTLINED = 600  # marks up to which neighbours are parted by a line
_KINDS_NAMED = 3


@dataclass(frozen=True)
class _Marks:
    """Marks of one phase and chunk: rows of the document's columns."""

    phase: str
    chunk: int
    words: str
    colour: str
    ink: str
    rows: list[dict[str, Any]]


def pipeline_figure(detail: Mapping[str, Any], head: str) -> Figure | None:
    """Return the drawing; None for a run without a pipeline, or whose stages' times were not recorded."""
    import polars as pl

    pipeline = detail.get("pipeline")
    if not pipeline:
        return None
    scale = time_scale([detail["result"]["iteration_time_s"]])
    return Figure(
        name=f"{head}pipeline", title="Pipeline: micro-batches of each stage over time",
        caption=_caption(detail, pipeline), table=pl.DataFrame(pipeline["marks"]),
        plotly=_plot(pipeline, scale), paper=partial(_paper, pipeline, scale),
    )  # fmt: skip


def _caption(detail: Mapping[str, Any], pipeline: Mapping[str, Any]) -> str:
    result, count = detail["result"], pipeline["num_microbatches"]
    chunks = pipeline["virtual_stages"]
    words = f"Schedule {pipeline['schedule']}"
    words += f", interleaved: {chunks} chunks of layers per stage, later ones paler" if chunks > 1 else ""
    words += f"; {count:,} micro-batch{'es' if count > 1 else ''} on {pipeline['num_stages']} stages, numbered from 0."
    bubble = result["breakdown_s"]["bubble"] / result["iteration_time_s"]
    words += f" Bubbles are {bubble:.1%} of the iteration, mean of all devices; gaps are bubbles, or waits"
    words += " for communication that nothing hides."
    words += f" {_decided(result)}"
    named = ", ".join(str(one) for one in pipeline["accelerators"][:4])
    more = "" if len(pipeline["accelerators"]) <= 4 else ", ..."
    words += f" Times are those of one device of each stage (accelerators {named}{more}) in the last iteration; a mark"
    words += " reaches from a phase's first kernel to its last, waits for tensor parallelism and the like included."
    if not pipeline["is_whole"]:
        shown, drawn = pipeline["end_s"] / result["iteration_times_s"][-1], len(pipeline["marks"]["stage"])
        words += f" Only the first {drawn:,} marks are drawn: {shown:.1%} of the iteration, in which"
        words += f" {pipeline['num_shown']:,} of {count:,} micro-batches begin."
    return words


def _decided(result: Mapping[str, Any]) -> str:
    """Return what the critical path consists of, in words."""
    shares = result["critical_path_s"]
    total = sum(shares.values())
    largest = sorted(shares.items(), key=lambda item: (-item[1], item[0]))[:_KINDS_NAMED]
    named = [f"{kind_looks().get(kind, (kind, ''))[0]} {value / total:.1%}" for kind, value in largest if value > 0]
    return f"Time by kind, along the critical path: {', '.join(named)}."


def _groups(pipeline: Mapping[str, Any]) -> Iterator[_Marks]:
    """Yield the marks by phase and chunk, in the order of the legend."""
    columns = pipeline["marks"]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    chunks = pipeline["virtual_stages"]
    for phase, (words, colour) in _LOOKS.items():
        is_chunked = chunks > 1 and phase != OPTIMIZER
        for chunk in range(chunks if is_chunked else 1):
            mine = [row for row in rows if row["phase"] == phase and row["chunk"] == chunk]
            paleness = _PALEST * chunk / (chunks - 1) if is_chunked else 0.0
            if mine:
                shade = _paler(colour, paleness)
                named = f"{words}, chunk {chunk}" if is_chunked else words
                yield _Marks(phase, chunk, named, shade, "#FFFFFF" if paleness < 0.4 else "#202020", mine)


def _paler(colour: str, share: float) -> str:
    """Return a colour "#rrggbb" that is a share of the way to white."""
    parts = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (255 - part) * share):02X}" for part in parts)


def _range(pipeline: Mapping[str, Any], scale: Scale) -> tuple[float, float]:
    return min(0.0, *pipeline["marks"]["start_s"]) * scale.factor, pipeline["end_s"] * scale.factor


def _texts(marks: _Marks, pipeline: Mapping[str, Any], scale: Scale) -> list[str]:
    """Return the micro-batch's number on every mark that has room for it."""
    low, high = _range(pipeline, scale)
    texts = []
    for row in marks.rows:
        text = str(row["microbatch"])
        width = row["duration_s"] * scale.factor / (high - low) * _WIDTH_PX
        texts.append(text if marks.phase != OPTIMIZER and width >= len(text) * _DIGIT_PX + _NUMBER_PX else "")
    return texts


def _plot(pipeline: Mapping[str, Any], scale: Scale) -> plotly.graph_objects.Figure:
    stages = pipeline["num_stages"]
    plot = new_plot(
        max(60, min(640, 30 * stages)) + 130, barmode="overlay", margin={"l": 60, "r": 20, "t": 60, "b": 50},
        xaxis=quiet_axis(scale.title("time in the iteration"), range=list(_range(pipeline, scale))),
        yaxis=quiet_axis("stage", showgrid=False, dtick=1 if stages <= 12 else None, range=[stages - 0.5, -0.5]),
        uniformtext={"mode": "hide", "minsize": 9},  # on a narrow screen numbers would run into each other
    )  # fmt: skip
    line = {"width": 0.5 if len(pipeline["marks"]["stage"]) <= _OUTLINED else 0, "color": "rgba(255,255,255,0.8)"}
    for marks in _groups(pipeline):
        plot.add_bar(
            base=[row["start_s"] * scale.factor for row in marks.rows],
            x=[row["duration_s"] * scale.factor for row in marks.rows], y=[row["stage"] for row in marks.rows],
            orientation="h", width=0.84, name=marks.words, marker={"color": marks.colour, "line": line},
            text=_texts(marks, pipeline, scale), textposition="inside", insidetextanchor="middle", textangle=0,
            constraintext="inside", textfont={"size": 11, "color": marks.ink}, hoverinfo="text",
            hovertext=[_hover(row, marks, scale) for row in marks.rows],
        )  # fmt: skip
    return plot


def _hover(row: Mapping[str, Any], marks: _Marks, scale: Scale) -> str:
    what = "" if marks.phase == OPTIMIZER else f" of micro-batch {row['microbatch']}"
    return (
        f"<b>{marks.words}</b>{what}<br>stage {row['stage']}: {number(row['duration_s'] * scale.factor)} {scale.unit}"
        f" from {number(row['start_s'] * scale.factor)}, kernels {number(row['busy_s'] * scale.factor)}"
    )


def _paper(pipeline: Mapping[str, Any], scale: Scale, axes: matplotlib.axes.Axes) -> None:
    stages = pipeline["num_stages"]
    for marks in _groups(pipeline):
        axes.barh(
            [row["stage"] for row in marks.rows], [row["duration_s"] * scale.factor for row in marks.rows], height=0.84,
            left=[row["start_s"] * scale.factor for row in marks.rows], color=marks.colour, label=marks.words,
            edgecolor="white", linewidth=0.3 if len(pipeline["marks"]["stage"]) <= _OUTLINED else 0,
        )  # fmt: skip
    axes.set_xlim(*_range(pipeline, scale))
    axes.set_ylim(stages - 0.5, -0.5)
    axes.set_yticks(range(0, stages, -(-stages // 12)))
    axes.set_ylabel("stage")
    axes.set_xlabel(scale.title("time in the iteration"))
    axes.legend(fontsize="small", frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
