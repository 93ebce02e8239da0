"""Search all axes on 1,024 accelerators, and compare with simulating every strategy on 32.

Points are kept in points.json; delete one to compute it again. Usage: python experiments/search_all_axes/compare.py
"""

import datetime
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rostam_py as rostam
from rostam_py.errors import ConfigError
from rostam_py.plan.searched_axes import Site, Space, without_axes
from rostam_py.searching import Searcher
from rostam_py.searching.candidates import facts_of

ROOT = Path(__file__).parent
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
    """Search all axes on 1,024 accelerators. Returns: the best, what was left out, and the CPU seconds it took."""
    searcher = Searcher(rostam.trace(model), base=base(), placers=["megatron"], cost=COST)
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
    searcher = Searcher(graph, base=base(), placers=["megatron"], cost=COST)
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


def keep(points: dict[str, Any], key: str, compute: Callable[[], Any]) -> None:
    """Compute a point that is not kept, and write it."""
    if key not in points:
        points[key] = compute()
        kept = {
            "command": COMMAND, "date": datetime.date.today().isoformat(), "rostam_version": rostam.__version__,
            "points": points,
        }  # fmt: skip
        (ROOT / "points.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Compute what is missing, or only the points named, and print them."""
    path = ROOT / "points.json"
    points = json.loads(path.read_text(encoding="utf-8"))["points"] if path.exists() else {}
    every = {f"1024 {m}": (large, m) for m in MODELS} | {f"32 {m}": (small, m) for m in MODELS}
    for key in sys.argv[1:] or every:
        compute, model = every[key]
        keep(points, key, lambda compute=compute, model=model: compute(model))  # type: ignore[misc]
        sys.stdout.write(f"{key}: {json.dumps(points[key], indent=1)}\n")


if __name__ == "__main__":
    main()
