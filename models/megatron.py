"""GPT as Megatron-LM trained it in 2022: explicit attention, dropout after attention, in it and after the feed-forward.

Attention is a product, a softmax, a dropout and a product, as before fused kernels: its scores are kept for backward
unless the attention core is recomputed. The causal mask is added to the scores, which keeps nothing.
Shapes: B batch, S sequence, D width, H heads, E size of a head.
Source: Korthikanti et al. 2022 (arXiv 2205.05198), table 3 (22B, 175B, 530B, 1T), and Narayanan et al. 2021 (arXiv
2104.04473), table 1 (the others): layers, widths, heads; sequence 2,048, vocabulary 51,200; dropout 0.1 as in GPT-3's
training and Megatron-LM's default.
"""

import functools
import math

import torch
from torch import Tensor, nn

from rostam_py.models.gpt import GPT, Config, FeedForward, build
from rostam_py.models.spec import ModelSpec

DROPOUT = 0.1


class ExplicitAttention(nn.Module):
    """Causal self-attention with dropout of its probabilities; the rows of ``qkv`` are grouped by head."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        batch, sequence, width = x.shape
        size = width // self.num_heads
        qkv = self.qkv(x).view(batch, sequence, self.num_heads, 3 * size).transpose(1, 2)
        query, key, value = qkv.split(size, dim=-1)
        scores = query @ key.transpose(2, 3) / math.sqrt(size)
        future = torch.full((sequence, sequence), -math.inf, device=x.device).triu(1)
        weights = self.dropout(torch.softmax(scores + future, dim=-1))
        return self.proj((weights @ value).transpose(1, 2).reshape(batch, sequence, width))


class Block(nn.Module):
    """Pre-norm Transformer block with dropout behind its two regions."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = ExplicitAttention(width, num_heads)
        self.dropout1 = nn.Dropout(DROPOUT)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = FeedForward(width)
        self.dropout2 = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout1(self.attention(self.norm1(x)))
        return x + self.dropout2(self.mlp(self.norm2(x)))


class Megatron(GPT):
    """Token ids (B, S) to logits (B, S, vocabulary), with dropout behind the embedding."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, Block)
        self.dropout = nn.Dropout(DROPOUT)

    def embedded(self, ids: Tensor) -> Tensor:
        return self.dropout(super().embedded(ids))


def _preset(name: str, num_layers: int, width: int, num_heads: int) -> ModelSpec:
    shape = Config(num_layers=num_layers, width=width, num_heads=num_heads, vocabulary=51200)
    return build(name, shape, model=Megatron)


build_megatron_1_7b = functools.partial(_preset, "megatron_1_7b", 24, 2304, 24)
build_megatron_3_6b = functools.partial(_preset, "megatron_3_6b", 30, 3072, 32)
build_megatron_7_5b = functools.partial(_preset, "megatron_7_5b", 36, 4096, 32)
build_megatron_18_4b = functools.partial(_preset, "megatron_18_4b", 40, 6144, 48)
build_megatron_22b = functools.partial(_preset, "megatron_22b", 48, 6144, 64)
build_megatron_76b = functools.partial(_preset, "megatron_76b", 60, 10240, 80)
build_megatron_175b = functools.partial(_preset, "megatron_175b", 96, 12288, 96)
build_megatron_310b = functools.partial(_preset, "megatron_310b", 96, 16384, 128)
build_megatron_530b = functools.partial(_preset, "megatron_530b", 105, 20480, 128)
build_megatron_1t = functools.partial(_preset, "megatron_1t", 128, 25600, 160)
