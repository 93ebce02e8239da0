"""A small decoder as the other examples train it: attention and a gated layer in each block, no bias."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A block of a decoder: attention, then a gated feed-forward layer, each behind a norm."""

    def __init__(self, width: int, hidden: int, head: int) -> None:
        super().__init__()
        self.head = head
        self.attention_norm, self.hidden_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's result of activations (batch, sequence, width)."""
        batch, sequence, _ = x.shape
        normed = self.attention_norm(x)
        heads = [one(normed).view(batch, sequence, -1, self.head).transpose(1, 2) for one in (self.q, self.k, self.v)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(batch, sequence, -1)
        x = x + self.o(mixed)
        normed = self.hidden_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    """Tokens (batch, sequence) to logits (batch, sequence, vocabulary)."""

    def __init__(self, layers: int, width: int, hidden: int, *, head: int = 64, vocabulary: int = 32000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, hidden, head) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.logits = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))
