"""Plans to simulate: a small traced GPT, and pipelines written out by hand."""

import numpy as np
import pytest

import rostam_py as rostam
from rostam_py.placement.schedule import stage_program
from rostam_py.plan import Batches, KernelTime, MemoryBytes, Plan, Stage, Task

FREE = {"launch_latency": 0.0, "min_kernel_time": 0.0}


@pytest.fixture(scope="session")
def gpt():
    """Four layers of gpt_125m."""
    return rostam.trace("gpt_125m", num_layers=4)


def _kernels(name, seconds):
    """Split a time into three kernels, so that fused and op-level plans differ."""
    return tuple(
        KernelTime(name=f"{name}{k}", module="hand", op_type="hand", duration_s=seconds / 4 * part)
        for k, part in enumerate((1, 1, 2))
    )


def _templates(stage, num_stages, forward_s, backward_s, act_bytes, grad_bytes):
    has_previous, has_next = stage > 0, stage < num_stages - 1

    def half(name, seconds, tensor, source, target):
        """Receive from `source`, compute, send to `target`; offsets, 0 for none."""
        message = {"group": "pp", "num_bytes": act_bytes, "channel": tensor}
        tasks = []
        if source:
            tasks.append(Task(kind="recv", name=f"recv {tensor}", peer=source, **message))
        tasks.append(Task(kind="compute", name=name, deps=tuple(range(len(tasks))), kernels=_kernels(name, seconds)))
        if target:
            tasks.append(Task(kind="send", name=f"send {tensor}", deps=(len(tasks) - 1,), peer=target, **message))
        return tuple(tasks)

    forward = half("f", forward_s, "x", -1 if has_previous else 0, 1 if has_next else 0)
    backward = half("b", backward_s, "dx", 1 if has_next else 0, -1 if has_previous else 0)
    last = list(backward)
    if grad_bytes:
        done = next(k for k, task in enumerate(last) if task.kind == "compute")
        last.append(
            Task(
                kind="collective",
                name="gradients",
                deps=(done,),
                group="dp",
                collective="all_reduce",
                num_bytes=grad_bytes,
            )
        )
        step = (KernelTime(name="step", module="", op_type="", duration_s=0.0),)
        last.append(Task(kind="compute", name="step", deps=(len(last) - 1,), kernels=step, is_optimizer=True))
    return {"forward": forward, "backward": backward, "backward_last": tuple(last)}


@pytest.fixture(scope="session")
def hand_plan():
    """Return a maker of plans with equal stages: times [s], bytes of activations and of gradients (0: none)."""

    def make(
        fabric, pp=1, dp=1, num_microbatches=1, schedule="1f1b", forward_s=1e-3, backward_s=2e-3, act_bytes=0,
        grad_bytes=0, accelerators=None, **options,
    ):  # fmt: skip
        physics = {key: options.pop(key, value) for key, value in FREE.items()}
        ids = list(range(dp * pp)) if accelerators is None else list(accelerators)
        strategy = rostam.Strategy.of(
            dp=dp, pp=pp, schedule=schedule, allow_idle=True, accelerators=ids, precision="fp32", **options
        )
        stages = []
        for s in range(pp):
            templates = _templates(s, pp, forward_s, backward_s, act_bytes, grad_bytes)
            program = stage_program(schedule, s, pp, num_microbatches)
            stages.append(Stage(index=s, templates=templates, program=program, memory=MemoryBytes(), num_parameters=0))
        # rank order tp, pp, dp: the stages of a replica are neighbours
        batches = Batches(num_microbatches * dp, 1, num_microbatches)
        return Plan.on_grid(
            "hand", rostam.Machine(fabric=fabric, **physics), strategy, batches, tuple(stages),
            np.array(ids).reshape(dp, pp, 1), algorithms={"all_reduce": "ring"} | dict(strategy.algorithms),
        )  # fmt: skip

    return make


@pytest.fixture(scope="session")
def free_fabric():
    """Return a maker of fabrics without latency, at 1 GB/s."""
    return lambda count: rostam.fabric("electrical_flat", num_accelerators=count, link_bandwidth=1e9, latency=0.0)
