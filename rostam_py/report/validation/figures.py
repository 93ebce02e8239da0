"""Figures of a validation: signed errors of every row, and what each predicted iteration consists of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import GRID, category_axis, file_safe, new_plot, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import COLOURS, label, part_looks
from rostam_py.units import format_size, format_time

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

_LINE = 22  # pixels of one bar
_LEGEND_LINE = 19  # pixels of one line of a legend, which has two names on it
# What errors are of, in words and colours.
MEASURED = {
    "time": ("time", COLOURS[0]), "memory": ("memory of the fullest device", COLOURS[1]),
    "state": ("parameters and optimizer state of a stage's layers", COLOURS[2]),
    "activations": ("activations of a stage's layers", COLOURS[3]),
}  # fmt: skip


def validation_figures(document: Mapping[str, Any]) -> list[Figure]:
    """Return for each table the errors of its rows and what their predicted iterations consist of."""
    tables = [table for table in document["tables"] if table["rows"]]
    figures = []
    for table in tables:
        figures.append(_errors_figure(table))
        if any(row["compute_by_family_s"] for row in table["rows"]):
            figures.append(_parts_figure(table))
    return figures


def said(measures: str, value: float) -> str:
    """Return a time or a memory in words."""
    return format_time(value) if measures == "time" else format_size(int(value))


def _errors_figure(table: Mapping[str, Any]) -> Figure:
    import polars as pl

    rows = [
        {"row": row["name"], "of": measures, **row["compared"][measures],
         "low": min([row["compared"][measures]["error"], *(row["spread"].values() if measures == "time" else ())]),
         "high": max([row["compared"][measures]["error"], *(row["spread"].values() if measures == "time" else ())])}
        for row in table["rows"] for measures in MEASURED if measures in row["compared"]
    ]  # fmt: skip
    shown = [measures for measures in MEASURED if any(row["of"] == measures for row in rows)]
    frame = pl.DataFrame(rows)
    plot = new_plot(
        height=120 + _LINE * len(rows), barmode="group", yaxis=category_axis(),
        xaxis=quiet_axis("signed error [%]", zeroline=True, zerolinecolor=GRID),
    )  # fmt: skip
    for measures in shown:
        mine = [row for row in rows if row["of"] == measures]
        plot.add_bar(
            y=[label(row["row"]) for row in mine], x=[row["error"] for row in mine], orientation="h",
            name=MEASURED[measures][0], marker={"color": MEASURED[measures][1]}, showlegend=len(shown) > 1,
            customdata=[[said(measures, row["measured"]), said(measures, row["predicted"])] for row in mine],
            hovertemplate="%{y}<br>measured %{customdata[0]}, predicted %{customdata[1]}<br><b>%{x:+.1f}%</b>"
            "<extra></extra>",
            error_x={
                "type": "data", "symmetric": False, "thickness": 1,
                "array": [row["high"] - row["error"] for row in mine],
                "arrayminus": [row["error"] - row["low"] for row in mine],
            } if any(row["high"] > row["low"] for row in mine) else None,
        )  # fmt: skip
    words = "Error of each prediction: to the right it is larger (slower) than measured."
    words += " Nothing is fitted to a row." if table["is"] == "predicted" else " Link classes were fitted on such rows."
    words += " " + " ".join(_summary(measures, one) for measures, one in table["summary"].items())
    if any(row["high"] > row["low"] for row in rows):
        words += " Thin lines span the possible readings of details that the source omits."
    return Figure(
        file_safe("errors", table["name"]), f"{table['name']}: {table['title']}", words, frame, plot,
        lambda axes: _paper_errors(axes, frame),
    )  # fmt: skip


def _summary(measures: str, one: Mapping[str, Any]) -> str:
    return (
        f"{MEASURED[measures][0].capitalize()}: {one['num_rows']} rows, mean absolute error"
        f" {one['mean_absolute']:.1f}%, mean signed {one['mean_signed']:+.1f}%, worst {one['worst']:+.1f}%."
    )


def _paper_errors(axes: matplotlib.axes.Axes, frame: polars.DataFrame) -> None:
    names = [
        f"{row} ({of})" if frame["of"].n_unique() > 1 else row for row, of in frame.select("row", "of").iter_rows()
    ]
    places = list(range(len(names)))
    axes.barh(places, frame["error"].to_list(), color=[MEASURED[of][1] for of in frame["of"]])
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.axvline(0, color="#7F7F7F", linewidth=0.8)
    axes.set_xlabel("signed error [%]")


def parts_of(row: Mapping[str, Any]) -> dict[str, float]:
    """Return what a predicted iteration consists of [s]: op families, exposed communication, bubble and host."""
    parts = dict(row["compute_by_family_s"]) | {f"exposed {kind}": value for kind, value in row["exposed_s"].items()}
    return {
        name: value for name, value in (parts | {"bubble": row["bubble_s"], "host": row["host_s"]}).items() if value
    }


def _parts_figure(table: Mapping[str, Any]) -> Figure:
    import polars as pl

    parts = {row["name"]: parts_of(row) for row in table["rows"]}
    looks = part_looks(part for found in parts.values() for part in found)
    rows = table["rows"]
    shares = {part: [100 * parts[row["name"]].get(part, 0.0) / row["iteration_s"] for row in rows] for part in looks}
    names = [row["name"] for row in table["rows"]]
    legend = _LEGEND_LINE * math.ceil(len(looks) / 2)
    plot = new_plot(
        height=100 + legend + _LINE * len(names), barmode="stack", yaxis=category_axis(),
        xaxis=quiet_axis("share of the predicted iteration [%]", range=[0, 100]),
    )  # fmt: skip
    for part, (said_as, colour) in looks.items():
        plot.add_bar(
            y=[label(name) for name in names], x=shares[part], orientation="h", name=said_as,
            marker={"color": colour},
            hovertemplate=f"%{{y}}<br>{said_as}: <b>%{{x:.1f}}%</b><extra></extra>",
        )  # fmt: skip

    def paper(axes: matplotlib.axes.Axes) -> None:
        left = [0.0] * len(names)
        for part, (said_as, colour) in looks.items():
            axes.barh(names, shares[part], left=left, label=said_as, color=colour)
            left = [a + b for a, b in zip(left, shares[part], strict=True)]
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.set_xlabel("share of the predicted iteration [%]")
        axes.legend(fontsize="x-small", ncols=3)

    words = (
        "What the predicted iteration of each row consists of, mean over devices: compute by op family, communication"
    )
    words += " that devices wait for, the pipeline's bubble, launches and waiting for the host."
    frame = pl.DataFrame({"row": names, **shares})
    title = f"{table['name']}: where the predicted time goes"
    return Figure(file_safe("parts", table["name"]), title, words, frame, plot, paper)
