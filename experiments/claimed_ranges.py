"""Claims of a paper as ranges: expected.csv with the columns claim, printed, low, high and unit."""

import csv
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from rostam_py.reproduction import Figure

Row = dict[str, str]


def read_claims(path: Path) -> dict[str, Row]:
    """Return the rows of expected.csv by claim."""
    with path.open(encoding="utf-8") as file:
        return {row["claim"]: row for row in csv.DictReader(file)}


def claimed(name: str, row: Row | None, own: float, digits: int = 1) -> Figure:
    """Return our value beside a claim, and how far it lies beyond its range; with nothing printed, in per cent."""
    if row is None:
        return Figure(name=name, published="", ours=f"{own:.{digits}f}", unit="%")
    own = round(own, digits)
    low, high = (float(row[key]) if row[key] else end for key, end in (("low", -np.inf), ("high", np.inf)))
    short = min(own - low, 0.0) or max(own - high, 0.0)
    return Figure(
        name=name, published=row["printed"], ours=f"{own:.{digits}f}",
        difference=f"{short:+.{digits}f}" if short else "", unit=row["unit"], is_met=low <= own <= high,
    )  # fmt: skip


def print_claims(title: str, figures: list[Figure]) -> None:
    """Print figures as a table."""
    table = Table(title=title)
    for column in ("claim: job sizes", "printed", "rostam", "beyond", "unit"):
        table.add_column(column, justify="left" if column == "claim: job sizes" else "right")
    for one in figures:
        table.add_row(one.name, one.published, one.ours, one.difference, one.unit)
    Console().print(table)
