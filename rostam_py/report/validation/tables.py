"""Tables and first sentences of a validation's page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rostam_py.report.drawing.drawing import file_safe
from rostam_py.report.page.page import PlainTable
from rostam_py.report.validation.figures import MEASURED, parts_of, said
from rostam_py.units import format_share


def validation_headline(document: Mapping[str, Any]) -> list[str]:
    """Return a sentence on each kind of measurement: how many rows, and how far predictions are off."""
    sentences = []
    for measures, (words, _) in MEASURED.items():
        errors = [
            row["compared"][measures]["error"]
            for table in document["tables"] if table["is"] == "predicted"
            for row in table["rows"] if measures in row["compared"]
        ]  # fmt: skip
        if errors:
            mean = sum(map(abs, errors)) / len(errors)
            sentences.append(
                f"{words.capitalize()}: {len(errors)} measured rows, predicted with a mean absolute error of"
                f" {mean:.1f}%, the worst of {max(errors, key=abs):+.1f}%."
            )
    left = sum(len(table["not_modelled"]) for table in document["tables"])
    return [*sentences, *([f"{left} more rows need unmodelled features; they are listed."] if left else [])]


def validation_tables(document: Mapping[str, Any]) -> list[PlainTable]:
    """Return a summary of all tables, the rows of each, and which are not modelled."""
    tables = document["tables"]
    held_out = [_held_out(table) for table in tables if table["held_out"]]
    return [_summary(document), *held_out, *(_rows(table) for table in tables if table["rows"]), *_left_out(document)]


def _summary(document: Mapping[str, Any]) -> PlainTable:
    rows = []
    for table in document["tables"]:
        for measures, one in table["summary"].items():
            errors = (f"{one['mean_absolute']:.1f}", f"{one['mean_signed']:+.1f}", f"{one['worst']:+.1f}")
            rows.append([table["name"], table["is"], measures, str(one["num_rows"]), *errors])
    columns = ["table", "is", "of", "rows", "mean absolute [%]", "mean signed [%]", "worst [%]"]
    caption = (
        "Signed errors: + is predicted slower, or larger, than measured. Held out: kernels and collectives that"
        " constants were not fitted on; predicted: whole steps, and what they hold, nothing of which was fitted."
    )
    return PlainTable("summary", "Errors by table", columns, rows, caption)


def _held_out(table: Mapping[str, Any]) -> PlainTable:
    rows = [
        [one["name"], str(one["num_fitted"]), str(one["num_judged"]), f"{one['absolute']:.1f}", f"{one['signed']:+.1f}",
         f"{one['worst']:+.0f}", "missed" if one["is_miss"] else "held"]
        for one in table["held_out"]
    ]  # fmt: skip
    columns = ["what", "fitted", "judged", "mean absolute [%]", "mean signed [%]", "worst [%]", "rule"]
    caption = f"Source: {table['source']}. Rule: {table['rule']}"
    return PlainTable(file_safe("held-out", table["name"]), f"{table['name']}: held out", columns, rows, caption)


def _rows(table: Mapping[str, Any]) -> PlainTable:
    rows = []
    for row in table["rows"]:
        shares = {name: seconds / row["iteration_s"] for name, seconds in parts_of(row).items() if row["iteration_s"]}
        where = ", ".join(f"{name} {share:.1%}" for name, share in shares.items() if share >= 0.005)
        for measures, one in row["compared"].items():
            rows.append([
                row["name"], said(measures, one["measured"]), said(measures, one["predicted"]), f"{one['error']:+.1f}",
                *(format_share(row.get(name)) for name in ("mfu", "mfu_causal", "hfu")),
                row["chosen"], where if measures == "time" else "",
            ])  # fmt: skip
    columns = [
        "row", "measured", "predicted", "error [%]", "MFU", "causal MFU", "HFU", "chosen",
        "where the predicted time goes",
    ]  # fmt: skip
    caption = f"Source: {table['source']}. Rule: {table['rule']}"
    return PlainTable(file_safe("rows", table["name"]), f"{table['name']}: rows", columns, rows, caption)


def _left_out(document: Mapping[str, Any]) -> list[PlainTable]:
    rows = [
        [table["name"], one["name"], one["reason"]]
        for table in document["tables"] for one in (*table["not_modelled"], *table["failed"])
    ]  # fmt: skip
    if not rows:
        return []
    columns = ["table", "row", "why"]
    return [PlainTable("not-modelled", "Rows that are not predicted", columns, rows, "They need unmodelled features.")]
