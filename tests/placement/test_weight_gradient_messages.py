"""Of a split parameter's gradient nothing is gathered: the activation's gradient is, which is smaller.

x = emb(ids); y = x * sigmoid(linear(x)): the embedding's rows and the linear's columns are split. Messages, A = s h
elements of 2 bytes: forward the embedding's output, backward the linear's part of x's gradient are all-reduced, and the
sum, split by columns through the product, is gathered in front of the embedding's rows. The loss is 4 bytes.

Of a weight of V rows of h numbers a member computes the gradient of its own V / t rows from all T tokens, a product of
V / t x T by T x h, also where it holds all columns of the logits' gradient, as of their mean, the same for all.
"""

from collections import Counter

import torch
from torch import nn

from rostam_py.models import gpt
from rostam_py.plan import Strategy
from rostam_py.tracing import trace

WORDS, WIDTH, TOKENS = 8192, 512, 64
A = TOKENS * WIDTH * 2


class Gated(nn.Module):
    """Embeddings times a gate of their own."""

    def __init__(self):
        super().__init__()
        self.table, self.gate = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, ids):
        """Return tokens (B, TOKENS, WIDTH)."""
        x = self.table(ids)
        return x * torch.sigmoid(self.gate(x))


def test_a_tables_gradient_is_not_gathered(placed):
    with torch.device("meta"):
        graph = trace(Gated(), torch.zeros(2, TOKENS, dtype=torch.int64), loss_fn=lambda y: (y * y).mean())
    for tp in (2, 4, 8):
        found = Counter()
        for m in placed(graph, Strategy(tp=tp, precision="bf16_mixed"), 1).messages():
            found[m.kind, m.num_bytes] += m.count
        assert found == {("all_reduce", A): 2, ("all_gather", A): 1, ("all_reduce", 4): 1}, tp


def head_products(placed, vocabulary, tp):
    """Return a stage and its head's two products backward; T = 64, h = 256, the loss is the logits' mean."""
    config = gpt.Config(num_layers=1, width=256, num_heads=8, sequence_length=64, vocabulary=vocabulary)
    with torch.device("meta"):
        graph = trace(gpt.GPT(config), torch.zeros(2, 64, dtype=torch.int64), name="gpt")
    plan = placed(graph, Strategy(tp=tp, precision="fp32"), 1)
    assert not [m for m in plan.messages() if m.kind == "all_gather"]
    kernels = [k for task in plan.stages[0].templates["backward_last"] for k in task.kernels]
    return plan.stages[0], [k for k in kernels if k.module == "head" and k.role == "product"]


def test_a_member_multiplies_for_its_own_rows_where_it_holds_the_gradient_of_all_logits(placed):
    _, of_all = head_products(placed, 500, 1)  # reads and writes what one of two members does of 1,000 rows
    half, of_half = head_products(placed, 1000, 2)
    assert [k.flops for k in of_half] == [2 * 500 * 64 * 256] * 2
    assert sorted(k.duration_s for k in of_half) == sorted(k.duration_s for k in of_all)
    assert half.hardware_flops / half.causal_flops < 1.01  # norms and the loss run whole
