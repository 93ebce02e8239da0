"""Jobs at their accelerators' limits of power: closed forms of one kernel, waits, stages, files, what is not held."""

from dataclasses import replace

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.costs import ACCELERATORS
from rostam_py.costs.power import power_model
from rostam_py.plan import Batches, KernelTime, MemoryBytes, Plan, Stage, Task
from rostam_py.simulation import power

H100 = power_model(ACCELERATORS["h100_80gb"])  # 700 W, 121.7 of them idle


def made(stages, fabric, accelerator="h100_80gb"):
    """A plan whose stages each run (seconds, watts) kernels in turn."""
    machine = rostam.Machine(fabric=fabric, accelerator=accelerator, launch_latency=0.0, min_kernel_time=0.0)
    built = []
    for index, kernels in enumerate(stages):
        tasks = [
            Task(
                kind="compute",
                name=f"k{k}",
                kernels=(KernelTime(name=f"k{k}", module="", op_type="hand", duration_s=s, watts=w),),
            )
            for k, (s, w) in enumerate(kernels)
        ]
        built.append(
            Stage(
                index=index,
                templates={"forward": tuple(tasks)},
                program=[("forward", 0)],
                memory=MemoryBytes(),
                num_parameters=0,
            )
        )
    ids = np.arange(len(stages))
    strategy = rostam.Strategy(pp=len(stages), accelerators=ids.tolist(), precision="fp32", allow_idle=True)
    batches = Batches(1, 1, 1)
    return Plan.on_grid("hand", machine, strategy, batches, tuple(built), ids.reshape(1, -1, 1))


def notes_of(result):
    return [note for note in result.notes if note.startswith("power:")]


def test_one_kernel_takes_what_its_power_over_the_limits_asks_for(free_fabric):
    plan = made([[(1e-3, 800.0)]], free_fabric(1))
    result = rostam.simulate(plan)
    expected = 1e-3 * (800.0 / 578.3) ** H100.exponent
    assert result.iteration_time_s == pytest.approx(expected, rel=1e-9)
    assert result.compute_by_family["elementwise"] == pytest.approx(expected, rel=1e-9)
    (note,) = notes_of(result)
    assert note.startswith("power: devices are held at 700 W")
    assert "more than 700 W take up to 19.2% longer, all compute 19.2%" in note


def test_kernels_that_draw_less_leave_the_others_more(free_fabric):
    # 2 ms at 800 W and 1 ms at 386 W, above idle: the level L of ((L - 578.3) 2 (800 / L)^x = (578.3 - 386) 1) ms.
    result = rostam.simulate(made([[(2e-3, 800.0), (1e-3, 386.0)]], free_fabric(1)))
    levels = np.arange(578.3, 800.0, 1e-3)
    drawn = (levels - 578.3) * 2 * (800 / levels) ** H100.exponent
    level = levels[drawn <= 578.3 - 386].max()
    assert 578.3 < level < 700
    assert result.iteration_time_s == pytest.approx(2e-3 * (800 / level) ** H100.exponent + 1e-3, rel=1e-6)


def test_a_job_below_its_limit_is_simulated_once_and_as_it_is(free_fabric, monkeypatch):
    plan = made([[(1e-3, 600.0), (1e-3, 386.0)]], free_fabric(1))
    monkeypatch.setattr(power, "_held", None)  # not called
    result = rostam.simulate(plan)
    assert result.plan is plan
    assert result.iteration_time_s == pytest.approx(2e-3, rel=1e-12)
    assert not notes_of(result)


@pytest.mark.parametrize("accelerator", ["a100_80gb", "v100_32gb", "gb200_186gb"])
def test_parts_whose_power_nobody_measured_are_not_held(free_fabric, accelerator):
    result = rostam.simulate(made([[(1e-3, 5000.0)]], free_fabric(1), accelerator))
    assert result.iteration_time_s == pytest.approx(1e-3, rel=1e-12)


def test_each_stage_has_its_own_limit(free_fabric):
    result = rostam.simulate(made([[(1e-3, 800.0)], [(1e-3, 300.0)]], free_fabric(2)))
    slow, fast = (result.plan.stages[k].templates["forward"][0].kernels[0] for k in (0, 1))
    assert slow.duration_s == pytest.approx(1e-3 * (800 / 578.3) ** H100.exponent, rel=1e-9)
    assert slow.stretch == pytest.approx(slow.duration_s / 1e-3)
    assert fast.duration_s == 1e-3
    assert "1 of 2 stages are held at 700 W" in notes_of(result)[0]


def test_a_lower_limit_slows_more(free_fabric):
    times = [
        rostam.simulate(made([[(1e-3, 700.0)]], free_fabric(1), name)).iteration_time_s
        for name in ("h100_80gb", "h100_96gb")
    ]
    assert times[1] / times[0] == pytest.approx((578.3 / 378.3) ** H100.exponent, rel=1e-9)


def test_saved_plans_and_task_graphs_are_held_alike(free_fabric, tmp_path):
    plan = made([[(2e-3, 800.0), (1e-3, 386.0)], [(1e-3, 800.0)]], free_fabric(2))
    plan.save(tmp_path / "plan.json")
    rostam.TaskGraph.of(plan).save(tmp_path / "tasks.json")
    times = [
        rostam.simulate(one).iteration_time_s
        for one in (
            plan, rostam.Plan.load(tmp_path / "plan.json"), rostam.TaskGraph.load(tmp_path / "tasks.json"),
            rostam.TaskGraph.of(plan),
        )
    ]  # fmt: skip
    assert len(set(times)) == 1
    assert times[0] > 3e-3


def test_two_jobs_are_held_each_by_itself(free_fabric):
    fabric = free_fabric(2)
    first = made([[(1e-3, 800.0)]], fabric)
    second = replace(made([[(1e-3, 300.0)]], fabric), devices=np.array([1]))
    results = rostam.simulate([first, second])
    assert results[0].iteration_time_s == pytest.approx(1e-3 * (800 / 578.3) ** H100.exponent, rel=1e-9)
    assert results[1].iteration_time_s == pytest.approx(1e-3, rel=1e-12)


def exchanging(fabric, kind):
    """Two devices that compute 2 ms at 650 W and then gather 6 MB at 1 GB/s, as ranks of ``kind``."""
    degrees = {"tp": {"dp": 1, "tp": 2}, "dp": {"dp": 2}}[kind]
    kernel = KernelTime(name="k", module="", op_type="hand", duration_s=2e-3, watts=650.0)
    tasks = (
        Task(kind="compute", name="k", kernels=(kernel,)),
        Task(kind="collective", name="gather", deps=(0,), group=kind, collective="all_gather", num_bytes=6_000_000),
        Task(
            kind="compute",
            name="end",
            deps=(1,),
            kernels=(KernelTime(name="end", module="", op_type="hand", duration_s=1e-6),),
        ),
    )
    machine = rostam.Machine(
        fabric=fabric, accelerator="h100_80gb", launch_latency=0.0, min_kernel_time=0.0, comm_compute_fraction=0.0
    )
    name = {"tp": "forward", "dp": "backward_last"}[kind]
    stage = Stage(index=0, templates={name: tasks}, program=[(name, 0)], memory=MemoryBytes(), num_parameters=0)
    strategy = rostam.Strategy.of(precision="fp32", algorithms={"all_gather": "ring"}, **degrees)
    shape = (degrees.get("dp", 1), 1, degrees.get("tp", 1))
    return Plan.on_grid(
        "hand", machine, strategy, Batches(2, 1, 1), (stage,), np.arange(2).reshape(shape),
        algorithms={"all_gather": "ring"},
    )  # fmt: skip


def test_waits_of_layers_are_averaged_and_those_for_replicas_are_not(free_fabric):
    tensor, data = (rostam.simulate(exchanging(free_fabric(2), kind)) for kind in ("tp", "dp"))
    assert not notes_of(tensor)  # 3 ms of waiting at idle, but for what 3 MB that are sent draw
    assert tensor.plan.stages[0].templates["forward"][0].kernels[0].duration_s == 2e-3
    held = data.plan.stages[0].templates["backward_last"][0].kernels[0].duration_s
    assert held == pytest.approx(2e-3 * (650 / 578.3) ** H100.exponent, rel=1e-3)
    assert notes_of(data)


def test_a_held_job_keeps_its_times_when_it_is_simulated_again(free_fabric):
    result = rostam.simulate(made([[(2e-3, 800.0), (1e-3, 386.0)]], free_fabric(1)))
    again = rostam.simulate(result.plan)
    assert again.iteration_time_s == pytest.approx(result.iteration_time_s, rel=1e-9)
