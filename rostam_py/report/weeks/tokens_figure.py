"""Tokens over days, a line for each policy, and when each one gets to the target."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.report.drawing.drawing import new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import PAPER_DASHES, Look, Scale, count_scale, label, looks, number, paper_label
from rostam_py.report.weeks.load import WeeksData

if TYPE_CHECKING:
    import matplotlib.axes

_FAR = 3.0  # windows: a target that is farther away is said and not drawn
_TARGET = "#7F7F7F"


@dataclass(frozen=True)
class _Line:
    """A policy's tokens. day, trained: at the end of each day, from 0 on. target: (day, tokens), None without one."""

    policy: str
    look: Look
    day: list[float]
    trained: list[float]
    target: tuple[float, float] | None
    is_near: bool


def tokens_figure(data: WeeksData) -> Figure:
    """Return what is trained over the days, where the pace of the window leads to, and the target."""
    import polars as pl

    lines = [_line(data, policy, look) for policy, look in looks(list(data.policies)).items()]
    scale = count_scale([line.trained[-1] for line in lines], data.unit)
    goal = data.document["iterations_to_target"]
    is_drawn = any(line.is_near for line in lines)
    end = max([data.days, *(line.target[0] for line in lines if line.target and line.is_near)])
    plot = new_plot(
        xaxis=quiet_axis("day", range=[0, 1.03 * end]), yaxis=quiet_axis(scale.title("trained"), rangemode="tozero")
    )
    for line in lines:
        plot.add_scatter(
            x=line.day, y=[one * scale.factor for one in line.trained], mode="lines", name=label(line.policy),
            line={"color": line.look.colour, "dash": line.look.dash, "width": 2}, legendgroup=line.policy,
            hovertemplate=f"{label(line.policy)}, day %{{x:.4g}}: <b>%{{y:.4g}}</b> {scale.unit}<extra></extra>",
        )  # fmt: skip
        for way in _ways(line):
            (x0, y0), (x1, y1) = way
            plot.add_scatter(
                x=[x0, x1], y=[y0 * scale.factor, y1 * scale.factor], mode="lines+markers", showlegend=False,
                legendgroup=line.policy, line={"color": line.look.colour, "dash": "dot", "width": 1.5},
                marker={"symbol": ["circle", "star"], "size": [1, 12], "color": line.look.colour}, hoverinfo="text",
                hovertext=["", f"{label(line.policy)}: target after {number(x1)} days"],
            )  # fmt: skip
    if is_drawn:
        plot.add_hline(y=goal * data.per_iteration * scale.factor, line={"color": _TARGET, "dash": "dash", "width": 1})
    rows = [
        {"policy": line.policy, "day": day, data.unit: trained}
        for line in lines for day, trained in zip(line.day, line.trained, strict=True)
    ]  # fmt: skip
    return Figure(
        "trained", f"{data.unit.capitalize()} over days", _caption(data, lines), pl.DataFrame(rows), plot,
        partial(_paper, lines, scale, goal * data.per_iteration if is_drawn else None),
    )  # fmt: skip


def _line(data: WeeksData, policy: str, look: Look) -> _Line:
    one = data.policies[policy]
    each = data.per_iteration / float(data.document["iteration_s"])
    seconds = one["days"]["useful"]
    trained = [0.0, *(each * done for done in itertools.accumulate(seconds))]
    days = [float(day) for day in range(len(seconds))] + [data.days]
    mean_s, iterations = one["time_to_target_s"], data.document["iterations_to_target"]
    target_s = mean_s if one["target_reached_s"] is None else one["target_reached_s"]
    target = None if target_s is None else (target_s / DAY_S, iterations * data.per_iteration)
    return _Line(policy, look, days, trained, target, target is not None and target[0] <= _FAR * data.days)


def _ways(line: _Line) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Return the way from the window's end to the target, or the target alone where the window holds it."""
    if line.target is None or not line.is_near:
        return []
    end = (line.day[-1], line.trained[-1])
    return [(end if line.target[0] > end[0] else line.target, line.target)]


def _caption(data: WeeksData, lines: list[_Line]) -> str:
    words = [
        f"{data.unit.capitalize()} that count, at the end of each day; those that a fault undid are left out. A flat"
        " stretch is a job that waits."
    ]
    if not any(line.target for line in lines):
        words.append(f"No target was given: target='1 T {data.unit}', say, adds when each policy gets there.")
        return " ".join(words)
    reached = ", ".join(f"{line.policy} {number(line.target[0])}" for line in lines if line.target)
    words.append(f"Days to the target, beyond the window at its mean pace: {reached}.")
    if any(line.target and line.target[0] <= data.days for line in lines):
        words.append("Inside the window they are those of these faults; costs are at the mean pace.")
    far = [line.policy for line in lines if line.target and not line.is_near]
    if far:
        words.append(f"Targets beyond {_FAR:g} windows are not drawn: {', '.join(far)}.")
    return " ".join(words)


def _paper(lines: list[_Line], scale: Scale, goal: float | None, axes: matplotlib.axes.Axes) -> None:
    for line in lines:
        y = [one * scale.factor for one in line.trained]
        style, colour = PAPER_DASHES[line.look.dash], line.look.colour
        axes.plot(line.day, y, style, color=colour, label=paper_label(line.policy))
        for (x0, y0), (x1, y1) in _ways(line):
            axes.plot([x0, x1], [y0 * scale.factor, y1 * scale.factor], ":", color=colour, linewidth=1)
            axes.plot([x1], [y1 * scale.factor], "*", color=colour)
    if goal is not None:
        axes.axhline(goal * scale.factor, color=_TARGET, linestyle="--", linewidth=0.8)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("day")
    axes.set_ylabel(scale.title("trained"))
    axes.legend(fontsize="small", frameon=False)
