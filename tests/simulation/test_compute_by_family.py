"""Compute by op family: sums of kernels done by hand, that what slows a device slows all of them, and custom ops."""

import dataclasses

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.plan import Batches, KernelTime, MemoryBytes, Plan, Stage, Task
from rostam_py.plan.work import seconds_by_family

MS = 1e-3


def kernel(op_type, milliseconds, role=""):
    return KernelTime(name=op_type, module="", op_type=op_type, duration_s=milliseconds * MS, role=role)


@pytest.fixture
def two_stages(free_fabric):
    """Return a maker of a plan of two stages that do not wait for each other.

    Stage 0, 2 x forward + 1 x step: products 2 x (3 + 1) = 8 ms, softmax 2 x 0.5 = 1 ms, optimizer 2 ms: 11 ms.
    Stage 1, 4 x forward: a product of a library of its own, known by its role, 4 x 1 = 4 ms; 4 x 0.375 = 1.5 ms of
    gelu: at half speed 11 ms as well, so that neither runs ahead.
    """
    first = (
        Task(kind="compute", name="f", kernels=(kernel("aten.mm.default", 3), kernel("aten._softmax.default", 0.5))),
        Task(kind="compute", name="g", deps=(0,), kernels=(kernel("aten.bmm.default", 1),)),
    )
    step = (Task(kind="compute", name="step", kernels=(kernel("optimizer.adam", 2),), is_optimizer=True),)
    second = (
        Task(
            kind="compute",
            name="f",
            kernels=(kernel("mine.product.default", 1, "product"), kernel("aten.gelu.default", 0.375)),
        ),
    )
    stages = (
        Stage(
            index=0,
            templates={"forward": first, "step": step},
            program=[("forward", 0), ("forward", 1), ("step", 1)],
            memory=MemoryBytes(),
            num_parameters=0,
        ),
        Stage(
            index=1,
            templates={"forward": second},
            program=[("forward", m) for m in range(4)],
            memory=MemoryBytes(),
            num_parameters=0,
        ),
    )

    def make(**physics):
        strategy = rostam.Strategy(dp=1, pp=2, precision="fp32")
        machine = rostam.Machine(fabric=free_fabric(2), launch_latency=0.0, min_kernel_time=0.0, **physics)
        return Plan.on_grid("hand", machine, strategy, Batches(4, 1, 4), stages, np.array([0, 1]).reshape(1, 2, 1))

    return make


def test_kernels_add_up_by_family_as_by_hand(two_stages):
    first, second = (seconds_by_family(stage.templates, stage.program) for stage in two_stages().stages)
    assert first == pytest.approx({"matmul": 8 * MS, "optimizer": 2 * MS, "reduction": 1 * MS}, rel=1e-12)
    assert second == pytest.approx({"matmul": 4 * MS, "elementwise": 1.5 * MS}, rel=1e-12)
    assert list(first) == ["matmul", "optimizer", "reduction"]  # the longest first


def test_a_result_has_the_mean_over_devices_and_what_is_slow_is_slow_in_each_of_its_kernels(two_stages):
    result = rostam.simulate(two_stages(slow={1: 0.5}))
    by_hand = {"matmul": (8 + 8) / 2 * MS, "elementwise": 3 / 2 * MS, "optimizer": 2 / 2 * MS, "reduction": 1 / 2 * MS}
    assert result.compute_by_family == pytest.approx(by_hand, rel=1e-9)
    assert sum(result.compute_by_family.values()) == pytest.approx(result.breakdown["compute"], rel=1e-12)
    assert result.to_dict()["compute_by_family_s"] == result.compute_by_family


def test_a_traced_model_has_each_family_that_its_kernels_have(gpt, free_fabric):
    machine = rostam.Machine(fabric=free_fabric(2), accelerator="a100_80gb")
    strategy = rostam.Strategy(dp=1, tp=2, precision="bf16_mixed")
    plan = rostam.place(gpt, machine, global_batch=4, strategy=strategy, cost="roofline", software="ideal")
    result = rostam.simulate(plan)
    times = [k for t in plan.stages[0].templates["forward"] for k in t.kernels]
    assert {kernel.family for kernel in times} <= set(result.compute_by_family)
    assert {"matmul", "normalization", "optimizer", "elementwise"} <= set(result.compute_by_family)
    assert sum(result.compute_by_family.values()) == pytest.approx(result.breakdown["compute"], rel=1e-9)


def test_saved_plans_keep_what_kernels_do(two_stages, tmp_path):
    plan = two_stages()
    plan.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    assert [dataclasses.asdict(k) for t in loaded.stages[1].templates["forward"] for k in t.kernels] == [
        dataclasses.asdict(k) for t in plan.stages[1].templates["forward"] for k in t.kernels
    ]
    assert rostam.simulate(loaded).compute_by_family == rostam.simulate(plan).compute_by_family
