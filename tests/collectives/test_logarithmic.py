"""Swing, Bruck and two binary trees: partners, trees and times written out."""

import math

import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.collectives.predicted_time import choose_algorithm, predict_collective_time
from rostam_py.errors import ConfigError

ALPHA, B = 1e-6, 1e9


def flat(count):
    return rostam.fabric("electrical_flat", num_accelerators=count, link_bandwidth=B, latency=ALPHA)


def time_of(fabric, collective, algorithm, num_bytes, **more):
    return rostam.run_collective(fabric, collective, num_bytes=num_bytes, algorithm=algorithm, **more).time_s


@pytest.mark.parametrize("p", [2, 4, 16, 64])
def test_swing_takes_the_time_of_halving_and_doubling_through_one_port(p):
    size, levels = 64 * 10**5, p.bit_length() - 1
    by_hand = 2 * levels * ALPHA + 2 * (p - 1) / p * size / B
    assert time_of(flat(p), "all_reduce", "swing", size) == pytest.approx(by_hand, rel=1e-6)


def test_partners_swing_by_1_1_3_5_and_11_links_of_a_ring():
    schedule = _core.Schedule("all_reduce", "swing", 64)
    for step, distance in enumerate((1, -1, 3, -5, 11, -21)):
        for rank in range(64):
            plain, mirrored = (transfer.peer for transfer in schedule.sends(rank, step))
            ahead = distance if rank % 2 == 0 else -distance
            assert (plain, mirrored) == ((rank + ahead) % 64, (rank - ahead) % 64)


def test_swing_short_cuts_a_ring_of_links_that_halving_and_doubling_crowds():
    # De Sensi et al.: step s of recursive doubling crosses 2^s links, of Swing about 2^s / 3, both ways at once.
    ring = rostam.fabric("torus", dims=(64,), link_bandwidth="400 Gb/s", link_latency="100 ns")
    for size in ("4 KiB", "256 KiB", "16 MiB"):
        times = {name: time_of(ring, "all_reduce", name, size) for name in ("swing", "halving_doubling")}
        assert times["swing"] < 0.7 * times["halving_doubling"]
    assert time_of(ring, "all_reduce", "swing", "1 KiB") < time_of(ring, "all_reduce", "swing", "1 MiB")


def test_swing_on_a_grid_needs_powers_of_two():
    with pytest.raises(ConfigError, match="swing_2d on 3 x 4 ranks; both must be powers of two"):
        _core.Schedule("all_reduce", "swing_2d", 12, 1, (3, 4))


@pytest.mark.parametrize("p", [2, 5, 8, 13, 32])
def test_bruck_gathers_all_in_logarithmic_steps_without_a_byte_more(p):
    by_hand = math.ceil(math.log2(p)) * ALPHA + (p - 1) * 10**5 / B
    assert time_of(flat(p), "all_gather", "bruck", p * 10**5) == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize("p", [2, 5, 8, 13, 32])
def test_bruck_exchanges_all_to_all_in_logarithmic_steps_for_more_bytes(p):
    chunk = 10**5
    steps = [sum(chunk for j in range(p) if j >> k & 1) for k in range(math.ceil(math.log2(p)))]
    by_hand = sum(ALPHA + size / B for size in steps)
    assert time_of(flat(p), "all_to_all", "bruck", p * chunk) == pytest.approx(by_hand, rel=1e-6)
    # Fewer waits than in p - 1 steps, more bytes.
    small, large = p * 10, p * 10**7
    times = {(name, size): time_of(flat(p), "all_to_all", name, size) for name in ("bruck", "balanced_shift")
             for size in (small, large)}  # fmt: skip
    if p > 4:
        assert times["bruck", small] < times["balanced_shift", small]
        assert times["bruck", large] > times["balanced_shift", large]


@pytest.mark.parametrize("p", [2, 3, 6, 7, 16, 33])
def test_a_rank_that_has_children_in_one_tree_is_a_leaf_of_the_other(p):
    schedule = _core.Schedule("all_reduce", "double_binary_tree", p)
    down = [[set(), set()] for _ in range(p)]
    for step in range(schedule.num_steps):
        for rank in range(p):
            for transfer in schedule.sends(rank, step):
                if not transfer.reduces:
                    down[rank][transfer.source_chunk].add(transfer.peer)
    for rank, (first, second) in enumerate(down):
        assert not (first and second) or (p % 2 == 1 and rank == 0)
        assert max(len(first), len(second)) <= 2
    for tree in range(2):
        assert sorted(child for children in down for child in children[tree]) == sorted(
            set(range(p)) - {rank for rank in range(p) if not any(rank in children[tree] for children in down)}
        )
        assert sum(len(children[tree]) for children in down) == p - 1


def test_two_trees_take_pieces_so_that_latency_is_paid_by_depth():
    fabric, p = flat(16), 16
    depth = (_core.Schedule("all_reduce", "double_binary_tree", p).num_steps) // 2
    for size in (10**4, 10**6, 10**9):
        found = time_of(fabric, "all_reduce", "double_binary_tree", size)
        predicted = predict_collective_time(fabric, "all_reduce", "double_binary_tree", size)
        assert found == pytest.approx(predicted, rel=0.45)
        assert found >= 2 * depth * ALPHA
    # A port sends up and to two children in one tree and up in the other, half of the buffer each: 2 S/B.
    assert found == pytest.approx(2 * 10**9 / B, rel=0.02)


def test_the_default_takes_none_of_them_by_itself():
    ring = rostam.fabric("torus", dims=(64,), link_bandwidth="400 Gb/s", link_latency="100 ns")
    named = [name for collective, name in _core.schedule_names() if _core.is_by_name_only(collective, name)]
    assert {"swing", "swing_2d", "double_binary_tree", "bruck"} == set(named)
    for size in (2**10, 2**20, 2**30):
        assert choose_algorithm(ring, "all_reduce", size) not in named
        assert choose_algorithm(ring, "all_gather", size) not in named


@pytest.mark.parametrize("algorithm", ["swing", "double_binary_tree"])
@pytest.mark.parametrize("kind", ["fat_tree", "dragonfly", "torus"])
def test_any_ranks_of_any_fabric_run_them_folded_as_unfolded(algorithm, kind):
    settings = {
        "fat_tree": {"num_accelerators": 32, "radix": 16}, "torus": {"dims": (4, 4)},
        "dragonfly": {"routers_per_group": 2, "terminals_per_router": 2, "global_links_per_router": 2, "num_groups": 5},
    }  # fmt: skip
    fabric = rostam.fabric(kind, **settings[kind])
    ranks = [3, 9, 4, 0, 14, 7, 11]
    folded, plain = (time_of(fabric, "all_reduce", algorithm, 10**6, ranks=ranks, fold=fold) for fold in (True, False))
    assert folded == plain
