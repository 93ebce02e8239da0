"""Run HammingMesh's ResNet-152 at D = 256, 512 and 1,024 on its clusters; print iterations next to the published."""

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
DEGREES = (256, 512, 1024)
BATCH = 32_768
COMPUTE_S = 108e-3  # of 32 samples, D = 1,024, section V-B; in proportion to samples for fewer accelerators (assumed)
WITHIN = 0.02  # of a published iteration
EXPOSED_WITHIN = 0.2  # of the published exposed communication
ALGORITHMS = ("ring", "auto")


def plan_on(fabric: Fabric, degree: int, algorithm: str) -> rostam.Plan:
    """Return the plan of configs/experiment/resnet152_hammingmesh.yaml on the first accelerators of a cluster.

    Args: degree: of data parallelism, D. algorithm: of the ten all-reduces.
    """
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb", launch_latency=0.0, min_kernel_time=0.0)
    strategy = rostam.Strategy.of(
        dp=degree, precision="tf32", bucket_size="24.1 MB", algorithms={"all_reduce": algorithm}, allow_idle=True,
        fusion="producer", accumulation="free", mapping="linear",
    )  # fmt: skip
    costs = {"forward_s": COMPUTE_S / 3, "backward_s": COMPUTE_S * 2 / 3, "reference_batch": BATCH // 1024}
    return rostam.place(
        rostam.trace("resnet152"), machine, global_batch=BATCH, strategy=strategy, cost="constant", cost_config=costs,
        software="ideal",
    )  # fmt: skip


def compare(degrees: tuple[int, ...] = DEGREES, names: tuple[str, ...] = ALGORITHMS) -> list[dict[str, Any]]:
    """Return, per cluster and degree, name, degree, printed iteration (None where not public) and each own one [ms]."""
    with EXPECTED.open(encoding="utf-8") as file:
        printed = {(row["name"], int(row["degree"])): float(row["printed_ms"]) for row in csv.DictReader(file)}
    return [
        {"name": name, "degree": degree, "printed": printed.get((name, degree))}
        | {
            one: 1e3 * rostam.simulate(plan_on(built(name), degree, one)).iteration_time_s for one in names
        }
        for name in CLUSTERS
        for degree in degrees
    ]  # fmt: skip


def figures() -> list[Figure]:
    """Return the ledger's figures: iterations by rings [ms], met within WITHIN."""
    rows = compare(names=ALGORITHMS[:1])
    return [*map(_figure, rows), *(_exposed(row) for row in rows if row["printed"] is not None)]


def _figure(row: dict[str, Any]) -> Figure:
    own, printed, name = row["ring"], row["printed"], f"{row['name']}, D = {row['degree']:,}"
    if printed is None:
        return Figure(name=name, published="", ours=f"{own:.2f}", unit="ms")
    return Figure(
        name=name, published=f"{printed:g}", ours=f"{own:.2f}", difference=f"{own / printed - 1:+.1%}", unit="ms",
        is_met=abs(own / printed - 1) <= WITHIN,
    )  # fmt: skip


def _exposed(row: dict[str, Any]) -> Figure:
    """Compare what is left of both iterations without their compute."""
    compute = 1e3 * COMPUTE_S * 1024 / row["degree"]
    own, printed = row["ring"] - compute, row["printed"] - compute
    return Figure(
        name=f"{row['name']}, D = {row['degree']:,}: exposed communication", published=f"{printed:.1f}",
        ours=f"{own:.2f}", difference=f"{own - printed:+.1f}", unit="ms",
        is_met=abs(own - printed) <= EXPOSED_WITHIN * printed,
    )  # fmt: skip


def main() -> None:
    """Print the comparison."""
    rows, exposed = [], []
    for row in compare():
        one, compute = _figure(row), 1e3 * COMPUTE_S * 1024 / row["degree"]
        own = [f"{row[name] - compute:.2f}" for name in ALGORITHMS]
        rows.append([one.name, one.published or "-", one.ours, one.difference or "-", *own])
        if row["printed"] is not None:
            one = _exposed(row)
            exposed.append([one.name, one.published, one.ours, one.difference])
    head = ("cluster", "published", "rostam", "difference")
    print_table("ResNet-152: iteration [ms]", (*head, *(f"exposed, {name}" for name in ALGORITHMS)), rows)
    print_table("ResNet-152: exposed communication [ms]", head, exposed)


if __name__ == "__main__":
    main()
