"""Run DLRM's published times and messages on HammingMesh's clusters; print what is exchanged and the iteration."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import rostam_py as rostam
from rostam_py.plan import Batches
from rostam_py.plan.groups import grid_groups
from rostam_py.plan.table_groups import table_groups
from rostam_py.plan.tasks import KernelTime, MemoryBytes, Stage, Task
from rostam_py.reproduction import Figure

EXPECTED = Path(__file__).with_name("expected.csv")
RANKS = 128
WITHIN = 0.02  # of the published iteration
# Section V-B, of an iteration: seconds of compute by part, bytes exchanged, bytes of gradients.
EMBEDDING_S, INTERACTION_S, MLP_S = 95e-6, 209e-6, 796e-6
EXCHANGED, GRADIENTS = 1_000_000, 2_960_000
ALGORITHMS = {
    "rostam": {"all_reduce": "auto", "all_to_all": "direct"},
    "shifts": {"all_reduce": "auto", "all_to_all": "balanced_shift"},
}


def plan_on(fabric: Any, algorithms: dict[str, str]) -> rostam.Plan:
    """Return a plan of the published times and messages on the first 128 accelerators.

    Model: two all-to-alls between lookups and interaction in forward, two in backward, all waited for; the all-reduce
        of the dense layers' gradients starts behind the backward of the MLPs. A third of the compute is forward
        (assumed).
    """
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb", launch_latency=0.0, min_kernel_time=0.0)
    strategy = rostam.Strategy(dp=RANKS, tables="sharded", allow_idle=True, algorithms=algorithms)
    ids = np.arange(RANKS).reshape(RANKS, 1, 1)
    forward = (
        _compute("embedding", EMBEDDING_S / 3), _exchange(0), _exchange(1),
        _compute("interaction", INTERACTION_S / 3, 2), _compute("mlp", MLP_S / 3),
    )  # fmt: skip
    reduced = Task(
        kind="collective", name="gradients", deps=(0,), group="dp", collective="all_reduce", num_bytes=GRADIENTS
    )
    backward = (
        _compute("mlp", MLP_S * 2 / 3), reduced, _compute("interaction", INTERACTION_S * 2 / 3),
        _exchange(2), _exchange(3), _compute("embedding", EMBEDDING_S * 2 / 3, 4),
        Task(kind="compute", name="optimizer", deps=(1, 5), is_optimizer=True),
    )  # fmt: skip
    templates = {"forward": forward, "backward_last": backward}
    stage = Stage(
        index=0,
        templates=templates,
        program=(("forward", 0), ("backward_last", 0)),
        memory=MemoryBytes(),
        num_parameters=0,
    )
    return rostam.Plan.on_grid(
        "dlrm", machine, strategy, Batches(RANKS, 1, 1), [stage], ids,
        groups=(*grid_groups(ids.shape), *table_groups(ids, "sharded", server_size=1)), algorithms=algorithms,
    )  # fmt: skip


def _compute(name: str, seconds: float, *deps: int) -> Task:
    return Task(
        kind="compute",
        name=name,
        deps=deps,
        kernels=(KernelTime(name=name, module=name, op_type=name, duration_s=seconds),),
    )


def _exchange(after: int) -> Task:
    """Return an all-to-all behind the task of this index."""
    return Task(
        kind="collective", name="vectors", deps=(after,), group="tables", collective="all_to_all", num_bytes=EXCHANGED
    )


def compare(names: tuple[str, ...] = tuple(ALGORITHMS)) -> list[dict[str, Any]]:
    """Return, per cluster, the published iteration and, by each named choice, what ours takes [ms].

    Returns: dicts of name, printed (None where not public) and, for the first choice, iteration, exchanged (the four
        all-to-alls), reduced (exposed) and difference to the printed iteration; one entry for each other choice: its
        all-to-alls.
    """
    rows = []
    with EXPECTED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            fabric = rostam.fabric(row["fabric"], link_bandwidth="400 Gb/s", **_parameters(row["parameters"]))
            found = {name: rostam.simulate(plan_on(fabric, ALGORITHMS[name])) for name in names}
            first = found[names[0]]
            printed = float(row["printed_ms"]) if row["printed_ms"] else None
            iteration = 1e3 * first.iteration_time_s
            rows.append(
                {
                    "name": row["name"], "printed": printed, "iteration": iteration,
                    "exchanged": 1e3 * first.breakdown["tables"], "reduced": 1e3 * first.breakdown["dp"],
                    "difference": None if printed is None else iteration - printed,
                } | {name: 1e3 * found[name].breakdown["tables"] for name in names[1:]}
            )  # fmt: skip
    return rows


def _parameters(text: str) -> dict[str, Any]:
    """Read "dims=32x32;planes=4"."""
    pairs = (part.split("=") for part in text.split(";"))
    return {key: int(value) if value.isdigit() else [int(n) for n in value.split("x")] for key, value in pairs}


def figures() -> list[Figure]:
    """Return the ledger's figures: iterations in ms, met within WITHIN."""
    return [
        Figure(
            name=row["name"], published="" if row["printed"] is None else f"{row['printed']:.2f}",
            ours=f"{row['iteration']:.3f}", difference="" if row["printed"] is None else f"{row['difference']:+.2f}",
            unit="ms", is_met=None if row["printed"] is None else abs(row["difference"]) <= WITHIN * row["printed"],
        )
        for row in compare(("rostam",))
    ]  # fmt: skip


def main() -> None:
    """Print the comparison."""
    others = [name for name in ALGORITHMS if name != "rostam"]
    table = Table(title="DLRM on 128 accelerators \\[ms], 1.1 of it compute")
    columns = ("cluster", "published", "iteration", "difference", "4 all-to-alls", *others, "exposed all-reduce")
    for column in columns:
        table.add_column(column, justify="left" if column == "cluster" else "right")
    for row in compare():
        printed = "-" if row["printed"] is None else f"{row['printed']:.2f}"
        difference = "-" if row["difference"] is None else f"{row['difference']:+.2f}"
        cells = (f"{row[key]:.3f}" for key in ("exchanged", *others, "reduced"))
        table.add_row(row["name"], printed, f"{row['iteration']:.3f}", difference, *cells)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
