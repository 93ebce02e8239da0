"""Boxes by job size: the quartiles, whiskers from the 5th to the 95th percentile, a mark at the mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.scales import number

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

SAID = (
    "A box spans the middle half of the jobs of a size, with a line at the median; whiskers go from the 5th to the 95th"
    " percentile, and the diamond is the mean."
)


def add_boxes(plot: Any, table: polars.DataFrame, look: tuple[str, str], factor: float, unit: str) -> None:
    """Draw a box for each row of ``spread_by_size``. Args: look: name and colour. factor: to what is drawn, in unit."""
    name, colour = look
    values = {key: [factor * one for one in table[key]] for key in ("p5", "p25", "median", "p75", "p95", "mean")}
    sizes = table["accelerators"].to_list()
    plot.add_box(
        x=sizes, lowerfence=values["p5"], q1=values["p25"], median=values["median"], q3=values["p75"],
        upperfence=values["p95"], name=name, line={"color": colour, "width": 1.5}, hoverinfo="skip",
        offsetgroup=name, legendgroup=name, showlegend=True,
    )  # fmt: skip
    plot.add_scatter(
        x=sizes, y=values["mean"], mode="markers", name=name, legendgroup=name, offsetgroup=name, showlegend=False,
        marker={"symbol": "diamond", "size": 9, "color": colour, "line": {"width": 1, "color": "#FFFFFF"}},
        hoverinfo="text", hovertext=[_hover(name, row, factor, unit) for row in table.to_dicts()],
    )  # fmt: skip


def _hover(name: str, row: dict[str, Any], factor: float, unit: str) -> str:
    said = [f"<b>{name}</b>, {row['num_jobs']:,} jobs of {row['accelerators']} accelerators"]
    said += [
        f"{key} {number(factor * row[key])} {unit}".strip() for key in ("mean", "median", "p5", "p25", "p75", "p95")
    ]
    return "<br>".join(said)


def paper_boxes(axes: matplotlib.axes.Axes, tables: dict[str, tuple[polars.DataFrame, str]], factor: float) -> None:
    """Draw boxes on matplotlib axes, side by side. Args: tables: name -> (table, colour)."""
    sizes = list(dict.fromkeys(one for table, _ in tables.values() for one in table["accelerators"]))
    width = 0.7 / len(tables)
    for turn, (name, (table, colour)) in enumerate(tables.items()):
        stats = [
            {"whislo": factor * row["p5"], "q1": factor * row["p25"], "med": factor * row["median"],
             "q3": factor * row["p75"], "whishi": factor * row["p95"], "mean": factor * row["mean"]}
            for row in table.to_dicts()
        ]  # fmt: skip
        shift = (turn - (len(tables) - 1) / 2) * width
        line = {"color": colour}
        axes.bxp(
            stats, positions=[sizes.index(one) + shift for one in table["accelerators"]], widths=0.9 * width,
            showfliers=False, showmeans=True, manage_ticks=False, boxprops=line, medianprops=line, whiskerprops=line,
            capprops=line, meanprops={"marker": "D", "markersize": 4, "markerfacecolor": colour, "markeredgewidth": 0},
        )  # fmt: skip
        axes.plot([], [], color=colour, label=name)
    axes.set_xticks(range(len(sizes)), sizes, rotation=45 if len(sizes) > 6 else 0)
    axes.set_xlabel("accelerators of a job")
