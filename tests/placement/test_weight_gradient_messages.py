"""Of a split parameter's gradient nothing is gathered: the activation's gradient is, which is smaller.

x = emb(ids); y = x * sigmoid(linear(x)): the embedding's rows and the linear's columns are split. Messages, A = s h
elements of 2 bytes: forward the embedding's output, backward the linear's part of x's gradient are all-reduced, and the
sum, split by columns through the product, is gathered in front of the embedding's rows. The loss is 4 bytes.
"""

from collections import Counter

import torch
from torch import nn

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
