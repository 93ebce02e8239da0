"""The routing study's jobs under ECMP, its rivals and controllers of paths, next to what the paper and others found."""

import argparse
import csv
import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from searched_points import Point, SearchedPoints, print_table
from traffic import Job, authors_jobs, authors_sets, machine, on_random_hosts, task_graph

import rostam_py as rostam
from rostam_py.reproduction import Figure
from rostam_py.simulation.path_choice import Pairs

COMMAND = "python experiments/ml_routing_controllers/compare.py"
POINTS = Path(__file__).with_name("points.json")
EXPECTED = Path(__file__).with_name("expected.csv")
SEEDS = 200  # of ECMP, all jobs at once
PLACINGS = 20  # on random hosts
ITERATIONS = 10
REHASH_PS = 50 * 10**9  # of path_rehash
TIME_LIMIT = "30 min"  # of one integer program; each ends by itself, in up to 20 CPU seconds
ASSIGNERS = ("greedy", "greedy_by_sets", "greedy_components", "edge_colouring", "annealing", "max_min")
# What is simulated over ten iterations: routing, and the controller's name and parameters.
SCHEMES: dict[str, tuple[str, tuple[str, dict[str, Any]] | None]] = {
    "spray": ("spray", None), "ECMP": ("hash", None),
    "re-hash": ("hash", ("path_rehash", {"period_ps": REHASH_PS})),
    "shift": ("hash", ("iteration_shift", {})),
    **{name: ("hash", ("path_assignment", {"assigner": name})) for name in ASSIGNERS},
    "optimum": ("hash", ("path_assignment", {"assigner": "planned"})),
}  # fmt: skip
FAILED: tuple[tuple[int, int], ...] = ((1, 0), (4, 0), (8, 0), (0, 1), (0, 4), (0, 8))  # spines, cables
FAILED_SETS = ((1, 8), (2, 8), (3, 8))
PLANNED_SETS = FAILED_SETS  # of which every subset of jobs has its integer program
METRICS = {
    "all_reduce": "all-reduce time",
    "completion": "mean flow completion time",
    "rate": "mean throughput",
    "iteration": "iteration time, holds included",
}


def at_once_under_ecmp(jobs: list[Job]) -> Point:
    """Return by seed how much longer than on idle links BLOOM's all-reduce takes, and the slowest job's."""
    graph = task_graph(jobs, machine(), staggered=False)
    ratios = [_ratios(graph, jobs, routing="hash", seed=seed, iterations=1) for seed in range(SEEDS)]
    return {"bloom": [one[0]["all_reduce"] for one in ratios],
            "slowest": [max(job["all_reduce"] for job in one) for one in ratios]}  # fmt: skip


def at_once_assigned(jobs: list[Job]) -> Point:
    """Return of each assigner, and of the integer program, the same ratios by max-min shares."""
    fabric, pairs = machine().fabric, all_pairs(jobs)
    found = {name: rostam.assign_paths(fabric, **pairs, assigner=name) for name in ASSIGNERS}
    found["optimum"] = rostam.optimal_paths(fabric, **pairs, time_limit=TIME_LIMIT)
    shares = {name: {job: 12.5e9 / rate for job, rate in one.job_shares.items()} for name, one in found.items()}
    return {
        name: {"bloom": shares[name][0], "slowest": max(shares[name].values()), "load": one.largest_load,
               "bound": one.bound}
        for name, one in found.items()
    }  # fmt: skip


def on_random_under_ecmp(ring: int) -> Point:
    """Return how much longer one job's all-reduce takes on random servers, a placing and a seed each."""
    jobs = [on_random_hosts(authors_jobs(1, ring), seed) for seed in range(PLACINGS)]
    where = machine()
    return {
        scheme: [
            _ratios(task_graph(one, where, staggered=False), one, routing=SCHEMES[scheme][0],
                    controller=_controller(scheme, latency_ps=0), seed=seed, iterations=1)[0]["all_reduce"]
            for seed, one in enumerate(jobs)
        ]
        for scheme in ("ECMP", "greedy_by_sets")
    }  # fmt: skip


def staggered(jobs: list[Job], scheme: str, spines: int = 0, links: int = 0) -> list[Point] | None:
    """Return each job's metrics over ten iterations, over those on idle links; None where a scheme is not for it."""
    where = machine(spines, links)
    if scheme == "edge_colouring" and links:
        return None
    controller = _controller(scheme)
    if controller is not None and scheme == "optimum":
        controller[1]["planned"] = _planned(jobs, where)
    graph = task_graph(jobs, where, staggered=True)
    return _ratios(graph, jobs, routing=SCHEMES[scheme][0], controller=controller, iterations=ITERATIONS)


def all_pairs(jobs: list[Job]) -> dict[str, list[int]]:
    """Return src, dst and job of every pair that sends, job after job."""
    pairs = np.concatenate([job.pairs for job in jobs])
    numbers = [number for number, job in enumerate(jobs) for _ in range(len(job.pairs))]
    return {"src": pairs[:, 0].tolist(), "dst": pairs[:, 1].tolist(), "job": numbers}


def _controller(scheme: str, **more: Any) -> tuple[str, dict[str, Any]] | None:
    found = SCHEMES[scheme][1]
    return None if found is None else (found[0], found[1] | more)


def _planned(jobs: list[Job], where: rostam.Machine) -> list[int]:
    """Return the best paths of every set of jobs that may send at a time."""
    rows: list[int] = []
    for count in range(1, len(jobs) + 1):
        for numbers in itertools.combinations(range(len(jobs)), count):
            asked = all_pairs([jobs[number] for number in numbers])
            asked["job"] = [numbers[job] for job in asked["job"]]
            best = rostam.optimal_paths(where.fabric, **asked, time_limit=TIME_LIMIT)
            rows += Pairs.of(where.fabric, **asked).planned(best.paths.tolist())
    return rows


def _ratios(
    graph: rostam.TaskGraph, jobs: list[Job], *, routing: str, iterations: int, seed: int = 0,
    controller: tuple[str, dict[str, Any]] | None = None,
) -> list[Point]:  # fmt: skip
    found = rostam.simulate(
        graph, routing=routing, seed=seed, max_iterations=iterations, min_iterations=iterations,
        controllers=[] if controller is None else [controller],
    )  # fmt: skip
    results = found if isinstance(found, list) else [found]
    ratios = [
        {
            "all_reduce": float(np.mean([one.longest_s for one in times])) / job.ideal_s,
            "completion": float(np.mean([one.mean_s for one in times])) / job.ideal_s,
            "rate": float(np.mean([one.rate_bytes_per_s for one in times])) / 12.5e9,
        }
        for job, times in ((job, result.collective_times["dp"]) for job, result in zip(jobs, results, strict=True))
    ]
    if controller is not None and controller[0] == "iteration_shift":
        for one, job, result in zip(ratios, jobs, results, strict=True):
            between_s = float(np.mean(result.iteration_times_s)) - job.compute_s
            one["held"] = max(0.0, between_s / job.ideal_s - one["all_reduce"])
    return ratios


Found = dict[str, Any]


def measure(points: SearchedPoints) -> Found:
    """Return everything that is simulated, by its key; computes what is not kept."""
    found: Found = {}
    for jobs, ring in authors_sets():
        traffic = authors_jobs(jobs, ring)
        for what, compute in (("ECMP", at_once_under_ecmp), ("assigned", at_once_assigned)):
            key = f"at once | {jobs} jobs, rings of {ring} | {what}"
            found[key] = points.keep(key, lambda compute=compute, traffic=traffic: compute(traffic))
    for ring in (2, 4, 8):
        key = f"random servers | rings of {ring}"
        found[key] = points.keep(key, lambda ring=ring: on_random_under_ecmp(ring))
    for (jobs, ring), scheme, (spines, links) in staggered_cases():
        key = staggered_key(jobs, ring, scheme, spines, links)
        asked = (authors_jobs(jobs, ring), scheme, spines, links)
        found[key] = points.keep(key, lambda asked=asked: staggered(*asked))
    return found


def staggered_cases() -> Iterator[tuple[tuple[int, int], str, tuple[int, int]]]:
    """Yield set, scheme and failed parts of every run over ten iterations."""
    for which in authors_sets():
        for scheme in SCHEMES:
            if scheme != "optimum" or which in PLANNED_SETS:
                yield which, scheme, (0, 0)
    for which in FAILED_SETS:
        for failed in FAILED:
            for scheme in SCHEMES:
                yield which, scheme, failed


def staggered_key(jobs: int, ring: int, scheme: str, spines: int, links: int) -> str:
    """Return the name of a run over ten iterations."""
    failed = f" | {spines} spines and {links} links failed" if spines or links else ""
    return f"staggered | {jobs} jobs, rings of {ring} | {scheme}{failed}"


def mean_of(found: Found, scheme: str, metric: str, sets: Any, failed: tuple[int, int] = (0, 0)) -> float | None:
    """Return the mean of a metric over all jobs of the sets; None where the scheme is not for it."""
    runs = [(which, found[staggered_key(*which, scheme, *failed)]) for which in sets]
    values = [
        _value(one, job, metric)
        for which, run in runs
        if run is not None
        for one, job in zip(run, authors_jobs(*which), strict=True)
    ]
    return float(np.mean(values)) if values else None


def _value(one: Point, job: Job, metric: str) -> float:
    """Return a metric of a job; its iteration is computing, being held and its all-reduce, one after the other."""
    if metric != "iteration":
        return float(one[metric])
    between_s = (one["all_reduce"] + one.get("held", 0.0)) * job.ideal_s
    return float((job.compute_s + between_s) / (job.compute_s + job.ideal_s))


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures. Args: path: of the points."""
    return list(_figures(measure(SearchedPoints(path, COMMAND))))


def _figures(found: Found) -> Iterator[Figure]:
    with EXPECTED.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        own = _own(row, found)
        low, high = (float(row[key]) if row[key] else end for key, end in (("low", -math.inf), ("high", math.inf)))
        yield Figure(
            name=row["claim"], published=row["printed"], ours=f"{own:.2f}", unit=row["unit"],
            is_met=low <= round(own, 2) <= high,
        )  # fmt: skip


def _own(row: dict[str, str], found: Found) -> float:
    kind, *asked = row["asks"].split("/")
    if kind == "ecmp":
        return float(np.mean(found[f"at once | {asked[0]} jobs, rings of {asked[1]} | ECMP"]["bloom"]))
    if kind == "assigned":  # the worst of all sets
        kept = [one for key, one in found.items() if key.startswith("at once") and key.endswith("assigned")]
        return float(max(one[asked[0]][asked[1]] for one in kept))
    if kind == "random":
        return float(np.mean(found[f"random servers | rings of {asked[1]}"][asked[0]]))
    # One scheme over another, all jobs of the sets with integer programs, intact or with each of the failed parts.
    failed = [(0, 0)] if asked[3] == "intact" else [one for one in FAILED if one[asked[3] == "links"]]
    ratios = [
        mine / theirs
        for one in failed
        if (mine := mean_of(found, asked[0], asked[2], FAILED_SETS, one)) is not None
        and (theirs := mean_of(found, asked[1], asked[2], FAILED_SETS, one)) is not None
    ]
    return float(np.max(ratios) if kind == "most" else np.min(ratios))


def main() -> None:
    """Print what was found and the claims."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = measure(SearchedPoints(POINTS, COMMAND))
    head = ("jobs, ring", "ECMP", "deviation", *ASSIGNERS, "optimum")
    for which in ("bloom", "slowest"):
        rows = []
        for jobs, ring in authors_sets():
            key = f"at once | {jobs} jobs, rings of {ring} | "
            drawn = found[key + "ECMP"][which]
            assigned = found[key + "assigned"]
            cells = [f"{assigned[name][which]:.2f}" for name in (*ASSIGNERS, "optimum")]
            rows.append([f"{jobs}, {ring}", f"{np.mean(drawn):.2f}", f"{np.std(drawn):.2f}", *cells])
        print_table(f"all jobs at once: all-reduce time of {which} over that on idle links", head, rows)
    for metric, words in METRICS.items():
        rows = [
            [title, *(_cell(mean_of(found, scheme, metric, sets, failed)) for scheme in SCHEMES if scheme in told)]
            for title, sets, failed, told in _tables()
        ]
        for told in (tuple(SCHEMES), tuple(one for one in SCHEMES if one != "optimum")):
            kept = [row for row in rows if len(row) == len(told) + 1]
            print_table(f"staggered, ten iterations: {words}, mean of jobs, over idle links", ("", *told), kept)
    claims = [[one.name, one.published, one.ours, "met" if one.is_met else "not met"] for one in _figures(found)]
    print_table("claim by claim", ("claim", "printed", "rostam", ""), claims)


def _tables() -> Iterator[tuple[str, Any, tuple[int, int], tuple[str, ...]]]:
    without = tuple(one for one in SCHEMES if one != "optimum")
    for which in authors_sets():
        yield f"{which[0]} jobs, rings of {which[1]}", [which], (0, 0), without
    for failed in ((0, 0), *FAILED):
        yield f"{failed[0]} spines, {failed[1]} links failed", FAILED_SETS, failed, tuple(SCHEMES)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
