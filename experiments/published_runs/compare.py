"""Run the presets of published training runs; print their speeds next to the published."""

import csv
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py.cli.main import main as rostam
from rostam_py.costs import ACCELERATORS
from rostam_py.costs.precision import get_precision
from rostam_py.models import MODELS

COST = "roofline"
EXPECTED = Path(__file__).with_name("expected.csv")


def compare(names: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Return, per preset, the published quantity, ours, the signed difference [%] and shares of the iteration.

    Args: names: presets; all if none is named.
    """
    with EXPECTED.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if not names or row["experiment"] in names]
    return [_compared(row["experiment"], row["quantity"], float(row["printed"])) for row in rows]


def _compared(name: str, quantity: str, printed: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        if rostam(["run", f"experiment={name}", f"cost={COST}", f"out={folder}"]):
            raise RuntimeError(f"experiment={name} did not run")
        result = json.loads(Path(folder, "result.json").read_text(encoding="utf-8"))
    own = QUANTITIES[quantity](result)
    seconds = result["iteration_time_s"]
    shares = {kind: 100 * value / seconds for kind, value in result["breakdown_s"].items()}
    return {
        "name": name, "quantity": quantity, "printed": printed, "rostam": own, "difference": 100 * (own / printed - 1),
        "iteration_s": seconds, "shares": shares,
    }  # fmt: skip


def _tflops(result: dict[str, Any], utilisation: str) -> float:
    """Return the TFLOP/s of one accelerator in 16 bits; attention counts in full, not its causal half."""
    peak = ACCELERATORS[result["accelerator"]].peak(get_precision("bf16_mixed").matrix_peak)
    return float(result[utilisation] * peak / 1e12)


def _tokens(result: dict[str, Any]) -> int:
    return int(result["global_batch"]) * MODELS[result["model"]].tokens


def _accelerator_seconds(result: dict[str, Any]) -> float:
    return float(result["num_accelerators"] * result["iteration_time_s"])


QUANTITIES: dict[str, Callable[[dict[str, Any]], float]] = {
    "model TFLOP/s for each GPU": lambda result: _tflops(result, "mfu"),
    "hardware TFLOP/s for each GPU": lambda result: _tflops(result, "hfu"),
    "s for an iteration": lambda result: float(result["iteration_time_s"]),
    "tokens/s for each GPU": lambda result: _tokens(result) / _accelerator_seconds(result),
    "thousand GPU hours for 1 T tokens": lambda result: _accelerator_seconds(result) / 3600 * 1e9 / _tokens(result),
}


def main() -> None:
    """Print the comparison."""
    rows = compare()
    table = Table(title="Published training runs")
    for column in ("preset", "quantity", "published", "rostam", "difference [%]", "compute [%]", "bubble [%]"):
        table.add_column(column, justify="left" if column in ("preset", "quantity") else "right")
    for row in rows:
        shares = (f"{row['shares'][kind]:.1f}" for kind in ("compute", "bubble"))
        numbers = (f"{row['printed']:g}", f"{row['rostam']:.4g}", f"{row['difference']:+.1f}")
        table.add_row(row["name"], row["quantity"], *numbers, *shares)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
