"""Compute the bandwidths and diameters of HammingMesh's Table II and print them next to the printed figures."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.throughput import saturation_throughput
from rostam_py.reproduction import Figure
from rostam_py.simulation.collective import run_collective

EXPECTED = Path(__file__).with_name("expected.csv")
WITHIN = 0.02  # of the printed value: rostam's flows have no packets, headers or buffers
BYTES_PER_ACCELERATOR = 2**24  # an all-reduce of 16 MiB x p: its latency is then about 1% of its time


def compare(*, enable_shifts: bool = True) -> list[dict[str, Any]]:
    """Return name, quantity, printed and own value and the signed difference of every figure.

    Args: enable_shifts: also average all p - 1 shifts, some seconds per fabric.
    Returns: shares in % of injection bandwidth (all-to-all) or of the optimum (all-reduce), diameters in cables;
        printed and difference are None where the public text prints nothing.
    """
    figures = []
    with EXPECTED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            fabric = build_fabric(row["fabric"], **_parameters(row["parameters"]))
            own = {"diameter": float(fabric.diameter())}
            if row["has_throughput"] == "1":
                own["all-to-all"] = 100 * saturation_throughput(fabric)
                if enable_shifts:
                    own["all-to-all, shift by shift"] = 100 * shift_by_shift(fabric)
                own["all-reduce"] = 100 * all_reduce_efficiency(fabric, row["all_reduce_algorithm"])
            figures += [_figure(row, quantity, value) for quantity, value in own.items()]
    return figures


def shift_by_shift(fabric: Fabric) -> float:
    """Return the share of injection bandwidth of the paper's balanced shift: p - 1 shifts, one after the other."""
    count = fabric.num_accelerators
    times = [1 / saturation_throughput(fabric, "shift", shift=shift) for shift in range(1, count)]
    return float(1 / np.mean(times))


def all_reduce_efficiency(fabric: Fabric, algorithm: str) -> float:
    """Return 2 (p-1) S / (p B T): 1 where every port sends and receives without a pause."""
    count = fabric.num_accelerators
    num_bytes = BYTES_PER_ACCELERATOR * count
    result = run_collective(fabric, "all_reduce", num_bytes=num_bytes, algorithm=algorithm)
    return 2 * (count - 1) * num_bytes / (count * fabric.injection_bandwidth_bytes_per_s * result.time_s)


def _figure(row: dict[str, str], quantity: str, own: float) -> dict[str, Any]:
    column = {"diameter": "printed_diameter", "all-reduce": "printed_all_reduce"}.get(quantity, "printed_all_to_all")
    printed = float(row[column]) if row[column] else None
    difference = None if printed is None else own / printed - 1
    return {"name": row["name"], "quantity": quantity, "printed": printed, "own": own, "difference": difference}


def _parameters(text: str) -> dict[str, Any]:
    """Read "dims=32x32;planes=4;wiring=tree"."""
    return {key: _value(value) for key, value in (part.split("=") for part in text.split(";"))}


def _value(text: str) -> Any:
    if text.isdigit():
        return int(text)
    sizes = text.split("x")
    return [int(size) for size in sizes] if all(size.isdigit() for size in sizes) else text


def figures() -> list[Figure]:
    """Return the ledger's figures, met within WITHIN."""
    return [
        Figure(
            name=f"{row['name']}: {row['quantity']}", published="" if row["printed"] is None else f"{row['printed']:g}",
            ours=f"{row['own']:.4g}", difference="" if row["difference"] is None else f"{row['difference']:+.1%}",
            unit="" if row["quantity"] == "diameter" else "%",
            is_met=None if row["difference"] is None else abs(row["difference"]) <= WITHIN,
        )
        for row in compare()
    ]  # fmt: skip


def main() -> None:
    """Print the comparison."""
    table = Table(title="HammingMesh, Table II: bandwidths [% of injection, of the all-reduce optimum], diameters")
    for column in ("cluster: quantity", "printed", "rostam", "difference"):
        table.add_column(column, justify="left" if column == "cluster: quantity" else "right")
    for one in figures():
        table.add_row(one.name, one.published, one.ours, one.difference)
    Console().print(table)


if __name__ == "__main__":
    main()
