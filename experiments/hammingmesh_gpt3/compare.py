"""Run HammingMesh's dense GPT-3 on its clusters; print the time per micro-batch and stage next to the published."""

import csv
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from hammingmesh_clusters import CLUSTERS, built
from searched_points import print_table

import rostam_py as rostam
from rostam_py.fabrics.fabric import Fabric
from rostam_py.reproduction import Figure

EXPECTED = Path(__file__).with_name("expected.csv")
COMPUTE_S = 31.8e-3  # of a micro-batch on one stage, forward and backward, section V-B
WITHIN = 0.005  # of a published time
STAGES, OPERATORS = 96, 4
ALGORITHMS = ("ring", "auto")


def plan_on(fabric: Fabric, algorithm: str) -> rostam.Plan:
    """Return the plan of configs/experiment/gpt3_175b_hammingmesh.yaml. Args: algorithm: of all-reduces."""
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb", launch_latency=0.0, min_kernel_time=0.0)
    strategy = rostam.Strategy.of(
        dp=1, tp=OPERATORS, pp=STAGES, micro_batch=1, precision="tf32", asynchronous_tp=False, allow_idle=True,
        algorithms={"all_reduce": algorithm}, fusion="producer", accumulation="free", mapping="linear",
    )  # fmt: skip
    seconds = COMPUTE_S * STAGES * OPERATORS
    return rostam.place(
        rostam.trace("gpt3_175b"), machine, global_batch=STAGES, strategy=strategy, cost="constant",
        cost_config={"modules": {"blocks": [seconds / 3, seconds * 2 / 3]}}, software="ideal",
    )  # fmt: skip


def spent_ms(fabric: Fabric, algorithm: str) -> float:
    """Return the time per micro-batch and stage [ms]."""
    parts = rostam.simulate(plan_on(fabric, algorithm)).stage_microbatch_s
    if parts is None:
        raise RuntimeError("a pipeline has a time per micro-batch and stage")
    return 1e3 * sum(parts.values())


def compare(names: tuple[str, ...] = ALGORITHMS) -> list[dict[str, Any]]:
    """Return, per cluster, name, printed time (None where not public) and that with each algorithm [ms]."""
    with EXPECTED.open(encoding="utf-8") as file:
        printed = {row["name"]: float(row["printed_ms"]) for row in csv.DictReader(file)}
    return [
        {"name": name, "printed": printed.get(name)} | {one: spent_ms(built(name), one) for one in names}
        for name in CLUSTERS
    ]


def figures() -> list[Figure]:
    """Return the ledger's figures: ms per micro-batch and stage by rings, met within WITHIN of the published time."""
    return [_figure(row) for row in compare(ALGORITHMS[:1])]


def _figure(row: dict[str, Any]) -> Figure:
    own, printed = row["ring"], row["printed"]
    if printed is None:
        return Figure(name=row["name"], published="", ours=f"{own:.2f}", unit="ms")
    return Figure(
        name=row["name"], published=f"{printed:g}", ours=f"{own:.2f}", difference=f"{own - printed:+.2f}", unit="ms",
        is_met=abs(own - printed) <= WITHIN * printed,
    )  # fmt: skip


def main() -> None:
    """Print the comparison."""
    rows = []
    for row in compare():
        one = _figure(row)
        rows.append([one.name, one.published or "-", one.ours, f"{row['auto']:.2f}", one.difference or "-"])
    head = ("cluster", "published", *ALGORITHMS, "difference")
    print_table("GPT-3: time per micro-batch and stage [ms], 31.8 of it compute", head, rows)


if __name__ == "__main__":
    main()
