"""Run GPT-3 with mixtures of experts on HammingMesh's clusters; print the time per micro-batch and stage.

Legend: N_A = 2,048 x 12,288 activations of 4 bytes, one sequence between two layers.
"""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import rostam_py as rostam
from rostam_py.plan.tasks import KernelTime, Task
from rostam_py.reproduction import Figure

EXPECTED = Path(__file__).with_name("expected.csv")
COMPUTE_S = 49.9e-3  # of a micro-batch on one stage, forward and backward, section V-B
WITHIN = 0.005  # of the published range's end
STAGES, OPERATORS = 96, 4
ALGORITHMS = {
    "rostam": {"all_reduce": "ring", "all_to_all": "balanced_shift"},
    "auto": {"all_reduce": "auto", "all_to_all": "auto"},
}


def plan_on(fabric: Any, algorithms: dict[str, str]) -> rostam.Plan:
    """Return the plan of GPT-3 whose feed-forward layers are mixtures of experts over the four ranks of a stage.

    Model: GPT-3's plan (configs/experiment/gpt3_175b_hammingmesh.yaml) with the published compute time; the all-reduce
        that ends a feed-forward gives way to two all-to-alls of N_A, as the paper states the volume, one before it and
        one behind it. A third of the compute is forward (assumed).
    """
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb", launch_latency=0.0, min_kernel_time=0.0)
    strategy = rostam.Strategy.of(
        dp=1, tp=OPERATORS, pp=STAGES, micro_batch=1, precision="tf32", asynchronous_tp=False, allow_idle=True,
        algorithms=algorithms, fusion="producer", accumulation="free", mapping="linear",
    )  # fmt: skip
    seconds = COMPUTE_S * STAGES * OPERATORS
    plan = rostam.place(
        rostam.trace("gpt3_175b"), machine, global_batch=STAGES, strategy=strategy, cost="constant",
        cost_config={"modules": {"blocks": [seconds / 3, seconds * 2 / 3]}}, software="ideal",
    )  # fmt: skip
    stages = tuple(
        replace(stage, templates={name: with_experts(tasks) for name, tasks in stage.templates.items()})
        for stage in plan.stages
    )
    return replace(plan, graph_name="gpt3_moe", stages=stages, known_volumes=[])


def with_experts(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    """Return a template whose feed-forward layers exchange their tokens all-to-all before and behind.

    REQUIRES: the compute task before a feed-forward's all-reduce depends on the task before it alone.
    """
    found: list[Task] = []
    new_index: list[int] = []  # of each task given
    for index, task in enumerate(tasks):
        own = replace(task, deps=tuple(new_index[d] for d in task.deps))
        if index + 1 < len(tasks) and _ends_feed_forward(tasks[index + 1]):
            found += _dispatched(own, len(found), tasks[index + 1])
        elif _ends_feed_forward(task):
            found.append(replace(own, collective="all_to_all", name=f"combine {task.name}"))
        else:
            found.append(own)
        new_index.append(len(found) - 1)
    return tuple(found)


def _ends_feed_forward(task: Task) -> bool:
    return task.collective == "all_reduce" and task.group == "tp" and ".mlp." in task.name


def _dispatched(work: Task, start: int, reduce: Task) -> list[Task]:
    """Return a compute task with an all-to-all before its first kernel of the feed-forward. start: its index.

    Model: the router, whose time is part of the published compute, comes first.
    """
    first = next(i for i, kernel in enumerate(work.kernels) if ".mlp." in kernel.module)
    routed = (
        *work.kernels[:first],
        KernelTime(name="router", module=work.kernels[first].module, op_type="router", duration_s=0.0),
    )
    dispatch = replace(reduce, collective="all_to_all", name=f"dispatch {reduce.name}", deps=(start,))
    return [replace(work, kernels=routed), dispatch, replace(work, kernels=work.kernels[first:], deps=(start + 1,))]


def compare(names: tuple[str, ...] = tuple(ALGORITHMS)) -> list[dict[str, Any]]:
    """Return, per cluster, the published range and the time per micro-batch and stage [ms] of each named choice.

    Returns: dicts of name, low and high (None where not public), one entry per choice of algorithms, exposed (that of
        the first, by kind of group), and difference: of the first to the published range, 0 inside it.
    """
    rows = []
    with EXPECTED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            fabric = rostam.fabric(row["fabric"], link_bandwidth="400 Gb/s", **_parameters(row["parameters"]))
            spent = {name: _spent(fabric, ALGORITHMS[name]) for name in names}
            own = {name: sum(parts.values()) for name, parts in spent.items()}
            low, high = (float(row[key]) if row[key] else None for key in ("printed_low_ms", "printed_high_ms"))
            rows.append(
                {"name": row["name"], "low": low, "high": high, "exposed": spent[names[0]]}
                | own
                | {"difference": _beyond(own[names[0]], low, high)}
            )
    return rows


def _spent(fabric: Any, algorithms: dict[str, str]) -> dict[str, float]:
    parts = rostam.simulate(plan_on(fabric, algorithms)).stage_microbatch_s
    if parts is None:
        raise RuntimeError("a pipeline has a time per micro-batch and stage")
    return {kind: 1e3 * value for kind, value in parts.items()}


def _beyond(value: float, low: float | None, high: float | None) -> float | None:
    if low is None or high is None:
        return None
    return value - min(max(value, low), high)


def _parameters(text: str) -> dict[str, Any]:
    """Read "dims=32x32;planes=4"."""
    pairs = (part.split("=") for part in text.split(";"))
    return {key: int(value) if value.isdigit() else [int(n) for n in value.split("x")] for key, value in pairs}


def figures() -> list[Figure]:
    """Return the ledger's figures: ms per micro-batch and stage, met in the published range or within WITHIN of it."""
    return [
        Figure(
            name=row["name"], published="" if row["low"] is None else _published(row), ours=f"{row['rostam']:.2f}",
            difference="" if row["low"] is None else f"{row['difference']:+.2f}",
            unit="ms", is_met=None if row["low"] is None else abs(row["difference"]) <= WITHIN * row["high"],
        )
        for row in compare(("rostam",))
    ]  # fmt: skip


def _published(row: dict[str, Any]) -> str:
    low, high = row["low"], row["high"]
    return "-" if low is None else f"{low:g}" if low == high else f"{low:g} to {high:g}"


def main() -> None:
    """Print the comparison."""
    table = Table(title="GPT-3 with 16 experts: time per micro-batch and stage \\[ms], 49.9 of it compute")
    for column in ("cluster", "published", *ALGORITHMS, "difference"):
        table.add_column(column, justify="left" if column == "cluster" else "right")
    for row in compare():
        difference = "-" if row["difference"] is None else f"{row['difference']:+.2f}"
        table.add_row(row["name"], _published(row), *(f"{row[name]:.2f}" for name in ALGORITHMS), difference)
    Console().print(table)


if __name__ == "__main__":
    main()
