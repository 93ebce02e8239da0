"""Search all axes on 1,024 accelerators, and compare with simulating every strategy on 32.

Points are kept in points.json; delete one to compute it again. Usage: python experiments/search_all_axes/compare.py
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from searched_points import SearchedPoints, print_table

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.plan.searched_axes import Site, Space, without_axes
from rostam_py.reproduction import Figure
from rostam_py.searching import Searcher
from rostam_py.searching.candidates import facts_of

POINTS = Path(__file__).with_name("points.json")
COMMAND = "python experiments/search_all_axes/compare.py"
MODELS = ("llama3_70b", "mixtral_8x7b")
BATCH = 1_024
# Shallower, so that every strategy of the space is placed and simulated in minutes.
SMALL_LAYERS, SMALL_BATCH, SMALL_SIZE = 4, 64, 32
SMALL_AXES: dict[str, list[Any]] = {
    "tp": [1, 2, 4, 8], "pp": [1, 2, 4], "cp": [1, 2], "ep": [1, 2, 8], "sequence_parallel": [True],
    "virtual_stages": [1, 2], "micro_batch": [1, 2], "recompute": ["none", "full"], "shard": [0, 1, 3],
}  # fmt: skip
NUM_SIMULATED = 8
ALONE = "alone"  # in front of a model in the arguments
MOST_GAP, MOST_CPU_S = 0.03, 120
COST = "roofline"


def machine(size: int) -> rostam.Machine:
    """Return H100s in servers of 8: 450 GB/s each inside a server, 400 Gb/s each between servers."""
    fabric = rostam.fabric(
        "electrical_cluster", num_accelerators=size, server_size=8, accelerator_bandwidth="3600 Gb/s",
        server_bandwidth="3200 Gb/s",
    )  # fmt: skip
    return rostam.Machine(fabric=fabric, accelerator="h100_80gb")


def base() -> rostam.Strategy:
    """Return what all strategies share."""
    return rostam.Strategy(precision="bf16_mixed", optimizer="adam")


def large(model: str) -> dict[str, Any]:
    """Search all axes on 1,024 accelerators in a process of its own, whose CPU seconds are those of this search only.

    Returns: of ``large_alone``.
    """
    command = [sys.executable, str(Path(__file__).resolve()), ALONE, model]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def large_alone(model: str) -> dict[str, Any]:
    """Search all axes on 1,024 accelerators. Returns: the best, what was left out, and this process's CPU seconds."""
    searcher = Searcher(rostam.trace(model), base=base(), placers=["megatron"], cost=COST, software="ideal")
    found = searcher.search(machine(1_024), batches=[BATCH], axes="all", num_simulated=NUM_SIMULATED)
    return {
        "best": found.best.describe(), "micro_batch": found.best.micro_batch, "best_s": found.best.simulated_s,
        "placed": len(found.candidates), "simulated": len(found.simulated), "left_out": dict(found.left_out),
        "worst_estimate_error": found.worst_estimate_error, "search_cpu_s": found.cpu_s,
        "process_cpu_s": time.process_time(),
    }  # fmt: skip


def small(model: str) -> dict[str, Any]:
    """Search on 32 accelerators, and simulate every strategy of the same space. Returns: both bests, and their gap."""
    graph, where = rostam.trace(model, num_layers=SMALL_LAYERS), machine(SMALL_SIZE)
    axes = {name: values for name, values in SMALL_AXES.items() if name != "ep" or facts_of(graph).num_experts}
    searcher = Searcher(graph, base=base(), placers=["megatron"], cost=COST, software="ideal")
    found = searcher.search(where, batches=[SMALL_BATCH], axes=axes, num_simulated=NUM_SIMULATED)
    times = simulate_all(graph, where, axes)
    best = min(times, key=lambda name: times[name])
    return {
        "found": found.best.describe(), "found_s": found.best.simulated_s, "best": best, "best_s": times[best],
        "gap": (found.best.simulated_s or 0.0) / times[best] - 1, "strategies": len(times),
        "worst_estimate_error": found.worst_estimate_error, "search_cpu_s": found.cpu_s,
    }  # fmt: skip


def simulate_all(graph: rostam.OperatorGraph, where: rostam.Machine, axes: dict[str, list[Any]]) -> dict[str, float]:
    """Return the simulated iteration of every strategy of a space that can be placed and fits [s]."""
    from rostam_py.plan import PLACERS

    shared: dict[Any, Any] = {}
    times = {}
    site = Site(SMALL_SIZE, SMALL_BATCH, facts_of(graph))
    for strategy in Space.of(base(), axes).strategies(without_axes(base()), site):
        try:
            plan = PLACERS.get("megatron")(strategy, COST, {}, shared).place(graph, where, SMALL_BATCH)
            times[repr(strategy)] = rostam.simulate(plan).iteration_time_s
        except ConfigError:
            continue
    return times


EVERY: dict[str, tuple[Callable[[str], dict[str, Any]], str]] = {
    **{f"1024 {model}": (large, model) for model in MODELS},
    **{f"32 {model}": (small, model) for model in MODELS},
}


def compare(points: SearchedPoints, keys: Sequence[str] = tuple(EVERY)) -> dict[str, dict[str, Any]]:
    """Return points by key, those that are not kept computed. Args: keys: of EVERY."""
    found = {}
    for key in keys:
        compute, model = EVERY[key]
        found[key] = points.keep(key, lambda compute=compute, model=model: compute(model))  # type: ignore[misc]
    return found


def figures(path: Path) -> list[Figure]:
    """Return the ledger's figures: gaps and CPU seconds, each next to what is claimed. Args: path: of the points."""
    rows = []
    for key, found in compare(SearchedPoints(path, COMMAND)).items():
        if "gap" in found:
            gap = found["gap"]
            name, bound, ours, is_met = "gap to the best of all", f"{MOST_GAP:.0%}", f"{gap:.1%}", gap <= MOST_GAP
        else:
            seconds = found["process_cpu_s"]
            name, bound, ours, is_met = "CPU seconds", str(MOST_CPU_S), f"{seconds:.0f}", seconds <= MOST_CPU_S
        size, model = key.split()
        rows.append(Figure(name=f"{model} on {size}: {name}", published=f"<= {bound}", ours=ours, is_met=is_met))
    return rows


def main() -> None:
    """Compute what is missing, or only the points named, and print them; all of them as a table of figures, too."""
    if sys.argv[1:2] == [ALONE]:
        sys.stdout.write(json.dumps(large_alone(sys.argv[2])))
        return
    for key, found in compare(SearchedPoints(POINTS, COMMAND), sys.argv[1:] or tuple(EVERY)).items():
        sys.stdout.write(f"{key}: {json.dumps(found, indent=1)}\n")
    if not sys.argv[1:]:
        rows = [[one.name, one.published, one.ours] for one in figures(POINTS)]
        print_table("search over all axes", ("figure", "claimed", "rostam"), rows)


if __name__ == "__main__":
    main()
