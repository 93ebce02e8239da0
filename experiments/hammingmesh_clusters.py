"""HammingMesh's clusters, small ones of about 1,024 accelerators and large ones, as its studies take them.

Example:
    built("Hx2Mesh")              # 1.6 Tb/s for each accelerator, appendix F
    price_musd("Hx2Mesh")         # 5.4: all planes, as Table II prices them
"""

from functools import cache
from typing import Any

import rostam_py as rostam
from rostam_py.fabrics.fabric import Fabric

_HX = "hammingmesh"
# Simulated: one plane of a mesh or torus, four of a tree or Dragonfly, whose tapers are those that fit Table II's
# bandwidths (32 down, 16 or 8 up).
CLUSTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "nonblocking tree": ("fat_tree", {"num_accelerators": 1024, "levels": 2, "planes": 4}),
    "50% tapered tree": ("fat_tree", {"num_accelerators": 1024, "leaf_down": 32, "leaf_up": 16, "planes": 4}),
    "75% tapered tree": ("fat_tree", {"num_accelerators": 1024, "leaf_down": 32, "leaf_up": 8, "planes": 4}),
    "Dragonfly": ("dragonfly", {
        "routers_per_group": 16, "terminals_per_router": 8, "global_links_per_router": 8, "num_groups": 8, "planes": 4,
    }),
    "2D HyperX (as Hx1Mesh)": (_HX, {"board": [1, 1], "boards": [32, 32]}),
    "Hx2Mesh": (_HX, {"board": [2, 2], "boards": [16, 16]}),
    "Hx4Mesh": (_HX, {"board": [4, 4], "boards": [8, 8]}),
    "2D torus": ("torus", {"dims": [32, 32], "board": [2, 2]}),
}  # fmt: skip
# About 16,384 accelerators; the meshes of Table II.
LARGE: dict[str, tuple[str, dict[str, Any]]] = {
    "nonblocking tree large": ("fat_tree", {"num_accelerators": 16384, "levels": 3, "planes": 4}),
    "Hx2Mesh large": (_HX, {"board": [2, 2], "boards": [64, 64]}),
    "Hx4Mesh large": (_HX, {"board": [4, 4], "boards": [32, 32]}),
    "2D torus large": ("torus", {"dims": [128, 128], "board": [2, 2]}),
}
# Priced: appendix C's leaves, and its two virtual routers on each switch of a Dragonfly; every plane.
_PRICED: dict[str, dict[str, Any]] = {
    "50% tapered tree": {"num_accelerators": 1050, "leaf_down": 42, "leaf_up": 22},
    "75% tapered tree": {"num_accelerators": 1071, "leaf_down": 51, "leaf_up": 13},
    "Dragonfly": {"routers_per_switch": 2},
}


@cache
def built(name: str) -> Fabric:
    """Return a cluster as it is simulated."""
    kind, parameters = CLUSTERS[name] if name in CLUSTERS else LARGE[name]
    return rostam.fabric(kind, link_bandwidth="400 Gb/s", **parameters)


@cache
def price_musd(name: str) -> float:
    """Return what the network of a cluster costs [M$], by the model of Table II's costs."""
    kind, parameters = CLUSTERS[name]
    planes = {"planes": 4 * parameters.get("planes", 1)}
    whole = rostam.fabric(kind, link_bandwidth="400 Gb/s", **{**parameters, **_PRICED.get(name, {}), **planes})
    return whole.bill_of_materials().total_usd / 1e6
