"""Add up the activations of Megatron's models with and without sequence parallelism; print them next to the published.

Legend: GiB of the first stage's layers on one device, all micro-batches in flight.
"""

import csv
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import rostam_py as rostam

EXPECTED = Path(__file__).with_name("expected.csv")
TP = 8
SET_UPS: dict[str, dict[str, Any]] = {
    "none": {},
    "sequence": {"sequence_parallel": True},
    "selective": {"sequence_parallel": True, "recompute": "selective"},
}
GIB = 2**30


def compare(names: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Return, per model, the layers' activations in each set-up, the published ones and signed differences in percent.

    Model: layers alone, as the published figures are: what one layer more adds to a plan, times the layers of a stage
        and the micro-batches in flight on the first, pp (1 + (pp - 1) / (pp v)) of them with v > 1 chunks.
    Args: names: models; all if none is named.
    """
    with EXPECTED.open(encoding="utf-8") as file:
        return [_compared(row) for row in csv.DictReader(file) if not names or row["model"] in names]


def _compared(row: dict[str, str]) -> dict[str, Any]:
    name, pp, micro_batch, chunks = row["model"], *(int(row[k]) for k in ("pp", "micro_batch", "virtual_stages"))
    graphs = [rostam.trace(name, num_layers=count) for count in (1, 2)]
    in_flight = pp * (1 + (pp - 1) / (pp * chunks)) if chunks > 1 else pp
    layers = int(row["num_layers"]) / pp
    found: dict[str, Any] = {"name": name, "tp": TP, "pp": pp, "virtual_stages": chunks}
    for set_up, options in SET_UPS.items():
        one, two = (activations(graph, micro_batch, **options) for graph in graphs)
        found[set_up] = (two - one) * layers * in_flight / GIB
    for set_up in ("none", "selective"):
        printed = float(row[f"{set_up}_gib"])
        found[f"{set_up}_printed"] = printed
        found[f"{set_up}_difference"] = 100 * (found[set_up] / printed - 1)
    return found


def activations(graph: rostam.OperatorGraph, micro_batch: int, **options: Any) -> int:
    """Return the bytes that a device keeps of one micro-batch, embedding and head included."""
    strategy = rostam.Strategy(
        dp=1, tp=TP, micro_batch=micro_batch, precision="fp16_mixed", check_memory=False, **options
    )  # fmt: skip
    machine = rostam.Machine(fabric=rostam.fabric("electrical_cluster", num_accelerators=TP), accelerator="a100_80gb")
    plan = rostam.place(graph, machine, global_batch=micro_batch, strategy=strategy)
    return plan.stages[0].memory.activations


def main() -> None:
    """Print the comparison."""
    table = Table(title="Activations of the first stage's layers on one device [GiB]")
    columns = ("model", "print", "rostam", "[%]", "+ sequence", "print, + selective", "rostam")
    for column in (*columns, "[%]"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in compare():
        table.add_row(
            row["name"], f"{row['none_printed']:.2f}", f"{row['none']:.2f}", f"{row['none_difference']:+.2f}",
            f"{row['sequence']:.2f}", f"{row['selective_printed']:.2f}", f"{row['selective']:.2f}",
            f"{row['selective_difference']:+.2f}",
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
