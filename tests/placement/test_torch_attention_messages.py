"""PyTorch's own attention is split by heads: messages equal Megatron's, and no member repeats another's products.

Legend: s tokens, h width, A = s h elements of 2 bytes (bf16), the micro-batch is 1. Self-attention all-reduces A behind
its output product, and the gradient of the tokens behind its input products; attention to a memory another gradient, of
the memory. Norms in front make all tokens need gradients. One packed weight makes queries, keys and values, of which
all members hold an equal part each.
"""

from collections import Counter

import pytest
import torch
from torch import nn

from rostam_py.plan import Strategy
from rostam_py.tracing import trace

TOKENS, WIDTH, HEADS, HIDDEN = 128, 512, 16, 2048
A = TOKENS * WIDTH * 2


class SelfAttention(nn.Module):
    """A normed residual branch of nn.MultiheadAttention; its fused path unless weights are asked for."""

    def __init__(self, is_batch_first, needs_weights=False):
        super().__init__()
        self.first, self.before, self.behind = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=is_batch_first)
        self.needs_weights = needs_weights

    def forward(self, x):
        """Return tokens of the same shape."""
        x = self.first(x)
        y = self.before(x)
        return self.behind(x + self.attention(y, y, y, need_weights=self.needs_weights)[0])


class CrossAttention(nn.Module):
    """Queries of one sequence, keys and values of another."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(5))
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x, memory):
        """Return tokens in the shape of x."""
        x, memory = self.norms[3](x), self.norms[1](self.norms[4](memory))
        return self.norms[2](x + self.attention(self.norms[0](x), memory, memory, need_weights=False)[0])


class Own(nn.Module):
    """Two layers of an nn.TransformerEncoder or of an nn.TransformerDecoder behind a norm."""

    def __init__(self, layer):
        super().__init__()
        self.norm = nn.Sequential(nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH))
        self.layers = nn.ModuleList(layer(WIDTH, HEADS, HIDDEN) for _ in range(2))

    def forward(self, x, memory=None):
        """Return tokens in the shape of x."""
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x) if memory is None else layer(x, memory)
        return x


def sequences(is_batch_first, count=1):
    shape = (2, TOKENS, WIDTH) if is_batch_first else (TOKENS, 2, WIDTH)
    return tuple(torch.zeros(shape) for _ in range(count))


CASES = {
    "sequence first": (lambda: SelfAttention(False), sequences(False), 2),
    "batch first": (lambda: SelfAttention(True), sequences(True), 2),
    "weights asked for": (lambda: SelfAttention(True, needs_weights=True), sequences(True), 2),
    "attention to a memory": (CrossAttention, sequences(True, 2), 3),
    "two encoder layers": (lambda: Own(nn.TransformerEncoderLayer), sequences(False), 2 * 4),
    "two decoder layers": (lambda: Own(nn.TransformerDecoderLayer), sequences(False, 2), 2 * 6),  # memory: an input
}


@pytest.mark.parametrize("case", [pytest.param(n, marks=pytest.mark.slow) if "layers" in n else n for n in CASES])
def test_heads_are_split_and_nothing_is_gathered(case, placed):
    build, inputs, num_reduced = CASES[case]
    with torch.device("meta"):
        graph = trace(build(), inputs)
    for tp in (2, 4, 8):
        plan = placed(graph, Strategy(tp=tp, precision="bf16_mixed"), 1)
        found = Counter()
        for m in plan.messages():
            found[m.kind, m.num_bytes] += m.count
        assert found == {("all_reduce", A): num_reduced}, tp
        work = sum(s.hardware_flops for s in plan.stages) * tp / (graph.forward_flops() + graph.backward_flops())
        assert work <= 1.03, tp  # the norms are whole on every member: five are 0.4% of these FLOPs, seven times more


def test_three_members_split_heads_not_query_key_and_value(placed):
    # 12 heads: each third has 4 for every member, though three members could have a third each
    class Twelve(SelfAttention):
        def __init__(self):
            super().__init__(True)
            self.attention = nn.MultiheadAttention(WIDTH - 128, 12, batch_first=True)
            self.first, self.before, self.behind = (nn.LayerNorm(WIDTH - 128) for _ in range(3))

    with torch.device("meta"):
        graph = trace(Twelve(), torch.zeros(2, TOKENS, WIDTH - 128))
    plan = placed(graph, Strategy(tp=3, precision="bf16_mixed"), 1)
    assert {(m.kind, m.num_bytes, m.count) for m in plan.messages()} == {("all_reduce", TOKENS * (WIDTH - 128) * 2, 2)}
