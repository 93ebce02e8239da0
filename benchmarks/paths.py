"""Cases of controllers of paths: one decision, and a run of mixed jobs under a controller."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rostam_py as rostam
from benchmarks.case import RINGS, Case

CLOS = {
    "num_accelerators": 2048, "levels": 2, "radix": 64, "leaf_down": 32, "leaf_up": 32, "num_spines": 32,
    "link_bandwidth": "100 Gb/s",
}  # fmt: skip
REPEATS = 20


def path_cases() -> list[Case]:
    """Return decisions on the routing study's Clos, and a run with rings inside servers.

    The paper's controller takes about 10 ms for 100 to 1,500 commodities (Cohen et al., evaluation).
    """
    found = [
        Case(
            name=f"paths_{assigner}:{count}", prepare=_decision, size=count,
            arguments={"assigner": assigner, "count": count}, limit="2 ms a decision at 1,500, greedy",
            least={"decisions_per_s": 500.0} if assigner == "greedy" and count == 1500 else {},
        )
        for assigner in ("greedy", "greedy_by_sets", "greedy_components", "edge_colouring", "annealing", "max_min")
        for count in (100, 1500)
    ]  # fmt: skip
    return [*found, Case(name="paths_gpt3_mix", prepare=_mix, target_cpu_s=60)]


def _decision(*, assigner: str, count: int) -> Callable[[], dict[str, Any]]:
    from rostam_py.simulation.path_choice import Pairs

    rng = np.random.default_rng(0)
    senders = rng.permutation(2048)[:count]
    pairs = Pairs.of(rostam.fabric("fat_tree", **CLOS), senders, np.roll(senders, 1))

    def call() -> dict[str, Any]:
        begin = time.thread_time()
        for _ in range(REPEATS):
            pairs.core.assign(assigner)
        each_s = (time.thread_time() - begin) / REPEATS
        return {"decision_ms": 1e3 * each_s, "decisions_per_s": 1 / each_s}

    return call


def _mix() -> Callable[[], dict[str, Any]]:
    """Simulate two GPT-3 jobs of 512 accelerators each, three iterations, hosts of 8 with a NIC each."""
    fabric = rostam.fabric("fat_tree", **CLOS, server_size=8)
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    strategy = rostam.Strategy(dp=8, tp=8, pp=8, precision="tf32", micro_batch=1, recompute="full", algorithms=RINGS)
    graph = rostam.trace("gpt3_175b")
    jobs = [rostam.Job(f"gpt_{i}", graph, strategy, 64) for i in range(2)]
    plans = rostam.place_mix(jobs, machine, allocation="random", host_size=8, seed=0, software="ideal")

    def call() -> dict[str, Any]:
        runs = rostam.simulate(plans, routing="hash", controllers=["path_assignment"], max_iterations=3)
        return {"slowest_s": max(one.iteration_time_s for one in runs)}

    return call
