"""Estimates against simulations and against sums by hand."""

import pytest

import rostam_py as rostam
from rostam_py.placement.axis_costs import AxisCosts
from rostam_py.placement.megatron.estimate import _overlap_s, compile_stages, estimate_plan
from rostam_py.plan import KernelTime, Task


def estimate(plan):
    """Return the estimated iteration time [s]."""
    return estimate_plan(plan, AxisCosts(plan, plan.machine.fabric, "spray", {})).iteration_time_s


@pytest.mark.parametrize("where", ["machine", "cluster"])
@pytest.mark.parametrize("degrees", [{"dp": 8}, {"tp": 8}])
def test_one_axis_alone_is_estimated_exactly(gpt, base, where, degrees, request):
    plan = rostam.place(
        gpt, request.getfixturevalue(where), global_batch=32,
        strategy=rostam.Strategy.of(precision="bf16_mixed", **degrees), software="ideal",
    )  # fmt: skip
    assert estimate(plan) == pytest.approx(rostam.simulate(plan).iteration_time_s, rel=1e-3)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(
    "degrees",
    [{"dp": 4, "tp": 2}, {"dp": 4, "pp": 2, "micro_batch": 2}, {"dp": 2, "tp": 2, "pp": 2, "micro_batch": 1}],
)
def test_combined_axes_are_estimated_within_a_tenth(gpt, machine, degrees, schedule):
    strategy = rostam.Strategy.of(precision="bf16_mixed", schedule=schedule, **degrees)
    plan = rostam.place(gpt, machine, global_batch=64, strategy=strategy, software="ideal")
    assert estimate(plan) == pytest.approx(rostam.simulate(plan).iteration_time_s, rel=0.1)


def test_a_long_pipeline_goes_on_at_its_pace(gpt, machine):
    # 128 micro-batches, of which 10 are played.
    strategy = rostam.Strategy(dp=4, pp=2, micro_batch=1, precision="bf16_mixed")
    plan = rostam.place(gpt, machine, global_batch=512, strategy=strategy, software="ideal")
    assert plan.num_microbatches == 128
    assert estimate(plan) == pytest.approx(rostam.simulate(plan).iteration_time_s, rel=0.05)


def test_slow_accelerators_slow_their_stage(gpt, machine, base):
    plan = rostam.place(
        gpt, machine, global_batch=32, strategy=rostam.Strategy(dp=8, precision="bf16_mixed"), software="ideal"
    )
    slow = plan.on(machine.with_slow_accelerators({3: 0.5}))
    assert estimate(slow) == pytest.approx(rostam.simulate(slow).iteration_time_s, rel=0.02)
    assert estimate(slow) > 1.5 * estimate(plan)


@pytest.mark.parametrize("degrees", [{"dp": 8}, {"tp": 2, "dp": 4}, {"pp": 2, "dp": 4}, {"dp": 8, "shard": 3}], ids=str)
def test_steps_at_their_limit_of_power_are_estimated_there(gpt, degrees):
    # An H100 of 500 W takes up to 30% longer than its kernels do one by one.
    fabric = rostam.fabric("electrical_cluster", num_accelerators=8)
    machine = rostam.Machine(fabric=fabric, accelerator="h100_96gb")
    strategy = rostam.Strategy.of(precision="bf16_mixed", micro_batch=8, **degrees)
    plan = rostam.place(gpt, machine, global_batch=512, strategy=strategy, software="ideal")
    burst = rostam.place(
        gpt, machine, global_batch=512, strategy=strategy, cost_config={"clocks": "burst"}, software="ideal"
    )
    held = rostam.simulate(plan).iteration_time_s
    assert held > 1.04 * rostam.simulate(burst).iteration_time_s
    assert estimate(plan) == pytest.approx(held, rel=0.03)
    slow = plan.on(machine.with_slow_accelerators({3: 0.5}))
    assert estimate(slow) == pytest.approx(rostam.simulate(slow).iteration_time_s, rel=0.03)


def test_compute_alone_bounds_the_estimate(gpt, machine):
    plan = rostam.place(
        gpt, machine, global_batch=32, strategy=rostam.Strategy(tp=2, dp=4, precision="bf16_mixed"), software="ideal"
    )
    found = estimate_plan(plan, AxisCosts(plan, machine.fabric, "spray", {}))
    assert 0 < found.compute_s < found.iteration_time_s


def test_compiled_stages_add_up_kernel_times(gpt, machine):
    plan = rostam.place(
        gpt, machine, global_batch=32, strategy=rostam.Strategy(dp=8, precision="bf16_mixed"), software="ideal"
    )
    (stage,) = compile_stages(plan)
    tasks = [task for name in ("forward", "backward_last") for task in plan.stages[0].templates[name]]
    assert stage.compute_s == pytest.approx(sum(task.duration_s for task in tasks))


def test_overlap_of_spans_is_what_both_cover():
    row = compile_row()
    one = [(0.0, 2.0, row), (3.0, 5.0, row)]
    assert _overlap_s(one, [(1.0, 4.0, row)]) == pytest.approx(2.0)
    assert _overlap_s(one, [(2.0, 3.0, row)]) == 0.0
    assert _overlap_s(one, []) == 0.0


def compile_row():
    """Return any compiled task."""
    from rostam_py.placement.megatron.estimate import _row

    return _row(
        Task(kind="compute", name="any", kernels=(KernelTime(name="any", module="", op_type="", duration_s=1.0),)), {}
    )
