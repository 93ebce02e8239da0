"""Jobs on sub-meshes run as on a HammingMesh of their shape, whatever runs or has failed between their boards."""

from dataclasses import replace

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.fleet import Job, place_mix, simulate_mix
from rostam_py.fleet.allocation import allocate

MIB = 2**20
NUM_BYTES = 64 * MIB
# One switch a row of boards, and trees of leaves of two boards.
WIRINGS = {"board_row": {}, "tree": {"wiring": "tree", "radix": 8}}
MESH = {"board": (2, 2), "planes": 4}


def whole(wiring, sides=(8, 8)):
    return rostam.fabric("hammingmesh", boards=sides, **MESH, **WIRINGS[wiring])


def real(wiring, rows, columns):
    """Return a HammingMesh of u x v boards that stands by itself, wired in the same way."""
    return rostam.fabric("hammingmesh", boards=(columns, rows), **MESH, **({"wiring": wiring} | WIRINGS[wiring]))


def jobs_of(gpt, *sizes):
    return [
        Job(f"job{k}", gpt, rostam.Strategy(dp=size, precision="bf16_mixed", optimizer="sgd"), size)
        for k, size in enumerate(sizes)
    ]


def given(gpt, fabric, *sizes):
    options = {"aspect_ratio": 8}
    machine = rostam.Machine(fabric=fabric)
    return allocate(jobs_of(gpt, *sizes), machine, allocation="submesh", host_size=8, seed=0, options=options)


def shape_of(ids):
    boards = sorted({a // 4 for a in ids})
    return len({b // 8 for b in boards}), len({b % 8 for b in boards})


@pytest.mark.parametrize("seed", range(3))
def test_an_all_reduce_takes_the_time_of_a_hammingmesh_of_the_jobs_shape(gpt, seed):
    # Jobs of 1, 4, 9 and 16 boards among 12 failed ones of 64: rows and columns lie apart.
    failed = np.random.default_rng(seed).choice(64, 12, replace=False).tolist()
    fabric = whole("board_row").with_failures(boards=failed)
    for ids in given(gpt, fabric, 64, 36, 16, 4):
        alone = real("board_row", *shape_of(ids))
        assert alone.num_accelerators == len(ids)
        for algorithm in ("dual_hamiltonian_rings", "torus_2d"):
            how = {"num_bytes": NUM_BYTES, "algorithm": algorithm}
            expected = rostam.run_collective(alone, "all_reduce", **how)
            # On its ranks' own grid, and as a plan has it, where ranks that fill a box stand.
            on_grid = rostam.run_collective(fabric, "all_reduce", ranks=list(ids), **how)
            by_rank = np.array(ids)[alone.grid()]
            as_real = rostam.run_collective(
                fabric, "all_reduce", ranks=by_rank.ravel().tolist(), grid=by_rank.shape, **how
            )
            assert on_grid.time_s == pytest.approx(expected.time_s, rel=0.01)
            assert as_real.time_s == pytest.approx(expected.time_s, rel=0.01)


def test_jobs_over_several_leaves_of_a_tree_have_their_whole_bandwidth_and_more_latency(gpt):
    # Leaves of two boards: 2 x 2 boards are on one leaf by themselves, and on two among failed boards. What another 64
    # MiB add is equal; paths through a spine are two switches and cables longer, 2.3% of a time of 160 us.
    fabric = whole("tree").with_failures(boards=[board for board in range(64) if board % 2 or board // 8 % 2])
    (ids,) = given(gpt, fabric, 16)
    alone = real("tree", 2, 2)
    times = [
        [rostam.run_collective(
            where, "all_reduce", num_bytes=size, algorithm="dual_hamiltonian_rings", ranks=ranks
        ).time_s for size in (NUM_BYTES, 2 * NUM_BYTES)]
        for where, ranks in ((fabric, list(ids)), (alone, None))
    ]  # fmt: skip
    assert times[0][1] - times[0][0] == pytest.approx(times[1][1] - times[1][0], rel=1e-9)
    # 2 (16 - 1) steps of each ring, each two cables of 20 ns and two switches of 40 ns longer.
    assert times[0][0] - times[1][0] == pytest.approx(30 * 2 * 60e-9, rel=1e-6)


def test_a_ring_by_rank_takes_the_time_of_a_hammingmesh_of_the_jobs_shape(gpt):
    fabric = whole("board_row").with_failures(boards=[0, 9, 18, 27])
    for ids in given(gpt, fabric, 64, 24):
        alone = real("board_row", *shape_of(ids))
        how = {"num_bytes": NUM_BYTES, "algorithm": "ring"}
        expected = rostam.run_collective(alone, "all_reduce", ranks=list(range(len(ids))), **how)
        own = rostam.run_collective(fabric, "all_reduce", ranks=list(ids), **how)
        assert own.time_s == pytest.approx(expected.time_s, rel=0.01)


@pytest.mark.parametrize("wiring", WIRINGS)
@pytest.mark.parametrize("failed", [[], [1, 2, 10, 19, 28, 37, 50]])
def test_two_jobs_at_once_take_the_times_that_they_take_alone(step_plan, gpt, wiring, failed):
    fabric = whole(wiring).with_failures(boards=failed)
    machine = rostam.Machine(fabric=fabric)
    plans = []
    for ids in given(gpt, fabric, 64, 36, 16):
        plan = step_plan(machine, [[a] for a in ids], NUM_BYTES)
        plans.append(replace(plan, algorithms={**plan.algorithms, "all_reduce": "dual_hamiltonian_rings"}))
    mix = simulate_mix(plans, machine, routing="spray", num_iterations=2)
    for job, plan in zip(mix.jobs, plans, strict=True):
        assert "dual_hamiltonian_rings" in job.algorithms
        assert job.iteration_times_s == pytest.approx(job.alone_times_s, rel=1e-9)
        if wiring == "board_row":
            alone = real(wiring, *shape_of(plan.accelerators.reshape(-1).tolist()))
            how = {"num_bytes": NUM_BYTES, "algorithm": "dual_hamiltonian_rings"}
            expected = rostam.run_collective(alone, "all_reduce", **how)
            assert job.iteration_times_s[-1] == pytest.approx(expected.time_s, rel=0.01)


def test_two_jobs_that_send_all_to_all_do_not_meet(gpt):
    # Packets between rows and columns turn at boards of their own job only.
    fabric = whole("board_row").with_failures(boards=[3, 12, 33])
    first, second = given(gpt, fabric, 64, 64)
    sets = [{(int(one["src"]), int(one["dst"])) for one in fabric.links[used]} for used in (
        rostam.run_collective(fabric, "all_to_all", num_bytes=MIB, algorithm="direct", ranks=list(ids)).link_bytes > 0
        for ids in (first, second)
    )]  # fmt: skip
    ends = [{a for pair in pairs for a in pair if a < fabric.num_accelerators} for pairs in sets]
    assert ends == [set(first), set(second)]
    assert not sets[0] & sets[1]


def test_place_mix_runs_jobs_in_the_order_of_their_sub_meshes_ranks(gpt):
    machine = rostam.Machine(fabric=whole("board_row").with_failures(boards=[1]))
    jobs = jobs_of(gpt, 16, 8)
    plans = place_mix(jobs, machine, allocation="submesh", software="ideal")
    ids = given(gpt, machine.fabric, 16, 8)
    assert [tuple(plan.accelerators.reshape(-1).tolist()) for plan in plans] == ids
