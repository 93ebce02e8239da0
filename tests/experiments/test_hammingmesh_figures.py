"""HammingMesh's figures over sizes and permutations: what is kept, against hand counts and what must hold."""

import json
import math

import numpy as np
import pytest

from rostam_py.reproduction import experiments_in

KNOWN = experiments_in()


def points(name):
    return json.loads((KNOWN[name].folder / "points.json").read_text())["points"]


@pytest.fixture(scope="module")
def all_to_all():
    return points("hammingmesh_fig11")


def test_a_balanced_shift_on_the_tree_is_a_transfer_and_a_path_for_each_iteration(all_to_all):
    """Four cables of 20 ns and three switches of 40 ns, except for the 31 ranks under the sender's leaf."""
    for name, size in {"64 B": 2**6, "16 KiB": 2**14, "4 MiB": 2**22}.items():
        iteration_s = size / 200e9 + 200e-9
        own = all_to_all[f"nonblocking tree | balanced_shift | {name}"]
        assert own == pytest.approx(100 * size / 200e9 / iteration_s, rel=0.02)


def test_all_at_once_an_hx1mesh_is_bound_by_its_rows(all_to_all):
    """A packet to another row and column takes one of two links in each dimension: (N + 1) / (2 N), N = 32."""
    assert all_to_all["2D HyperX (as Hx1Mesh) | direct | 4 MiB"] == pytest.approx(100 * 33 / 64, rel=1e-3)


def test_all_to_alls_grow_with_size_and_are_slower_shift_by_shift(all_to_all):
    module = KNOWN["hammingmesh_fig11"].load()
    for cluster in module.CLUSTERS:
        both = [[all_to_all[f"{cluster} | {way} | {size}"] for size in module.SIZES] for way in module.WAYS]
        for shares in both:
            assert shares == sorted(shares)
        assert all(shifted < whole for whole, shifted in zip(*both, strict=True))


def test_permutations_are_means_of_what_accelerators_receive():
    module = KNOWN["hammingmesh_fig12"].load()
    for key, shares in points("hammingmesh_fig12").items():
        tier = key.rpartition(" | ")[2]
        assert {len(values) for values in shares.values()} == {len(module.TIERS[tier][1])}
        told = (shares[name] for name in ("least", "5%", "50%", "95%", "mean"))
        for least, low, middle, high, mean in zip(*told, strict=True):
            assert 0 < least <= low <= middle <= high <= 100
            assert least < mean < 100
    # 1 MiB at 200 GB/s and 200 ns of path: what every flow of the nonblocking tree gets.
    alone = 100 * 2**20 / 200e9 / (2**20 / 200e9 + 200e-9)
    assert np.mean(points("hammingmesh_fig12")["nonblocking tree | flow"]["50%"]) == pytest.approx(alone, rel=1e-3)


def test_a_gigabyte_per_second_has_the_price_of_its_share_of_the_network():
    module = KNOWN["hammingmesh_fig12"].load()
    # Table II: 25.3 M$, 1,024 accelerators of 16 planes, 50 GB/s each.
    assert module.dollars("nonblocking tree", 100.0) == pytest.approx(25.3e6 / (1024 * 800), rel=2e-3)
    assert module.dollars("Hx2Mesh", 50.0) == pytest.approx(2 * 5.4e6 / (1024 * 800), rel=5e-3)


def test_table_ii_by_packets_is_within_what_leaves_carry_and_its_flows_are_the_other_figures():
    kept = points("hammingmesh_table2_packets")
    # All at once 1,023 messages of which 31 stay under the leaf; 992 share its 32, 16 or 8 uplinks for 32 accelerators.
    for cluster, uplinks in {"nonblocking tree": 32, "50% tapered tree": 16, "75% tapered tree": 8}.items():
        bound = 100 * min(1, 1023 / 992 * uplinks / 32)
        assert 0.75 * bound < kept[f"{cluster} | all at once | 16 KiB | packet"] < bound
        by_flows = points("hammingmesh_fig11")[f"{cluster} | direct | 16 KiB"]
        assert kept[f"{cluster} | all at once | 16 KiB | flow"] == by_flows
    # An Hx1Mesh: (N + 1) / (2 N), N = 32.
    assert kept["2D HyperX (as Hx1Mesh) | all at once | 16 KiB | packet"] < 100 * 33 / 64
    for cluster in KNOWN["hammingmesh_table2_packets"].load().CLUSTERS:
        for tier in ("flow", "packet"):
            ten = points("hammingmesh_fig12")[f"{cluster} | {tier}"]["mean"][:10]
            assert kept[f"{cluster} | permutations | 1 MiB | {tier}"] == pytest.approx(np.mean(ten), rel=1e-9)
            # Of small messages latency is more.
            small, large = (kept[f"{cluster} | shifts | {size} | {tier}"] for size in ("16 KiB", "1 MiB"))
            assert 0 < small < large <= 100


@pytest.mark.parametrize(("cluster", "count"), [("2D torus", 1024), ("2D torus large", 16384)])
def test_the_torus_algorithm_takes_the_corrected_sum_and_one_direction_twice_that(cluster, count):
    """Rows take S beta / 2 (1 - 1/sqrt(p)), columns S beta / 2 (1/sqrt(p) - 1/p); beta of one 50 GB/s interface."""
    kept, root = points("hammingmesh_fig13_fig17"), math.sqrt(count)
    whole = 2**38 / 50e9 / 2
    by_hand = whole * (1 - 1 / root) + whole * (1 / root - 1 / count)
    assert kept[f"{cluster} | torus_2d"]["256 GiB"] == pytest.approx(by_hand, rel=1e-4)
    assert kept[f"{cluster} | torus_2d_unidirectional"]["256 GiB"] == pytest.approx(2 * by_hand, rel=1e-4)
