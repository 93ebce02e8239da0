"""The precision of gradients: what kernels write, what is reduced and what is held follow it, and nothing else does."""

import pytest
import torch
from torch import nn

from rostam_py.costs import get_accelerator
from rostam_py.costs.roofline import MEMORY_EFFICIENCY
from rostam_py.errors import ConfigError
from rostam_py.plan import Strategy
from rostam_py.tracing import trace

WIDTH = 4096


@pytest.fixture(scope="module")
def square():
    """One product of 4,096 x 4,096, bound by memory at a batch of 2."""
    return trace(
        nn.Linear(WIDTH, WIDTH, bias=False), torch.empty(2, WIDTH), loss_fn=lambda y: (y * y).sum(), name="square"
    )


def kernels(plan):
    """Return {name: seconds} of a micro-batch."""
    stage = plan.stages[0]
    tasks = [task for name in ("forward", "backward") for task in stage.templates.get(name, ())]
    return {kernel.name: kernel.duration_s for task in tasks for kernel in task.kernels}


def test_a_weights_gradient_is_written_in_its_own_precision(square, placed):
    # it reads 2 x 4,096 entries twice, of 2 bytes, and writes 4,096^2 of 4 or of 2
    plans = [
        placed(
            square,
            Strategy.of(precision="bf16_mixed", gradient_precision=precision, micro_batch=2, accumulation="free"),
            4,
            cost="roofline",
        )
        for precision in ("auto", "bf16")
    ]
    rate = get_accelerator("a100_80gb").memory_bandwidth_bytes_per_s * MEMORY_EFFICIENCY["matmul"].value
    wide, narrow = (kernels(plan) for plan in plans)
    changed = [name for name in wide if wide[name] != narrow[name]]
    assert len(changed) == 1
    assert wide[changed[0]] == pytest.approx((2 * 2 * WIDTH * 2 + WIDTH**2 * 4) / rate, rel=1e-9)
    assert narrow[changed[0]] == pytest.approx((2 * 2 * WIDTH * 2 + WIDTH**2 * 2) / rate, rel=1e-9)


@pytest.mark.parametrize(
    ("precision", "gradients", "size"),
    [("bf16_mixed", "auto", 4), ("bf16_mixed", "bf16", 2), ("fp16_mixed", "auto", 2), ("fp16_mixed", "fp32", 4)],
)
@pytest.mark.parametrize("axis", ["tp", "mp"])
def test_both_placers_reduce_and_hold_it(axis, precision, gradients, size, square, placed):
    settings = {"tp": 2} if axis == "tp" else {"mp": 2, "placer": "sip_ml"}
    strategy = Strategy.of(dp=2, precision=precision, gradient_precision=gradients, optimizer="adam", **settings)
    plan = placed(square, strategy, 8)
    reduced = [m for m in plan.messages() if m.group.startswith("dp")]
    total = sum(m.num_bytes * m.count for m in reduced)
    count = sum(stage.num_parameters for stage in plan.stages)
    assert {m.kind for m in reduced} == {"all_reduce"}
    assert total == size * count
    assert sum(stage.memory.gradients for stage in plan.stages) == size * count
    assert sum(stage.memory.parameters for stage in plan.stages) == 2 * count


def test_buckets_fill_with_bytes_of_gradients(gpt, placed):
    # 28.2 M parameters of four layers: 25 MB hold half as many gradients of 4 bytes as of 2
    counts = []
    for gradients in ("fp32", "bf16"):
        plan = placed(gpt, Strategy.of(dp=2, precision="bf16_mixed", gradient_precision=gradients), 2)
        sizes = [m.num_bytes for m in plan.messages() if m.group == "dp" for _ in range(m.count)]
        assert all(size >= 25e6 for size in sizes[:-1])
        counts.append(len(sizes))
    assert counts[0] > counts[1]


def test_an_activations_gradient_that_is_a_weights_too_keeps_the_activations_precision():
    class Added(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 16, bias=False)
            self.shift = nn.Parameter(torch.zeros(32))

        def forward(self, x):
            return self.last(torch.relu(self.first(x).sum(0) + self.shift)).sum()

    graph = trace(Added(), torch.zeros(4, 64), name="added")
    finals = {t.name: t.id for t in graph.gradients}
    assert {name for name, t in finals.items() if t not in graph.gradient_tensors} == {"shift"}
    roots = {graph.view_roots[finals[name]] for name in ("first.weight", "first.bias", "last.weight")}
    assert roots < graph.gradient_tensors, "products and sums that make gradients write them in their precision"


def test_the_models_own_precision_decides_what_gradients_it_can_have(square, placed):
    assert square.default_precision == "fp32"
    with pytest.raises(ConfigError, match=r"gradient_precision is 'bf16'; with strategy\.precision=fp32 .* auto, fp32"):
        placed(square, Strategy.of(gradient_precision="bf16"), 2)
    with pytest.raises(ConfigError, match=r"gradient_precision is 'bf16'; with strategy\.precision=fp32 .* auto, fp32"):
        placed(square, Strategy.of(dp=2, mp=2, placer="sip_ml", gradient_precision="bf16"), 2)
