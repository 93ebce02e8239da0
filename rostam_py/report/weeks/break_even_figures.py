"""Break-even: goodput against the number of spares and against the time between checkpoints, the cheapest marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import log_axis, new_plot, paper_log, quiet_axis
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import Look, label, looks, number, paper_label, time_scale
from rostam_py.report.weeks.load import WeeksData
from rostam_py.units import format_time

if TYPE_CHECKING:
    import matplotlib.axes
    import polars

_CHOSEN = "#7F7F7F"
_HOURS = 24.0


@dataclass(frozen=True)
class _Axis:
    """What a curve is over. column: of the points. factor: from it to what is drawn. chosen: that of the weeks."""

    column: str
    title: str
    factor: float
    chosen: float
    is_log: bool


def break_even_figures(data: WeeksData) -> list[Figure]:
    """Return a figure over spares and one over intervals, as far as there are curves."""
    found = data.document["break_even"]
    if not found or not found["points"]:
        return []
    own_s = data.document["checkpoint_iterations"] * data.document["iteration_s"]
    every = [row["checkpoint_iterations"] * data.document["iteration_s"] for row in found["points"]]
    scale = time_scale([own_s, *every])
    spares = _Axis("num_spares", "spare servers", 1.0, data.document["num_spares"], False)
    interval = _Axis("checkpoint_every_s", scale.title("time between checkpoints"), scale.factor, own_s, True)
    drawn = [
        _figure(data, "spares", "Goodput against spares", spares),
        _figure(data, "interval", "Goodput against the time between checkpoints", interval),
    ]
    return [figure for figure in drawn if figure is not None]


def _figure(data: WeeksData, curve: str, title: str, axis: _Axis) -> Figure | None:
    table = _table(data, curve)
    if len(table) and table[axis.column].n_unique() < 2:
        return None
    across = [axis.factor * one for one in table[axis.column]]
    margin = 0.04 * max(*across, 1.0)  # a star at the end is seen whole
    ends = [-margin, max(across) + margin]
    xaxis = log_axis(axis.title, across) if axis.is_log else quiet_axis(axis.title, range=ends)
    plot = new_plot(xaxis=xaxis, yaxis=quiet_axis("goodput [%]"))
    styles = looks(table["policy"].unique(maintain_order=True).to_list())
    for policy, look in styles.items():
        _add_line(plot, table, axis, (policy, look))
    plot.add_vline(x=axis.factor * axis.chosen, line={"color": _CHOSEN, "dash": "dot", "width": 1})
    return Figure(
        f"break-even-{curve}", title, _caption(data, table, curve), table, plot, partial(_paper, table, axis, styles)
    )


def _table(data: WeeksData, curve: str) -> polars.DataFrame:
    import polars as pl

    iteration_s, each = data.document["iteration_s"], data.per_iteration
    watts_usd = data.document["accelerator_usd_per_hour"]
    per_server = data.document["accelerators_per_server"]
    rows = []
    for row in data.document["break_even"]["points"]:
        if row["curve"] == curve:
            days = row["server_days_per_iteration"]
            hours = None if days is None else days * _HOURS * per_server / each * 1e9
            usd = None if hours is None or watts_usd is None else hours * watts_usd
            rows.append(
                {key: value for key, value in row.items() if key not in ("curve", "server_days_per_iteration")}
                | {"checkpoint_every_s": row["checkpoint_iterations"] * iteration_s}
                | {f"accelerator_hours_per_G_{data.unit}": hours, f"usd_per_G_{data.unit}": usd}
            )
    return pl.DataFrame(rows, infer_schema_length=None)


def _add_line(plot: Any, table: polars.DataFrame, axis: _Axis, line: tuple[str, Look]) -> None:
    policy, look = line
    rows = table.filter(policy=policy).sort(axis.column)
    x = (rows[axis.column] * axis.factor).to_list()
    low, high = ([100 * one for one in rows[key]] for key in ("goodput_least", "goodput_most"))
    if low != high:
        plot.add_scatter(
            x=x + x[::-1], y=high + low[::-1], fill="toself", fillcolor=look.colour, opacity=0.15, line_width=0,
            mode="lines", hoverinfo="skip", showlegend=False, legendgroup=policy,
        )  # fmt: skip
    plot.add_scatter(
        x=x, y=[100 * one for one in rows["goodput"]], mode="lines+markers", name=label(policy), legendgroup=policy,
        line={"color": look.colour, "width": 2}, marker={"symbol": look.symbol, "size": 6, "color": look.colour},
        hoverinfo="text", hovertext=[_hover(policy, row) for row in rows.to_dicts()],
    )  # fmt: skip
    best = rows.filter("is_least_cost")
    plot.add_scatter(
        x=(best[axis.column] * axis.factor).to_list(), y=[100 * one for one in best["goodput"]], mode="markers",
        showlegend=False, legendgroup=policy, hoverinfo="skip",
        marker={"symbol": "star", "size": 16, "color": look.colour, "line": {"width": 1, "color": "#FFFFFF"}},
    )  # fmt: skip


def _hover(policy: str, row: dict[str, Any]) -> str:
    said = [f"<b>{label(policy)}</b>: goodput {row['goodput']:.2%}"]
    said.append(f"{row['num_spares']} spares, a checkpoint every {format_time(row['checkpoint_every_s'])}")
    if row["goodput_least"] < row["goodput_most"]:
        said.append(f"{row['goodput_least']:.2%} to {row['goodput_most']:.2%} over draws")
    for key, value in row.items():
        if "_per_G_" in key and value is not None:
            said.append(f"{number(value)} {key.replace('_per_G_', ' for 10^9 ').replace('_', ' ')}")
    return "<br>".join(said + (["<b>least cost</b>"] if row["is_least_cost"] else []))


def _caption(data: WeeksData, table: polars.DataFrame, curve: str) -> str:
    found = data.document["break_even"]
    best = table.filter("is_least_cost").to_dicts()
    where = "num_spares" if curve == "spares" else "checkpoint_every_s"
    said = ", ".join(f"{row['policy']} {row[where] if curve == 'spares' else format_time(row[where])}" for row in best)
    words = [f"Stars mark the fewest accelerator-hours, spares included, for each useful iteration: {said}."]
    words.append("The dotted line is what the weeks above were replayed with.")
    if found["is_drawn"] and found["num_traces"] > 1:
        words.append(f"Means of {found['num_traces']} draws of the faults; bands span them.")
    elif found["is_drawn"]:
        words.append("One draw of the faults.")
    else:
        words.append("Recorded faults, one trace: a star may move with the next month's faults.")
    ends = [row["policy"] for row in best if _is_at_end(table.filter(policy=row["policy"])[where], row[where], curve)]
    if ends:
        words.append(f"At the end of its curve, so that one beyond it may be cheaper still: {', '.join(ends)}.")
    if found["left_out"]:
        words.append(f"Without curves: {'; '.join(f'{name}: {why}' for name, why in found['left_out'].items())}.")
    return " ".join(words)


def _is_at_end(values: polars.Series, best: float, curve: str) -> bool:
    """Tell whether a curve ends at its best value; no spares are an end that nothing lies beyond."""
    ends = {values.max()} if curve == "spares" else {values.min(), values.max()}
    return best in ends


def _paper(table: polars.DataFrame, axis: _Axis, styles: dict[str, Look], axes: matplotlib.axes.Axes) -> None:
    for policy, look in styles.items():
        rows = table.filter(policy=policy).sort(axis.column)
        x = (rows[axis.column] * axis.factor).to_list()
        low, mean, high = ([100 * one for one in rows[key]] for key in ("goodput_least", "goodput", "goodput_most"))
        axes.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)
        axes.plot(x, mean, "o-", markersize=3, color=look.colour, label=paper_label(policy))
        best = rows.filter("is_least_cost")
        axes.plot(
            (best[axis.column] * axis.factor).to_list(), [100 * one for one in best["goodput"]], "*", markersize=10,
            color=look.colour,
        )  # fmt: skip
    axes.axvline(axis.factor * axis.chosen, color=_CHOSEN, linestyle=":", linewidth=0.8)
    if axis.is_log:
        paper_log(axes, "x", [axis.factor * one for one in table[axis.column]], None)
    axes.set_xlabel(axis.title)
    axes.set_ylabel("goodput [%]")
    axes.legend(fontsize="small", frameon=False)


def least_cost_rows(points: Sequence[dict[str, Any]], curve: str) -> dict[str, dict[str, Any]]:
    """Return policy -> the point of least cost of a curve."""
    return {row["policy"]: row for row in points if row["curve"] == curve and row["is_least_cost"]}
