"""Predicted times of collectives against simulations, and what "auto" makes of them."""

import pytest

import rostam_py as rostam
from rostam_py import _core
from rostam_py.collectives.predicted_time import MAX_ROUTED_MESSAGES, choose_algorithm, predict_collective_time
from rostam_py.collectives.rank_groups import collectives
from rostam_py.errors import ConfigError, NoRouteError

SIZES = [1_000, 30_000, 10**6, 10**7, 10**9]
FABRICS = {
    "torus_8x8": ("torus", {"dims": (8, 8), "link_bandwidth": 50e9}),
    "torus_4x4": ("torus", {"dims": (4, 4), "link_bandwidth": 50e9}),
    "torus_6x4": ("torus", {"dims": (6, 4), "link_bandwidth": 50e9}),  # no Hamiltonian cycles
    "fat_tree": ("fat_tree", {"num_accelerators": 64, "radix": 16, "accelerator_bandwidth": "400 Gb/s"}),
    "tapered": ("fat_tree", {"num_accelerators": 64, "radix": 16, "leaf_down": 12, "leaf_up": 4}),
    "electrical_cluster": ("electrical_cluster", {"num_accelerators": 64}),
    "electrical_flat": ("electrical_flat", {"num_accelerators": 24}),
    "hx2mesh": ("hammingmesh", {"board": (2, 2), "boards": (4, 4)}),
    "hx4mesh": ("hammingmesh", {"board": (4, 4), "boards": (2, 2)}),
}
COLLECTIVES = [name for name in collectives() if name != "send_recv"]  # a message between two


def fabric_of(key):
    name, parameters = FABRICS[key]
    return rostam.fabric(name, **parameters)


def simulated_times(fabric, collective, size):
    """Simulate every algorithm that runs on the fabric: {algorithm: seconds}.

    Without servers ``auto`` leaves out what takes an all-to-all along their rails.
    """
    times = {}
    for name, algorithm in _core.schedule_names():
        is_of_rails = (name, algorithm) == ("all_to_all", "rail_aligned")
        if name != collective or (is_of_rails and fabric.config.nics_per_server == 1):
            continue
        if _core.models_bandwidth(name, algorithm) or _core.takes_direct_links(name, algorithm):
            continue  # test_tree.py and test_direct_links.py have those
        try:
            result = rostam.run_collective(fabric, collective, num_bytes=size, algorithm=algorithm)
        except ConfigError as error:
            assert "grid" in str(error) or "powers of two" in str(error)  # noqa: PT017
            continue
        times[algorithm] = result.time_s
    return times


@pytest.mark.parametrize("key", FABRICS)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_auto_is_within_a_tenth_of_the_best_simulated_algorithm(key, collective):
    fabric = fabric_of(key)
    for size in SIZES:
        times = simulated_times(fabric, collective, size)
        auto = rostam.run_collective(fabric, collective, num_bytes=size, algorithm="auto")
        assert auto.time_s == times[auto.algorithm]
        chosen_from = [one for name, one in times.items() if not _core.is_by_name_only(collective, name)]
        assert auto.time_s <= 1.1 * min(chosen_from), (size, auto.algorithm, times)


@pytest.mark.parametrize("key", FABRICS)
def test_predictions_are_within_a_fifth_of_simulations(key):
    # Most are within a percent; rings whose ranks drift apart, or share links for part of a step, are not.
    fabric = fabric_of(key)
    for collective in COLLECTIVES:
        for size in SIZES:
            for algorithm, time_s in simulated_times(fabric, collective, size).items():
                predicted = predict_collective_time(fabric, collective, algorithm, size)
                if _core.is_pipelined(collective, algorithm):  # fullest links and longest ways together: from above
                    assert 0.75 * time_s <= predicted <= 3 * time_s, (collective, algorithm, size)
                    continue
                assert predicted == pytest.approx(time_s, rel=0.2), (collective, algorithm, size)


def test_predictions_are_exact_where_all_messages_of_a_step_are_alike():
    # electrical_flat, 8 ranks, S = 8,000 bytes at 1 GB/s, alpha 2 us. Ring: 14 steps of alpha + 1,000 ns; tree: 6 of
    # alpha + 8,000 ns; halving-doubling: 6 alpha + 14,000 ns; direct all-to-all: alpha + 7,000 ns.
    flat = rostam.fabric("electrical_flat", num_accelerators=8, link_bandwidth=1e9, latency="2 us")
    expected = {
        ("all_reduce", "ring"): 14 * 3e-6,
        ("all_reduce", "binomial_tree"): 6 * 10e-6,
        ("all_reduce", "halving_doubling"): 26e-6,
        ("all_to_all", "direct"): 9e-6,
        ("all_to_all", "balanced_shift"): 7 * 3e-6,
    }
    for names, time_s in expected.items():
        assert predict_collective_time(flat, *names, 8000) == pytest.approx(time_s, rel=1e-12)


def test_rings_of_one_step_are_averaged_each_by_itself():
    # 4 x 4 ranks in a corner of a 16 x 4 torus: rows close in one hop of 20 ns, columns in three hops and two switches,
    # 140 ns. Both halves of the buffer go round columns for six steps of (3 x 20 + 140) / 4 ns on average. Taken
    # together with the rows' it would be 35 ns a hop, and the choice 35% slower than halving_doubling.
    torus, ranks = rostam.fabric("torus", dims=(16, 4), link_bandwidth=50e9), list(range(16))
    names = ("all_reduce", "torus_2d_unidirectional")
    assert predict_collective_time(torus, *names, 0, ranks) == pytest.approx(12 * 50e-9, rel=1e-12)
    simulated = rostam.run_collective(torus, names[0], num_bytes=1000, algorithm=names[1], ranks=ranks)
    assert predict_collective_time(torus, *names, 1000, ranks) == pytest.approx(simulated.time_s, rel=0.01)
    assert choose_algorithm(torus, "all_reduce", 1000, ranks) == "halving_doubling"
    # 16 x 8 ranks, every other one of 4 x 4 boards: 3.14 us predicted, 3.90 simulated.
    boards = rostam.fabric("hammingmesh", board=(4, 4), boards=(4, 4))
    ranks = list(range(0, 256, 2))
    auto, best = (
        rostam.run_collective(boards, "all_reduce", num_bytes=100_000, algorithm=name, ranks=ranks)
        for name in ("auto", "halving_doubling")
    )
    assert auto.time_s <= 1.05 * best.time_s


def test_messages_too_many_to_route_one_by_one_are_summed_by_link():
    # 512 x 511 messages of a direct all-to-all on a flat fabric: alpha + 511 x 100 bytes at 1 GB/s.
    assert MAX_ROUTED_MESSAGES < 512 * 511
    flat = rostam.fabric("electrical_flat", num_accelerators=512, link_bandwidth=1e9, latency="2 us")
    predicted = predict_collective_time(flat, "all_to_all", "direct", 51_200)
    assert predicted == pytest.approx(2e-6 + 51.1e-6, rel=1e-9)


def test_planes_share_the_bytes():
    one, four = (
        rostam.fabric("electrical_flat", num_accelerators=8, accelerator_bandwidth=1e9, planes=planes, latency=0.0)
        for planes in (1, 4)
    )
    times = [predict_collective_time(fabric, "all_reduce", "ring", 32_000) for fabric in (one, four)]
    assert times[0] == pytest.approx(times[1], rel=1e-12)


def test_small_sizes_take_few_steps_and_large_ones_all_links():
    # 8 x 8 torus: 28 steps between neighbours (560 ns) beat 12 of halving-doubling up to 4 links apart, and 126 of
    # the rings, which move as many bytes. On unequal sides the rings keep both dimensions busy, the 2D algorithm not.
    fabric = fabric_of("torus_8x8")
    assert choose_algorithm(fabric, "all_reduce", 100) == "torus_2d"
    assert choose_algorithm(fabric, "all_reduce", "1 GiB") == "torus_2d"
    assert choose_algorithm(fabric_of("electrical_flat"), "all_reduce", 100) == "halving_doubling"
    assert choose_algorithm(rostam.fabric("torus", dims=(16, 8)), "all_reduce", "1 GiB") == "dual_hamiltonian_rings"
    assert choose_algorithm(fabric, "all_gather", "1 GiB") == "torus_nd"
    assert choose_algorithm(rostam.fabric("torus", dims=(16, 8)), "all_gather", "1 GiB") == "dual_hamiltonian_rings"


def test_grid_algorithms_take_part_only_where_ranks_have_a_grid():
    fabric = fabric_of("torus_8x8")
    assert choose_algorithm(fabric, "all_reduce", "1 GiB", [0, 1, 2, 8, 9, 10, 16, 17, 18]).startswith("torus_2d")
    ragged = choose_algorithm(fabric, "all_reduce", "1 GiB", [0, 1, 2, 8, 9, 10, 16, 17])
    assert not _core.needs_grid("all_reduce", ragged)
    flat = rostam.fabric("electrical_flat", num_accelerators=16)
    by_hand = rostam.run_collective(flat, "all_reduce", num_bytes=10**9, algorithm="torus_2d", grid=(4, 4))
    assert by_hand.time_s == pytest.approx(
        predict_collective_time(flat, "all_reduce", "torus_2d", 10**9, grid=(4, 4)), rel=1e-6
    )


def test_circuits_are_set_for_each_algorithm_that_is_weighed():
    optical = rostam.fabric("sip_ocs", num_accelerators=16)
    for size in (1000, 10**8):
        auto = rostam.run_collective(optical, "all_reduce", num_bytes=size, algorithm="auto")
        ring = rostam.run_collective(optical, "all_reduce", num_bytes=size, algorithm="ring")
        assert auto.time_s <= ring.time_s


def test_algorithms_with_more_peers_than_circuits_are_passed_over():
    # Halving-doubling of 32 talks to 5 peers, a tree's root too; of two, inside and between servers, is hierarchical.
    optical = rostam.fabric("sip_ocs", num_accelerators=32, num_ocs=2)
    assert choose_algorithm(optical, "all_reduce", 1000) == "hierarchical"
    assert choose_algorithm(rostam.fabric("sip_ocs", num_accelerators=32), "all_reduce", 1000) == "halving_doubling"
    assert choose_algorithm(optical, "broadcast", 1000) == "ring"
    with pytest.raises(ConfigError, match="sends to 5 peers, but it holds at most 2 circuits"):
        choose_algorithm(optical, "broadcast", 1000, allowed=["binomial_tree"])


def test_unknown_names_and_cut_pairs_are_refused():
    flat = rostam.fabric("electrical_flat", num_accelerators=4)
    with pytest.raises(ConfigError, match="unknown collective 'gather'"):
        choose_algorithm(flat, "gather", 1)
    with pytest.raises(ConfigError, match="unknown algorithm 'magic' for all_reduce"):
        predict_collective_time(flat, "all_reduce", "magic", 1)
    # Two leaves of two accelerators without their spine: halves, so that neither counts as cut off.
    tree = rostam.fabric("fat_tree", num_accelerators=4, radix=4, leaf_down=2, leaf_up=2)
    with pytest.raises(NoRouteError):
        choose_algorithm(tree.with_failures(switches=[2]), "all_reduce", 1)
