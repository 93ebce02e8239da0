"""Which algorithms a plan's collectives run, as a result says it."""

import json

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.collectives.predicted_time import choose_algorithm
from rostam_py.collectives.rank_groups import algorithm_names, needs_grid
from rostam_py.plan import Batches, KernelTime, MemoryBytes, Plan, Stage, Task
from rostam_py.plan.algorithms import algorithm_words


def plan_of(fabric, sizes, **strategy):
    """Groups of 16 that sum buffers of these sizes one after the other."""
    work = Task(
        kind="compute", name="work", kernels=(KernelTime(name="work", module="", op_type="hand", duration_s=1e-3),)
    )
    sums = [
        Task(kind="collective", name=f"sum{k}", deps=(0,), group="dp", collective="all_reduce", num_bytes=n)
        for k, n in enumerate(sizes)
    ]
    stage = Stage(
        index=0,
        templates={"iteration": (work, *sums)},
        program=(("iteration", 0),),
        memory=MemoryBytes(),
        num_parameters=0,
    )
    chosen = rostam.Strategy.of(dp=16, **strategy)
    return Plan.on_grid(
        "hand", rostam.Machine(fabric=fabric), chosen, Batches(16, 1, 1), (stage,), np.arange(16)[:, None, None],
        algorithms=dict(chosen.algorithms),
    )  # fmt: skip


def test_a_result_names_the_algorithm_of_every_group_collective_and_size():
    fabric = rostam.fabric("fat_tree", num_accelerators=16, server_size=8, link_bandwidth="400 Gb/s")
    result = rostam.simulate(plan_of(fabric, [1_000, 2**28, 2**28]))
    small, large = result.algorithms
    assert (small["group"], small["collective"], small["num_bytes"], small["num_ranks"]) == (
        "dp",
        "all_reduce",
        1_000,
        16,
    )
    assert (small["count"], large["count"]) == (1, 2)
    for one in result.algorithms:
        assert one["algorithm"] == choose_algorithm(fabric, "all_reduce", one["num_bytes"])
    assert small["algorithm"] != large["algorithm"]
    assert json.loads(result.to_json())["algorithms"] == result.algorithms
    words = algorithm_words(result.algorithms)
    assert words == f"dp all_reduce {small['algorithm']} up to 1 kB, {large['algorithm']}"


def test_algorithms_on_a_grid_are_chosen_where_all_groups_fill_boxes_of_one_shape():
    # 4 x 4 x 4, the 16 replicas of a rank in a plane; then two planes with one accelerator of each in the other.
    fabric, devices = rostam.fabric("torus", dims=(4, 4, 4)), np.arange(64).reshape(16, 1, 4)
    mixed = devices.copy()
    mixed[0, 0, 2], mixed[1, 0, 3] = devices[1, 0, 3], devices[0, 0, 2]
    summed = Task(kind="collective", name="sum", deps=(), group="dp", collective="all_reduce", num_bytes=2**28)
    stage = Stage(index=0, templates={"iteration": (summed,)},
                  program=(("iteration", 0),), memory=MemoryBytes(), num_parameters=0)  # fmt: skip
    chosen = []
    for accelerators in (devices, mixed):
        plan = Plan.on_grid(
            "hand",
            rostam.Machine(fabric=fabric),
            rostam.Strategy(dp=16, tp=4),
            Batches(16, 1, 1),
            (stage,),
            accelerators,
        )
        (one,) = rostam.simulate(plan).algorithms
        chosen.append(one["algorithm"])
    assert chosen[0] == choose_algorithm(fabric, "all_reduce", 2**28, devices[:, 0, 0]) == "torus_2d"
    names = [name for name in algorithm_names("all_reduce") if not needs_grid("all_reduce", name)]
    assert chosen[1] == choose_algorithm(fabric, "all_reduce", 2**28, devices[:, 0, 0], allowed=names)


@pytest.mark.parametrize("name", ["sip_ocs", "sip_ring"])
def test_fabrics_whose_circuits_are_set_once_keep_the_ring(name):
    plan = plan_of(rostam.fabric(name, num_accelerators=16), [1_000, 2**28])
    assert {one["algorithm"] for one in plan.collectives} == {"ring"}
    assert plan.circuit_degree == 1
    assert rostam.run_collective(plan.machine.fabric, "all_reduce", num_bytes=1_000).algorithm == "ring"


def test_a_named_algorithm_runs_at_every_size_and_a_limit_on_circuits_keeps_the_ring():
    flat = rostam.fabric("electrical_flat", num_accelerators=16)
    named = plan_of(flat, [1_000, 2**28], algorithms={"all_reduce": "bidirectional_ring"})
    assert algorithm_words(named.collectives) == "dp all_reduce bidirectional_ring"
    assert {one["algorithm"] for one in plan_of(flat, [1_000], max_circuit_degree=1).collectives} == {"ring"}
    assert {one["algorithm"] for one in plan_of(flat, [1_000]).collectives} != {"ring"}


def test_groups_on_servers_in_different_ways_run_one_schedule_and_conserve_bytes():
    # Servers of 6: groups of 6 + 2, 4 + 4 and 2 + 6 ranks.
    fabric = rostam.fabric("fat_tree", num_accelerators=24, server_size=6, link_bandwidth="400 Gb/s")
    work = Task(
        kind="compute", name="work", kernels=(KernelTime(name="work", module="", op_type="hand", duration_s=1e-3),)
    )
    summed = Task(kind="collective", name="sum", deps=(0,), group="tp", collective="all_reduce", num_bytes=10**7)
    stage = Stage(
        index=0,
        templates={"iteration": (work, summed)},
        program=(("iteration", 0),),
        memory=MemoryBytes(),
        num_parameters=0,
    )
    strategy = rostam.Strategy(dp=3, tp=8, algorithms={"all_reduce": "ring"})
    plan = Plan.on_grid(
        "hand", rostam.Machine(fabric=fabric), strategy, Batches(3, 1, 1), (stage,), np.arange(24).reshape(3, 1, 8),
        algorithms=strategy.algorithms,
    )  # fmt: skip
    (key,) = plan.schedules.values()
    assert key.group_size == (6, 2)
    folded, whole = (rostam.simulate(plan, fold=fold) for fold in (True, False))
    assert folded.iteration_time_s == pytest.approx(whole.iteration_time_s, rel=1e-9)
    assert whole.bytes_sent["tp"] == plan.traffic.total_bytes


def test_protocols_are_named_where_links_have_some():
    def row(size, algorithm, protocol):
        return {"group": "tp", "collective": "all_reduce", "num_bytes": size, "num_ranks": 8, "algorithm": algorithm,
                "protocol": protocol, "count": 1}  # fmt: skip

    rows = [
        row(10**6, "ring", "LL"),
        row(2 * 10**6, "ring", "LL"),
        row(10**7, "ring", "LL128"),
        row(10**9, "nvls", "Simple"),
    ]
    assert algorithm_words(rows) == "tp all_reduce ring LL up to 2 MB, ring LL128 up to 10 MB, nvls Simple"
    assert algorithm_words([row(1, "ring", "")]) == "tp all_reduce ring"
