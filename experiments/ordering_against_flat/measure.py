"""Measure seven fabrics at five bandwidths against Elect-Flat, and rerun every anomaly under controlled conditions."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import ALL, TRANSFORMER, Job, Point, SearchedPoints, Space, machine, strategy_of

import rostam_py as rostam
from rostam_py.cli.demo import demo_fabrics

COMMAND = "python experiments/ordering_against_flat/compare.py"
NUM_ACCELERATORS = 256
FLAT = "electrical_flat"
BANDWIDTHS = ("400 Gb/s", "800 Gb/s", "1600 Gb/s", "3200 Gb/s", "8000 Gb/s")
FABRICS: dict[str, dict[str, Any]] = demo_fabrics(NUM_ACCELERATORS) | {
    "torus": {"dims": [16, 16], "link_latency": "500 ns", "switch_latency": "0 ns"}
}
# Between two neighbours; every other path of the fabric takes as long or longer, as a test checks.
SHORTEST_PATH = {name: "500 ns" if name in ("hammingmesh", "torus") else "1 us" for name in FABRICS}
JOBS = (Job("resnet50", "resnet50_mlperf", (4096, 8192, 16384, 32768)), TRANSFORMER)
RING = Space("ring", ALL.placers, "ring")
# What is put on every fabric: the best of all strategies, or one strategy; and with which all-reduce.
# As the kept figures were made.
COSTS = {"fusion": "producer", "accumulation": "free", "mapping": "linear"}
ROWS: dict[str, tuple[Space, rostam.Strategy | None]] = {
    "best": (ALL, None),
    "dp 256": (ALL, rostam.Strategy.of(dp=256, **COSTS)),
    "dp 256, ring": (RING, rostam.Strategy.of(dp=256, **COSTS)),
    "dp 64 x tp 4": (ALL, rostam.Strategy.of(dp=64, tp=4, **COSTS)),
    "dp 64 x tp 4, ring": (RING, rostam.Strategy.of(dp=64, tp=4, **COSTS)),
    "dp 16 x tp 4 x pp 4": (
        ALL,
        rostam.Strategy.of(dp=16, tp=4, pp=4, micro_batch=4, **COSTS),
    ),
}


class Ordering:
    """The table's points, and reruns of some of them; all kept."""

    def __init__(self, path: Path, enable_search: bool = True) -> None:
        self.points = SearchedPoints(path, COMMAND, enable_search)

    def point(self, job: Job, row: str, fabric: str, bandwidth: str) -> Point:
        """Return a point of the table."""
        space, chosen = ROWS[row]
        fixed = None
        if chosen is not None:
            base = space.base()
            fixed = [replace(chosen, precision=base.precision, algorithms=base.algorithms)]
        return self.points.search(
            f"{job.model} | {row} | {fabric} | {bandwidth}", job, space,
            lambda: machine(fabric, bandwidth, **FABRICS[fabric]), strategies=fixed,
        )  # fmt: skip

    def rerun(
        self, job: Job, entry: Point, fabric: str, bandwidth: str, space: Space = ALL, latency: str = "1 us"
    ) -> float:
        """Return time-to-accuracy [s] of one noted strategy and batch. latency: end to end, of Elect-Flat only."""
        parameters = FABRICS[fabric] | ({"latency": latency} if fabric == FLAT else {})
        at = f" at {latency}" if fabric == FLAT else ""
        found = self.points.search(
            f"{job.model} | rerun {entry['placer']} {entry['strategy']} batch {entry['batch']} micro-batch"
            f" {entry['micro_batch']} | {fabric}{at} | {bandwidth} | {space.name}",
            Job(job.model, job.convergence, (entry["batch"],)), space,
            lambda: machine(fabric, bandwidth, **parameters), strategies=[strategy_of(entry, space.base())],
            num_simulated=1,
        )  # fmt: skip
        return float(found["best"]["time_to_accuracy_s"])

    def time_s(self, job: Job, row: str, fabric: str, bandwidth: str) -> float:
        """Return a point's time-to-accuracy [s]; nan where nothing fits."""
        best = self.point(job, row, fabric, bandwidth).get("best", {})
        return float(best.get("time_to_accuracy_s", "nan"))
