"""Engines side by side: where a sweep has the axis fidelity, by how much each point differs from the first engine's.

Example:
    with_differences(table, points, axes)[OVER_FIRST]  # 0.0 at fidelity=flow, 0.031 at packet: 3.1% longer
"""

from collections.abc import Sequence
from typing import Any

from rostam_py.spec.sweep_options import OVER_FIRST
from rostam_py.sweep.axes import Axis
from rostam_py.sweep.points import Point

AXIS = "fidelity"
_TIMES = ("iteration_time_s", "all_reduce_mean_s")  # of one job, and of a mix


def with_differences(table: Any, points: Sequence[Point], axes: Sequence[Axis]) -> Any:
    """Return a table with the column over_first_fidelity, or as it is without an axis fidelity of several engines.

    Model: a point's iteration time (in a mix the mean all-reduce) over that of the point which differs in its engine
        only and has the axis' first one, less 1; null where either has no time.
    Args:
        table: of ``sweep_table``, a row for each point.
        points: those of the table, in its order.
        axes: of the sweep.
    """
    import polars as pl

    engines = next((axis.values for axis in axes if axis.key == AXIS), [])
    if len(engines) < 2:
        return table
    times = table.select(pl.coalesce(*_TIMES))[_TIMES[0]].to_list()
    places = [tuple((key, label) for key, label in point.labels.items() if key != AXIS) for point in points]
    first = {
        place: time
        for place, point, time in zip(places, points, times, strict=True)
        if point.labels[AXIS] == engines[0].label and time
    }
    over = [
        time / first[place] - 1 if time is not None and place in first else None
        for place, time in zip(places, times, strict=True)
    ]
    at = table.columns.index(_TIMES[0]) + 1
    return table.insert_column(at, pl.Series(OVER_FIRST, over, pl.Float64))
