"""The page's table of points: quantities as numbers, a filter per column, CSV; by itables (DataTables, embedded)."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rostam_py.errors import ConfigError
from rostam_py.report.drawing.scales import Scale, bandwidth_scale, size_scale, time_scale
from rostam_py.report.sweep.load import SweepData
from rostam_py.report.sweep.reading import Reading
from rostam_py.units import parse_bandwidth, parse_size, parse_time

if TYPE_CHECKING:
    import polars

# Rows and bytes of JSON above which only the best points are embedded: the browser must stay quick, the page small.
MOST_ROWS = 5000
MOST_BYTES = 1_000_000
_NEVER = {"index", "mode", "jobs", "notes", "line", "time_per_sample_s"}
_ALWAYS = {"status", "error_type", "error"}
_LONGEST_TEXT = 120


@dataclass(frozen=True)
class PointsTable:
    """What the page shows of the points.

    options: for the script; its "numbers" are the places of columns that hold numbers. words: shown and omitted rows.
    """

    options: dict[str, Any]
    words: str
    num_shown: int


def points_table(data: SweepData) -> PointsTable:
    """Return the table, the best points first where not all fit."""
    ordered = _ordered(data)
    first = [
        "status",
        "times_the_best",
        *data.axes,
        "strategy",
        "global_batch",
        "time_to_accuracy_s",
        "iteration_time_s",
    ]
    nested = [key for key in data.axes if ordered[key].dtype.is_nested()]
    ordered = ordered.with_columns(data.labels_of(ordered, key).alias(f"{key} given") for key in nested)
    first += [f"{key} given" for key in nested]
    view, constants = _readable(ordered, [*first, "slowdown_mean", "slowdown_max"], data.axes)
    num_shown = min(len(view), MOST_ROWS)
    options = _options(view.head(num_shown))
    while len(options["data_json"]) > MOST_BYTES:
        num_shown = int(num_shown * min(0.95, MOST_BYTES / len(options["data_json"])))
        options = _options(view.head(num_shown))
    words = f"{num_shown:,} of {len(view):,} points are shown, to four digits"
    if num_shown < len(view):
        words += ": those nearest to the best of their model. The others would make this page too large"
    words += "; points.csv and points.parquet in the sweep's folder hold all of them, in full."
    words += " Above each column is its filter: of numbers such as >= 400, < 2 or 400..1600, of text a substring."
    if constants:
        words += (
            " The same at every finished point: "
            + ", ".join(f"{name} {value}" for name, value in constants.items())
            + "."
        )
    return PointsTable(options, words, num_shown)


@cache
def bundle() -> tuple[str, str]:
    """Return the library's JavaScript module and its style sheet."""
    import itables

    folder = Path(itables.__file__).parent / "html"
    return tuple((folder / f"dt_bundle.{kind}").read_text(encoding="utf-8") for kind in ("js", "css"))  # type: ignore[return-value]


def _ordered(data: SweepData) -> polars.DataFrame:
    """Return the points by how near they are to the best of their model, failed ones last."""
    import polars as pl

    table = data.table
    ratios = [
        points.rows.select("index", (pl.col(points.goal) / pl.col(points.goal).min()).alias("times_the_best"))
        for points in Reading(data).models
    ]
    if not ratios:
        order = [name for name in ("slowdown_mean", "index") if name in table.columns]
        return table.sort(pl.col("status") != "ok", *order, nulls_last=True)
    table = table.join(pl.concat(ratios), on="index", how="left", maintain_order="left")
    return table.sort("times_the_best", "index", nulls_last=True)


def _readable(
    table: polars.DataFrame, first: list[str], axes: Collection[str]
) -> tuple[polars.DataFrame, dict[str, str]]:
    """Return the columns that say something, with units in their names, and those that are the same everywhere."""
    import polars as pl

    columns, constants = [], {}
    num_failed = int((table["status"] != "ok").sum())
    for name in dict.fromkeys([*(name for name in first if name in table.columns), *table.columns]):
        values = table[name]
        if name in _NEVER or values.dtype.is_nested() or values.null_count() == len(values):
            continue
        known = values.drop_nulls()
        is_constant = values.null_count() <= num_failed and known.n_unique() == 1
        if len(known) > 1 and is_constant and name not in _ALWAYS:
            constants[name] = _constant(name, known)
            continue
        columns.append(_column(name, values, name in axes))
    return _without_twins(pl.DataFrame(columns)), constants


def _without_twins(view: polars.DataFrame) -> polars.DataFrame:
    """Leave out a column that holds an axis once more: "accelerator_bandwidth" of "fabric.accelerator_bandwidth"."""

    def is_twin(name: str, axis: str) -> bool:
        known = view.filter(view[name].is_not_null())
        return known[name].dtype == known[axis].dtype and bool((known[name] == known[axis]).all())

    pairs = [(axis.rpartition(".")[2], axis) for axis in view.columns if "." in axis]
    return view.drop([name for name, axis in pairs if name in view.columns and is_twin(name, axis)])


def _scale(name: str, values: polars.Series) -> tuple[str, Scale] | None:
    """Return a column's name without its unit, and the unit that suits its values."""
    scales = {"_bytes_per_s": bandwidth_scale, "_bytes": size_scale, "_s": time_scale}
    if not values.dtype.is_numeric() or name in ("samples_per_s", "tokens_per_s"):
        return None
    suffix = next((one for one in scales if name.endswith(one)), None)
    if suffix is None:
        return (name, size_scale(values.to_list())) if name == "bytes_sent" else None
    return name.removesuffix(suffix), scales[suffix](values.drop_nulls().to_list())


def _quantity(values: polars.Series) -> tuple[Scale, polars.Series] | None:
    """Return the SI values of labels such as "400 Gb/s", and the unit that suits them; None if one is no such label.

    Labels of an axis are text; as numbers they sort and filter as quantities. "null" stands for none.
    """
    import polars as pl

    if values.dtype != pl.String:
        return None
    texts = [text for text in values.unique().to_list() if text not in (None, "null")]
    for parse, scale in ((float, None), (parse_bandwidth, bandwidth_scale), (parse_time, time_scale),
                         (parse_size, size_scale), (_percents, None)):  # fmt: skip
        try:
            known = {text: float(parse(text)) for text in texts}
        except (ValueError, ConfigError):
            continue
        if not known or not all(map(math.isfinite, known.values())):
            return None
        numbers = values.replace_strict(known, default=None, return_dtype=pl.Float64)
        unit = scale(known.values()) if scale else Scale("%" if parse is _percents else "", 1.0)
        return unit, numbers
    return None


def _percents(text: str) -> float:
    if not text.endswith("%"):
        raise ValueError(text)
    return float(text[:-1])


def _constant(name: str, values: polars.Series) -> str:
    scaled = _scale(name, values)
    if scaled:
        return f"{values[0] * scaled[1].factor:.4g} {scaled[1].unit}"
    return f"{values[0]:.4g}" if values.dtype.is_float() else str(values[0])


def _column(name: str, values: polars.Series, is_axis: bool) -> polars.Series:
    import polars as pl

    quantity = _quantity(values) if is_axis else None
    if quantity:
        scale, values = quantity
        name = f"{name} [{scale.unit}]" if scale.unit else name
        values = values * scale.factor
    elif scaled := _scale(name, values):
        name, scale = f"{scaled[0]} [{scaled[1].unit}]", scaled[1]
        values = values * scale.factor
    if values.dtype.is_float():
        values = values.round_sig_figs(4)
        known = values.drop_nulls()
        if len(known) and (known == known.round(0)).all() and known.abs().max() < 2**53:  # type: ignore[operator]
            values = values.cast(pl.Int64)
    if name == "key":
        values = values.str.head(12)
    elif not values.dtype.is_numeric():
        values = values.cast(pl.String).str.head(_LONGEST_TEXT)
    return values.alias(name)


def _options(view: polars.DataFrame) -> dict[str, Any]:
    """Return the options of the library's ITable, JSON-ready."""
    from itables.javascript import get_itable_arguments

    arguments: Any = get_itable_arguments(
        view, table_id="points-table", column_filters="footer", show_dtypes=False, maxBytes=0, maxColumns=0,
        format_floats_in_python=False, pageLength=15, order=[],
        text_in_header_can_be_selected=False, lengthMenu=[15, 50, 200, 1000],
        buttons=["pageLength", {"extend": "csvHtml5", "text": "CSV of these rows", "filename": "points"},
                 {"extend": "colvis", "text": "columns"}],
        layout={"topStart": "buttons", "topEnd": "search", "bottomStart": "info", "bottomEnd": "paging"},
    )  # fmt: skip
    # The library escapes cells, but not the names of filtered columns: the frame is ours, filters in its foot.
    names = "".join(f"<th>{html.escape(name)}</th>" for name in view.columns)
    frame = f"<table><thead><tr>{names}</tr></thead><tfoot><tr>{names}</tr></tfoot></table>"
    ours: dict[str, Any] = {
        "classes": ["display", "compact", "nowrap"],
        "style": {"width": "100%"},
        "table_html": frame,
    }
    ours["numbers"] = [place for place, name in enumerate(view.columns) if view[name].dtype.is_numeric()]
    ours["columnDefs"] = [
        *arguments.get("columnDefs", []),
        {"targets": ours["numbers"], "type": "num", "className": "dt-right"},
    ]
    return json.loads(json.dumps(arguments | ours))
