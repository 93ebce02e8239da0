"""Tensor-parallel messages of common model layouts equal lists derived by hand from Megatron's scheme.

Legend: b micro-batch 1, s sequence, h width, V vocabulary, t = tp; A = b s h elements of 2 bytes (bf16). A layer with
two norms in series all-reduces A after attention and after the feed-forward, and both gradients backward; a parallel
residual sums both branches first: one forward, and backward one for each norm. Besides them: the embedding's output,
the gradient of the head's input, and of the loss per token a maximum and a sum forward (8 bytes), a sum backward (4),
and the loss (4).
"""

import math
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional

from rostam_py.plan import Strategy
from rostam_py.tracing import trace

WIDTH, TOKENS, WORDS, LAYERS = 1024, 256, 32000, 2


class RMSNorm(nn.Module):
    """As Llama's: in 32 bits, from plain operators."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        """Scale by the root of the mean square."""
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotated(x, cos, sin):
    """Apply rotary positions by halves."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def rotated_pairs(x, waves):
    """Apply rotary positions to pairs as complex numbers, x (B, S, H, D)."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * waves[None, :, None]).flatten(3)


class LlamaAttention(nn.Module):
    """Grouped queries; ``form``: how keys meet queries; ``fused``: one product, query, key and value side by side."""

    def __init__(self, heads, key_heads, form, fused):
        super().__init__()
        self.heads, self.key_heads, self.form, self.fused = heads, key_heads, form, fused
        self.size = WIDTH // heads
        sizes = [heads * self.size, key_heads * self.size, key_heads * self.size]
        self.sizes = sizes
        self.inputs = nn.ModuleList(nn.Linear(WIDTH, n, bias=False) for n in ([sum(sizes)] if fused else sizes))
        self.output = nn.Linear(sizes[0], WIDTH, bias=False)
        self.register_buffer("cos", torch.zeros(TOKENS, self.size))
        self.register_buffer("sin", torch.zeros(TOKENS, self.size))
        self.register_buffer("waves", torch.zeros(TOKENS, self.size // 2, dtype=torch.complex64))

    def forward(self, x):
        """Attend."""
        b, s, _ = x.shape
        parts = self.inputs[0](x).split(self.sizes, -1) if self.fused else [one(x) for one in self.inputs]
        q, k, v = (part.view(b, s, -1, self.size) for part in parts)
        if self.form == "complex":
            q, k = rotated_pairs(q, self.waves), rotated_pairs(k, self.waves)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if self.form != "complex":
            q, k = rotated(q, self.cos, self.sin), rotated(k, self.cos, self.sin)
        if self.form == "grouped":
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            groups = self.heads // self.key_heads
            k, v = (
                part[:, :, None].expand(b, self.key_heads, groups, s, self.size).reshape(b, self.heads, s, self.size)
                for part in (k, v)
            )
            if self.form == "eager":
                y = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(self.size), -1) @ v
            else:
                y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(y.transpose(1, 2).reshape(b, s, -1))


class GatedFeedForward(nn.Module):
    """SwiGLU; ``fused``: gate and up in one product."""

    def __init__(self, hidden, fused):
        super().__init__()
        self.fused = fused
        self.inputs = nn.ModuleList(
            nn.Linear(WIDTH, n, bias=False) for n in ([2 * hidden] if fused else [hidden, hidden])
        )
        self.down = nn.Linear(hidden, WIDTH, bias=False)

    def forward(self, x):
        """Gate and project."""
        gate, up = self.inputs[0](x).chunk(2, -1) if self.fused else (one(x) for one in self.inputs)
        return self.down(functional.silu(gate) * up)


class LlamaBlock(nn.Module):
    """``residual``: "serial", or "parallel" with one norm or two."""

    def __init__(self, heads, key_heads, form, fused, residual):
        super().__init__()
        self.residual = residual
        self.norm1, self.norm2 = RMSNorm(WIDTH), RMSNorm(WIDTH)
        self.attention = LlamaAttention(heads, key_heads, form, fused)
        self.mlp = GatedFeedForward(2816, fused)

    def forward(self, x):
        """Apply attention and feed-forward."""
        if self.residual == "serial":
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        y = self.norm1(x)
        z = y if self.residual == "one norm" else self.norm2(x)
        if self.residual == "one norm":
            return x + self.attention(y) + self.mlp(z)  # Cohere's order: the first sum is of a whole and a partial
        return self.mlp(z) + self.attention(y) + x  # GPT-NeoX's order


class Gpt2Attention(nn.Module):
    """Multi-head attention of one fused product: thirds, each of all heads; ``form``: how it is taken apart."""

    def __init__(self, heads, form):
        super().__init__()
        self.heads, self.form, self.size = heads, form, WIDTH // heads
        self.qkv, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        """Attend."""
        b, s, _ = x.shape
        fused = self.qkv(x)
        if self.form == "by heads":  # GPT-NeoX: the three of a head side by side
            q, k, v = fused.view(b, s, self.heads, 3 * self.size).transpose(1, 2).chunk(3, -1)
        elif self.form == "five dims":
            q, k, v = fused.view(b, s, 3, self.heads, self.size).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            q, k, v = (part.view(b, s, self.heads, self.size).transpose(1, 2) for part in fused.chunk(3, -1))
        if self.form == "merged":  # batch and heads in one dimension
            q, k, v = (part.reshape(b * self.heads, s, self.size) for part in (q, k, v))
            y = torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) / 8, -1), v).view(b, self.heads, s, self.size)
        else:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(y.transpose(1, 2).reshape(b, s, WIDTH))


class Gpt2Block(nn.Module):
    """Pre-norm, post-norm (BERT), or a parallel residual of two norms (GPT-NeoX)."""

    def __init__(self, heads, form, residual):
        super().__init__()
        self.residual = residual
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Gpt2Attention(heads, form)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        """Apply attention and feed-forward."""
        if self.residual == "norms last":
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.mlp(x))
        if self.residual != "serial":
            return self.mlp(self.norm2(x)) + self.attention(self.norm1(x)) + x
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    """Embedding, blocks, norm and head."""

    def __init__(self, blocks, norm, is_tied=False, num_positions=0):
        super().__init__()
        self.positions = nn.Embedding(num_positions, WIDTH) if num_positions else None
        self.embedding, self.blocks, self.norm = nn.Embedding(WORDS, WIDTH), nn.ModuleList(blocks), norm
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if is_tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids):
        """Return logits."""
        x = self.embedding(ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def token_loss(logits, targets):
    """Mean cross-entropy."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def traced(make):
    """Return the graph of a model on its tokens."""
    with torch.device("meta"):
        model = make()
    ids = torch.zeros(2, TOKENS, dtype=torch.int64)
    return trace(model, (ids, ids), loss_fn=token_loss, name="layout")


def llama(heads=16, key_heads=16, form="expanded", fused=False, residual="serial"):
    return traced(
        lambda: LanguageModel(
            [LlamaBlock(heads, key_heads, form, fused, residual) for _ in range(LAYERS)], RMSNorm(WIDTH)
        )
    )


def gpt2(form, residual="serial", num_positions=0):
    return traced(
        lambda: LanguageModel(
            [Gpt2Block(16, form, residual) for _ in range(LAYERS)], nn.LayerNorm(WIDTH), True, num_positions
        )
    )


def listed(plan):
    """Return {(group, kind, bytes): count} of the tensor-parallel groups."""
    found = Counter()
    for m in plan.messages():
        if m.group.startswith("tp"):
            found[m.group, m.kind, m.num_bytes] += m.count
    return dict(found)


def expected(per_layer):
    """Return the list of a model whose layers all-reduce A so many times."""
    return {
        ("tp", "all_reduce", TOKENS * WIDTH * 2): LAYERS * per_layer + 2,
        ("tp", "all_reduce", 8 * TOKENS): 1,
        ("tp", "all_reduce", 4 * TOKENS): 1,
        ("tp", "all_reduce", 4): 1,
    }


def work_ratio(plan, graph):
    """Return the FLOPs of all devices over the graph's, both of one sample."""
    work = sum(s.hardware_flops for s in plan.stages) * plan.strategy.tp
    return work / (graph.forward_flops() + graph.backward_flops())


PER_LAYER = {"serial": 4, "norms last": 4, "one norm": 2, "two norms": 3}
LLAMAS = {
    "expanded": {}, "grouped": {"key_heads": 8, "form": "grouped"}, "eager": {"key_heads": 8, "form": "eager"},
    "complex": {"key_heads": 8, "form": "complex"}, "fused": {"key_heads": 8, "fused": True},
    "one norm": {"residual": "one norm"}, "two norms": {"residual": "two norms", "fused": True},
}  # fmt: skip


# "expanded" and "eager" are also among the forms with too few key heads below, fused products in "two norms".
@pytest.mark.parametrize(
    "layout",
    [pytest.param(one, marks=pytest.mark.slow if one in ("expanded", "eager", "fused") else ()) for one in LLAMAS],
)
def test_llama_layouts_send_megatrons_all_reduces(placed, layout):
    options = LLAMAS[layout]
    graph = llama(**options)
    for tp in (2, 4, 8):
        plan = placed(graph, Strategy(tp=tp, precision="bf16_mixed"), 1)
        assert listed(plan) == expected(PER_LAYER[options.get("residual", "serial")]), tp
        assert work_ratio(plan, graph) <= 1.02


# Each form once and each residual once; the other combinations trace 4 more models.
@pytest.mark.parametrize(
    ("form", "residual"),
    [
        ("thirds", "two norms"),
        ("by heads", "serial"),
        ("five dims", "serial"),
        ("merged", "serial"),
        pytest.param("thirds", "serial", marks=pytest.mark.slow),
        pytest.param("by heads", "two norms", marks=pytest.mark.slow),
        pytest.param("five dims", "two norms", marks=pytest.mark.slow),
        pytest.param("merged", "two norms", marks=pytest.mark.slow),
    ],
)
def test_fused_query_key_and_value_split_by_heads_however_they_lie(placed, form, residual):
    graph = gpt2(form, residual)
    for tp in (2, 4, 8):
        plan = placed(graph, Strategy(tp=tp, precision="bf16_mixed"), 1)
        assert listed(plan) == expected(PER_LAYER[residual]), tp
        assert work_ratio(plan, graph) <= 1.02
        layer = (12 * WIDTH * WIDTH + 7 * WIDTH) // tp + 2 * WIDTH + 4 * WIDTH  # row biases and norms whole
        assert plan.stages[0].num_parameters == WORDS * WIDTH // tp + LAYERS * layer + 2 * WIDTH


# Each form once and each number of key heads once; the other combinations trace 8 more models.
@pytest.mark.parametrize(
    ("form", "key_heads"),
    [("expanded", 2), ("grouped", 1), ("eager", 2), ("complex", 4)]
    + [
        pytest.param(form, key_heads, marks=pytest.mark.slow)
        for form, key_heads in (
            ("expanded", 1), ("expanded", 4), ("grouped", 2), ("grouped", 4), ("eager", 1), ("eager", 4),
            ("complex", 1), ("complex", 2),
        )
    ],
)  # fmt: skip
def test_too_few_key_heads_are_held_by_several_members_and_their_gradients_summed(placed, form, key_heads):
    graph = llama(key_heads=key_heads, form=form)
    plan = placed(graph, Strategy(tp=8, precision="bf16_mixed"), 1)
    # every member holds one key head; 8 / key_heads members hold the same, and sum its two weights' gradients, four
    # bytes per scalar, once an iteration
    weights = 2 * WIDTH * 64
    group = "tp" if key_heads == 1 else "tp1"
    assert listed(plan) == Counter(expected(4)) + Counter({(group, "all_reduce", LAYERS * weights * 4): 1})
    query_and_output, mlp = 2 * WIDTH * WIDTH // 8, 3 * WIDTH * 2816 // 8
    norms = (2 * LAYERS + 1) * WIDTH
    layers = LAYERS * (query_and_output + weights + mlp)
    assert plan.stages[0].num_parameters == 2 * WORDS * WIDTH // 8 + layers + norms
    for members in plan.members(group):
        assert len(members) == 8 // key_heads
        assert members.tolist() == list(range(members[0], members[0] + len(members)))


@pytest.mark.parametrize("residual", ["serial", "norms last"])
def test_a_position_table_stays_whole_and_gradients_of_a_block_are_summed_before_they_are_reduced(placed, residual):
    # four times as many positions as tokens; behind a norm the gradient of a block's input is the residual's, whole,
    # and three summands (query, key, value): one all-reduce
    graph = gpt2("thirds", residual, num_positions=4 * TOKENS)
    for tp in (2, 8):
        plan = placed(graph, Strategy(tp=tp, precision="bf16_mixed"), 1)
        assert listed(plan) == expected(4)
        layer = (12 * WIDTH * WIDTH + 7 * WIDTH) // tp + 2 * WIDTH + 4 * WIDTH
        table = 4 * TOKENS * WIDTH
        assert plan.stages[0].num_parameters == WORDS * WIDTH // tp + table + LAYERS * layer + 2 * WIDTH
