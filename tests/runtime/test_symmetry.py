"""All-to-alls folded by the symmetries that fabrics declare, against every rank and message simulated."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.errors import ConfigError

FABRICS = {
    "tree": {"name": "fat_tree", "num_accelerators": 288, "radix": 24},
    "tapered tree": {"name": "fat_tree", "num_accelerators": 288, "levels": 2, "leaf_down": 16, "leaf_up": 4},
    "tree of servers": {"name": "fat_tree", "num_accelerators": 512, "radix": 16, "server_size": 4},
    "torus": {"name": "torus", "dims": [18, 16]},
    "torus of three": {"name": "torus", "dims": [4, 11, 6]},
    "flat": {"name": "electrical_flat", "num_accelerators": 270},
    "boards of four": {"name": "hammingmesh", "board": [2, 2], "boards": [9, 8]},
    "boards of one under trees": {"name": "hammingmesh", "board": [1, 1], "boards": [64, 5], "wiring": "tree"},
    # 24 leaves of three boards in four pods, six switches a pod, twelve cores.
    "boards of one under three levels": {"name": "hammingmesh", "board": [1, 1], "boards": [72, 4], "radix": 12},
}
# Fabrics of several kinds of ranks, and how many: in full pods, in full leaves of another, on part of a leaf; at the
# corners of boards, on edges along rows and along columns, in the middle.
MIXED = {
    "tree with a part of a leaf": ({"name": "fat_tree", "num_accelerators": 340, "radix": 24, "levels": 3}, 3),
    "tree of two levels with a part of a leaf": (
        {"name": "fat_tree", "num_accelerators": 270, "levels": 2, "leaf_down": 16, "leaf_up": 4}, 2,
    ),
    "boards under trees with a part of a leaf": (
        {"name": "hammingmesh", "board": [1, 1], "boards": [72, 4], "wiring": "tree"}, 2,
    ),
    "boards of sixteen": ({"name": "hammingmesh", "board": [4, 4], "boards": [4, 5]}, 4),
    "boards on lines of their own": (
        {"name": "hammingmesh", "board": [4, 2], "boards": [6, 6], "wiring": "accelerator_row"}, 2,
    ),
}  # fmt: skip


def built(name):
    keys = dict(FABRICS[name] if name in FABRICS else MIXED[name][0])
    return rostam.fabric(keys.pop("name"), **keys, accelerator_bandwidth="400 Gb/s")


def all_to_all(fabric, **options):
    return rostam.run_collective(fabric, "all_to_all", num_bytes=1_000_003, algorithm="direct", **options)


@pytest.mark.parametrize("name", FABRICS)
def test_one_rank_stands_for_all_and_gives_the_times_and_bytes_of_all(name):
    fabric = built(name)
    folded, whole = all_to_all(fabric), all_to_all(fabric, fold=False)
    assert folded.num_simulated_ranks == 1 < whole.num_simulated_ranks
    assert abs(folded.time_ps - whole.time_ps) <= 1
    assert folded.link_bytes == pytest.approx(whole.link_bytes, rel=1e-9)
    assert folded.num_messages == whole.num_messages


@pytest.mark.parametrize("name", MIXED)
def test_one_rank_of_each_kind_gives_the_times_and_bytes_of_all(name):
    fabric = built(name)
    folded, whole = all_to_all(fabric), all_to_all(fabric, fold=False)
    assert folded.num_simulated_ranks == MIXED[name][1]
    assert abs(folded.time_ps - whole.time_ps) <= 1
    assert folded.link_bytes == pytest.approx(whole.link_bytes, rel=1e-9)


def test_ranks_in_any_order_are_as_symmetric_as_in_order():
    fabric = built("torus")
    ranks = np.random.default_rng(3).permutation(fabric.num_accelerators).tolist()
    mixed = all_to_all(fabric, ranks=ranks)
    assert mixed.num_simulated_ranks == 1
    assert mixed.time_ps == all_to_all(fabric).time_ps


@pytest.mark.parametrize("broken", ["a link", "half of the ranks", "a late rank", "hashed routes"])
def test_what_is_not_symmetric_is_not_folded_to_one_rank(broken):
    fabric, options = built("tree"), {}
    if broken == "a link":
        fabric = fabric.with_failures(links=[300])
    elif broken == "half of the ranks":
        fabric, options = rostam.fabric("torus", dims=[24, 24]), {"ranks": list(range(288))}
    elif broken == "a late rank":
        options = {"start_s": {5: 1e-6}}
    else:
        options = {"routing": "hash"}
    folded, whole = all_to_all(fabric, **options), all_to_all(fabric, **options, fold=False)
    assert folded.num_simulated_ranks > 1
    assert abs(folded.time_ps - whole.time_ps) <= 1
    assert folded.link_bytes == pytest.approx(whole.link_bytes, rel=1e-9)


@pytest.mark.parametrize("num_ranks", [1024, 16384])
def test_a_non_blocking_tree_takes_the_closed_form(num_ranks):
    # (p - 1) ceil(S/p) / B + alpha of three levels of switches, of which alpha is a message of one byte's time.
    fabric = rostam.fabric("fat_tree", num_accelerators=num_ranks, link_bandwidth="400 Gb/s")
    alpha = rostam.run_flows(fabric, src=[0], dst=[num_ranks - 1], num_bytes=[1], routing="spray").finish_s[0]
    result = rostam.run_collective(fabric, "all_to_all", num_bytes=2**20, algorithm="direct")
    assert result.time_s == pytest.approx((num_ranks - 1) * (2**20 // num_ranks) / 50e9 + alpha, rel=1e-3)
    assert result.num_messages == num_ranks * (num_ranks - 1)


def test_more_messages_than_memory_holds_are_refused_with_what_is_needed():
    # 16,384 x 16,383 messages at once, of 600 bytes and more each, are 160 GB at least.
    fabric = rostam.fabric("fat_tree", num_accelerators=16384, link_bandwidth="400 Gb/s")
    with pytest.raises(ConfigError, match=r"16384 ranks .* need about \d{3}\.\d GB.* GB are available; take fewer"):
        rostam.run_collective(fabric, "all_to_all", num_bytes=2**20, algorithm="direct", routing="hash")


@pytest.mark.parametrize("dims", [[18, 16], [2, 3, 48], [257, 1]])
def test_routes_that_mirrors_take_to_each_other_are_like_those_looked_at_one_by_one(dims):
    # With its ranks from another accelerator on no mirror keeps the simulated one, so that each route is looked at.
    fabric = rostam.fabric("torus", dims=dims, accelerator_bandwidth="400 Gb/s")
    num_ranks = fabric.num_accelerators
    mirrored, one_by_one = (
        all_to_all(fabric, ranks=np.roll(range(num_ranks), shift).tolist()) for shift in (0, num_ranks // 3 + 1)
    )
    assert mirrored.num_simulated_ranks == one_by_one.num_simulated_ranks == 1
    assert abs(mirrored.time_ps - one_by_one.time_ps) <= 1
    assert mirrored.link_bytes == pytest.approx(one_by_one.link_bytes, rel=1e-9)
