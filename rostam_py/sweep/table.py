"""The table of a sweep: one row per point, in point order, axis labels first."""

from collections.abc import Sequence
from typing import Any

from rostam_py.errors import InternalError
from rostam_py.spec.sweep_options import DEFAULT_DETAILS
from rostam_py.sweep.columns import column_types, polars_schema
from rostam_py.sweep.points import Point

# What a point is compared at, with its numbers of failed parts; of its other settings the fastest counts.
_PLACE = (
    "model", "fabric", "accelerator", "accelerator_bandwidth_bytes_per_s", "num_accelerators", "routing",
)  # fmt: skip


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


def chosen_points(table: Any, count: int | None) -> list[str]:
    """Return keys of points worth pictures: one per fabric at its most stressed, then one per model, then the next.

    Model: of the settings at one place (model, fabric, bandwidth, size, routing, failures) the fastest counts; of the
        places the one that exposes the largest share of its iteration as communication is the most stressed, in a mix
        the one of the largest slow-down. Fabrics that idle say little about themselves.
    Args: count: of keys; None takes one per fabric, at most ``DEFAULT_DETAILS``.
    """
    import polars as pl

    done = table.filter(pl.col("status") == "ok")
    if count == 0 or done.is_empty():
        return []
    goal = pl.coalesce("time_to_accuracy_s", pl.col("iteration_time_s") / pl.col("global_batch"))
    stress = pl.coalesce(pl.col("exposed_s") / pl.col("iteration_time_s"), "slowdown_max")
    ranked = done.with_columns(goal.alias("_goal"), stress.alias("_stress")).sort("_goal", "index", nulls_last=True)
    place = [*_PLACE, *(name for name in table.columns if name.startswith("failed_"))]
    ranked = ranked.filter(pl.col("_goal").is_null() | pl.struct(place).is_first_distinct())
    ranked = ranked.sort("_stress", "_goal", "index", descending=[True, False, False], nulls_last=True)
    fabrics = ranked.unique("fabric", keep="first", maintain_order=True)["key"].to_list()
    models = ranked.unique("model", keep="first", maintain_order=True)["key"].to_list()
    keys = list(dict.fromkeys([*fabrics, *models, *ranked["key"].to_list()]))
    return keys[: min(len(fabrics), DEFAULT_DETAILS) if count is None else count]
