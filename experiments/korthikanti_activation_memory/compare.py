"""Add up the activations of Megatron's models with and without sequence parallelism; print them next to the published.

Legend: GiB of the first stage's layers on one device, all micro-batches in flight.
"""

import csv
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import rostam_py as rostam
from rostam_py.reproduction import Figure
from rostam_py.validation.layers import layers_held

EXPECTED = Path(__file__).with_name("expected.csv")
TP = 8
WITHIN = 0.1  # percent: the formulas leave out what norms keep for each row
SET_UPS: dict[str, dict[str, Any]] = {
    "none": {},
    "sequence": {"sequence_parallel": True},
    "selective": {"sequence_parallel": True, "recompute": "selective"},
}
GIB = 2**30


def compare(names: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Return, per model, the layers' activations in each set-up, the published ones and signed differences in percent.

    Model: layers alone, as the published figures are (rostam_py.validation.layers), and the whole device. With a
        pipeline the plan is real, with its chunks of layers.
    Args: names: models; all if none is named.
    """
    with EXPECTED.open(encoding="utf-8") as file:
        return [_compared(row) for row in csv.DictReader(file) if not names or row["model"] in names]


def _compared(row: dict[str, str]) -> dict[str, Any]:
    name, pp, micro_batch, chunks = row["model"], *(int(row[k]) for k in ("pp", "micro_batch", "virtual_stages"))
    found: dict[str, Any] = {"name": name, "tp": TP, "pp": pp, "virtual_stages": chunks}
    for set_up, options in SET_UPS.items():
        options = options | {"pp": pp, "micro_batch": micro_batch, "virtual_stages": chunks}
        held = layers_held(
            lambda layers, options=options: placed(name, {} if layers is None else {"num_layers": layers}, options),
            int(row["num_layers"]),
        )
        found[set_up], found[f"{set_up}_device"] = held.activations / GIB, held.whole_activations / GIB
    for set_up in ("none", "selective"):
        printed = float(row[f"{set_up}_gib"])
        found[f"{set_up}_printed"] = printed
        found[f"{set_up}_difference"] = 100 * (found[set_up] / printed - 1)
    return found


def placed(name: str, shape: dict[str, Any], options: dict[str, Any]) -> rostam.Plan:
    """Return the plan of a model in a set-up, with two micro-batches for each stage."""
    pp = options["pp"]
    strategy = rostam.Strategy.of(dp=1, tp=TP, precision="fp16_mixed", check_memory=False, **options)
    fabric = rostam.fabric("electrical_cluster", num_accelerators=TP * pp)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    batch = options["micro_batch"] * (2 * pp if pp > 1 else 1)
    return rostam.place(
        rostam.trace(name, **shape), machine, global_batch=batch, strategy=strategy, cost="roofline", software="ideal"
    )


def figures() -> list[Figure]:
    """Return the ledger's figures: GiB of the first stage's layers, met within WITHIN."""
    return [
        Figure(
            name=f"{row['name']}{words}", published=f"{row[f'{set_up}_printed']:.2f}", ours=f"{row[set_up]:.2f}",
            difference=f"{row[f'{set_up}_difference']:+.2f}%", unit="GiB",
            is_met=abs(row[f"{set_up}_difference"]) <= WITHIN,
        )
        for row in compare()
        for set_up, words in (("none", ""), ("selective", ", sequence parallel, selective recomputation"))
    ]  # fmt: skip


def main() -> None:
    """Print the comparison."""
    table = Table(title="Activations of the first stage's layers on one device [GiB]")
    columns = (
        "model",
        "print",
        "rostam",
        "[%]",
        "device",
        "+ sequence",
        "print, + selective",
        "rostam",
        "[%]",
        "device",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in compare():
        table.add_row(
            row["name"], f"{row['none_printed']:.2f}", f"{row['none']:.2f}", f"{row['none_difference']:+.2f}",
            f"{row['none_device']:.2f}", f"{row['sequence']:.2f}", f"{row['selective_printed']:.2f}",
            f"{row['selective']:.2f}", f"{row['selective_difference']:+.2f}", f"{row['selective_device']:.2f}",
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
