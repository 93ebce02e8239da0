"""Write the golden results: ``python tests/golden/regenerate.py``; the commit that changes them says why.

Times are whole picoseconds and runs are byte-identical on one build, so results are compared for equality.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

import rostam_py as rostam
from rostam_py.fabrics.traffic import Traffic
from rostam_py.placement.schedule import stage_program
from rostam_py.plan.plan import KernelTime, MemoryBytes, Plan, Stage, Task

FOLDER = Path(__file__).parent
FABRICS: dict[str, dict[str, Any]] = {
    "electrical_flat": {"num_accelerators": 12},
    "electrical_cluster": {"num_accelerators": 12, "server_size": 4},
    "fat_tree": {"num_accelerators": 12, "radix": 8, "leaf_down": 5, "leaf_up": 3},
    "torus": {"dims": (3, 4)},
    "hammingmesh": {"board": (2, 2), "boards": (3, 1)},
    "sip_ocs": {"num_accelerators": 12},
}
GRIDS: dict[str, dict[str, Any]] = {
    "torus": {"dims": (4, 4)},
    "hammingmesh": {"board": (2, 2), "boards": (2, 2)},
}
ALGORITHMS = (
    ("all_reduce", "ring"), ("all_reduce", "bidirectional_ring"), ("all_reduce", "binomial_tree"),
    ("all_reduce", "halving_doubling"), ("all_reduce", "hierarchical"), ("all_to_all", "direct"),
    ("all_to_all", "balanced_shift"), ("broadcast", "binomial_tree"),
)  # fmt: skip


def build(name: str) -> Any:
    """Return one of FABRICS at 400 Gb/s an accelerator."""
    return rostam.fabric(name, accelerator_bandwidth="400 Gb/s", **FABRICS[name])


def collectives() -> dict[str, Any]:
    """Time in ps and messages of every algorithm on every fabric, sprayed and hashed."""
    found = {}
    for name in FABRICS:
        for routing in ("spray", "hash"):
            for collective, algorithm in ALGORITHMS:
                result = rostam.run_collective(
                    build(name), collective, algorithm=algorithm, num_bytes=1_000_003, routing=routing, seed=7
                )
                found[f"{name} {routing} {collective}/{algorithm}"] = [result.time_ps, result.num_messages]
    return found


def grids() -> dict[str, Any]:
    """Time in ps and messages of the algorithms that need a 2D grid."""
    found = {}
    for name, parameters in GRIDS.items():
        fabric = rostam.fabric(name, accelerator_bandwidth="400 Gb/s", **parameters)
        for algorithm in ("dual_hamiltonian_rings", "torus_2d", "torus_2d_unidirectional"):
            result = rostam.run_collective(fabric, "all_reduce", algorithm=algorithm, num_bytes=1_000_003)
            found[f"{name} {algorithm}"] = [result.time_ps, result.num_messages]
    return found


def circuits() -> dict[str, Any]:
    """Circuits of every pair for one random demand within reach."""
    rng = np.random.default_rng(11)
    src = np.repeat(np.arange(24), 4)
    dst = (src + np.concatenate([rng.choice([-5, -3, -2, -1, 1, 2, 4, 6], 4, replace=False) for _ in range(24)])) % 24
    demand = Traffic.from_messages(24, src, dst, rng.integers(1, 10**6, len(src)))
    found = {}
    for name in ("sip_ocs", "sip_ring"):
        fabric = rostam.fabric(name, num_accelerators=24, accelerator_bandwidth="1600 Gb/s")
        found[name] = fabric.with_circuits(demand, seed=3).circuits.count.tolist()
    return found


def flows() -> dict[str, Any]:
    """Arrivals in ps of 30 random flows on every fabric."""
    rng = np.random.default_rng(5)
    pairs = np.array([rng.choice(12, 2, replace=False) for _ in range(30)])
    sizes, starts = rng.integers(0, 10**7, 30).tolist(), (rng.integers(0, 10**8, 30) * 1e-12).tolist()
    found = {}
    for name in FABRICS:
        for routing in ("spray", "hash"):
            result = rostam.run_flows(
                build(name), src=pairs[:, 0], dst=pairs[:, 1], num_bytes=sizes, start_s=starts, routing=routing
            )
            found[f"{name} {routing}"] = np.rint(result.finish_s * 1e12).astype(int).tolist()
    return found


def _stage(index: int) -> Stage:
    """One of two stages with a tensor-parallel all-reduce in each pass and gradients at the end."""
    other = 1 - 2 * index

    def half(name: str, seconds: float, is_receiver: bool) -> list[Task]:
        tasks = (
            [Task("recv", "recv", (), "pp", tensor=name, stage_offset=other, num_bytes=300_001)] if is_receiver else []
        )
        kernels = tuple(KernelTime(f"{name}{k}", "m", "op", seconds / 3) for k in range(3))
        tasks.append(Task("compute", name, tuple(range(len(tasks))), kernels=kernels))
        tasks.append(Task("collective", "sum", (len(tasks) - 1,), "tp", collective="all_reduce", num_bytes=700_001))
        if not is_receiver:
            send = (len(tasks) - 1,)
            tasks.append(Task("send", "send", send, "pp", tensor=name, stage_offset=other, num_bytes=300_001))
        return tasks

    forward, backward = half("x", 1e-4, index == 1), half("dx", 2e-4, index == 0)
    last = [
        *backward,
        Task("collective", "gradients", (len(backward) - 1,), "dp", collective="all_reduce", num_bytes=2_000_003),
        Task("compute", "step", (len(backward),), kernels=(KernelTime("step", "", "", 1e-5),), is_optimizer=True),
    ]
    templates = {"forward": tuple(forward), "backward": tuple(backward), "backward_last": tuple(last)}
    return Stage(index, templates, stage_program("1f1b", index, 2, 4), MemoryBytes(), 0)


KEPT = (
    "iteration_times_s", "is_steady", "breakdown_s", "critical_path_s", "bytes_sent", "bytes_received", "num_messages",
    "busiest_links", "num_simulated_devices",
)  # fmt: skip


def plans() -> dict[str, Any]:
    """What a hand-written plan, dp 3 x tp 2 x pp 2, gives on every fabric."""
    found = {}
    for name in FABRICS:
        strategy = rostam.Strategy(dp=3, tp=2, pp=2, precision="fp32")
        ids = np.arange(12).reshape(3, 2, 2)
        machine = rostam.Machine(fabric=build(name))
        stages = (_stage(0), _stage(1))
        algorithms = strategy.resolved_algorithms()
        plan = Plan("golden", machine, strategy, 12, 1, 4, stages, ids, algorithms=algorithms)
        result = rostam.simulate(plan).to_dict()
        found[name] = {key: result[key] for key in KEPT}
    return found


CASES = {"circuits": circuits, "collectives": collectives, "flows": flows, "grids": grids, "plans": plans}


def as_text(name: str) -> str:
    """Return the JSON text of one case."""
    return json.dumps(CASES[name](), indent=1) + "\n"


if __name__ == "__main__":
    for case in CASES:
        (FOLDER / f"{case}.json").write_text(as_text(case), encoding="utf-8")
