"""Price the fabrics of HammingMesh's Table II and print them next to the printed figures."""

import csv
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py.fabrics import build_fabric
from rostam_py.reproduction import Figure

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


def figures() -> list[Figure]:
    """Return the ledger's figures: costs in M$, met where they round to the printed digits."""
    return [
        Figure(
            name=row["name"], published=_shown(row["printed"], "{:g}"), ours=f"{row['own']:.2f}",
            difference=_shown(row["difference"], "{:+.1%}"), unit="M$", is_met=_is_met(row["printed"], row["own"]),
        )
        for row in compare()
    ]  # fmt: skip


def _is_met(printed: float | None, own: float) -> bool | None:
    if printed is None:
        return None
    return round(own, 0 if printed >= 100 else 1) == printed


def _shown(value: float | None, how: str) -> str:
    return "" if value is None else how.format(value)


def main() -> None:
    """Print the comparison."""
    table = Table(title="HammingMesh, Table II: cost [M$]")
    for column in ("cluster", "printed", "rostam", "difference"):
        table.add_column(column, justify="left" if column == "cluster" else "right")
    for one in figures():
        table.add_row(one.name, one.published, one.ours, one.difference)
    Console().print(table)


if __name__ == "__main__":
    main()
