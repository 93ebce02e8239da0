"""The boards of a HammingMesh in their grid, at the moments that a planner asks about."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.fleet.queueing.timeline import MEANINGS
from rostam_py.report.drawing.drawing import new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import label
from rostam_py.report.jobs.allocation_figure import short_names
from rostam_py.report.jobs.held_cells import Cells, heat_map_colours, held_cells, palette
from rostam_py.report.jobs.load import WAITING, JobsData
from rostam_py.report.jobs.stretches import middles, stretches

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

# What is most at a chosen moment: column of the stretches -> words.
_MOST = {"held": "most held", WAITING: "longest queue", "scattered": "most scattered", "down": "most failed"}
_LINE, _TITLE = 250, 56  # heights of a grid and of the words above it [pixels]
_BETWEEN = 0.1  # two grids of a line, as a share of the width
_PHONE_LINE = 150  # of a grid with its share of the titles, on a phone
_MOST_APART = 24  # boards in a row, up to which they are drawn with a gap


@dataclass(frozen=True)
class Boards:
    """Boards at some moments, in order of time. titles: of each moment. cells: one row for each board, row by row."""

    rows: int
    columns: int
    titles: list[str]
    days: list[float]
    cells: Cells

    def grid(self, moment: int) -> Any:
        """Return the looks of one moment, int array (rows, columns)."""
        return self.cells.looks[:, moment].reshape(self.rows, self.columns)


def boards_figure(data: JobsData) -> Figure | None:
    """Return a grid for each moment; None of other fabrics, and where there is no moment."""
    boards = _boards(data)
    if boards is None:
        return None
    num_lines, across = math.ceil(len(boards.titles) / 2), min(len(boards.titles), 2)
    whole = num_lines * (_LINE + _TITLE) - _TITLE
    plot = new_plot(
        height=whole + _TITLE + 40, margin={"l": 40, "r": 20, "t": _TITLE, "b": 40},
        meta={"phone_height": round(whole * _PHONE_LINE / _LINE) + _TITLE + 40},
    )  # fmt: skip
    names = [label(one) for one in short_names(data)]
    for k in range(len(boards.titles)):
        _add_grid(plot, boards, k, names)
        _place_grid(plot, boards.titles[k], k, (across, whole))
    return Figure("boards", "Boards in their grid", _caption(data), _table(data, boards), plot, partial(_paper, boards))


def chosen_moments(data: JobsData) -> dict[float, str]:
    """Return seconds -> words of the moments that are drawn, by time.

    Model: for each thing the middle of the stretch whose mean is largest, the first of equals; none of what never is.
    """
    table = stretches(data)
    until_s = min(float(data.document["placements"]["until_s"]), data.window_s)
    found: dict[float, str] = {}
    for column, words in _MOST.items():
        inside = [
            (value, -day) for value, day in zip(table[column], middles(table), strict=True) if day * DAY_S < until_s
        ]
        value, day = max(inside, default=(0.0, 0.0))
        if value > 0:
            found[-day * DAY_S] = f"{found[-day * DAY_S]}, {words}" if -day * DAY_S in found else words
    return dict(sorted(found.items()))


def _boards(data: JobsData) -> Boards | None:
    shape = data.document["boards"]
    moments = chosen_moments(data) if shape else {}
    if not moments:
        return None
    units = range(shape["rows"] * shape["columns"])
    cells = held_cells(data.placements, list(moments), size=shape["accelerators"], units=units)
    days = [one / DAY_S for one in moments]
    titles = [f"day {day:,.2f}: {words}" for day, words in zip(days, moments.values(), strict=True)]
    return Boards(shape["rows"], shape["columns"], titles, days, cells)


def _add_grid(plot: Any, boards: Boards, moment: int, names: list[str]) -> None:
    owner = boards.cells.owner[:, moment].reshape(boards.rows, boards.columns).tolist()
    number = "" if moment == 0 else str(moment + 1)
    gap = int(boards.columns <= _MOST_APART)
    plot.add_heatmap(
        z=boards.grid(moment).tolist(), text=[[names[one] for one in row] for row in owner], xgap=gap, ygap=gap,
        xaxis=f"x{number}", yaxis=f"y{number}",
        hovertemplate="board in row %{y}, column %{x}<br><b>%{text}</b><extra></extra>", **heat_map_colours(),
    )  # fmt: skip


def _place_grid(plot: Any, title: str, moment: int, room: tuple[int, int]) -> None:
    """Set the axes of a moment's grid, and its title. Args: room: grids across, height of the drawing [pixels]."""
    across, whole = room
    line, column = divmod(moment, 2)
    width = (1 - _BETWEEN * (across - 1)) / across
    left, top = column * (width + _BETWEEN), 1 - line * (_LINE + _TITLE) / whole
    axis = {"showgrid": False, "ticks": "", "showline": False, "nticks": 6}
    number = "" if moment == 0 else str(moment + 1)
    plot.layout[f"xaxis{number}"] = quiet_axis("", **axis, domain=[left, left + width], anchor=f"y{number}")
    plot.layout[f"yaxis{number}"] = quiet_axis(
        "", **axis, domain=[top - _LINE / whole, top], anchor=f"x{number}", autorange="reversed",
        scaleanchor=f"x{number}", constrain="domain", constraintoward="top",
    )  # fmt: skip
    plot.add_annotation(
        text=title.replace(": ", "<br>"), x=left + width / 2, y=top, xref="paper", yref="paper", xanchor="center",
        yanchor="bottom", showarrow=False,
    )  # fmt: skip


def _table(data: JobsData, boards: Boards) -> polars.DataFrame:
    """Return who held each board at each moment: a job, or "free" or "failed"."""
    import polars as pl

    names = [*data.jobs["name"], "failed", "free"]
    rows = [
        {
            "day": day, "row": board // boards.columns, "column": board % boards.columns,
            "job": names[boards.cells.owner[board, k]], "accelerators_held": int(boards.cells.held[board, k]),
        }
        for k, day in enumerate(boards.days) for board in range(boards.rows * boards.columns)
    ]  # fmt: skip
    return pl.DataFrame(rows)


def _caption(data: JobsData) -> str:
    shape = data.document["boards"]
    scattered = (
        f" Scattered: {MEANINGS['scattered']}." if data.document["cluster_accelerator_hours"]["scattered"] else ""
    )
    return (
        f"{shape['rows']} x {shape['columns']} boards of {shape['accelerators']} accelerators, coloured by job as"
        " above; a job's rows share columns, which need not lie side by side. Clear: free. Grey: failed. Pale: jobs"
        f" held less than half of the board.{scattered}"
    )


def _paper(boards: Boards, axes: matplotlib.axes.Axes) -> None:
    from matplotlib.colors import ListedColormap

    colours = ["#F2F2F2", *palette()[1:]]
    axes.set_axis_off()
    each = 1 / len(boards.titles)
    for k, title in enumerate(boards.titles):
        inset = axes.inset_axes((k * each, 0.0, 0.92 * each, 0.9))
        inset.imshow(boards.grid(k), cmap=ListedColormap(colours), vmin=-0.5, vmax=len(colours) - 0.5)
        inset.set_title(title.replace(": ", "\n"), fontsize="xx-small")
        inset.tick_params(labelsize="xx-small", labelleft=k == 0)
