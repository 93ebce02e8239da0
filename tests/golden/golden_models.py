"""Models and one hand-written plan of the golden runs: small enough that all of them run in seconds.

Each holds what a run may stumble over: tied weights, blocks that repeat, tensors that skip stages, convolutions.
"""

from functools import cache
from typing import Any

import numpy as np
import torch

import rostam_py as rostam
from rostam_py.models import gpt, resnet, transformer
from rostam_py.placement.schedule import stage_program
from rostam_py.plan import Batches, KernelTime, MemoryBytes, Plan, Stage, Task


def _gpt() -> tuple[Any, Any]:
    """Six layers, the head tied to the embedding."""
    config = gpt.Config(num_layers=6, width=256, num_heads=8, sequence_length=64, vocabulary=1000)
    return gpt.GPT(config), torch.zeros(2, 64, dtype=torch.int64)


def _resnet() -> tuple[Any, Any]:
    """Two stages of bottlenecks on 32 x 32 images."""
    return resnet.ResNet((2, 1), num_classes=100), torch.zeros(2, 3, 32, 32)


def _transformer() -> tuple[Any, Any]:
    """Encoder and decoder: the encoder's output goes to every decoder layer."""
    config = transformer.Config(
        encoder_layers=2, decoder_layers=2, width=128, feed_forward=512, num_heads=4, vocabulary=500, sequence_length=32
    )
    ids = torch.zeros(2, 32, dtype=torch.int64)
    return transformer.Transformer(config), [ids, ids]


_MODELS = {"gpt": _gpt, "resnet": _resnet, "transformer": _transformer}


@cache
def graph(name: str) -> Any:
    """Return the traced graph of one of the models."""
    module, inputs = _MODELS[name]()
    return rostam.trace(module, inputs, name=name, optimizer="adam", precision="fp32")


def hand_written_plan(machine: Any, strategy: Any, global_batch: int) -> Plan:
    """Return two stages by hand, dp 3 x tp 2 x pp 2 with 4 micro-batches: odd sizes, no placer involved."""
    degrees = (strategy.dp, strategy.pp, strategy.tp)
    if (*degrees, global_batch) != (3, 2, 2, 12):
        raise ValueError(f"the hand-written plan is dp 3, pp 2, tp 2 of batch 12, not {degrees} of {global_batch}")
    ids = np.arange(12).reshape(degrees)
    stages = (_stage(0), _stage(1))
    algorithms = dict(strategy.algorithms)
    return Plan.on_grid("hand", machine, strategy, Batches(global_batch, 1, 4), stages, ids, algorithms=algorithms)


def _stage(index: int) -> Stage:
    """One of two stages with a tensor-parallel all-reduce in each pass and gradients at the end."""
    other = 1 - 2 * index

    def half(name: str, seconds: float, is_receiver: bool) -> list[Task]:
        tasks = (
            [Task(kind="recv", name="recv", deps=(), group="pp", channel=name, peer=other, num_bytes=300_001)]
            if is_receiver
            else []
        )
        kernels = tuple(
            KernelTime(name=f"{name}{k}", module="m", op_type="op", duration_s=seconds / 3) for k in range(3)
        )
        tasks.append(Task(kind="compute", name=name, deps=tuple(range(len(tasks))), kernels=kernels))
        tasks.append(
            Task(
                kind="collective",
                name="sum",
                deps=(len(tasks) - 1,),
                group="tp",
                collective="all_reduce",
                num_bytes=700_001,
            )
        )
        if not is_receiver:
            send = (len(tasks) - 1,)
            tasks.append(
                Task(kind="send", name="send", deps=send, group="pp", channel=name, peer=other, num_bytes=300_001)
            )
        return tasks

    forward, backward = half("x", 1e-4, index == 1), half("dx", 2e-4, index == 0)
    last = [
        *backward,
        Task(
            kind="collective",
            name="gradients",
            deps=(len(backward) - 1,),
            group="dp",
            collective="all_reduce",
            num_bytes=2_000_003,
        ),
        Task(
            kind="compute",
            name="step",
            deps=(len(backward),),
            kernels=(KernelTime(name="step", module="", op_type="", duration_s=1e-5),),
            is_optimizer=True,
        ),
    ]
    templates = {"forward": tuple(forward), "backward": tuple(backward), "backward_last": tuple(last)}
    return Stage(
        index=index,
        templates=templates,
        program=stage_program("1f1b", index, 2, 4),
        memory=MemoryBytes(),
        num_parameters=0,
    )
