"""Collectives for four ports: simulated to their closed forms, at the all-reduce optimum, folded and not."""

import math

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives.predicted_time import predict_collective_time
from rostam_py.errors import ConfigError

LINK = 50e9  # 20 ps a byte
HOP = 20_000  # 20 ns a link; neighbours have no accelerator between them
GRIDS = [(2, 2), (4, 2), (3, 3), (4, 4), (9, 3), (4, 8), (3, 5)]
SIZES = [0, 1, 36 * 64 * 100, 10**6 + 7]
NAMES = ["dual_hamiltonian_rings", "torus_2d", "torus_2d_unidirectional"]


def torus(dims, **more):
    return rostam.fabric("torus", dims=dims, link_bandwidth=LINK, **more)


def part_ps(size, parts, chunks=1):
    """Time on one link of `chunks` parts of ceil(S / parts) bytes."""
    return -(-size // parts) * chunks * 20


def expected_ps(algorithm, grid, size):
    """MODEL A5 on a torus: every direction is an interface of its own."""
    r, c = grid
    p = r * c
    if algorithm == "dual_hamiltonian_rings":
        return 2 * (p - 1) * (HOP + part_ps(size, 4 * p))
    parts = (4 if algorithm == "torus_2d" else 2) * p
    total = 0
    for step in range(2 * (r + c - 2)):
        first = (r, "row") if step < c - 1 or step >= c - 1 + 2 * (r - 1) else (1, "column")
        second = (c, "column") if step < r - 1 or step >= r - 1 + 2 * (c - 1) else (1, "row")
        chunks = first[0] + second[0] if first[1] == second[1] else max(first[0], second[0])
        total += HOP + part_ps(size, parts, chunks)
    return total


def has_no_cycles(algorithm, grid):
    return algorithm == "dual_hamiltonian_rings" and grid == (3, 5)


@pytest.mark.parametrize("algorithm", NAMES)
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("fold", [True, False])
def test_torus_all_reduces_meet_their_closed_forms(algorithm, grid, fold):
    if has_no_cycles(algorithm, grid):
        pytest.skip("3 x 5 has no Hamiltonian cycles")
    # A dimension of 2 is two cables, both sprayed by both ways; one way alone gets both, which no closed form of one
    # interface a direction says.
    if algorithm == "torus_2d_unidirectional" and 2 in grid:
        pytest.skip("one way over two parallel cables is faster")
    fabric = torus(grid)
    for size in SIZES:
        result = rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm=algorithm, fold=fold)
        steps = 2 * (grid[0] * grid[1] - 1) if algorithm == "dual_hamiltonian_rings" else 2 * (sum(grid) - 2)
        assert abs(result.time_ps - expected_ps(algorithm, grid, size)) <= steps, size
        assert result.bytes_sent == result.bytes_received
        analytic = rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm=algorithm, fidelity="analytic")
        assert abs(analytic.time_ps - result.time_ps) <= steps, size


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather"])
def test_half_an_all_reduce_takes_half_of_its_time(collective):
    fabric = torus((4, 4))
    result = rostam.run_collective(fabric, collective, num_bytes=64_000, algorithm="dual_hamiltonian_rings")
    assert result.time_ps == 15 * (HOP + part_ps(64_000, 64))
    analytic = rostam.run_collective(
        fabric, collective, num_bytes=64_000, algorithm="dual_hamiltonian_rings", fidelity="analytic"
    )
    assert analytic.time_ps == result.time_ps


@pytest.mark.parametrize("board", [None, (2, 2)])
def test_dual_rings_put_the_same_bytes_on_every_link(board):
    # Each of 2 p cables has two directions; each carries 2 (p-1) parts of S/4p. Folded into one rank.
    fabric, size = torus((8, 8), board=board), 4 * 64 * 1000
    result = rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm="dual_hamiltonian_rings")
    assert np.array_equal(result.link_bytes, np.full(4 * 64, 126 * 1000.0))
    assert result.num_simulated_ranks == 1
    assert result.num_messages == 4 * 64 * 126


def efficiency(fabric, result):
    """MODEL A5: 2 (p-1) S / (p B T), B over all four ports."""
    p = result.num_ranks
    return 2 * (p - 1) * result.num_bytes / (p * fabric.injection_bandwidth_bytes_per_s * result.time_s)


@pytest.mark.parametrize("dims", [(8, 8), (16, 8), (9, 3), (32, 32), (128, 128)])
def test_dual_rings_reach_the_optimum_of_four_ports_on_tori(dims):
    # T = 2 (p-1) (alpha + t) with t = S / (4 p b): efficiency t / (t + alpha); 2 us of bytes against 20 ns.
    fabric, p = torus(dims), dims[0] * dims[1]
    result = rostam.run_collective(fabric, "all_reduce", num_bytes=4 * p * 100_000, algorithm="dual_hamiltonian_rings")
    assert efficiency(fabric, result) == pytest.approx(2000 / 2020, rel=1e-9)
    assert efficiency(fabric, result) >= 0.98


@pytest.mark.parametrize(
    ("board", "boards"), [((1, 1), (8, 8)), ((2, 2), (4, 4)), ((4, 4), (4, 4)), ((2, 2), (16, 16))]
)
def test_dual_rings_reach_the_optimum_of_four_ports_on_hammingmeshes(board, boards):
    fabric = rostam.fabric("hammingmesh", board=board, boards=boards)
    result = rostam.run_collective(
        fabric, "all_reduce", num_bytes=4 * fabric.num_accelerators * 10**6, algorithm="dual_hamiltonian_rings"
    )
    assert 0.98 <= efficiency(fabric, result) <= 1


@pytest.mark.parametrize("algorithm", NAMES)
@pytest.mark.parametrize(("name", "parameters"), [
    ("torus", {"dims": (4, 4), "board": (2, 2)}), ("torus", {"dims": (8, 4)}),
    ("hammingmesh", {"board": (2, 2), "boards": (2, 2)}), ("hammingmesh", {"board": (4, 2), "boards": (1, 2)}),
    ("fat_tree", {"num_accelerators": 16, "radix": 8}), ("electrical_cluster", {"num_accelerators": 16}),
])  # fmt: skip
def test_folding_changes_nothing(algorithm, name, parameters):
    fabric = rostam.fabric(name, **parameters)
    grid = None if fabric.grid() is not None else (4, 4)
    for size in (1000, 10**7):
        one, all_ = (
            rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm=algorithm, grid=grid, fold=fold)
            for fold in (True, False)
        )
        num_steps = 2 * all_.num_ranks
        assert abs(one.time_ps - all_.time_ps) <= num_steps
        assert np.abs(one.finish_s - all_.finish_s).max() <= num_steps * 1e-12
        assert (one.num_messages, one.bytes_sent) == (all_.num_messages, all_.bytes_sent)
        assert one.link_bytes == pytest.approx(all_.link_bytes, rel=1e-9)


def test_a_slow_link_slows_the_rings_that_cross_it():
    # One direction of one cable at half speed: it is a link of one ring of the four, takes 2 t a step there, and all
    # wait for the two ranks at its ends, which step with their slowest message.
    fabric, size = torus((4, 4)), 4 * 16 * 10**5
    slow = rostam.run_collective(
        fabric, "all_reduce", num_bytes=size, algorithm="dual_hamiltonian_rings",
        events=[rostam.LinkBandwidth(time=0, link=0, scale=0.5)],
    )  # fmt: skip
    whole = rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm="dual_hamiltonian_rings")
    t = 20 * 10**5
    # The rank before the slow link leaves a step every 2 t, and ends its last one then.
    assert 30 * 2 * t <= slow.time_ps <= 30 * (2 * t + HOP)
    assert whole.time_ps == 30 * (t + HOP)


def test_torus_2d_reaches_the_optimum_both_ways_and_half_of_it_one_way():
    fabric, size = torus((8, 8)), 10**9
    both, one = (
        rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm=algorithm) for algorithm in NAMES[1:]
    )
    assert efficiency(fabric, both) == pytest.approx(1, abs=0.01)
    assert efficiency(fabric, one) == pytest.approx(0.5, abs=0.01)


def test_ranks_on_the_fabrics_grid_run_in_its_order_and_keep_their_numbers():
    # Columns 0, 2 of rows 1, 3 of a 4 x 4 torus, named out of order; rank 1 (accelerator 4) starts late and ends last.
    fabric = torus((4, 4))
    ranks = [14, 4, 12, 6]
    result = rostam.run_collective(
        fabric, "all_reduce", num_bytes=4000, algorithm="torus_2d", ranks=ranks, start_s={1: 1e-3}
    )
    by_hand = rostam.run_collective(
        fabric, "all_reduce", num_bytes=4000, algorithm="torus_2d", ranks=[4, 6, 12, 14], grid=(2, 2),
        start_s={0: 1e-3},
    )  # fmt: skip
    assert result.finish_s.tolist() == by_hand.finish_s[[3, 0, 2, 1]].tolist()
    assert len(set(by_hand.finish_s.tolist())) > 1


BOXES = [(4, 4, 4), (2, 3, 4), (2, 2, 2), (5,), (4, 1, 3), (3, 3), (4, 4, 8), (9, 3), (6, 2, 3, 2)]
PASSES = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}


def pass_of(sides, size, *, is_aligned):
    """(steps, time [ps]) of a reduce-scatter by the torus algorithms, from what each copy sends in each step."""
    sides = [side for side in sides if side > 1]
    k, p = len(sides), math.prod(sides)
    pieces = [math.floor(max(sides) / side + 0.5) if is_aligned else 1 for side in sides]
    finest = math.lcm(*pieces)
    phase = max((side - 1) * n for side, n in zip(sides, pieces, strict=True))
    parts, loads = 2 * k * finest * p, {}
    for first in range(k):
        start, chunks = 0, p * finest
        for d in [(first - n) % k for n in range(k)]:
            chunks //= sides[d]
            steps = (sides[d] - 1) * pieces[d]
            for step in range(start, start + steps):
                loads[step, d] = loads.get((step, d), 0) + chunks // pieces[d]
            start += phase if is_aligned else steps
    num_steps = 1 + max(step for step, _ in loads)
    fullest = [max(n for (step, _), n in loads.items() if step == at) for at in range(num_steps)]
    return num_steps, sum(HOP + part_ps(size, parts, chunks) for chunks in fullest)


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("algorithm", ["torus_nd", "torus_nd_aligned"])
@pytest.mark.parametrize("sides", BOXES)
def test_torus_algorithms_of_any_number_of_sides_meet_their_closed_forms(sides, algorithm, fold):
    fabric = torus(sides)
    for collective, passes in PASSES.items():
        for size in (0, 1, 10**6 + 7):
            result = rostam.run_collective(fabric, collective, num_bytes=size, algorithm=algorithm, fold=fold)
            steps, expected = pass_of(sides, size, is_aligned=algorithm == "torus_nd_aligned")
            assert abs(result.time_ps - passes * expected) <= passes * steps
            assert result.bytes_sent == result.bytes_received
            analytic = rostam.run_collective(
                fabric, collective, num_bytes=size, algorithm=algorithm, fidelity="analytic"
            )
            assert abs(analytic.time_ps - result.time_ps) <= passes * steps
            # What a rank sends and receives at the least, through all of its ports.
            p = math.prod(sides)
            assert result.time_s >= passes * (p - 1) / p * size / fabric.injection_bandwidth_bytes_per_s * (1 - 1e-9)


@pytest.mark.parametrize("sides", [(4, 4, 4), (3, 3), (5,), (8, 8, 8), (2, 2, 2)])
def test_equal_sides_take_the_bytes_time_of_all_links_and_the_fewest_steps(sides):
    # MODEL A5 on k equal sides d: 2 k (d-1) alpha + 2 (1 - 1/p) S / 2k B_if, and all links carry as much.
    d, k, p = sides[0], len(sides), math.prod(sides)
    fabric, size = torus(sides), 2 * k * p * 1000
    result = rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm="torus_nd")
    assert result.time_ps == 2 * k * (d - 1) * HOP + 2 * (p - 1) * 1000 * 20
    assert result.link_bytes == pytest.approx(2 * (p - 1) * 1000.0, rel=1e-12)
    assert result.num_simulated_ranks == 1
    assert (result.num_messages, result.bytes_sent) == (2 * k * 2 * k * (d - 1) * p, 2 * (p - 1) * size)
    aligned = rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm="torus_nd_aligned")
    assert aligned.time_ps == result.time_ps


def test_aligned_copies_lose_what_the_comment_says_on_unequal_sides():
    # Copies that step together without a common start of their phases, and with it, against 2 (1 - 1/p) S / B.
    for sides, losses in {(4, 4, 8): (1.535, 1.157), (8, 8, 16): (1.508, 1.070)}.items():
        fabric, p = (
            rostam.fabric("torus", dims=sides, link_bandwidth=LINK, link_latency=0, switch_latency=0),
            math.prod(sides),
        )
        size = 2 * 3 * 2 * p * 4096
        ideal = 2 * (p - 1) / p * size / fabric.injection_bandwidth_bytes_per_s
        for algorithm, loss in zip(("torus_nd", "torus_nd_aligned"), losses, strict=True):
            result = rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm=algorithm)
            assert result.time_s / ideal == pytest.approx(loss, abs=6e-4)


@pytest.mark.parametrize("collective", PASSES)
def test_the_choice_on_tori_of_three_sides_is_the_torus_algorithm(collective):
    # 3 times as fast as through the two ports that any ring uses, for each of which 1/3 of the bandwidth is there.
    for sides, by_size in {(4, 4, 4): ("torus_nd", "torus_nd"), (4, 4, 8): ("torus_nd", "torus_nd_aligned")}.items():
        fabric, p = torus(sides), math.prod(sides)
        for size, name in zip((1000, 2**30), by_size, strict=True):
            auto = rostam.run_collective(fabric, collective, num_bytes=size)
            assert auto.algorithm == name
        ring = rostam.run_collective(fabric, collective, num_bytes=2**30, algorithm="ring")
        ideal = PASSES[collective] * (p - 1) / p * 2**30 / fabric.injection_bandwidth_bytes_per_s
        assert ideal <= auto.time_s <= 1.17 * ideal
        assert ring.time_s > 5.9 * ideal


def test_a_line_without_its_wrap_pays_for_the_hop_that_closes_the_ring():
    # Four of sixteen in a row: the hop from the last back to the first crosses the three links of the other way's
    # messages, so that every link carries two messages in a step, and takes three links and two switches.
    fabric, size = torus((16, 4)), 8 * 10**6
    line, whole = [fabric.grid()[:4, 0].tolist(), fabric.grid()[0].tolist()]
    part, full = (
        rostam.run_collective(fabric, "all_reduce", num_bytes=size, algorithm="torus_nd", ranks=ranks)
        for ranks in (line, whole)
    )
    message = size // 8 * 20
    assert full.time_ps == 6 * (HOP + message)
    assert part.time_ps == 6 * (3 * HOP + 2 * 40_000 + 2 * message)
    for ranks, result in ((line, part), (whole, full)):
        predicted = predict_collective_time(fabric, "all_reduce", "torus_nd", size, ranks)
        assert predicted * 1e12 == pytest.approx(result.time_ps, abs=12)


def test_planes_of_a_cube_have_their_wraps_and_corners_of_it_do_not():
    # A plane of 4 x 4 x 4 is a 4 x 4 torus. In a corner of 2 x 2 x 2 both ways between two ranks share one link.
    cube, size = torus((4, 4, 4)), 48 * 10**6
    plane = rostam.run_collective(cube, "all_reduce", num_bytes=size, algorithm="torus_nd", ranks=range(16))
    alone = rostam.run_collective(torus((4, 4)), "all_reduce", num_bytes=size, algorithm="torus_nd")
    assert plane.time_ps == alone.time_ps
    corner = cube.grid()[:2, :2, :2].ravel().tolist()
    part = rostam.run_collective(cube, "all_reduce", num_bytes=size, algorithm="torus_nd", ranks=corner)
    assert part.time_ps == 6 * HOP + 2 * 2 * part_ps(size, 48, 4 + 2 + 1)
    for ranks, result in ((range(16), plane), (corner, part)):
        predicted = predict_collective_time(cube, "all_reduce", "torus_nd", size, ranks)
        assert predicted * 1e12 == pytest.approx(result.time_ps, abs=12)


def test_missing_and_unfit_grids_are_config_errors():
    flat = rostam.fabric("electrical_flat", num_accelerators=16)
    arguments = {"num_bytes": 1000, "algorithm": "dual_hamiltonian_rings"}
    with pytest.raises(ConfigError, match="there is no grid; name ranks, row-major, and its sides, grid="):
        rostam.run_collective(flat, "all_reduce", **arguments)
    with pytest.raises(ConfigError, match=r"grid is \(3, 4\) for 16 ranks"):
        rostam.run_collective(flat, "all_reduce", grid=(3, 4), **arguments)
    with pytest.raises(ConfigError, match=r"gcd\(r, c - 1\) = 1, and gcd\(6, 2\) is 2"):
        rostam.run_collective(torus((6, 3)), "all_reduce", **arguments)
    with pytest.raises(ConfigError, match="there is no grid"):
        rostam.run_collective(torus((4, 4)).with_failures(accelerators=[3]), "all_reduce", **arguments)
    assert rostam.run_collective(flat, "all_reduce", ranks=[3], **arguments).time_ps == 0


def test_the_analytic_fidelity_refuses_what_its_closed_form_does_not_describe():
    cluster = rostam.fabric("electrical_cluster", num_accelerators=16, server_size=4)
    with pytest.raises(ConfigError, match=r"does not hold on electrical_cluster.* use fidelity='flow'"):
        rostam.run_collective(cluster, "all_reduce", num_bytes=10**6, algorithm="ring", fidelity="analytic")
    # A ring of a torus uses one of four ports: B_if is a link's.
    ring = {"num_bytes": 8 * 1000, "ranks": range(8), "algorithm": "ring"}
    analytic = rostam.run_collective(torus((8, 8)), "all_reduce", fidelity="analytic", **ring)
    assert analytic.time_ps == 14 * (HOP + 20_000)
    assert analytic.time_ps == rostam.run_collective(torus((8, 8)), "all_reduce", **ring).time_ps
