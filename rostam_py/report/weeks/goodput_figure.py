"""Where each day of a policy's weeks went: bars of causes that add up to the day."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.fleet.goodput.result import CAUSES
from rostam_py.report.drawing.drawing import file_safe, new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.weeks.load import WeeksData

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

# Useful time is green; what is lost is warm, what the job waits for grey.
CAUSE_COLOURS = {
    "useful": "#009E73", "slower": "#56B4E9", "redone": "#D55E00", "checkpoint": "#CC79A7", "detection": "#E69F00",
    "waiting": "#B8B8B8", "restart": "#0072B2",
}  # fmt: skip
_MOST_BARS = 370


def goodput_figure(data: WeeksData, policy: str) -> Figure:
    """Return the shares of each day by cause."""
    table = _table(data, policy)
    each = math.ceil(data.days / _MOST_BARS) if data.days > _MOST_BARS else 1
    plot = new_plot(
        barmode="stack", bargap=0, xaxis=quiet_axis("day", range=[0, data.days], tick0=0, dtick=_ticks(data.days)),
        yaxis=quiet_axis("share of the time [%]", range=[0, 100]),
    )  # fmt: skip
    middle = [(a + b) / 2 for a, b in zip(table["from_day"], table["to_day"], strict=True)]
    width = [b - a for a, b in zip(table["from_day"], table["to_day"], strict=True)]
    for cause in CAUSES:
        shares = [100 * one for one in table[cause]]
        plot.add_bar(
            x=middle, y=shares, width=width, name=cause, marker={"color": CAUSE_COLOURS[cause], "line": {"width": 0}},
            customdata=table["from_day"].to_list(),
            hovertemplate=f"from day %{{customdata:.4g}} on<br>{cause}: <b>%{{y:.2f}}%</b><extra></extra>",
        )  # fmt: skip
    one = data.policies[policy]
    lost = sorted(((seconds / one["wall_s"], cause) for cause, seconds in one["seconds"].items()), reverse=True)
    named = ", ".join(f"{cause} {share:.2%}" for share, cause in lost if cause != "useful" and share > 0)
    words = [f"Goodput {one['goodput']:.1%} of {data.days:,.1f} days."]
    words += [f"The rest: {named}." if named else "Nothing was lost."]
    words += [f"A bar is {each} days." if each > 1 else "A bar is a day; the last one may be shorter."]
    words += [f"{cause.capitalize()}: {meaning}." for cause, meaning in CAUSES.items() if one["seconds"][cause] > 0]
    return Figure(
        file_safe("goodput", policy), f"Where the time goes: {policy}", " ".join(words), table, plot,
        partial(_paper, table, data.days),
    )  # fmt: skip


def _ticks(days: float) -> float:
    """Return a round number of days between ticks, of which there are at most eight."""
    power = 10.0 ** math.floor(math.log10(days / 8))
    return next(step * power for step in (1, 2, 5, 10) if step * power * 8 >= days)


def _table(data: WeeksData, policy: str) -> polars.DataFrame:
    """Return from_day, to_day and the share of each cause; days are joined where there are very many."""
    import polars as pl

    days = data.policies[policy]["days"]
    each = math.ceil(data.days / _MOST_BARS) if data.days > _MOST_BARS else 1
    rows: list[dict[str, Any]] = []
    for first in range(0, len(days["useful"]), each):
        end = min(float(first + each), data.days)
        seconds = {cause: math.fsum(days[cause][first : first + each]) for cause in CAUSES}
        length = (end - first) * DAY_S
        rows.append({"from_day": float(first), "to_day": end} | {name: one / length for name, one in seconds.items()})
    return pl.DataFrame(rows)


def _paper(table: polars.DataFrame, days: float, axes: matplotlib.axes.Axes) -> None:
    left = table["from_day"].to_list()
    width = (table["to_day"] - table["from_day"]).to_list()
    below = [0.0] * len(left)
    for cause, colour in CAUSE_COLOURS.items():
        shares = [100 * one for one in table[cause]]
        if any(shares):
            axes.bar(left, shares, width=width, bottom=below, align="edge", color=colour, label=cause)
        below = [a + b for a, b in zip(below, shares, strict=True)]
    axes.set_xlim(0, days)
    axes.set_ylim(0, 100)
    axes.set_xlabel("day")
    axes.set_ylabel("share of the time [%]")
    axes.legend(fontsize="x-small", ncols=4, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
