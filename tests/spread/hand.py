"""Hand-made plans of a few devices on a network without latency, and their kernels."""

import numpy as np

import rostam_py as rostam
from rostam_py.costs import KernelCall, get_accelerator, make_cost_model
from rostam_py.graph import Op
from rostam_py.plan import Batches, KernelTime, MemoryBytes, Plan, Stage, Task
from rostam_py.plan.groups import grid_groups

LINK = 1e9  # bytes/s from each accelerator
A100 = get_accelerator("a100_80gb")


def roofline(**config):
    """The roofline without ramp or floor: times are work over rate."""
    return make_cost_model("roofline", A100, **({"ramp_time": 0.0, "min_kernel_time": 0.0} | config))


def call(op_type="aten.mm.default", flops=0.0, num_bytes=0.0):
    op = Op(id=0, name=op_type, module="", phase="forward", op_type=op_type, inputs=(), outputs=())
    return KernelCall(ops=(op,), flops=flops, bytes_read=num_bytes, bytes_written=0.0, batch=1, precision="bf16_mixed")


def product(seconds, cost=None):
    """A matrix product that arithmetic bounds for so long."""
    return KernelTime.of(cost or roofline(), call(flops=seconds * A100.peak("bf16") * 0.74))


def copy(seconds, cost=None):
    """An element-wise kernel that memory bounds for so long."""
    num_bytes = seconds * A100.memory_bandwidth_bytes_per_s * 0.90
    return KernelTime.of(cost or roofline(), call("aten.add.Tensor", num_bytes=num_bytes))


def compute(*kernels, deps=()):
    return Task(kind="compute", name="work", deps=deps, kernels=tuple(kernels))


def all_reduce(num_bytes, *deps):
    return Task(kind="collective", name="sum", deps=deps, group="dp", collective="all_reduce", num_bytes=num_bytes)


def plan(tasks, num_devices=1, fabric=None, **machine):
    """Return a plan whose devices, one data-parallel group, all run ``tasks`` in an iteration."""
    if fabric is None:
        size = max(num_devices, 2)
        fabric = rostam.fabric("electrical_flat", num_accelerators=size, link_bandwidth=LINK, latency=0.0)
    strategy = rostam.Strategy(dp=num_devices, precision="bf16_mixed", algorithms={"all_reduce": "ring"})
    stage = Stage(
        index=0,
        templates={"iteration": tuple(tasks)},
        program=(("iteration", 0),),
        memory=MemoryBytes(),
        num_parameters=0,
    )
    physics = {"launch_latency": 0.0, "min_kernel_time": 0.0} | machine
    return Plan.on_grid(
        "hand", rostam.Machine(fabric=fabric, accelerator=A100, **physics), strategy, Batches(num_devices, 1, 1),
        (stage,), np.arange(num_devices).reshape(-1, 1, 1), groups=grid_groups((num_devices, 1, 1)),
        algorithms={"all_reduce": "ring"},
    )  # fmt: skip
