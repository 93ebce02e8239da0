"""Mixes by hand: jobs that compute, all-reduce once and step, on cables drawn in each test."""

from dataclasses import replace

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.plan import Batches, KernelTime, MemoryBytes, Plan, Stage, Task

FREE = {"launch_latency": 0.0, "min_kernel_time": 0.0}


@pytest.fixture(scope="session")
def gpt():
    """Two layers of gpt_125m."""
    return rostam.trace("gpt_125m", num_layers=2)


@pytest.fixture(scope="session")
def step_plan():
    """Return a maker of plans: every iteration computes, then all-reduces ``num_bytes`` in rings of two and more.

    ranks: accelerators, (dp, tp) nested lists; the dp groups are its columns.
    """

    def make(machine, ranks, num_bytes, compute_s=0.0):
        ids = np.array(ranks)
        strategy = rostam.Strategy(
            dp=ids.shape[0], tp=ids.shape[1], accelerators=ids.reshape(-1).tolist(), precision="fp32"
        )
        tasks = (
            Task(
                kind="compute",
                name="work",
                kernels=(KernelTime(name="work", module="", op_type="hand", duration_s=compute_s),),
            ),
            Task(
                kind="collective", name="gradients", deps=(0,), group="dp", collective="all_reduce", num_bytes=num_bytes
            ),
            Task(
                kind="compute",
                name="step",
                deps=(1,),
                kernels=(KernelTime(name="step", module="", op_type="hand", duration_s=0.0),),
                is_optimizer=True,
            ),
        )
        stage = Stage(
            index=0, templates={"iteration": tasks}, program=(("iteration", 0),), memory=MemoryBytes(), num_parameters=0
        )
        return Plan.on_grid(
            "hand", replace(machine, **FREE), strategy, Batches(ids.size, 1, 1), (stage,), ids[:, None, :],
            algorithms={"all_reduce": "ring"} | dict(strategy.algorithms),
        )  # fmt: skip

    return make


@pytest.fixture(scope="session")
def two_switches():
    """Return a maker of machines: half of the accelerators on s0, half on s1, one cable between; no latency [bytes/s].

    Ports are as given, one an accelerator.
    """

    def make(between, ports):
        count = len(ports)
        rows = [(f"a{a}", "s0" if a < count // 2 else "s1", port) for a, port in enumerate(ports)]
        return rostam.Machine(fabric=rostam.fabric("custom", links=[*rows, ("s0", "s1", between)]))

    return make
