"""Price the fat trees and tori of HammingMesh's Table II and print them beside the printed figures."""

import csv
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py.fabrics import build_fabric

EXPECTED = Path(__file__).with_name("expected.csv")


def compare() -> list[dict[str, Any]]:
    """Return name, printed and own cost [M$] and the signed difference of every row."""
    rows = []
    with EXPECTED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            fabric = build_fabric(row["fabric"], **_parameters(row["parameters"]))
            own, printed = fabric.bill_of_materials().total_usd / 1e6, float(row["printed_musd"])
            rows.append({"name": row["name"], "printed": printed, "own": own, "difference": own / printed - 1})
    return rows


def _parameters(text: str) -> dict[str, Any]:
    """Read "dims=32x32;planes=4"."""
    pairs = (part.split("=") for part in text.split(";"))
    return {key: [int(v) for v in value.split("x")] if "x" in value else int(value) for key, value in pairs}


def main() -> None:
    """Print the comparison."""
    table = Table(title="HammingMesh, Table II: cost [M$]")
    for column in ("cluster", "printed", "rostam", "difference"):
        table.add_column(column, justify="left" if column == "cluster" else "right")
    for row in compare():
        table.add_row(row["name"], f"{row['printed']:g}", f"{row['own']:.2f}", f"{row['difference']:+.1%}")
    Console().print(table)


if __name__ == "__main__":
    main()
