"""What a loss in fp32 costs beside a model in 16 bits: bytes of each logit by hand, and nothing in other precisions."""

import pytest
import torch
from torch import nn

import rostam_py as rostam
from rostam_py.errors import ConfigError

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


def placed(graph, **options):
    fabric = rostam.fabric("electrical_flat", num_accelerators=1, link_bandwidth="100 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="h100_80gb")
    strategy = rostam.Strategy.of(dp=1, micro_batch=2, **options)
    return rostam.place(graph, machine, global_batch=2, strategy=strategy, cost="roofline", software="ideal")


def peak(graph, eager_loss):
    return placed(graph, precision="bf16_mixed", fusion="none", eager_loss=eager_loss).stages[0].memory.total


def bytes_of_a_logit(graph, **options):
    """Bytes that kernels of the loss move for each logit, by kernel."""
    found = {}
    for tasks in placed(graph, **options).stages[0].templates.values():
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
    # Logits to fp32: 2 + 4; log-softmax: 4 + 4; the loss reads one of a row. Backward: the loss's gradient is zeros but
    # for one of a row: 4, log-softmax's 4 + 4 + 4, and 4 + 2 for what the products read.
    moved = bytes_of_a_logit(graph, precision="bf16_mixed", **options)
    assert sorted(moved.values()) == pytest.approx([0, 4, 6, 6, 8, 12], abs=0.02)
    assert sum("convert" in name for name in moved) == 2


@pytest.mark.parametrize("options", [{"fusion": "none"}, {"fused_part": "blocks"}])
def test_kernels_of_megatrons_cross_entropy_are_counted_one_by_one(graph, options):
    # VocabParallelCrossEntropy: to fp32 6; largest 4, less it 8, exponentials 8, sum 4, quotients 8. Backward: times
    # the gradient, in place, 8, and back 6: 52 bytes for each logit.
    moved = bytes_of_a_logit(graph, precision="bf16_mixed", eager_loss="vocab_parallel", **options)
    assert sorted(moved.values()) == pytest.approx([0, 0, 4, 4, 6, 6, 8, 8, 8, 8], abs=0.02)
    assert sum(moved.values()) == pytest.approx(52, abs=0.1)


@pytest.mark.parametrize("options", [{"fusion": "none"}, {"fused_part": "blocks"}])
def test_kernels_of_dtensors_loss_are_counted_one_by_one(graph, options):
    # _log_softmax: to fp32 6; largest 4, less it 8, exponentials 8, sum 4, less its logarithm 8. Backward: zeros but
    # for one of a row 4, exponentials 8, their sum with those 12, times the gradient 8, back 6: 76 bytes a logit.
    moved = bytes_of_a_logit(graph, precision="bf16_mixed", eager_loss="loss_parallel", **options)
    assert sorted(moved.values()) == pytest.approx([0, 4, 4, 4, 6, 6, 8, 8, 8, 8, 8, 12], abs=0.02)
    assert sum(moved.values()) == pytest.approx(76, abs=0.1)


def test_dtensors_loss_has_exponentials_at_its_peak_as_well(graph):
    # log-probabilities, their gradient, exponentials and the sum: 16 bytes where PyTorch's own has 12.
    more = peak(graph, "loss_parallel") - peak(graph, "torch")
    assert more == 4 * 2 * TOKENS * VOCABULARY


def test_a_loss_compiled_by_itself_keeps_logits_and_computes_their_probabilities_again(graph):
    # Forward reads 2 bytes of a logit, backward 2 and writes 2; nothing of 4 bytes is kept.
    options = {"precision": "bf16_mixed", "fused_part": "blocks_and_loss"}
    moved = bytes_of_a_logit(graph, **options)
    assert sorted(moved.values()) == pytest.approx([2, 4], abs=0.02)
    kept = placed(graph, **options).stages[0].activation_changes["forward"][0]
    of_everything = placed(graph, precision="bf16_mixed").stages[0].activation_changes["forward"][0]
    assert of_everything - kept == pytest.approx((4 - 2) * 2 * TOKENS * VOCABULARY, rel=0.01)
    for part in ("blocks_and_loss", "everything"):
        turn = placed(graph, **options | {"fused_part": part}).stages[0].activation_changes["backward_last"][0]
        assert turn == 2 * 2 * TOKENS * VOCABULARY  # the logits' gradient


def test_megatrons_loss_makes_its_gradient_in_place(graph):
    # 4 bytes of 12 for each token and word where backward begins.
    saved = peak(graph, "torch") - peak(graph, "vocab_parallel")
    assert saved == pytest.approx(4 * 2 * TOKENS * VOCABULARY, rel=0.01)


def test_a_loss_that_shares_kernels_or_is_no_cross_entropy_has_none_of_megatrons(graph):
    with pytest.raises(
        ConfigError, match=r"eager_loss is 'vocab_parallel'.*fusion=none or software.rules.fused_part=blocks"
    ):
        rostam.Strategy.of(eager_loss="vocab_parallel")
    with pytest.raises(
        ConfigError, match=r"eager_loss is 'loss_parallel'.*fusion=none or software.rules.fused_part=blocks"
    ):
        rostam.Strategy.of(eager_loss="loss_parallel", fused_part="blocks_and_loss")
    with pytest.raises(ConfigError, match=r"eager_loss is 'apex'.*torch, vocab_parallel, loss_parallel"):
        rostam.Strategy.of(eager_loss="apex")
    sums = rostam.trace(nn.Linear(8, 8), torch.zeros(2, 8), loss_fn=torch.sum, name="sums")
    with pytest.raises(ConfigError, match="loss of sums is no cross entropy"):
        placed(sums, fusion="none", eager_loss="vocab_parallel")


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_nothing_is_converted_in_a_model_of_32_bits(graph, precision):
    moved = bytes_of_a_logit(graph, precision=precision, fusion="none")
    assert sorted(moved.values()) == pytest.approx([0, 4, 8, 12], abs=0.02)
    assert not any("convert" in name for name in moved)
