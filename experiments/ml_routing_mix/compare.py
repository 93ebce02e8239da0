"""All-reduces and iterations of GPT-3-like and BLOOM-like jobs that share 2,048 accelerators under ECMP, over seeds."""

import csv
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import COST, Point, SearchedPoints, print_table

import rostam_py as rostam
from rostam_py.fleet import Baselines, Job, JobOutcome
from rostam_py.reproduction import Figure, claim_figures

COMMAND = "python experiments/ml_routing_mix/compare.py"
POINTS = Path(__file__).with_name("points.json")
EXPECTED = Path(__file__).with_name("expected.csv")

# The paper's machine: 64 ToRs x 32 spines of 100 Gb/s, hosts of 8 with a NIC each; the accelerator is assumed.
FABRIC = {
    "num_accelerators": 2048, "radix": 64, "num_spines": 32, "server_size": 8, "link_bandwidth": "100 Gb/s",
}  # fmt: skip
ACCELERATOR = "a100_80gb"
SHAPES = {"gpt": ("gpt3_175b", {"tp": 8, "pp": 8}), "bloom": ("bloom_176b", {"tp": 4, "pp": 12})}
RINGS = (2, 4, 8)  # dp
# FP32 weights, gradients and optimizer state as in the paper: tf32 keeps all bytes and takes the tensor cores.
# One bucket, as in the paper: compute, then one ring all-reduce among the GPUs that hold the same parameters.
SETTINGS = {
    "precision": "tf32", "micro_batch": 1, "recompute": "full", "bucket_size": "100 GB",
    "fusion": "producer", "accumulation": "free",
    "algorithms": {"all_reduce": "ring"},
}  # fmt: skip
MICROBATCHES = 8  # of a replica; assumed
WINDOW = "10 s"
ITERATIONS = 3  # the paper simulates 10
MAX_JOBS = 5
SEEDS = range(6)  # of draw, hosts and ECMP together
FAILED_SPINES = (1, 4, 8)
FAILURE_SEEDS = range(3)
# The paper's: all-reduce time (the longest flow among GPUs with the same parameters, mean over iterations), mean flow
# completion time, mean throughput. Here a flow is all that a rank sends in one all-reduce.
METRICS = {
    "all_reduce_s": "all-reduce time", "flow_completion_s": "mean flow completion time",
    "flow_rate_bytes_per_s": "mean throughput",
}  # fmt: skip


@dataclass
class Mixes:
    """Mixes of one setting; graphs, placements and times alone are made once.

    fabric, shapes, rings: as the constants above; smaller in tests.
    """

    fabric: dict[str, Any] = field(default_factory=lambda: dict(FABRIC))
    shapes: dict[str, tuple[str, dict[str, int]]] = field(default_factory=lambda: dict(SHAPES))
    rings: tuple[int, ...] = RINGS
    window: str = WINDOW

    def __post_init__(self) -> None:
        built = rostam.fabric("fat_tree", **self.fabric)
        self.machine = rostam.Machine(fabric=built, accelerator=ACCELERATOR)
        self.placed: dict[Any, Any] = {}
        self.baselines = Baselines()
        self._templates: list[Job] = []

    def templates(self) -> list[Job]:
        """Return one job a shape and ring size."""
        if not self._templates:
            graphs = {name: rostam.trace(model) for name, (model, _) in self.shapes.items()}
            for name, (_, degrees) in self.shapes.items():
                for dp in self.rings:
                    strategy = rostam.Strategy.of(dp=dp, **degrees, **SETTINGS)
                    self._templates.append(Job(f"{name}_dp{dp}", graphs[name], strategy, MICROBATCHES * dp))
        return self._templates

    def draw(self, num_jobs: int, seed: int, machine: rostam.Machine) -> tuple[list[Job], list[rostam.Plan]]:
        """Return jobs and plans; those of one seed are the first of a mix of more jobs."""
        jobs = rostam.draw_jobs(
            self.templates(), num_jobs, seed=seed, arrival_window_s=self.window,
            num_accelerators=machine.num_accelerators,
        )  # fmt: skip
        plans = rostam.place_mix(
            jobs,
            machine,
            allocation="random",
            host_size=self.fabric["server_size"],
            seed=seed,
            cost=COST,
            placed=self.placed,
            software="ideal",
        )
        return jobs, plans

    def measure(self, num_jobs: int, seed: int) -> Point:
        """Return each job's mean iteration, under ECMP with the others and alone, sprayed with them and alone.

        And its all-reduces (see METRICS) under ECMP and sprayed, with the others.
        """
        jobs, plans = self.draw(num_jobs, seed, self.machine)
        run = {"plans": plans, "seed": seed, "num_iterations": ITERATIONS}
        ecmp = rostam.simulate_mix(jobs, self.machine, routing="hash", baselines=self.baselines, **run)
        sprayed = rostam.simulate_mix(jobs, self.machine, routing="spray", baselines=False, **run)
        rows = [
            _row(one)
            | {"sprayed_s": other.iteration_time_s}
            | {f"sprayed_{key}": value for key, value in _row(other).items() if key in METRICS}
            for one, other in zip(ecmp.jobs, sprayed.jobs, strict=True)
        ]
        return {"jobs": rows}

    def measure_failed(self, num_jobs: int, seed: int, num_spines: int) -> Point:
        """Return the same with the first spines failed; ideal_s is that of the intact machine."""
        spines = range(self.machine.fabric.config.num_leaves, self.machine.fabric.num_switches)[:num_spines]
        broken = rostam.Machine(fabric=self.machine.fabric.with_failures(switches=spines), accelerator=ACCELERATOR)
        jobs, plans = self.draw(num_jobs, seed, broken)
        run = {"seed": seed, "num_iterations": ITERATIONS}
        ecmp = rostam.simulate_mix(jobs, broken, plans=plans, routing="hash", baselines=False, **run)
        _, intact = self.draw(num_jobs, seed, self.machine)
        rows = []
        for one, plan in zip(ecmp.jobs, intact, strict=True):
            ideal = self.baselines.iteration_times_s(plan, routing="spray", **run)
            rows.append(_row(one) | {"ideal_s": sum(ideal) / len(ideal)})
        return {"jobs": rows}

    def all_reduce(self, num_hosts: int = 8) -> Point:
        """Return the all-reduce of the gradients of a BLOOM copy's devices, one in each of these hosts, sprayed."""
        (job,) = (one for one in self.templates() if one.name == f"bloom_dp{num_hosts}")
        (plan,) = rostam.place_mix(
            [job], self.machine, allocation="random", cost=COST, placed=self.placed, software="ideal"
        )
        sizes = [
            sum(m.num_bytes * m.count for m in plan.messages() if m.group == "dp" and m.stages == (s.index,))
            for s in plan.stages
        ]
        ranks = plan.accelerators[:, 1, 0].tolist()
        pair = (float(np.median(sizes)), float(max(sizes)))
        times = [
            rostam.run_collective(self.machine.fabric, "all_reduce", num_bytes=int(size), algorithm="ring", ranks=ranks)
            for size in pair
        ]
        return {
            "flows": 2 * (num_hosts - 1),
            "flow_gbit": [8e-9 * size / num_hosts for size in pair],
            "time_s": [one.time_s for one in times],
        }


def _row(one: JobOutcome) -> Point:
    kept = ("name", "num_accelerators", "start_s", "iteration_time_s", "alone_s", "ideal_s", *METRICS)
    return {key: value for key, value in one.to_dict().items() if key in kept and value is not None}


def slowdowns(points: list[Point], base: str, key: str = "iteration_time_s") -> np.ndarray:
    """Return key / base of every job of these mixes."""
    return np.array([row[key] / row[base] for point in points for row in point["jobs"]])


def describe(ratios: np.ndarray) -> list[str]:
    """Return mean, median, 90th percentile and maximum."""
    return [f"{v:.3f}" for v in (ratios.mean(), *np.quantile(ratios, (0.5, 0.9)), ratios.max())]


def against_sprayed(points: list[Point], sprayed: list[Point], key: str) -> np.ndarray:
    """Return a metric under ECMP over that of the same jobs sprayed on the intact machine."""
    rows = [row for point in points for row in point["jobs"]]
    base = [row[f"sprayed_{key}"] for point in sprayed for row in point["jobs"]]
    return np.array([row[key] / value for row, value in zip(rows, base, strict=True)])


def is_behind(point: Point, sprayed: Point) -> bool:
    """Say whether the all-reduces of a mix take longer on average under ECMP than sprayed on the intact machine."""
    return bool(against_sprayed([point], [sprayed], "all_reduce_s").mean() > 1 + 1e-9)


def compare(points: SearchedPoints, mixes: Mixes) -> list[dict[str, Any]]:
    """Return claim, published, own value, and whether the claim is met."""
    example = points.keep("all-reduce", mixes.all_reduce)
    intact = [p for found in by_num_jobs(points, mixes).values() for p in found]
    failed = [p for found in by_failures(points, mixes).values() for p in found]
    (typical, fullest), (typical_gbit, fullest_gbit) = example["time_s"], example["flow_gbit"]
    whole = by_num_jobs(points, mixes)[MAX_JOBS]
    sprayed = [whole[seed] for _ in FAILED_SPINES for seed in FAILURE_SEEDS]
    behind, behind_failed = sum(map(is_behind, intact, intact)), sum(map(is_behind, failed, sprayed))
    ours = [
        (f"{typical:.2f} (median stage), {fullest:.2f} (with the embedding)", typical > 2),
        (str(example["flows"]), example["flows"] == 14),
        (f"{typical_gbit:.1f} (median stage), {fullest_gbit:.1f} (with the embedding)", typical_gbit > 15),
        (f"{behind} of {len(intact)} mixes", behind == len(intact)),
        (f"{behind_failed} of {len(failed)} mixes", behind_failed == len(failed)),
    ]
    with EXPECTED.open(encoding="utf-8") as file:
        claims = list(csv.DictReader(file))
    return [
        {"claim": claim["claim"], "published": claim["published"], "ours": value, "is_met": is_met}
        for claim, (value, is_met) in zip(claims, ours, strict=True)
    ]


def by_num_jobs(points: SearchedPoints, mixes: Mixes) -> dict[int, list[Point]]:
    """Return the mixes of every number of jobs, one a seed."""
    found: dict[int, list[Point]] = {n: [] for n in range(1, MAX_JOBS + 1)}
    for seed in SEEDS:
        for n, kept in found.items():
            kept.append(points.keep(f"{n} jobs, seed {seed}", lambda n=n, seed=seed: mixes.measure(n, seed)))
    return found


def by_failures(points: SearchedPoints, mixes: Mixes) -> dict[int, list[Point]]:
    """Return mixes of the most jobs for every number of failed spines, one a seed."""
    found: dict[int, list[Point]] = {n: [] for n in FAILED_SPINES}
    for seed in FAILURE_SEEDS:
        for n, kept in found.items():
            key = f"{MAX_JOBS} jobs, seed {seed}, {n} failed spines"
            kept.append(points.keep(key, lambda n=n, seed=seed: mixes.measure_failed(MAX_JOBS, seed, n)))
    return found


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: claims. Args: path: of the points."""
    found = compare(SearchedPoints(path, COMMAND), Mixes())
    return claim_figures((row | {"theirs": row["published"]} for row in found), "")


def main() -> None:
    """Print the distributions and the claims."""
    points, mixes = SearchedPoints(POINTS, COMMAND), Mixes()
    intact, failed = by_num_jobs(points, mixes), by_failures(points, mixes)
    head = ("jobs", "of", "mean", "median", "90%", "max")
    for title, base in (("alone under ECMP", "alone_s"), ("alone and sprayed", "ideal_s")):
        rows = [[str(n), str(len(r)), *describe(r)] for n, p in intact.items() for r in [slowdowns(p, base)]]
        print_table(f"iteration under ECMP with the others / {title}", head, rows)
    rows = [[str(n), str(len(r)), *describe(r)] for n, p in intact.items()
            for r in [slowdowns(p, "ideal_s", "sprayed_s")]]  # fmt: skip
    print_table("iteration sprayed with the others / alone and sprayed", head, rows)
    first = {0: intact[MAX_JOBS][: len(FAILURE_SEEDS)]}
    for key, words in METRICS.items():
        rows = [[str(n), str(len(r)), *describe(r)] for n, p in intact.items() for r in [against_sprayed(p, p, key)]]
        print_table(f"{words} under ECMP / sprayed, both with the others", head, rows)
        rows = [[str(n), str(len(r)), *describe(r)] for n, p in (first | failed).items()
                for r in [against_sprayed(p, first[0], key)]]  # fmt: skip
        print_table(f"{words} of {MAX_JOBS} jobs under ECMP with failed spines / sprayed on the intact machine",
                    ("failed spines", *head[1:]), rows)  # fmt: skip
    rows = [[str(n), str(len(r)), *describe(r)] for n, p in (first | failed).items() for r in [slowdowns(p, "ideal_s")]]
    print_table(f"{MAX_JOBS} jobs under ECMP with failed spines / alone and sprayed on the intact machine",
                ("failed spines", *head[1:]), rows)  # fmt: skip
    claims = [[r["claim"], r["published"], r["ours"], "met" if r["is_met"] else "not met"]
              for r in compare(points, mixes)]  # fmt: skip
    print_table("claim by claim", ("claim", "published", "rostam", ""), claims)


if __name__ == "__main__":
    main()
