"""Search the Transformer on Elect-Flat at 10 Tb/s over fabric latency and compare with table 1's speed-ups."""

import csv
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import (
    ALL,
    FREE_BATCH,
    PAPER,
    TRANSFORMER,
    Job,
    Point,
    SearchedPoints,
    Space,
    Variant,
    band_words,
    machine,
    print_table,
    transformer_variants,
)  # fmt: skip

from rostam_py.reproduction import Figure

COMMAND = "python experiments/sip_ml_table1/compare.py"
POINTS, EXPECTED = Path(__file__).with_name("points.json"), Path(__file__).with_name("expected.csv")
BANDWIDTH = "10 Tb/s"
WITHIN = 0.1  # of a printed speed-up
# The paper names no model here. Goyal's 90 epochs at any batch up to 8,192 leave the batch free: linear scaling.
CASES: tuple[tuple[Job, Space], ...] = (
    (TRANSFORMER, PAPER), (TRANSFORMER, ALL), (Job("resnet50", "resnet50_goyal", (256, 512, 1024, 2048, 4096)), PAPER),
    (FREE_BATCH["transformer_350m"], PAPER), (FREE_BATCH["resnet50"], PAPER),
)  # fmt: skip
# Bands are of the Transformer under Algorithm 1: of the most that latency costs 32 accelerators, and of 512 over 32.
VARIANTS = transformer_variants(1_024)
BANDED = ((32, "100 us"), (512, "1 us"))
# How much of an iteration of 32 accelerators is latency, the smaller the batch the more.
SMALL_BATCHES, ENDS = (32, 64, 128, 256), ("1 us", "100 us")


def point(points: SearchedPoints, job: Job, space: Space, num_accelerators: int, latency: str) -> Point:
    """Return one search, kept or computed."""
    curve = job.convergence or f"batch {job.batches}"
    return points.search(
        f"{job.model}, {curve} | {space.name} | {num_accelerators} | {latency}", job, space,
        lambda: machine("electrical_flat", BANDWIDTH, num_accelerators=num_accelerators, latency=latency),
        num_simulated=4,
    )  # fmt: skip


def compare(points: SearchedPoints) -> list[dict[str, Any]]:
    """Return size, latency, strategies searched, printed and own speed-up and the signed difference."""
    rows = []
    with EXPECTED.open(encoding="utf-8") as file:
        printed = list(csv.DictReader(file))
    varied = bands(points)
    for job, space in CASES:
        reference = point(points, job, space, 32, "1 us")["best"]["time_to_accuracy_s"]
        # Sensitivity to latency alone: each size against itself at 1 us.
        first = {row["num_accelerators"]: float(row["printed_speedup"]) for row in reversed(printed)}
        for row in printed:
            size = row["num_accelerators"]
            best = point(points, job, space, int(size), row["latency"])["best"]
            own_at_1us = point(points, job, space, int(size), "1 us")["best"]["time_to_accuracy_s"]
            theirs, ours = float(row["printed_speedup"]), reference / best["time_to_accuracy_s"]
            has_band = (job, space) == (TRANSFORMER, PAPER) and (int(size), row["latency"]) in varied
            shown = band_words(varied[int(size), row["latency"]], "{:.2f}") if has_band else f"{ours:.2f}"
            rows.append({
                "model": job.model, "curve": job.convergence, "space": space.name, "num_accelerators": int(size),
                "latency": row["latency"], "printed": theirs, "own": ours, "shown": shown,
                "difference": ours / theirs - 1, "strategy": best["strategy"], "batch": best["batch"],
                "printed_slowdown": first[size] / theirs, "own_slowdown": best["time_to_accuracy_s"] / own_at_1us,
            })  # fmt: skip
    return rows


def slowdowns(points: SearchedPoints) -> dict[int, float]:
    """Return iteration time at 100 us over that at 1 us, of the Transformer on 32 accelerators, by global batch."""
    found = {}
    for batch in SMALL_BATCHES:
        job = Job(TRANSFORMER.model, None, (batch,))
        first, last = (point(points, job, PAPER, 32, latency)["best"]["iteration_s"] for latency in ENDS)
        found[batch] = last / first
    return found


def varied_s(points: SearchedPoints, variant: Variant, num_accelerators: int, latency: str) -> float:
    """Return the best iteration time of a variant, kept or computed [s]."""
    if variant is VARIANTS[0]:
        return float(point(points, TRANSFORMER, PAPER, num_accelerators, latency)["best"]["iteration_s"])
    found = points.search(
        f"{variant.name} | {num_accelerators} | {latency}", variant.job, variant.space,
        lambda: machine(
            "electrical_flat", BANDWIDTH, variant.speed, num_accelerators=num_accelerators, latency=latency
        ),
        num_simulated=4,
    )  # fmt: skip
    return float(found["best"]["iteration_s"])


def bands(points: SearchedPoints) -> dict[tuple[int, str], list[float]]:
    """Return the speed-ups against 32 accelerators at 1 us, of every variant, by size and latency."""
    return {
        (size, latency): [
            varied_s(points, one, 32, ENDS[0]) / varied_s(points, one, size, latency) for one in VARIANTS
        ]
        for size, latency in BANDED
    }  # fmt: skip


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: speed-ups, met within WITHIN. Args: path: of the points."""
    points = SearchedPoints(path, COMMAND)
    return [
        Figure(
            name=f"{r['model']}, {r['curve']}, {r['space']}: {r['num_accelerators']} accelerators, {r['latency']}",
            published=f"{r['printed']:.2f}", ours=r["shown"], difference=f"{r['difference']:+.0%}",
            is_met=abs(r["difference"]) <= WITHIN,
        )
        for r in compare(points)
    ]  # fmt: skip


def main() -> None:
    """Print the comparison."""
    points = SearchedPoints(POINTS, COMMAND)
    found = compare(points)
    for job, space in CASES:
        rows = [
            [str(r["num_accelerators"]), r["latency"], f"{r['printed']:.2f}", r["shown"],
             f"{r['difference']:+.0%}", f"{r['printed_slowdown']:.2f}", f"{r['own_slowdown']:.2f}",
             f"{r['strategy']}, {r['batch']:,}"]
            for r in found if (r["curve"], r["space"]) == (job.convergence, space.name)
        ]  # fmt: skip
        columns = ("accelerators", "latency", "printed", "rostam (band)", "difference", "printed: T / T at 1 us",
                   "rostam: T / T at 1 us", "best, batch")  # fmt: skip
        print_table(
            f"table 1: speed-up against 32 at 1 us, {job.model}, {job.convergence}, {space.name}", columns, rows
        )
    found_bands = bands(points)
    rows = [[one.name, *(f"{own[n]:.2f}" for own in found_bands.values())] for n, one in enumerate(VARIANTS)]
    columns = ("variant", *(f"{size} at {latency}" for size, latency in found_bands))
    print_table("the Transformer's speed-up against 32 at 1 us, paper, by variant", columns, rows)
    shown = [[f"{batch:,}", f"{ratio:.2f}"] for batch, ratio in slowdowns(points).items()]
    print_table("32 accelerators", ("batch", "T at 100 us over T at 1 us"), shown)


if __name__ == "__main__":
    main()
