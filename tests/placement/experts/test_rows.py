"""Experts as batched products of copied (Llama 4), sorted or placed tokens, and biases that rows look up (gpt-oss).

Legend: T tokens of width h, n experts; 2 bytes an element (bf16).
"""

from collections import Counter

import pytest
import torch
from torch import nn

from rostam_py.errors import ConfigError
from rostam_py.placement.experts.spread import spread_experts
from rostam_py.plan import Strategy
from rostam_py.tracing import trace

EXPERTS, TOKENS, WIDTH, HIDDEN, CHOSEN = 8, 256, 256, 1024, 2


class Copied(nn.Module):
    """All tokens go to all experts, times a score each."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.router = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, EXPERTS)
        self.up = nn.Parameter(torch.empty(EXPERTS, WIDTH, HIDDEN))
        self.down = nn.Parameter(torch.empty(EXPERTS, HIDDEN, WIDTH))

    def forward(self, x):
        """Return tokens in the shape of x."""
        rows = self.norm(self.first(x)).view(-1, WIDTH)
        scores = torch.sigmoid(self.router(rows)).t().reshape(-1, 1)
        y = (rows.repeat(EXPERTS, 1) * scores).view(EXPERTS, -1, WIDTH)
        y = torch.bmm(torch.relu(torch.bmm(y, self.up)), self.down).view(-1, WIDTH)
        return x + y.view(EXPERTS, -1, WIDTH).sum(0).view(x.shape)


class Biased(nn.Module):
    """Sorted rows; biases behind both products, gate and up interleaved."""

    def __init__(self):
        super().__init__()
        self.norm, self.router = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up, self.up_bias = (
            nn.Parameter(torch.empty(EXPERTS, WIDTH, 2 * HIDDEN)),
            nn.Parameter(torch.empty(EXPERTS, 2 * HIDDEN)),
        )
        self.down = nn.Parameter(torch.empty(EXPERTS, HIDDEN, WIDTH))
        self.down_bias = nn.Parameter(torch.empty(EXPERTS, WIDTH))

    def forward(self, x):
        """Return tokens in the shape of x."""
        rows = self.norm(x).reshape(-1, WIDTH)
        weights, chosen = torch.topk(self.router(rows).softmax(-1), CHOSEN, -1)
        order = chosen.view(-1).argsort()
        expert = chosen.view(-1)[order]
        ends = torch.histc(expert.float(), bins=EXPERTS, min=0, max=EXPERTS - 1).cumsum(0, dtype=torch.int32)
        y = torch._grouped_mm(rows[order // CHOSEN], self.up, offs=ends) + self.up_bias[expert]
        gate, up = y[..., ::2].clamp(max=7.0), y[..., 1::2].clamp(-7.0, 7.0)
        y = (up + 1) * gate * torch.sigmoid(gate * 1.702)
        y = torch._grouped_mm(y, self.down, offs=ends) + self.down_bias[expert]
        y = y * weights.view(-1)[order, None]
        return torch.zeros_like(rows).index_add(0, order // CHOSEN, y).view(x.shape)


class Heads(nn.Module):
    """A product for each head's own features: no experts."""

    def __init__(self):
        super().__init__()
        self.norm, self.weight = nn.LayerNorm(WIDTH), nn.Parameter(torch.empty(EXPERTS, WIDTH // EXPERTS, 64))

    def forward(self, x):
        """Return (heads, tokens, 64)."""
        heads = self.norm(x).view(-1, EXPERTS, WIDTH // EXPERTS).transpose(0, 1)
        return torch.bmm(heads, self.weight)


class Sorted(nn.Module):
    """Rows gathered in the order of their experts, as many for each."""

    def __init__(self):
        super().__init__()
        self.norm, self.router = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.empty(EXPERTS, WIDTH, HIDDEN))
        self.down = nn.Parameter(torch.empty(EXPERTS, HIDDEN, WIDTH))

    def forward(self, x):
        """Return tokens in the shape of x."""
        rows = self.norm(x).reshape(-1, WIDTH)
        weights, chosen = torch.topk(self.router(rows).softmax(-1), CHOSEN, -1)
        order = chosen.view(-1).argsort()
        y = torch.bmm(rows[order // CHOSEN].view(EXPERTS, -1, WIDTH), self.up)
        y = torch.bmm(torch.relu(y), self.down).view(-1, WIDTH) * weights.view(-1)[order, None]
        return torch.zeros_like(rows).index_add(0, order // CHOSEN, y).view(x.shape)


class Placed(nn.Module):
    """GShard's products with a mask of places, so many for each expert and sequence (arXiv 2006.16668)."""

    def __init__(self):
        super().__init__()
        self.norm, self.router = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.empty(EXPERTS, WIDTH, HIDDEN))
        self.down = nn.Parameter(torch.empty(EXPERTS, HIDDEN, WIDTH))

    def forward(self, x):
        """Return tokens in the shape of x."""
        x = self.norm(x)
        scores, places = self.router(x).softmax(-1), x.shape[1] * CHOSEN // EXPERTS
        mask = nn.functional.one_hot(scores.topk(CHOSEN, -1).indices, EXPERTS).sum(2)
        place = ((mask.cumsum(1) - 1) * mask).clamp(max=places - 1)
        there = (nn.functional.one_hot(place, places) * mask[..., None]).to(x.dtype)
        y = torch.einsum("btnc,btw->nbcw", there, x)
        y = torch.bmm(torch.relu(torch.bmm(y.flatten(1, 2), self.up)), self.down)
        return torch.einsum("btnc,nbcw->btw", there * scores[..., None], y.view(EXPERTS, -1, places, WIDTH))


class Positions(nn.Module):
    """A product for each position, of what a table has there: no experts."""

    def __init__(self):
        super().__init__()
        self.table, self.weight = nn.Embedding(64, WIDTH), nn.Parameter(torch.empty(TOKENS, WIDTH, 64))

    def forward(self, x):
        """Return (positions, samples, 64)."""
        return torch.bmm(self.table((x[..., 0] > 0).long()).transpose(0, 1), self.weight)


def traced(build):
    with torch.device("meta"):
        return trace(build(), torch.zeros(2, TOKENS, WIDTH))


def listed(plan, group):
    found = Counter()
    for m in plan.messages():
        if m.group == group:
            found[m.kind, m.num_bytes] += m.count
    return found


def test_summands_of_all_experts_are_added_before_they_are_reduced(placed):
    # T h forward and backward, not n T h; the router's logits and the gradients of their scores: n numbers a token
    graph = traced(Copied)
    for tp in (2, 4):
        found = listed(placed(graph, Strategy(tp=tp, precision="bf16_mixed"), 1), "tp")
        assert max(size for _, size in found) <= TOKENS * WIDTH * 2, tp


def test_experts_of_batched_products_are_spread(placed):
    graph = traced(Copied)
    assert {t.name for t in graph.parameters if t.id in spread_experts(graph, 4).divided} == {"up", "down"}
    found = listed(placed(graph, Strategy(dp=4, ep=4, precision="bf16_mixed"), 4), "ep")
    assert found == {("all_to_all", EXPERTS * TOKENS * WIDTH * 2): 4}


@pytest.mark.parametrize("build", [Sorted, Placed])
def test_experts_whose_rows_are_gathered_or_placed_are_spread(build, placed):
    graph = traced(build)
    assert {t.name for t in graph.parameters if t.id in spread_experts(graph, 4).divided} == {"up", "down"}
    whole, spread = (placed(graph, Strategy(dp=4, ep=ep, precision="bf16_mixed"), 4) for ep in (1, 4))
    # k rows for each token, dispatched and combined, forward and backward; a rank has a quarter of the experts
    assert listed(spread, "ep") == {("all_to_all", CHOSEN * TOKENS * WIDTH * 2): 4}
    experts = 2 * EXPERTS * WIDTH * HIDDEN
    assert whole.stages[0].num_parameters - spread.stages[0].num_parameters == experts * 3 // 4
    assert spread.stages[0].flops == pytest.approx(whole.stages[0].flops)


@pytest.mark.parametrize("build", [Heads, Positions])
def test_products_of_heads_or_of_positions_are_no_experts(build):
    with pytest.raises(ConfigError, match="no experts that can be spread"):
        spread_experts(traced(build), 2)


def test_looked_up_biases_are_not_sent(placed):
    graph = traced(Biased)
    divided = {t.name for t in graph.parameters if t.id in spread_experts(graph, 4).divided}
    assert divided == {"up", "up_bias", "down", "down_bias"}
    found = listed(placed(graph, Strategy(dp=4, ep=4, precision="bf16_mixed"), 4), "ep")
    assert found == {("all_to_all", CHOSEN * TOKENS * WIDTH * 2): 4}
