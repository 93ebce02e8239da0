"""Layers of experts on eight H100s, as Megatron-LM measures them in its own continuous integration.

Source: tests/functional_tests/test_cases/common/moe_perf of NVIDIA/Megatron-LM at 32f2c9cf: baseline.json, shapes of
test_cases.py; Transformer Engine, 4,096 tokens a device, ep 8, routing balanced by force, 8 bits scaled by blocks of
128; 20 repetitions with rests between them, within 2% of each other. Rows go by NCCL's all-to-all, HybridEP or DeepEP.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import rostam
from rostam_py.collectives.group_costs import group_costs
from rostam_py.collectives.transport import transport
from rostam_py.models.experts import GroupedSigmoidRouter, MixtureOfExperts, SoftmaxRouter
from rostam_py.placement.experts.hops import expert_hops
from rostam_py.placement.megatron import placer
from rostam_py.plan.traffic import schedule_of

pytestmark = pytest.mark.slow

ALL_TO_ALL = "alltoall"
MEASURED_MS = {  # (layer, precision, what sends rows): forward, backward
    ("mixtral", "bf16_mixed", ALL_TO_ALL): (4.262, 7.825),
    ("mixtral", "bf16_mixed", "hybridep"): (4.414, 7.840),
    ("mixtral", "bf16_mixed", "deepep"): (4.609, 8.030),
    ("mixtral", "fp8_block_mixed", ALL_TO_ALL): (3.676, 6.719),
    ("mixtral", "fp8_block_mixed", "hybridep"): (3.738, 6.641),
    ("mixtral", "fp8_block_mixed", "deepep"): (4.029, 6.942),
    ("deepseek", "bf16_mixed", ALL_TO_ALL): (6.943, 10.453),
    ("deepseek", "bf16_mixed", "hybridep"): (5.246, 8.846),
    ("deepseek", "bf16_mixed", "deepep"): (5.425, 9.059),
    ("deepseek", "fp8_block_mixed", ALL_TO_ALL): (7.414, 10.088),
    ("deepseek", "fp8_block_mixed", "hybridep"): (5.001, 7.716),
    ("deepseek", "fp8_block_mixed", "deepep"): (5.841, 8.589),
}
ROUTERS = {
    "mixtral": lambda: SoftmaxRouter(4096, 8, 2),
    "deepseek": lambda: GroupedSigmoidRouter(7168, 32, 8, 8, 4, 1.0),
}
SHAPES = {"mixtral": (4096, 14336, 8), "deepseek": (7168, 2048, 32)}
DEPTH = 3  # of which the one in the middle counts: its input needs a gradient


class Layers(nn.Module):
    """Layers of experts one behind the other."""

    def __init__(self, name):
        super().__init__()
        self.blocks = nn.ModuleList(MixtureOfExperts(*SHAPES[name], ROUTERS[name]()) for _ in range(DEPTH))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture(scope="module")
def machine():
    return rostam.machine("dgx_h100", servers=1)


@pytest.fixture(scope="module", params=SHAPES)
def layers(request):
    with torch.device("meta"):
        model = Layers(request.param)
    tokens = torch.empty(1, 4096, SHAPES[request.param][0], device="meta")
    return request.param, rostam.trace(model, tokens, loss_fn=lambda out: out.sum(), name=request.param)


@pytest.fixture
def ranks_of_groups(monkeypatch):
    """The router of DeepSeek's layer takes 4 of 8 groups of experts, each of which is a rank here."""

    def of_groups(groups, servers, num_experts, per_token, most_servers):
        if num_experts == SHAPES["mixtral"][2]:
            return expert_hops(groups, servers, num_experts, per_token, most_servers)
        return replace(expert_hops(groups, np.arange(8), num_experts, per_token, 4), spans_servers=False)

    monkeypatch.setattr(placer, "expert_hops", of_groups)


def milliseconds(plan, phase):
    """Compute and exchanges of the layer in the middle, none of which hide behind others."""
    total_s, fabric = 0.0, plan.machine.fabric
    for task in plan.stages[0].templates[phase]:
        total_s += sum(kernel.duration_s for kernel in task.kernels if kernel.module.startswith("blocks.1"))
        if task.kind == "collective" and "blocks.1" in task.name:
            key = schedule_of(plan, task.group, task.collective, task.num_bytes)
            costs = group_costs(fabric, task.collective, key.algorithm, plan.devices[plan.members(task.group)])
            total_s += costs.time_s(task.num_bytes, transport(fabric, key, task.num_bytes))
    return 1e3 * total_s


def predicted(graph, machine, precision, sender):
    rows = {} if sender == ALL_TO_ALL else {"servers_per_token": 1, "dispatcher": sender}
    strategy = rostam.Strategy.of(dp=8, ep=8, micro_batch=1, precision=precision, fusion="modules", **rows)
    plan = rostam.place(graph, machine, global_batch=16, strategy=strategy, cost_config={"clocks": "burst"})
    return [milliseconds(plan, phase) for phase in ("forward", "backward")]


@pytest.mark.parametrize("precision", ["bf16_mixed", "fp8_block_mixed"])
def test_layers_of_experts_take_what_megatron_measures(layers, machine, precision, ranks_of_groups):
    name, graph = layers
    found = {sender: predicted(graph, machine, precision, sender) for sender in (ALL_TO_ALL, "hybridep", "deepep")}
    for sender, times in found.items():
        assert times == pytest.approx(MEASURED_MS[name, precision, sender], rel=0.25)
    for sender in ("hybridep", "deepep"):  # what another sender saves, of which products have no part
        for phase in (0, 1):
            saved = found[ALL_TO_ALL][phase] - found[sender][phase]
            measured = MEASURED_MS[name, precision, ALL_TO_ALL][phase] - MEASURED_MS[name, precision, sender][phase]
            assert saved == pytest.approx(measured, abs=0.6)
