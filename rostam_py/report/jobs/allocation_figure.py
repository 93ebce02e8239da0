"""The allocation map: who held each server, from moment to moment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.report.drawing.drawing import new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import label
from rostam_py.report.jobs.held_cells import FAILED, FREE, Cells, heat_map_colours, held_cells, palette
from rostam_py.report.jobs.load import JobsData
from rostam_py.units import format_number_of, format_time

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

MOST_ROWS, MOST_COLUMNS = 128, 400
_ORDINALS = {2: "second", 3: "third", 21: "21st", 22: "22nd", 23: "23rd"}
_LONGEST = 16  # characters of a job's name


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Rows and moments of the map.

    what: a row is of: servers, or boards that hold them. size: accelerators of one. count: of the whole cluster. step:
    each so many is drawn. until_s: end of what is drawn.
    """

    what: str
    size: int
    count: int
    step: int
    units: range
    until_s: float
    moments: np.ndarray

    @property
    def width_s(self) -> float:
        """Time between two moments [s]."""
        return self.until_s / len(self.moments)


def allocation_figure(data: JobsData) -> Figure | None:
    """Return a heat map of servers over days; None of no time."""
    grid = map_grid(data)
    if grid is None:
        return None
    cells = held_cells(data.placements, grid.moments.tolist(), size=grid.size, units=grid.units)
    height = 150 + min(max(4 * len(grid.units), 220), 520)
    plot = new_plot(
        height=height, xaxis=quiet_axis("day", range=[0, grid.until_s / DAY_S], showgrid=False),
        yaxis=quiet_axis(grid.what, autorange="reversed", showgrid=False),
    )  # fmt: skip
    day = grid.width_s / DAY_S
    plot.add_heatmap(
        z=cells.looks.tolist(), x0=day / 2, dx=day, y0=0, dy=grid.step, text=_names(data, cells), hoverinfo="text+x+y",
        hovertemplate=f"{grid.what} %{{y}}, day %{{x:.2f}}<br><b>%{{text}}</b><extra></extra>", hoverongaps=False,
        **heat_map_colours(),
    )  # fmt: skip
    if (cells.owner == FAILED).any():
        mark = {"symbol": "square", "size": 11, "color": palette()[1]}
        plot.add_scatter(x=[None], y=[None], mode="markers", name="failed", showlegend=True, marker=mark)
    return Figure(
        "allocation", "Where each job was", _caption(data, grid), _table(data, grid, cells), plot,
        partial(_paper, grid, cells),
    )  # fmt: skip


def map_grid(data: JobsData) -> Grid | None:
    """Return which servers are drawn at which moments, the middles of equal stretches; None of no time."""
    until_s = min(float(data.document["placements"]["until_s"]), data.window_s)
    if until_s <= 0:
        return None
    size, boards = int(data.document["accelerators_per_server"]), data.document["boards"]
    what = "server" if size > 1 else "accelerator"
    if boards and boards["accelerators"] >= size:
        what, size = "board", int(boards["accelerators"])
    count = -(-int(data.document["all_accelerators"]) // size)
    step = math.ceil(count / MOST_ROWS)
    moments = (np.arange(MOST_COLUMNS) + 0.5) * (until_s / MOST_COLUMNS)
    return Grid(
        what=what, size=size, count=count, step=step, units=range(0, count, step), until_s=until_s, moments=moments
    )


def short_names(data: JobsData) -> list[str]:
    """Return the jobs' names by row, those that are long without their middle, then "failed" and "free"."""
    names = [one if len(one) <= _LONGEST else f"{one[:4]}...{one[-9:]}" for one in data.jobs["name"]]
    return [*names, "failed", "free"]  # FAILED and FREE count from the end


def _names(data: JobsData, cells: Cells) -> list[list[str]]:
    names = [label(one) for one in short_names(data)]
    names[FREE] = ""
    return [[names[one] for one in row] for row in cells.owner.tolist()]


def _table(data: JobsData, grid: Grid, cells: Cells) -> polars.DataFrame:
    """Return who held each drawn unit when; moments that are alike are one row, and free ones none."""
    import polars as pl

    names = [*data.jobs["name"], "", ""]
    rows: list[dict[str, Any]] = []
    for place, unit in enumerate(grid.units):
        owner, held = cells.owner[place], cells.held[place]
        changes = np.flatnonzero((np.diff(owner) != 0) | (np.diff(held) != 0)) + 1
        ends = [*changes.tolist(), len(owner)]
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            if owner[begin] != FREE:
                days = (begin * grid.width_s / DAY_S, end * grid.width_s / DAY_S)
                one = int(owner[begin])
                rows.append({
                    grid.what: unit, "from_day": days[0], "to_day": days[1], "job": names[one],
                    "is_failed": one == FAILED, "accelerators_held": int(held[begin]),
                })  # fmt: skip
    schema = {
        grid.what: pl.Int64, "from_day": pl.Float64, "to_day": pl.Float64, "job": pl.String, "is_failed": pl.Boolean,
        "accelerators_held": pl.Int64,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema)


def _caption(data: JobsData, grid: Grid) -> str:
    every = f"every {format_time(grid.width_s)}"
    words = [f"A row for each {grid.what}, a look at it {every}, coloured by the job that held most of it then."]
    if grid.size > 1:
        words.append("Pale: jobs held less than half of its accelerators.")
    words.append(
        "Clear: no job. Grey: failed, and no job held any of it. Six colours take turns in the order of submission."
    )
    if grid.step > 1:
        words.append(f"Every {_ORDINALS.get(grid.step, f'{grid.step}th')} of the {grid.count:,} {grid.what}s is drawn.")
    missed = _missed(data, grid)
    if missed:
        words.append(f"{format_number_of(missed, 'stay')} of jobs fell between two looks.")
    if left_out := data.document["placements"]["num_left_out"]:
        words.append(
            f"The map ends on day {grid.until_s / DAY_S:,.1f}: placements.csv stays small, and"
            f" {format_number_of(left_out, 'later start')} of jobs are not in it."
        )
    return " ".join(words)


def _missed(data: JobsData, grid: Grid) -> int:
    """Return the stays before the map's end that no moment lies in."""
    import polars as pl

    stays = data.placements.filter(pl.col("job").is_not_null(), pl.col("start_s") < grid.until_s)
    ends = (np.searchsorted(grid.moments, stays[key].to_numpy(), side="left") for key in ("start_s", "end_s"))
    first, end = ends
    return int((first >= end).sum())


def _paper(grid: Grid, cells: Cells, axes: matplotlib.axes.Axes) -> None:
    from matplotlib.colors import ListedColormap

    colours = ["#FFFFFF", *palette()[1:]]
    last = grid.units[-1] + grid.step
    axes.imshow(
        cells.looks, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(colours) - 0.5, aspect="auto",
        interpolation="nearest", extent=(0, grid.until_s / DAY_S, last, 0),
    )  # fmt: skip
    axes.set_xlabel("day")
    axes.set_ylabel(grid.what)
