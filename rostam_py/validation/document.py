"""The document of a validation: JSON-ready errors of every row, their summaries, and what was left out and why."""

import dataclasses
import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rostam_py import __version__
from rostam_py.documents import write_whole
from rostam_py.validation.held_out import HeldOutErrors
from rostam_py.validation.outcome import Outcome
from rostam_py.validation.quantities import MEASURES
from rostam_py.validation.ratios import judged_document, ratios_of
from rostam_py.validation.rows import Table, overrides_of

FILE, VERSION = "validation.json", 2


def document_of(found: Iterable[tuple[Table, Outcome]], *, is_whole: bool = True) -> dict[str, Any]:
    """Return the document of predicted rows, tables in the order in which they come.

    Args: is_whole: no rows follow: all of them are judged together, too.
    """
    outcomes: dict[str, tuple[Table, list[Outcome]]] = {}
    every = list(found)
    for table, outcome in every:
        outcomes.setdefault(table.name, (table, []))[1].append(outcome)
    return {
        "version": VERSION,
        "rostam_version": __version__,
        "all": judged_document(ratios_of(every).jobs) if is_whole else {},
        "tables": [table_document(table, rows) for table, rows in outcomes.values()],
    }


def table_document(table: Table, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return a table's rows and the summary of its errors."""
    return {
        "name": table.name,
        "title": table.title,
        "source": table.source,
        "rule": table.rule,
        "is": table.kind,
        "bounds": table.bounds,
        "summary": _summaries(outcomes),
        "held_out": [
            {"name": one.row.name, **dataclasses.asdict(one.row.held_out)} for one in outcomes if one.row.held_out
        ],
        "rows": [row_document(one) for one in outcomes if one.compared],
        "failed": [{"name": one.row.name, "reason": one.failed} for one in outcomes if one.failed],
        "not_modelled": [{"name": one.row.name, "reason": one.row.why_not} for one in outcomes if one.row.why_not],
    }


def _summaries(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    stated = [one.row.held_out for one in outcomes if one.row.held_out]
    if stated:
        return {"time": pooled(stated)}
    return {what: summary(errors) for what in MEASURES if (errors := errors_of(outcomes, what))}


def document_text(document: dict[str, Any]) -> str:
    """Return a document as JSON; equal documents give equal text."""
    return json.dumps(document, indent=2) + "\n"


def write_document(folder: Path, document: dict[str, Any]) -> None:
    """Write a folder's validation.json, which ``rostam report`` draws."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / FILE, document_text(document).encode())


def errors_of(outcomes: Iterable[Outcome], measures: str) -> list[float]:
    """Return the signed errors of one of MEASURES [%]."""
    return [one.compared[measures].error for one in outcomes if measures in one.compared]


def summary(errors: Sequence[float]) -> dict[str, float]:
    """Return mean absolute, mean signed and worst error [%], and how many there are."""
    return {
        "num_rows": len(errors),
        "mean_absolute": statistics.fmean(map(abs, errors)),
        "mean_signed": statistics.fmean(errors),
        "worst": max(errors, key=abs),
    }


def beyond_bounds(document: dict[str, Any]) -> list[str]:
    """Return in words which tables of a document exceed their bounds, have none, or have rows that failed."""
    found = []
    for table in document["tables"]:
        found += [f"{table['name']}/{row['name']} failed: {row['reason']}" for row in table["failed"]]
        for measures, one in table["summary"].items():
            bounds = table["bounds"].get(measures)
            if bounds is None:
                found.append(f"{table['name']}: errors of {measures} have no bounds")
                continue
            for what, error in (("mean", one["mean_absolute"]), ("worst", abs(one["worst"]))):
                if error > bounds[what]:
                    found.append(
                        f"{table['name']}: the {what} absolute error of {measures} is {error:.1f}%, its bound"
                        f" {bounds[what]}%"
                    )
    return found


def pooled(stated: Sequence[HeldOutErrors]) -> dict[str, float]:
    """Return the same of all measurements that several calibrations judged."""
    count = sum(one.num_judged for one in stated)
    return {
        "num_rows": count,
        "mean_absolute": sum(one.absolute * one.num_judged for one in stated) / count,
        "mean_signed": sum(one.signed * one.num_judged for one in stated) / count,
        "worst": max((one.worst for one in stated), key=abs),
    }


def row_document(outcome: Outcome) -> dict[str, Any]:
    """Return one predicted row."""
    row = outcome.row
    return {
        "name": row.name,
        "line": row.line,
        "assumed": row.assumed,
        "chosen": outcome.chosen,
        "compared": {
            measures: dataclasses.asdict(one) | {"error": one.error} for measures, one in outcome.compared.items()
        },
        "spread": outcome.spread,
        "mfu": outcome.mfu,
        "mfu_causal": outcome.mfu_causal,
        "hfu": outcome.hfu,
        "iteration_s": outcome.iteration_s,
        "compute_by_family_s": outcome.families,
        "exposed_s": outcome.exposed,
        "bubble_s": outcome.bubble,
        "host_s": outcome.host,
        "overrides": overrides_of(row.keys),
    }
