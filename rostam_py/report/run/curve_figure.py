"""The convergence curve behind a run's time to accuracy: published points, the fit through them, the run's batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rostam_py.report.drawing.drawing import log_axis, new_plot, paper_log
from rostam_py.report.drawing.figure import Figure
from rostam_py.report.drawing.scales import COLOURS

if TYPE_CHECKING:
    import matplotlib.axes

_STEPS = 60


def curve_figure(detail: Mapping[str, Any], head: str) -> Figure | None:
    """Return iterations over the global batch, or None for a run without a curve."""
    import polars as pl

    answer = detail["result"].get("time_to_accuracy") or {}
    points = answer.get("points")
    if not points:
        return None
    unit = answer["batch_unit"]
    here = answer["global_batch"] * (answer.get("tokens_per_sample") or 1)
    batches, low, mean, high = (list(column) for column in zip(*points, strict=True))
    line = _line(answer.get("fitted"), batches)
    words = f"Iterations to {answer['target']} over the global batch, from the curve {answer['convergence']}: published"
    words += f" points, their runs' spread as bars. The cross is this run: {answer['iterations']:,.0f} iterations at"
    words += f" {here:,} {unit} ({answer['basis']})."
    if line:
        floor, critical = answer["fitted"]
        worst = max(abs(floor * (1 + critical / batch) / steps - 1) for batch, steps in zip(batches, mean, strict=True))
        words += f" The line is the fit S = {floor:,.0f} (1 + {critical:,.0f} / B) by least relative squares; it is off"
        words += f" by {worst:.1%} at most from a point."
    if answer["is_extrapolated"]:
        words += " EXTRAPOLATED: the batch lies outside the points."
    across, up = [*batches, here], [*low, *high, answer["iterations"]]
    plot = new_plot(xaxis=log_axis(f"global batch [{unit}]", across), yaxis=log_axis("iterations", up))
    if line:
        plot.add_scatter(x=line[0], y=line[1], mode="lines", name="fitted", line={"color": COLOURS[0], "width": 2})
    below = [m - one for m, one in zip(mean, low, strict=True)]
    above = [one - m for m, one in zip(mean, high, strict=True)]
    ends = {"array": above, "arrayminus": below, "symmetric": False}
    mode = "markers" if line else "lines+markers"
    plot.add_scatter(x=batches, y=mean, error_y=ends, mode=mode, name="published", marker={"color": COLOURS[1]})
    mark = {"symbol": "x", "size": 12, "color": COLOURS[2]}
    plot.add_scatter(x=[here], y=[answer["iterations"]], mode="markers", name="this run", marker=mark)

    def paper(axes: matplotlib.axes.Axes) -> None:
        if line:
            axes.plot(*line, color=COLOURS[0], label="fitted")
        axes.errorbar(batches, mean, [below, above], fmt="o" if line else "o-",
                      color=COLOURS[1], label="published")  # fmt: skip
        axes.plot([here], [answer["iterations"]], "x", color=COLOURS[2], markersize=10, zorder=9, label="this run")
        paper_log(axes, "x", across, None)
        paper_log(axes, "y", up, None)
        axes.set_xlabel(f"global batch [{unit}]")
        axes.set_ylabel("iterations")
        axes.legend()

    table = pl.DataFrame({"batch": batches, "least": low, "mean": mean, "most": high})
    return Figure(f"{head}convergence", "Iterations to accuracy over the batch", words, table, plot, paper)


def _line(fitted: list[float] | None, batches: list[int]) -> tuple[list[float], list[float]] | None:
    """Return the fit between the first and the last point."""
    if not fitted:
        return None
    floor, critical = fitted
    across = [batches[0] * (batches[-1] / batches[0]) ** (k / (_STEPS - 1)) for k in range(_STEPS)]
    return across, [floor * (1 + critical / batch) for batch in across]
