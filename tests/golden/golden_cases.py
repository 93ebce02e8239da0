"""The golden cases, as data: what runs on what. golden_runs.py runs them, regenerate.py records their results.

Every case has its algorithms, its cost model, which ops fuse and what adding up gradients costs, so that a new default
changes none of them. Inputs are drawn with fixed seeds.
"""

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One run.

    kind: a function of golden_runs.py, and the file that holds the results. fabric: a name in FABRICS.
    run: keyword arguments of the simulation. failed: of Fabric.with_failures.
    model, strategy, batch, machine, cost: of a plan. job: further settings of the kind.
    """

    kind: str
    name: str
    fabric: str
    run: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    strategy: dict[str, Any] = field(default_factory=dict)
    batch: int = 0
    machine: dict[str, Any] = field(default_factory=dict)
    cost: str = "roofline"
    job: dict[str, Any] = field(default_factory=dict)


B400, B1600 = {"accelerator_bandwidth": "400 Gb/s"}, {"accelerator_bandwidth": "1600 Gb/s"}
# Six accelerators on two switches, one of which has a slow port; two cables of different speed in between.
CABLES = [
    ("a0", "s0", 5e10), ("a1", "s0", 5e10), ("a2", "s0", 2.5e10), ("a3", "s1", 5e10), ("a4", "s1", 5e10),
    ("a5", "s1", 5e10), ("s0", "s1", 8e10), ("s0", "s2", 3e10), ("s2", "s1", 3e10),
]  # fmt: skip
FABRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "flat12": ("electrical_flat", {"num_accelerators": 12, **B400}),
    "flat16": ("electrical_flat", {"num_accelerators": 16, **B400}),
    "cluster12": ("electrical_cluster", {"num_accelerators": 12, "server_size": 4, **B400}),
    "cluster16": (
        "electrical_cluster", {"num_accelerators": 16, "server_size": 8, "server_bandwidth": "800 Gb/s", **B1600},
    ),
    "tree12": ("fat_tree", {"num_accelerators": 12, "radix": 8, "leaf_down": 5, "leaf_up": 3, **B400}),
    "tree16": ("fat_tree", {"num_accelerators": 16, "radix": 8, "leaf_down": 4, "leaf_up": 4, **B400}),
    "tree16_planes": (
        "fat_tree", {"num_accelerators": 16, "radix": 8, "leaf_down": 4, "leaf_up": 2, "planes": 4, **B1600},
    ),
    "tree16_servers": ("fat_tree", {"num_accelerators": 16, "radix": 8, "server_size": 4, **B400}),
    "tree64": ("fat_tree", {"num_accelerators": 64, "radix": 16, **B400}),
    "torus3x4": ("torus", {"dims": (3, 4), **B400}),
    "torus4x4": ("torus", {"dims": (4, 4), **B400}),
    "torus2x2x4": ("torus", {"dims": (2, 2, 4), **B400}),
    "torus4x4_boards": ("torus", {"dims": (4, 4), "board": (2, 2), "planes": 2, **B1600}),
    "torus8x8": ("torus", {"dims": (8, 8), **B1600}),
    "hx2_3x1": ("hammingmesh", {"board": (2, 2), "boards": (3, 1), **B400}),
    "hx2_2x2": ("hammingmesh", {"board": (2, 2), "boards": (2, 2), **B400}),
    "hx2_4x4": ("hammingmesh", {"board": (2, 2), "boards": (4, 4), "planes": 4, **B1600}),
    "hx1_4x4": ("hammingmesh", {"board": (1, 1), "boards": (4, 4), **B400}),
    "slim18": ("slim_fly", {"q": 3, "terminals_per_switch": 1, **B400}),
    "dragonfly16": (
        "dragonfly",
        {"routers_per_group": 4, "terminals_per_router": 1, "global_links_per_router": 2, "num_groups": 4, **B400},
    ),
    "hyperx16": ("hyperx", {"dims": (2, 4), "terminals": 2, **B400}),
    "ocs12": ("sip_ocs", {"num_accelerators": 12, **B400}),
    "ocs16": ("sip_ocs", {"num_accelerators": 16, "num_ocs": 16, **B1600}),
    "ocs16_q8": ("sip_ocs", {"num_accelerators": 16, "num_ocs": 8, "relay": True, **B1600}),
    "ring16": ("sip_ring", {"num_accelerators": 16, **B1600}),
    "ring24": ("sip_ring", {"num_accelerators": 24, **B1600}),
    "ring24_far": ("sip_ring", {"num_accelerators": 24, "reach": 23, **B1600}),
    "ocs24": ("sip_ocs", {"num_accelerators": 24, **B1600}),
    "cables6": ("custom", {"links": CABLES, "link_latency": "300 ns"}),
}  # fmt: skip
TWELVE = ("flat12", "cluster12", "tree12", "torus3x4", "hx2_3x1", "ocs12")

RING = {
    "all_reduce": "ring", "all_gather": "ring", "reduce_scatter": "ring", "all_to_all": "direct",
    "broadcast": "binomial_tree",
}  # fmt: skip


def with_all_reduce(name: str) -> dict[str, str]:
    """Return the algorithm of every collective, of all_reduce this one."""
    return RING | {"all_reduce": name}


def collective_cases() -> list[Case]:
    """Every algorithm, sprayed and hashed; on grids; with failures, events, late ranks and without folding."""
    small, cases = {"num_bytes": 1_000_003, "seed": 7}, []

    def add(fabric: str, name: str, what: str = "", failed: dict[str, Any] | None = None, **run: Any) -> None:
        collective, algorithm = name.split("/")
        run = small | {"collective": collective, "algorithm": algorithm} | run
        cases.append(Case("collectives", f"{fabric} {name} {what}".strip(), fabric, run, failed or {}))

    everywhere = (
        "all_reduce/ring", "all_reduce/bidirectional_ring", "all_reduce/binomial_tree", "all_reduce/halving_doubling",
        "all_reduce/hierarchical", "reduce_scatter/ring", "all_gather/ring", "all_to_all/direct",
        "all_to_all/balanced_shift", "broadcast/binomial_tree",
    )  # fmt: skip
    for fabric in TWELVE:
        for routing in ("spray", "hash"):
            for name in everywhere:
                add(fabric, name, routing, routing=routing)
    for fabric in ("torus4x4", "hx2_2x2", "torus4x4_boards"):
        for name in (
            "all_reduce/dual_hamiltonian_rings", "reduce_scatter/dual_hamiltonian_rings",
            "all_gather/dual_hamiltonian_rings", "all_reduce/torus_2d", "all_reduce/torus_2d_unidirectional",
        ):  # fmt: skip
            add(fabric, name)
    for fabric in ("ring16", "ocs16_q8", "tree16_servers", "cables6", "hx1_4x4", "torus2x2x4"):
        for name in ("all_reduce/ring", "all_reduce/hierarchical", "all_to_all/balanced_shift"):
            add(fabric, name)
    for fabric, routing in itertools.product(("slim18", "dragonfly16", "hyperx16"), ("spray", "hash")):
        add(fabric, "all_reduce/ring", routing, routing=routing)
        add(fabric, "all_to_all/direct", routing, routing=routing)
        if routing == "spray":
            add(fabric, "all_to_all/direct", "failures", failed={"links": [20, 25]})
    many = ("slim18", "dragonfly16", "hyperx16", "torus3x4", "hx2_2x2", "tree12")
    for fabric, routing in itertools.product(many, ("turns", "up_down", "valiant", "layers")):
        add(fabric, "all_to_all/direct", routing, routing=routing)
    add("tree16", "all_reduce/ring", "unfolded", fold=False)
    add("hx2_2x2", "all_to_all/direct", "unfolded", fold=False)
    add("torus4x4", "all_reduce/torus_2d", "unfolded", fold=False)
    add("cables6", "send_recv/direct", ranks=[5, 1])
    add("tree16", "all_reduce/hierarchical", "group 2, ranks in an order", ranks=[3, 9, 14, 0, 7, 12], group=2)
    add("flat16", "all_reduce/ring", "late ranks", start_s={3: 2e-5, 9: 1e-4})
    add("torus4x4", "all_reduce/ring", "a link slows down", events=[("2 us", 5, 0.25), ("30 us", 5, 1.0)])
    add("torus4x4", "all_to_all/direct", "failures", failed={"links": [3, 17], "accelerators": [6]})
    add("hx2_2x2", "all_reduce/ring", "a board failed", failed={"boards": [2]})
    add("tree16", "all_to_all/direct", "a spine failed", failed={"switches": [5]}, routing="hash")
    return cases


def flow_cases() -> list[Case]:
    """Random flows on every fabric, and what may happen to flows."""
    rng = np.random.default_rng(5)
    pairs = np.array([rng.choice(12, 2, replace=False) for _ in range(30)])
    given = {
        "src": pairs[:, 0].tolist(), "dst": pairs[:, 1].tolist(), "num_bytes": rng.integers(0, 10**7, 30).tolist(),
        "start_s": (rng.integers(0, 10**8, 30) * 1e-12).tolist(),
    }  # fmt: skip
    cases = [
        Case("flows", f"{fabric} {routing}", fabric, given | {"routing": routing})
        for fabric in (*TWELVE, "tree16_planes", "torus2x2x4", "hx1_4x4", "ring16")
        for routing in ("spray", "hash")
    ]
    hashed, ends = given | {"routing": "hash"}, [None] * 10 + [4e-4] * 20
    cases += [
        Case("flows", "tree16 another seed", "tree16", hashed | {"seed": 12345678901234567890}),
        Case("flows", "tree16 reroutes", "tree16", hashed | {"reroutes": [("50 us", 3, 9), ("120 us", 17, 4)]}),
        Case("flows", "tree16 cut off and capped", "tree16", hashed | {"stop_s": ends, "rate_cap": [1e9, None] * 15}),
        Case("flows", "torus3x4 links change", "torus3x4", hashed | {"events": [("1 us", 0, 0.1), ("90 us", 7, 0.5)]}),
        Case("flows", "tree16 failures", "tree16", hashed, {"links": [18, 23]}),
    ]
    return cases


def circuit_cases() -> list[Case]:
    """Circuits of one random demand within reach."""
    rng = np.random.default_rng(11)
    src = np.repeat(np.arange(24), 4)
    dst = (src + np.concatenate([rng.choice([-5, -3, -2, -1, 1, 2, 4, 6], 4, replace=False) for _ in range(24)])) % 24
    demand = {"src": src.tolist(), "dst": dst.tolist(), "num_bytes": rng.integers(1, 10**6, len(src)).tolist()}
    return [
        Case("circuits", "ocs24", "ocs24", {"seed": 3}, job=demand),
        Case("circuits", "ring24", "ring24", {"seed": 3}, job=demand),
        Case("circuits", "ring24_far a fibre cut", "ring24_far", {"seed": 3}, {"links": [4]}, job=demand),
        Case("circuits", "ocs24 a switch failed", "ocs24", {"seed": 3}, {"switches": [2]}, job=demand),
    ]


def plan_cases() -> list[Case]:
    """Placed plans: every fabric, both placers, schedules, numerics, mappings, failures, events, folded and not."""
    cases = []

    def add(
        name: str, fabric: str, model: str, batch: int, strategy: dict[str, Any], *, all_reduce: str = "ring",
        failed: dict[str, Any] | None = None, machine: dict[str, Any] | None = None, cost: str = "roofline", **run: Any,
    ) -> None:  # fmt: skip
        strategy = {
            "algorithms": with_all_reduce(all_reduce), "fusion": "producer", "accumulation": "free",
            "mapping": "linear", **strategy,
        }  # fmt: skip
        cases.append(
            Case("plans", f"{fabric} {name}", fabric, run, failed or {}, model, strategy, batch, machine or {}, cost)
        )

    three = {"dp": 4, "tp": 2, "pp": 2}
    for fabric in TWELVE:
        add("by hand", fabric, "hand", 12, {"dp": 3, "tp": 2, "pp": 2, "precision": "fp32"})
    for fabric in (
        "flat16", "cluster16", "tree16", "tree16_planes", "tree16_servers", "torus4x4", "torus2x2x4", "hx2_2x2",
        "hx1_4x4",
    ):  # fmt: skip
        add("gpt dp 4 tp 2 pp 2", fabric, "gpt", 32, three)
    add("gpt dp 16 hash", "tree16_planes", "gpt", 32, {"dp": 16}, routing="hash", seed=5)
    add("gpt dp 4 tp 4 hash", "hx2_2x2", "gpt", 32, {"dp": 4, "tp": 4}, routing="hash", seed=5)
    add(
        "gpt dp 8 tp 2 hash, dp fastest",
        "tree16",
        "gpt",
        32,
        {"dp": 8, "tp": 2, "rank_order": "dp,tp,pp"},
        routing="hash",
    )
    add("gpt dp 2 tp 4 pp 2 unfolded", "torus4x4", "gpt", 16, {"dp": 2, "tp": 4, "pp": 2}, fold=False)
    add("gpt dp 4 pp 4 unfolded, unfused", "tree16", "gpt", 32, {"dp": 4, "pp": 4}, fold=False, fuse=False)
    add("gpt pp 3 1f1b", "flat12", "gpt", 32, {"dp": 4, "pp": 3, "schedule": "1f1b", "micro_batch": 2})
    add("gpt pp 3 gpipe", "flat12", "gpt", 32, {"dp": 4, "pp": 3, "schedule": "gpipe", "micro_batch": 2})
    add("gpt pp 6 deep", "torus3x4", "gpt", 32, {"dp": 2, "pp": 6})
    for recompute in ("selective", "full"):
        add(f"gpt recompute {recompute}", "tree16", "gpt", 32, {**three, "recompute": recompute})
    add("gpt bf16 in small buckets", "tree16", "gpt", 32, {"dp": 16, "precision": "bf16_mixed", "bucket_size": "1 MB"})
    add("gpt fp16 sgd", "torus4x4", "gpt", 32, {"dp": 8, "tp": 2, "precision": "fp16_mixed", "optimizer": "sgd"})
    add("gpt random mapping", "torus4x4", "gpt", 32, {**three, "mapping": "random", "mapping_seed": 4})
    add(
        "gpt listed mapping",
        "hx2_2x2",
        "gpt",
        32,
        {**three, "mapping": [5, 0, 3, 9, 15, 2, 8, 1, 14, 4, 7, 6, 13, 10, 12, 11]},
    )
    add("gpt slow devices", "tree16", "gpt", 32, three, machine={"slow": {3: 0.5, 9: 0.8}})
    add("gpt communication takes compute", "tree16", "gpt", 32, {"dp": 16}, machine={"comm_compute_fraction": 0.25})
    add(
        "gpt no launch latency", "tree16", "gpt", 32, three, machine={"launch_latency": "0 s", "min_kernel_time": "0 s"}
    )
    add("gpt v100", "cluster16", "gpt", 32, {"dp": 2, "tp": 8}, machine={"accelerator": "v100_32gb"})
    add("gpt idle rest", "tree16", "gpt", 12, {"dp": 3, "tp": 2, "pp": 2, "allow_idle": True})
    for algorithm in ("bidirectional_ring", "binomial_tree", "halving_doubling", "hierarchical"):
        add(f"gpt {algorithm}", "tree16_servers", "gpt", 32, {"dp": 8, "tp": 2}, all_reduce=algorithm)
    for algorithm in ("dual_hamiltonian_rings", "torus_2d", "torus_2d_unidirectional"):
        add(f"gpt {algorithm}", "torus4x4", "gpt", 32, {"dp": 16}, all_reduce=algorithm)
        add(f"gpt {algorithm}", "hx2_2x2", "gpt", 32, {"dp": 16}, all_reduce=algorithm)
    add("gpt a link slows down", "torus4x4", "gpt", 32, {"dp": 16}, events=[("300 us", 7, 0.2), ("5 ms", 7, 1.0)])
    add("gpt at least 4 iterations", "tree16", "gpt", 32, {"dp": 16}, min_iterations=4, max_iterations=6)
    add("gpt links failed", "torus4x4", "gpt", 32, three, failed={"links": [3, 17]})
    add("gpt links failed, hash", "hx2_2x2", "gpt", 32, three, failed={"links": [2, 9]}, routing="hash")
    add(
        "gpt an accelerator failed",
        "tree16",
        "gpt",
        12,
        {"dp": 3, "tp": 2, "pp": 2, "allow_idle": True},
        failed={"accelerators": [2]},
    )
    add("gpt a spine failed", "tree16", "gpt", 32, three, failed={"switches": [5]})
    add("gpt a board failed", "hx2_2x2", "gpt", 12, {"dp": 3, "tp": 4}, failed={"boards": [1]})
    add("gpt drawn failures", "torus8x8", "gpt", 64, {"dp": 8, "tp": 8}, failed={"random": ("links", 5, 1)})
    for fabric in ("tree64", "torus8x8", "hx2_4x4"):
        add("gpt dp 8 tp 4 pp 2, folded", fabric, "gpt", 64, {"dp": 8, "tp": 4, "pp": 2})
    add("gpt dp 64 hash", "tree64", "gpt", 64, {"dp": 64}, routing="hash")
    add("transformer pp 4", "flat16", "transformer", 64, {"dp": 4, "pp": 4})
    add("transformer tp 4 pp 2", "hx2_2x2", "transformer", 64, {"dp": 2, "tp": 4, "pp": 2})
    add("transformer pp 4 gpipe", "torus4x4", "transformer", 64, {"dp": 4, "pp": 4, "schedule": "gpipe"})
    add("resnet dp 16", "tree16", "resnet", 256, {"dp": 16})
    add("resnet tp 4", "cluster16", "resnet", 64, {"dp": 4, "tp": 4})
    add("resnet on cables", "cables6", "resnet", 60, {"dp": 6})
    add("resnet on cables, hash", "cables6", "resnet", 60, {"dp": 3, "tp": 2}, routing="hash")
    add("gpt dp 16 circuits", "ocs16", "gpt", 32, {"dp": 16})
    add("gpt dp 4 pp 4 circuits", "ring16", "gpt", 32, {"dp": 4, "pp": 4})
    add("gpt dp 4 tp 2 pp 2 relayed", "ocs16_q8", "gpt", 32, three, all_reduce="binomial_tree")
    add("gpt a switch failed", "ocs16", "gpt", 32, three, failed={"switches": [1]})
    add("gpt a fibre cut", "ring16", "gpt", 32, three, failed={"links": [5]})
    v100 = {"accelerator": "v100_32gb"}
    for fabric, dp, mp in (
        ("flat16", 4, 4), ("cluster16", 2, 8), ("ocs16", 4, 4), ("ocs16", 2, 8), ("ring16", 4, 4), ("torus4x4", 1, 16),
    ):  # fmt: skip
        groups = {"dp": dp, "mp": mp, "placer": "sip_ml"}
        add(f"resnet dp {dp} mp {mp}", fabric, "resnet", 64, groups, machine=v100)
    groups = {"dp": 2, "mp": 8, "placer": "sip_ml"}
    add("transformer dp 2 mp 8", "flat16", "transformer", 64, groups, machine=v100)
    add("transformer dp 2 mp 8", "ocs16", "transformer", 64, groups, machine=v100)
    add("transformer degree 4", "flat16", "transformer", 64, groups | {"max_circuit_degree": 4}, machine=v100)
    add(
        "resnet paper's window",
        "ocs16",
        "resnet",
        64,
        groups | {"max_circuit_degree": 4, "window": "paper"},
        machine=v100,
    )
    add(
        "resnet long sub-ops, hash",
        "torus4x4",
        "resnet",
        64,
        groups | {"quantum": "50 us"},
        machine=v100,
        routing="hash",
    )
    add("resnet dp 2 mp 8 unfolded", "tree16", "resnet", 64, groups, machine=v100, fold=False)
    # Measured kernels: own tables, another's in 16 bits, another's backward of attention, no table at all.
    bf16, measured = {**three, "precision": "bf16_mixed"}, {"cost": "calibrated"}
    for device in ("a100_80gb", "h100_80gb", "b200_180gb"):
        add(f"gpt {device} calibrated", "tree16", "gpt", 32, bf16, machine={"accelerator": device}, **measured)
    add("gpt v100 calibrated", "flat16", "gpt", 32, {**three, "precision": "fp16_mixed"}, machine=v100, **measured)
    add("transformer calibrated", "torus4x4", "transformer", 64, three, **measured)
    add("resnet calibrated", "cluster16", "resnet", 64, {"dp": 4, "tp": 4, "precision": "tf32"}, **measured)
    add("resnet dp 2 mp 8 calibrated", "ocs16", "resnet", 64, groups, machine=v100, **measured)
    today = {**three, "fusion": "pointwise", "accumulation": "fused"}
    for fusion in ("pointwise", "epilogue", "none"):
        add(f"gpt fusion {fusion}", "tree16", "gpt", 32, {**today, "fusion": fusion})
    add("resnet fusion pointwise", "cluster16", "resnet", 64, {**today, "dp": 4, "tp": 4, "pp": 1})
    add("transformer fusion pointwise", "torus4x4", "transformer", 64, {**today, "recompute": "selective"})
    add("gpt eager hosts", "tree16", "gpt", 32, {**today, "fusion": "none"}, machine={"host": "eager"})
    add("gpt compiled hosts wait", "tree16", "gpt", 32, today, machine={"host": "compiled", "host_sync": "messages"})
    return cases


def mix_cases() -> list[Case]:
    """Jobs that share a fabric: linear and random hosts, later starts, with circuits, with and without baselines."""
    large = {"name": "large", "model": "gpt", "batch": 16, "strategy": {"dp": 2, "tp": 2, "pp": 2}}
    small = {"name": "small", "model": "transformer", "batch": 16, "strategy": {"dp": 4}, "start_s": "1 ms"}
    image = {"name": "image", "model": "resnet", "batch": 32, "strategy": {"dp": 2, "tp": 2}, "start_s": "200 us"}
    three, drawn = [large, small, image], {"allocation": "random", "seed": 3}
    cases = [
        Case("mixes", "tree16 hash, drawn hosts", "tree16", {"routing": "hash"}, job={"jobs": three, "place": drawn}),
        Case("mixes", "tree16 spray, hosts in order", "tree16", {"routing": "spray"}, job={"jobs": three}),
        Case("mixes", "torus4x4 hash", "torus4x4", {"routing": "hash", "seed": 8}, job={"jobs": three, "place": drawn}),
        Case("mixes", "hx2_2x2 without baselines", "hx2_2x2", {"baselines": False}, job={"jobs": three}),
        Case("mixes", "tree16_planes long", "tree16_planes", {"num_iterations": 5}, job={"jobs": [small, image]}),
        Case("mixes", "ocs16 circuits of all jobs", "ocs16", {"routing": "spray"}, job={"jobs": [large, small]}),
        Case("mixes", "tree16 a link failed", "tree16", {"routing": "hash"}, {"links": [19]}, job={"jobs": three}),
    ]  # fmt: skip
    return cases


CASES = [*collective_cases(), *flow_cases(), *circuit_cases(), *plan_cases(), *mix_cases()]
