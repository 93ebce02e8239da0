"""Loads of an all-to-all by orbits of a fabric's symmetries, against those of every pair on its own."""

import numpy as np
import pytest

from rostam_py import _core
from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.throughput import link_loads

FABRICS = [
    ("torus", {"dims": (4, 5)}),
    ("torus", {"dims": (3, 2, 4)}),
    ("fat_tree", {"num_accelerators": 48, "radix": 8, "levels": 3}),
    ("fat_tree", {"num_accelerators": 42, "radix": 8, "levels": 3}),
    ("fat_tree", {"num_accelerators": 57, "levels": 2, "leaf_down": 7, "leaf_up": 3}),
    ("fat_tree", {"num_accelerators": 60, "radix": 16, "server_size": 4}),
    ("electrical_flat", {"num_accelerators": 9}),
    ("hammingmesh", {"board": (1, 1), "boards": (4, 6), "wiring": "tree"}),
    ("hammingmesh", {"board": (2, 2), "boards": (3, 4)}),
    ("hammingmesh", {"board": (4, 3), "boards": (2, 3)}),
    ("hammingmesh", {"board": (3, 2), "boards": (3, 4), "wiring": "accelerator_row"}),
    ("hammingmesh", {"board": (3, 4), "boards": (1, 5)}),
    ("hammingmesh", {"board": (2, 3), "boards": (40, 2), "wiring": "tree"}),
]  # fmt: skip


def by_orbits_and_by_pairs(fabric, members):
    routes = fabric.router("spray", enable_bundling=False)
    found = np.asarray(_core.all_to_all_loads(routes, members.astype(np.int32), 1e9))
    src, dst = (side.ravel() for side in np.meshgrid(members, members, indexing="ij"))
    one = 1e9 / (len(members) - 1) * fabric.planes
    return found, link_loads(fabric, src[src != dst], dst[src != dst], np.full(len(src) - len(members), one))


@pytest.mark.parametrize(("name", "params"), FABRICS)
def test_loads_by_orbits_are_those_of_every_pair(name, params):
    fabric = build_fabric(name, **params)
    found, expected = by_orbits_and_by_pairs(fabric, fabric.healthy_accelerators)
    assert expected.max() > 0
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("name", "params"), FABRICS)
def test_parts_that_fail_and_members_left_out_break_what_symmetry_they_break(name, params, seed):
    rng = np.random.default_rng(seed)
    fabric = build_fabric(name, **params)
    if name != "electrical_flat" and seed % 2 == 0:
        fabric = fabric.with_random_failures("links", 1, seed=seed, scope="network")
    members = fabric.healthy_accelerators
    if seed % 3 != 0:
        members = np.sort(rng.choice(members, size=int(rng.integers(2, len(members))), replace=False))
    found, expected = by_orbits_and_by_pairs(fabric, members)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-3)
