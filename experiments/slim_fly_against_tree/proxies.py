"""Training proxies of the deployment's networks: ResNet-152, CosmoFlow and GPT-3 on up to 200 nodes.

Model: HammingMesh's descriptions of the same three (section V-B: messages, compute times of an A100 on each node), with
    as many replicas or stages as there are nodes; a third of the compute is forward (assumed). Rings in rank order.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from machines import NODES, nodes, on

import rostam_py as rostam
from rostam_py.fabrics.fabric import Fabric

OPERATORS = 4  # members of a group that shares a sample: CosmoFlow, GPT-3
BLOCKS = 96  # of GPT-3
# ResNet-152 by data, CosmoFlow by data and operators, GPT-3 in 12 and 48 stages of four.
PROXIES = {"resnet152": (16, 64, 200), "cosmoflow": (16, 64, 200), "gpt3_175b": (48, 192)}


def iteration_s(proxy: str, count: int, scheme: str, placement: str, seed: int = 0) -> float:
    """Return the time of one iteration [s]. Args: count: of nodes. scheme, placement, seed: as of machines.py."""
    fabric, routing = on(scheme)
    plan = _plan(proxy, count, fabric)
    order = np.array(nodes(NODES, placement, seed), plan.devices.dtype)
    placed = replace(plan, devices=order[plan.devices])
    return rostam.simulate(placed, routing=routing).iteration_time_s


@cache
def _plan(proxy: str, count: int, fabric: Fabric) -> rostam.Plan:
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb", launch_latency=0.0, min_kernel_time=0.0)
    keys, batch, costs = {"resnet152": _resnet, "cosmoflow": _cosmoflow, "gpt3_175b": _gpt}[proxy](count)
    strategy = rostam.Strategy.of(
        algorithms={"all_reduce": "ring"}, fusion="producer", accumulation="free", mapping="linear", allow_idle=True,
        check_memory=False, **keys,
    )  # fmt: skip
    return rostam.place(
        rostam.trace(proxy), machine, global_batch=batch, strategy=strategy, cost="constant", cost_config=costs,
        software="ideal",
    )  # fmt: skip


def _resnet(count: int) -> tuple[dict[str, Any], int, dict[str, Any]]:
    """32 samples a node, gradients in ten groups: 108 ms of compute."""
    return (
        {"dp": count, "precision": "tf32", "bucket_size": "24.1 MB"}, 32 * count,
        {"forward_s": 36e-3, "backward_s": 72e-3, "reference_batch": 32},
    )  # fmt: skip


def _cosmoflow(count: int) -> tuple[dict[str, Any], int, dict[str, Any]]:
    """32 samples a group of four: 44.3 ms."""
    seconds = OPERATORS * 44.3e-3
    return (
        {"dp": count // OPERATORS, "tp": OPERATORS, "precision": "fp32"}, 32 * count // OPERATORS,
        {"forward_s": seconds / 3, "backward_s": seconds * 2 / 3, "reference_batch": 32},
    )  # fmt: skip


def _gpt(count: int) -> tuple[dict[str, Any], int, dict[str, Any]]:
    """31.8 ms for one of 96 blocks and one sequence on a group of four, as many sequences as stages."""
    seconds, stages = BLOCKS * OPERATORS * 31.8e-3, count // OPERATORS
    return (
        {
            "dp": 1, "tp": OPERATORS, "pp": stages, "micro_batch": 1, "precision": "tf32",
            "asynchronous_tp": False,
        },
        stages, {"modules": {"blocks": [seconds / 3, seconds * 2 / 3]}},
    )  # fmt: skip
