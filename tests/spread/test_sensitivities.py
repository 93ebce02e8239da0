"""Sensitivities against shares of time derived by hand, and scale invariance of whole plans."""

import pytest

import rostam_py as rostam
from rostam_py.costs.limits import Speeds
from rostam_py.errors import ConfigError
from rostam_py.simulation import TaskGraph
from rostam_py.spread.changes import Change, kernel_limits, links_of_classes
from rostam_py.spread.inputs import EFFICIENCIES, LIMITS, LINKS, NETWORK, TIMES, inputs_of
from tests.spread.hand import LINK, all_reduce, compute, copy, plan, product


def rows_of(plan, **options):
    found = rostam.sensitivity(plan, **options)
    return found.iteration_time_s, {row.name: row for row in found.rows}


def test_of_a_compute_only_run_the_peak_has_the_share_of_time_that_is_peak_bound():
    # 30 ms of products at the peak, 10 ms of copies at the memory bandwidth: 10% less peak is 3 ms.
    total, rows = rows_of(plan([compute(product(0.030), copy(0.010))]))
    assert total == pytest.approx(0.040, rel=1e-9)
    assert rows["peak of the accelerator"].worse_s == pytest.approx(0.1 * 0.030, rel=1e-9)
    assert rows["peak of the accelerator"].better_s == pytest.approx(-0.030 * (1 - 1 / 1.1), rel=1e-9)
    assert rows["memory bandwidth"].worse_s == pytest.approx(0.1 * 0.010, rel=1e-9)
    assert rows["efficiency of matmul kernels"].worse_s == pytest.approx(0.1 * 0.030, rel=1e-9)
    assert rows["efficiency of elementwise kernels"].worse_s == pytest.approx(0.1 * 0.010, rel=1e-9)
    assert set(rows) == {
        "peak of the accelerator", "memory bandwidth", "efficiency of matmul kernels",
        "efficiency of elementwise kernels",
    }  # fmt: skip


@pytest.mark.parametrize(("hidden", "exposed"), [(0.0, 0.020), (0.015, 0.005)])
def test_a_link_has_the_share_of_time_that_is_exposed(hidden, exposed):
    # Ring of two: 2 steps of S / 2 = 20 ms on the link, from the end of the first kernel on; the second hides some.
    size = int(0.020 * LINK)
    tasks = [compute(product(0.030)), all_reduce(size, 0)]
    tasks += [compute(product(hidden), deps=(0,))] if hidden else []
    tasks.append(compute(copy(0.001), deps=(1,)))
    total, rows = rows_of(plan(tasks, 2))
    assert total == pytest.approx(0.031 + hidden + exposed, rel=1e-9)
    link = rows["bandwidth of all links"]
    assert link.worse_s == pytest.approx(0.1 * 0.020, rel=1e-9)  # what is longer is exposed
    assert link.better_s == pytest.approx(-min(exposed, 0.020 * (1 - 1 / 1.1)), rel=1e-9)


def test_a_wholly_hidden_transfer_is_worth_nothing():
    size = int(0.010 * LINK)
    tasks = [compute(product(0.001)), all_reduce(size, 0), compute(product(0.050), deps=(0,))]
    _, rows = rows_of(plan([*tasks, compute(copy(0.001), deps=(1, 2))], 2))
    assert rows["bandwidth of all links"].better_s == rows["bandwidth of all links"].worse_s == 0


def test_latency_of_a_launch_is_worth_its_part():
    # Not hidden: the collective waits for the kernel, and the next kernel for the collective.
    tasks = [compute(product(0.010)), all_reduce(10**6, 0), compute(copy(0.001), deps=(1,))]
    total, rows = rows_of(plan(tasks, 2, launch_latency=1e-4))
    assert total == pytest.approx(0.011 + 0.001 + 2 * 1e-4, rel=1e-9)
    assert rows["launch latency"].worse_s == pytest.approx(0.1 * 2e-4, rel=1e-6)


def test_launches_of_a_host_that_limits_have_their_share():
    # Ten kernels of 1 us, each launched for 10 us: 90 us and more of the iteration are launches.
    kernels = [product(1e-6) for _ in range(10)]
    total, rows = rows_of(plan([compute(*kernels)], host="eager", host_launch="10 us"))
    assert total == pytest.approx(100e-6, rel=0.05)
    assert rows["launches of the host"].worse_s == pytest.approx(10e-6, rel=0.05)
    assert abs(rows["peak of the accelerator"].worse_s) <= 1e-6


@pytest.fixture(scope="module")
def graph():
    return rostam.trace("gpt_125m")


STRATEGIES = {
    "tree": ("fat_tree", {"server_size": 8}, {"dp": 2, "tp": 4, "pp": 2}),
    "torus": ("torus", {"dims": (4, 4)}, {"dp": 16}),
    "classes": (
        "fat_tree", {"server_size": 8, "server_links": "nvlink4", "network_links": "infiniband"},
        {"dp": 2, "tp": 4, "pp": 2},
    ),
    "direct": (
        "hybrid_cube_mesh", {"server_links": "nvlink2", "network_links": "infiniband"}, {"dp": 4, "tp": 4},
    ),
}  # fmt: skip


def placed(graph, case, cost="roofline", **machine):
    name, parameters, degrees = STRATEGIES[case]
    if name != "torus":
        parameters = parameters | {"num_accelerators": 16}
    fabric = rostam.fabric(name, accelerator_bandwidth="400 Gb/s", **parameters)
    strategy = rostam.Strategy.of(**degrees, precision="bf16_mixed", micro_batch=1)
    return rostam.place(
        graph, rostam.Machine(fabric=fabric, accelerator="a100_80gb", **machine), global_batch=32, strategy=strategy,
        cost=cost, software="ideal",
    )  # fmt: skip


@pytest.mark.parametrize("case", STRATEGIES)
@pytest.mark.parametrize("host", ["graphs", "eager"])
@pytest.mark.parametrize("cost", ["roofline", "calibrated"])
def test_all_rates_times_11_and_all_latencies_by_11_give_exactly_the_time_by_11(graph, case, cost, host):
    base = TaskGraph.of(placed(graph, case, cost, host=host))
    result = rostam.simulate(base)
    links = next(one for one in inputs_of(base, result) if one.kind == NETWORK).change(1.1)
    classes = dict.fromkeys(links_of_classes(base.machine.fabric), 1.1)
    change = Change(Speeds(1.1, 1.1, 1.1, 1.1), links.links, 1.1, 1.1, 1.1, 1.1, classes, classes)
    faster = rostam.simulate(change.of(base))
    # Every kernel and hop is rounded to a picosecond.
    assert result.iteration_time_s / faster.iteration_time_s == pytest.approx(1.1, rel=1e-6)


@pytest.mark.parametrize("case", STRATEGIES)
def test_sensitivities_to_all_inputs_add_up_to_the_whole_time(graph, case):
    found = rostam.sensitivity(placed(graph, case))
    parts = [row for row in found.rows if row.kind in (LIMITS, NETWORK, TIMES)]
    # Alone an input may make another chain critical, which all together do not: equal but for that.
    assert sum(row.worse_s for row in parts) == pytest.approx(0.1 * found.iteration_time_s, rel=0.10)
    assert sum(row.better_s for row in parts) == pytest.approx(-found.iteration_time_s / 11, rel=0.10)
    # Efficiencies are the same kernels in another order, floors aside.
    kernels = sum(row.worse_s for row in found.rows if row.kind == EFFICIENCIES)
    assert kernels == pytest.approx(sum(row.worse_s for row in parts if row.kind == LIMITS), rel=0.10)


@pytest.mark.parametrize("cost", ["roofline", "calibrated"])
@pytest.mark.parametrize("placer", ["megatron", "sip_ml"])
def test_limits_say_what_the_cost_model_says(graph, cost, placer):
    degrees = {"dp": 4, "tp": 4} if placer == "megatron" else {"dp": 4, "mp": 4, "placer": "sip_ml"}
    machine = rostam.Machine(fabric=rostam.fabric("electrical_flat", num_accelerators=16, accelerator_bandwidth=1e11))
    found = rostam.place(
        graph, machine, global_batch=32, strategy=rostam.Strategy.of(**degrees), cost=cost, software="ideal"
    )
    kernels = [
        kernel for stage in found.stages for tasks in stage.templates.values() for task in tasks
        for kernel in task.kernels if kernel.duration_s
    ]  # fmt: skip
    assert len(kernels) > 100
    for kernel in kernels:
        limits = kernel_limits(kernel)
        assert limits is not None
        assert limits.duration_s(Speeds()) == pytest.approx(kernel.duration_s, rel=1e-12)


@pytest.mark.parametrize("cost", ["roofline", "calibrated"])
def test_limits_at_another_peak_say_what_the_cost_model_says_of_such_an_accelerator(graph, cost):
    import dataclasses

    from rostam_py.costs import get_accelerator, make_cost_model

    own = get_accelerator("a100_80gb")
    rates = {kind: 1.1 * peak for kind, peak in own.peak_flops_per_s.items()}
    faster = make_cost_model(cost, dataclasses.replace(own, peak_flops_per_s=rates), graph=graph)
    plan = placed(graph, "torus", cost)
    judged = 0
    for tasks in plan.stages[0].templates.values():
        for kernel in [kernel for task in tasks for kernel in task.kernels if kernel.call is not None]:
            limits = kernel_limits(kernel)
            # A borrowed table, or a median of two sources with other fixed times, changes by a little else.
            assert limits.duration_s(Speeds(arithmetic=1.1)) == pytest.approx(faster.duration_s(kernel.call), rel=2e-3)
            judged += limits.arithmetic_s > limits.memory_s
    assert judged > 20


def test_a_plan_from_a_file_has_no_limits(graph, tmp_path):
    placed(graph, "tree").save(tmp_path / "plan.json")
    loaded = rostam.Plan.load(tmp_path / "plan.json")
    kinds = {row.kind for row in rostam.sensitivity(loaded).rows}
    assert kinds == {EFFICIENCIES, NETWORK, LINKS, TIMES}


def test_several_jobs_are_refused(graph):
    one = placed(graph, "tree").machine
    strategy = {"dp": 2, "tp": 4, "pp": 1, "precision": "bf16_mixed"}
    plans = [
        rostam.place(
            graph,
            one,
            global_batch=8,
            strategy=rostam.Strategy.of(accelerators=list(ids), **strategy),
            software="ideal",
        )
        for ids in (range(8), range(8, 16))
    ]
    with pytest.raises(ConfigError, match="2 jobs; it takes one"):
        rostam.sensitivity(TaskGraph.of(plans))
