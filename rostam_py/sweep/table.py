"""The table of a sweep: one row a point, in point order, axis labels first."""

from collections.abc import Sequence
from typing import Any

from rostam_py.errors import InternalError
from rostam_py.sweep.columns import column_types, polars_schema
from rostam_py.sweep.points import Point


def sweep_table(points: Sequence[Point], axis_keys: Sequence[str], stored: Any) -> Any:
    """Return the table as a polars frame.

    Args: stored: the store's frame. Columns: index, one for each axis, and those of ``column_types``. An axis' column
        holds its labels as text; one that has the name of a column of numbers holds these.
    Raises: InternalError if a point is not stored: a sweep loses nothing.
    """
    import polars as pl

    types = column_types()
    labels = [key for key in dict.fromkeys(["fabric", *axis_keys]) if types.get(key, "str") == "str"]
    data = {
        "index": [point.index for point in points],
        "key": [point.key for point in points],
        **{name: [point.labels.get(name) for point in points] for name in labels},
    }
    schema = {"index": pl.Int64, "key": pl.String, **dict.fromkeys(labels, pl.String)}
    own = [name for name in polars_schema() if name not in labels]
    table = pl.DataFrame(data, schema=schema).join(stored.select(own), on="key", how="left", maintain_order="left")
    if missing := table["status"].null_count():
        raise InternalError(f"{missing} of {len(points)} points are not in the store")
    first = ["index", *axis_keys, *(["fabric"] if "fabric" not in axis_keys else [])]
    return table.select([*first, *(name for name in types if name not in first)]).rechunk()


def chosen_points(table: Any, count: int) -> list[str]:
    """Return keys of points worth pictures: the best of each model, of each fabric, and the next ones.

    Of mixes the worst come first.
    """
    import polars as pl

    done = table.filter(pl.col("status") == "ok")
    if count == 0 or done.is_empty():
        return []
    goal = pl.coalesce(
        "time_to_accuracy_s", pl.col("iteration_time_s") / pl.col("global_batch"), -pl.col("slowdown_max")
    )
    ranked = done.with_columns(goal.alias("_goal")).sort("_goal", "index", nulls_last=True)
    keys: dict[str, None] = {}
    for column in ("model", "fabric"):
        keys.update(dict.fromkeys(ranked.unique(column, keep="first", maintain_order=True)["key"].to_list()))
    keys.update(dict.fromkeys(ranked["key"].to_list()))
    return list(keys)[:count]
