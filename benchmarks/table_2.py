"""HammingMesh's Table II: what each of its 16 clusters costs, its diameter and its two bandwidths."""

from collections.abc import Callable
from typing import Any

import rostam_py as rostam
from benchmarks.case import Case

_BYTES_PER_ACCELERATOR = 2**24
_TREE = {"name": "fat_tree", "planes": 16}
_DRAGONFLY = {"name": "dragonfly", "routers_per_switch": 2, "planes": 16}
_BOARDS = {"name": "hammingmesh", "planes": 4}
_TORUS = {"name": "torus", "board": [2, 2], "planes": 4}

# As the paper describes them: about 1,024 accelerators, then about 16,384.
CLUSTERS: dict[str, dict[str, Any]] = {
    "nonblocking small": {**_TREE, "num_accelerators": 1024, "levels": 2},
    "50% tapered small": {**_TREE, "num_accelerators": 1050, "leaf_down": 42, "leaf_up": 22},
    "75% tapered small": {**_TREE, "num_accelerators": 1071, "leaf_down": 51, "leaf_up": 13},
    "Dragonfly small": {
        **_DRAGONFLY, "routers_per_group": 16, "terminals_per_router": 8, "global_links_per_router": 8, "num_groups": 8,
    },
    "2D HyperX small": {**_BOARDS, "board": [1, 1], "boards": [32, 32]},
    "Hx2Mesh small": {**_BOARDS, "board": [2, 2], "boards": [16, 16]},
    "Hx4Mesh small": {**_BOARDS, "board": [4, 4], "boards": [8, 8]},
    "2D torus small": {**_TORUS, "dims": [32, 32]},
    "nonblocking large": {**_TREE, "num_accelerators": 16384, "levels": 3},
    "50% tapered large": {**_TREE, "num_accelerators": 16384, "levels": 3, "leaf_down": 42, "leaf_up": 22},
    "75% tapered large": {**_TREE, "num_accelerators": 16384, "levels": 3, "leaf_down": 51, "leaf_up": 13},
    "Dragonfly large": {
        **_DRAGONFLY, "routers_per_group": 32, "terminals_per_router": 17, "global_links_per_router": 16,
        "num_groups": 30, "routers_per_switch": 1,
    },
    "2D HyperX large": {**_BOARDS, "board": [1, 1], "boards": [128, 128]},
    "Hx2Mesh large": {**_BOARDS, "board": [2, 2], "boards": [64, 64]},
    "Hx4Mesh large": {**_BOARDS, "board": [4, 4], "boards": [32, 32]},
    "2D torus large": {**_TORUS, "dims": [128, 128]},
}  # fmt: skip


def row(cluster: dict[str, Any]) -> dict[str, float]:
    """Return cost [M$], diameter [cables], all-to-all [% of injection] and all-reduce [% of its optimum].

    All-to-all is by the paper's routings: UGAL on Dragonflies, all minimal paths elsewhere.
    """
    fabric = rostam.fabric(**cluster)
    count = fabric.num_accelerators
    num_bytes = _BYTES_PER_ACCELERATOR * count
    algorithm = "ring" if cluster["name"] in ("fat_tree", "dragonfly") else "dual_hamiltonian_rings"
    ring = rostam.run_collective(fabric, "all_reduce", num_bytes=num_bytes, algorithm=algorithm)
    optimum_s = 2 * (count - 1) * num_bytes / (count * fabric.injection_bandwidth_bytes_per_s)
    return {
        "cost_musd": fabric.bill_of_materials().total_usd / 1e6,
        "diameter": fabric.diameter(),
        "all_to_all": 100
        * rostam.saturation_throughput(fabric, routing="ugal" if cluster["name"] == "dragonfly" else "spray"),
        "all_reduce": 100 * optimum_s / ring.time_s,
    }


def _table() -> Callable[[], dict[str, Any]]:
    rostam.fabric("fat_tree", num_accelerators=4, link_bandwidth="400 Gb/s")  # imports are start_import's cost

    def call() -> dict[str, Any]:
        rows = [row(cluster) for cluster in CLUSTERS.values()]
        return {"num_rows": len(rows)} | {f"sum_{key}": sum(one[key] for one in rows) for key in rows[0]}

    return call


def table_2_case() -> Case:
    """Return the case of all rows, small and large."""
    return Case(name="hammingmesh_table_2", prepare=_table, target_cpu_s=600.0, target_bytes=8e9)
