"""Search 16 accelerators and simulate every candidate of the same enumeration: how far from the best is the found?"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

import rostam_py as rostam
from rostam_py.plan import PLACERS
from rostam_py.reproduction import Figure
from rostam_py.searching import Searcher

NUM_ACCELERATORS = 16
WITHIN = 0.05  # gap to the best of all
NUM_SIMULATED = 8
COST = "roofline"
# Model, how it is traced, global batch.
MODELS: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("resnet50", {}, 1_024),
    ("transformer_350m", {}, 1_024),
    ("gpt_125m", {"num_layers": 4}, 64),
)
FABRICS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("electrical_flat", {"num_accelerators": 16}),
    ("electrical_cluster", {"num_accelerators": 16, "server_size": 8}),
    ("torus", {"dims": (4, 4)}),
)
BANDWIDTH = "400 Gb/s"


def compare(models: Sequence[tuple[str, dict[str, Any], int]] = ()) -> list[dict[str, Any]]:
    """Return for every model and fabric the best found, the best there is, and how the estimates did.

    Args: models: as in MODELS; all of these if none is named.
    """
    base = rostam.Strategy.of(
        precision="bf16_mixed", fusion="producer", accumulation="free", algorithms={"all_reduce": "ring"},
        mapping="linear",
    )  # fmt: skip
    rows = []
    for name, options, batch in models or MODELS:
        searcher = Searcher(rostam.trace(name, **options), base=base, cost=COST, software="ideal")
        for fabric_name, parameters in FABRICS:
            fabric = rostam.fabric(fabric_name, accelerator_bandwidth=BANDWIDTH, **parameters)
            machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
            begin = time.process_time()
            found = searcher.search(machine, batches=[batch], num_simulated=NUM_SIMULATED)
            search_s = time.process_time() - begin
            begin = time.process_time()
            strategies = [
                strategy
                for name in PLACERS
                for strategy in PLACERS.get(name)(replace(base, placer=name), COST, {}).candidates(
                    NUM_ACCELERATORS, batch
                )
            ]
            every = searcher.search(machine, batches=[batch], strategies=strategies, num_simulated=len(strategies))
            exhaustive_s = time.process_time() - begin
            best_found, best = found.best.simulated_s or 0.0, every.best.simulated_s or 0.0
            errors = sorted(abs(c.estimate_error or 0.0) for c in every.simulated)
            rows.append({
                "model": name, "fabric": fabric_name, "found": found.best.describe(), "found_s": best_found,
                "best": every.best.describe(), "best_s": best, "gap": best_found / best - 1,
                "candidates": len(every.candidates), "simulated": len(every.simulated),
                "median_error": errors[len(errors) // 2], "worst_error": errors[-1],
                "search_cpu_s": search_s, "exhaustive_cpu_s": exhaustive_s,
            })  # fmt: skip
    return rows


def figures() -> list[Figure]:
    """Return the ledger's figures: the gap of each model and fabric."""
    return [
        Figure(
            name=f"{row['model']}, {row['fabric']}: gap to the best of all", published=f"<= {WITHIN:.0%}",
            ours=f"{row['gap']:+.1%}", is_met=row["gap"] <= WITHIN,
        )
        for row in compare()
    ]  # fmt: skip


def main() -> None:
    """Print the comparison."""
    table = Table(title=f"search with {NUM_SIMULATED} simulations against simulating all, 16 accelerators, {BANDWIDTH}")
    names = ("model", "fabric", "found", "best of all", "gap", "candidates", "median error", "worst error", "CPU s")
    for column in names:
        table.add_column(column, justify="left" if column in names[:4] else "right")
    for row in compare():
        table.add_row(
            row["model"], row["fabric"], f"{row['found']}: {row['found_s'] * 1e3:.2f} ms",
            f"{row['best']}: {row['best_s'] * 1e3:.2f} ms", f"{row['gap']:+.1%}", str(row["candidates"]),
            f"{row['median_error']:.1%}", f"{row['worst_error']:.1%}",
            f"{row['search_cpu_s']:.1f} / {row['exhaustive_cpu_s']:.1f}",
        )  # fmt: skip
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
