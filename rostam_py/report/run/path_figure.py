"""The critical path of a run: what decided the iteration's time, when, and which tasks fill it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import Scale, kind_looks, label, number, time_scale

if TYPE_CHECKING:
    import matplotlib.axes
    import plotly.graph_objects

_OTHER_COLOUR = "#7F7F7F"
_NUM_TASKS = 8
_LONGEST_NAME = 44


def path_figure(detail: Mapping[str, Any], head: str) -> Figure:
    """Return a timeline of the path by stage, shares by kind and the largest tasks."""
    import polars as pl

    segments, result = detail["critical_path"], detail["result"]
    scale = time_scale([result["iteration_time_s"]])
    words = "The chain of tasks and waits that decided the last iteration's time: each began when the one before it"
    words += (
        " ended. Shortening a task elsewhere helps only where it shares links with these. Above: when, and on which"
    )
    words += " stage. Middle: shares of the iteration by kind. Below: the tasks that fill most of it, added up over"
    words += " micro-batches and blocks (*)."
    averaged = result.get("num_averaged", 1)
    if averaged > 1:
        words += f" Shares and tasks are means over the last {averaged:,} iterations, which are not steady."
    if any(" more" in segment["name"] for segment in segments):
        words += f" The timeline merges neighbours into {len(segments):,} segments; shares and tasks are exact."
    if detail["jobs"]:
        words += f" It is that of {detail['jobs'][0]['name']}."
    return Figure(
        name=f"{head}critical-path", title="Critical path", caption=words, table=pl.DataFrame(segments),
        plotly=_plot(detail, scale), paper=partial(_paper, detail, scale),
    )  # fmt: skip


def stage_word(detail: Mapping[str, Any]) -> str:
    """Return what a plan's stages are: of sip_ml the devices of a model-parallel group; of a program its roles."""
    if "roles" in detail["result"]:
        return "role"
    return "device of a group" if "mp" in detail["result"]["strategy"] else "stage"


def _kinds_of(shares: Mapping[str, float]) -> list[str]:
    """Return the kinds on the path in the order of the legend, those without a colour of their own last."""
    return [kind for kind in dict.fromkeys([*kind_looks(), *shares]) if shares.get(kind, 0.0) > 0]


def _look(kind: str) -> tuple[str, str]:
    return kind_looks().get(kind, (kind, _OTHER_COLOUR))


def _plot(detail: Mapping[str, Any], scale: Scale) -> plotly.graph_objects.Figure:
    segments, shares = detail["critical_path"], detail["result"]["critical_path_s"]
    tasks = detail["result"]["critical_tasks"][:_NUM_TASKS]
    num_stages = 1 + max(segment["stage"] for segment in segments)
    rows = {"path": max(60, min(320, 30 * num_stages)), "axis": 74, "shares": 34, "gap": 34, "tasks": 40 * len(tasks)}
    inner, total = sum(rows.values()), sum(shares.values())
    end = segments[-1]["start_s"] + segments[-1]["duration_s"]  # of the last iteration
    edges = dict(zip(rows, (1 - sum(list(rows.values())[: k + 1]) / inner for k in range(len(rows))), strict=True))
    heading = {"xref": "paper", "yref": "paper", "x": 0, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    plot = new_plot(
        inner + 120, barmode="overlay", bargap=0.1, margin={"l": 60, "r": 20, "t": 70, "b": 50},
        xaxis=quiet_axis(scale.title("time in the iteration"), anchor="y", range=[0, end * scale.factor]),
        yaxis=quiet_axis(stage_word(detail), domain=[edges["path"], 1], showgrid=False,
                         dtick=1 if num_stages <= 12 else None, range=[num_stages - 0.5, -0.5]),
        xaxis2={"anchor": "y2", "range": [0, 1], "visible": False},
        yaxis2={"domain": [edges["shares"], edges["axis"] - 0.01], "visible": False},
        xaxis3=quiet_axis("share of the iteration", anchor="y3", tickformat=".0%", range=[0, 1]),
        yaxis3={"domain": [0, edges["gap"]], "visible": False, "anchor": "x3", "range": [len(tasks) - 0.6, -0.75]},
        annotations=[heading | {"text": "shares of the iteration", "y": edges["axis"] - 0.01},
                     heading | {"text": "largest tasks", "y": edges["gap"]}],
    )  # fmt: skip
    for kind in _kinds_of(shares):
        _add_kind(plot, kind, [segment for segment in segments if segment["kind"] == kind], shares, scale)
    _add_tasks(plot, tasks, total, scale)
    return plot


def _add_kind(
    plot: plotly.graph_objects.Figure, kind: str, mine: Sequence[Mapping[str, Any]], shares: Mapping[str, float],
    scale: Scale,
) -> None:  # fmt: skip
    """Add a kind to the timeline and to the bar of shares."""
    words, colour = _look(kind)
    seconds, total = shares[kind], sum(shares.values())
    before = sum(shares[other] for other in _kinds_of(shares)[: _kinds_of(shares).index(kind)])
    hover = [
        f"<b>{label(one['name'])}</b><br>{words}, stage {one['stage']}, accelerator {one['device']}<br>"
        f"{number(one['duration_s'] * scale.factor)} {scale.unit} from {number(one['start_s'] * scale.factor)}"
        for one in mine
    ]
    plot.add_bar(
        base=[one["start_s"] * scale.factor for one in mine], x=[one["duration_s"] * scale.factor for one in mine],
        y=[one["stage"] for one in mine], orientation="h", width=0.8, marker={"color": colour, "line": {"width": 0}},
        name=words, legendgroup=kind, hoverinfo="text", hovertext=hover,
    )  # fmt: skip
    share = seconds / total
    plot.add_bar(
        base=[before / total], x=[share], y=[0], orientation="h", marker_color=colour, xaxis="x2", yaxis="y2",
        legendgroup=kind, showlegend=False, text=[f"{share:.1%}"] if share > 0.05 else None, textposition="inside",
        insidetextanchor="middle", textangle=0, hoverinfo="text",
        hovertext=[f"<b>{words}</b>: {number(seconds * scale.factor)} {scale.unit}, {share:.1%}"],
    )  # fmt: skip


def _add_tasks(
    plot: plotly.graph_objects.Figure, tasks: Sequence[Mapping[str, Any]], total: float, scale: Scale
) -> None:
    """Add bars of the largest tasks, named above each."""
    names = [_short(task["name"]) for task in tasks]
    plot.add_bar(
        x=[task["duration_s"] / total for task in tasks], y=list(range(len(tasks))), orientation="h", width=0.45,
        marker_color=[_look(task["kind"])[1] for task in tasks], xaxis="x3", yaxis="y3", showlegend=False,
        hoverinfo="text",
        hovertext=[
            f"<b>{label(task['name'])}</b><br>{_look(task['kind'])[0]}, {task['count']:,} times<br>"
            f"{number(task['duration_s'] * scale.factor)} {scale.unit}, {task['duration_s'] / total:.1%}"
            for task in tasks
        ],
    )  # fmt: skip
    for place, (name, task) in enumerate(zip(names, tasks, strict=True)):
        text = f"{label(name)}, {task['count']:,} x: {task['duration_s'] / total:.1%}"
        plot.add_annotation(
            text=text, x=0, y=place - 0.22, xref="x3", yref="y3", xanchor="left", yanchor="bottom", showarrow=False,
            font={"size": 12}, borderpad=0,
        )  # fmt: skip


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _paper(detail: Mapping[str, Any], scale: Scale, axes: matplotlib.axes.Axes) -> None:
    segments, shares = detail["critical_path"], detail["result"]["critical_path_s"]
    num_stages, total = 1 + max(segment["stage"] for segment in segments), sum(shares.values())
    for kind in _kinds_of(shares):
        words, colour = _look(kind)
        mine = [one for one in segments if one["kind"] == kind]
        axes.barh(
            [one["stage"] for one in mine], [one["duration_s"] * scale.factor for one in mine], height=0.8,
            left=[one["start_s"] * scale.factor for one in mine], color=colour, linewidth=0,
            label=f"{words} {shares[kind] / total:.1%}",
        )  # fmt: skip
    axes.set_xlim(0, (segments[-1]["start_s"] + segments[-1]["duration_s"]) * scale.factor)
    axes.set_ylim(num_stages - 0.5, -0.5)
    axes.set_yticks(range(0, num_stages, -(-num_stages // 12)))
    axes.set_ylabel(stage_word(detail))
    axes.set_xlabel(scale.title("time in the iteration"))
    axes.legend(fontsize="small", frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
