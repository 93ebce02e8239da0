"""Price the fabrics of HammingMesh's Table II and print them next to the printed figures."""

import csv
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py.fabrics import build_fabric

EXPECTED = Path(__file__).with_name("expected.csv")


def compare() -> list[dict[str, Any]]:
    """Return name, printed and own cost [M$] and the signed difference of every row; None where none is printed."""
    rows = []
    with EXPECTED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            fabric = build_fabric(row["fabric"], **_parameters(row["parameters"]))
            own = fabric.bill_of_materials().total_usd / 1e6
            printed = float(row["printed_musd"]) if row["printed_musd"] else None
            difference = None if printed is None else own / printed - 1
            rows.append({"name": row["name"], "printed": printed, "own": own, "difference": difference})
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
        printed = "" if row["printed"] is None else f"{row['printed']:g}"
        difference = "" if row["difference"] is None else f"{row['difference']:+.1%}"
        table.add_row(row["name"], printed, f"{row['own']:.2f}", difference)
    Console().print(table)


if __name__ == "__main__":
    main()
