"""Place CosmoFlow with 4-way operator parallelism on HammingMesh's clusters; print overheads next to the published."""

import csv
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import rostam_py as rostam
from rostam_py.reproduction import Figure

EXPECTED = Path(__file__).with_name("expected.csv")
COMPUTE_S = 44.3e-3  # of an iteration, section V-B
WITHIN = 0.5  # points of a published overhead
OPERATORS, BATCH = 4, 8192  # D = 256 groups of four, 32 samples each
STRATEGY = rostam.Strategy.of(
    dp=256, tp=OPERATORS, precision="fp32", fusion="producer", accumulation="free", mapping="linear"
)
STRATEGIES = {
    "rostam": STRATEGY,
    "every kernel waits": STRATEGY.with_keys(asynchronous_tp=False),
    "sip_ml": rostam.Strategy(dp=256, mp=OPERATORS, placer="sip_ml", precision="fp32"),
}


def plan_on(fabric: Any, strategy: rostam.Strategy) -> rostam.Plan:
    """Return CosmoFlow's plan: published compute, a third of it forward (assumed), on four members of a group."""
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb", launch_latency=0.0, min_kernel_time=0.0)
    times = {"forward_s": OPERATORS * COMPUTE_S / 3, "backward_s": OPERATORS * COMPUTE_S * 2 / 3}
    return rostam.place(
        rostam.trace("cosmoflow"), machine, global_batch=BATCH, strategy=strategy, cost="constant",
        cost_config=times | {"reference_batch": BATCH / 256}, software="ideal",
    )  # fmt: skip


def compare(names: tuple[str, ...] = tuple(STRATEGIES)) -> list[dict[str, Any]]:
    """Return, per cluster, the published overhead and those of the strategies named, in percent of the compute.

    Returns: dicts of name, printed, is_bound (published as "less than"), one entry per strategy, and difference: the
        first strategy's overhead minus the printed one, in points.
    """
    rows = []
    with EXPECTED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            fabric = rostam.fabric(row["fabric"], link_bandwidth="400 Gb/s", **_parameters(row["parameters"]))
            own = {name: _overhead(fabric, STRATEGIES[name]) for name in names}
            printed = float(row["printed_percent"])
            found = {"name": row["name"], "printed": printed, "is_bound": row["is_bound"] == "1"}
            rows.append(found | own | {"difference": own[names[0]] - printed})
    return rows


def _overhead(fabric: Any, strategy: rostam.Strategy) -> float:
    return 100 * (rostam.simulate(plan_on(fabric, strategy)).iteration_time_s / COMPUTE_S - 1)


def _parameters(text: str) -> dict[str, Any]:
    """Read "dims=32x32;planes=4"."""
    pairs = (part.split("=") for part in text.split(";"))
    return {key: int(value) if value.isdigit() else [int(n) for n in value.split("x")] for key, value in pairs}


def figures() -> list[Figure]:
    """Return the ledger's figures: overheads in percent, met below a bound or within WITHIN."""
    return [
        Figure(
            name=row["name"], published=_published(row), ours=f"{row['rostam']:.2f}",
            difference=f"{row['difference']:+.2f}",
            unit="%", is_met=row["difference"] < 0 if row["is_bound"] else abs(row["difference"]) <= WITHIN,
        )
        for row in compare(("rostam",))
    ]  # fmt: skip


def _published(row: dict[str, Any]) -> str:
    return f"{'< ' if row['is_bound'] else ''}{row['printed']:g}"


def main() -> None:
    """Print the comparison."""
    table = Table(title="CosmoFlow, 256 groups of four: overhead over 44.3 ms of compute [%]")
    for column in ("cluster", "published", *STRATEGIES, "difference [points]"):
        table.add_column(column, justify="left" if column == "cluster" else "right")
    for row in compare():
        cells = [f"{row[name]:.2f}" for name in STRATEGIES]
        table.add_row(row["name"], _published(row), *cells, f"{row['difference']:+.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
