"""Layers of experts on eight H100s, as Megatron-LM measures them in its own continuous integration.

Source: tests/functional_tests/test_cases/common/moe_perf of NVIDIA/Megatron-LM at 32f2c9cf: baseline.json, shapes of
test_cases.py; Transformer Engine, 4,096 tokens a device, ep 8, NCCL's all-to-all, routing balanced by force, 8 bits
scaled by blocks of 128; 20 repetitions with rests between them, within 2% of each other.
"""

import pytest
import torch
from torch import nn

import rostam
from rostam_py.models.experts import GroupedSigmoidRouter, MixtureOfExperts, SoftmaxRouter

pytestmark = pytest.mark.slow

MEASURED_MS = {  # (layer, precision): forward, backward
    ("mixtral", "bf16_mixed"): (4.262, 7.825),
    ("mixtral", "fp8_block_mixed"): (3.676, 6.719),
    ("deepseek", "bf16_mixed"): (6.943, 10.453),
    ("deepseek", "fp8_block_mixed"): (7.414, 10.088),
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


def milliseconds(tasks, fabric):
    """Compute and all-to-alls of the layer in the middle, none of which hide behind others."""
    total_s = 0.0
    for task in tasks:
        total_s += sum(kernel.duration_s for kernel in task.kernels if kernel.module.startswith("blocks.1"))
        if task.kind == "collective" and "blocks.1" in task.name:
            total_s += rostam.run_collective(fabric, task.collective, num_bytes=task.num_bytes).time_s
    return 1e3 * total_s


@pytest.mark.parametrize("precision", ["bf16_mixed", "fp8_block_mixed"])
def test_layers_of_experts_take_what_megatron_measures(layers, machine, precision):
    name, graph = layers
    strategy = rostam.Strategy(dp=8, ep=8, micro_batch=1, precision=precision, fusion="modules")
    plan = rostam.place(graph, machine, global_batch=16, strategy=strategy, cost_config={"clocks": "burst"})
    templates = plan.stages[0].templates
    found = [milliseconds(templates[phase], machine.fabric) for phase in ("forward", "backward")]
    assert found == pytest.approx(MEASURED_MS[name, precision], rel=0.25)
