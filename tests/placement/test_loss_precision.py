"""What a loss in fp32 costs beside a model in 16 bits: bytes of each logit by hand, and nothing in other precisions."""

import pytest
import torch
from torch import nn

import rostam_py as rostam

VOCABULARY, TOKENS = 1000, 128


class Head(nn.Module):
    """Token ids (B, S) to logits (B, S, VOCABULARY)."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(VOCABULARY, 64), nn.Linear(64, VOCABULARY, bias=False)

    def forward(self, ids):
        return self.head(self.table(ids))


def cross_entropy(logits):
    rows = logits.flatten(0, 1)
    return nn.functional.cross_entropy(rows, torch.zeros(len(rows), dtype=torch.long))


@pytest.fixture(scope="module")
def graph():
    return rostam.trace(Head(), torch.zeros(2, TOKENS, dtype=torch.long), loss_fn=cross_entropy, name="head")


def bytes_of_a_logit(graph, **options):
    """Bytes that kernels of the loss move for each logit, by kernel."""
    fabric = rostam.fabric("electrical_flat", num_accelerators=1, link_bandwidth="100 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb")
    strategy = rostam.Strategy(dp=1, micro_batch=2, **options)
    plan = rostam.place(graph, machine, global_batch=2, strategy=strategy, cost="roofline")
    found = {}
    for tasks in plan.stages[0].templates.values():
        for kernel in (kernel for task in tasks if not task.is_optimizer for kernel in task.kernels):
            if "softmax" in kernel.name or "nll" in kernel.name:
                moved = kernel.call.bytes_read + kernel.call.bytes_written
                found[kernel.name] = moved / (2 * TOKENS * VOCABULARY)
    return found


def test_compiled_code_converts_inside_the_loss(graph):
    # Forward reads 2 bytes of a logit and keeps 4 of its log-probability; backward reads those and writes 2.
    moved = bytes_of_a_logit(graph, precision="bf16_mixed")
    assert list(moved.values()) == pytest.approx([6, 6], abs=0.02)


@pytest.mark.parametrize("options", [{"fusion": "none"}, {"fused_part": "blocks"}])
def test_eager_code_converts_in_kernels_of_its_own(graph, options):
    # Logits to fp32: 2 + 4; log-softmax: 4 + 4; the loss reads 4. Backward: the loss's 4 + 4, log-softmax's 4 + 4 + 4,
    # and 4 + 2 for what the products read.
    moved = bytes_of_a_logit(graph, precision="bf16_mixed", **options)
    assert sorted(moved.values()) == pytest.approx([4, 6, 6, 8, 8, 12], abs=0.02)
    assert sum("convert" in name for name in moved) == 2


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_nothing_is_converted_in_a_model_of_32_bits(graph, precision):
    moved = bytes_of_a_logit(graph, precision=precision, fusion="none")
    assert sorted(moved.values()) == pytest.approx([4, 8, 8, 12], abs=0.02)
    assert not any("convert" in name for name in moved)
