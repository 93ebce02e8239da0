"""The decoder-only language model of today: RMS norms, rotary positions, grouped queries, gated feed-forward.

Shapes: B batch, S sequence, D width, E size of a head, V vocabulary.
Source: Touvron et al. 2023 (arXiv 2307.09288), section 2.2; Ainslie et al. 2023 (arXiv 2305.13245) for grouped queries.
"""

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.gpt import token_loss
from rostam_py.models.spec import InputSpec, ModelSpec

Rotation = tuple[Tensor, Tensor]  # cosines and sines (S, E)


def rotation(sequence: int, size: int, theta: float, device: torch.device) -> Rotation:
    """Return the cosines and sines that turn heads of ``size`` at each position."""
    frequencies = theta ** (-torch.arange(0, size, 2, device=device) / size)
    angles = torch.outer(torch.arange(sequence, device=device), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotated(x: Tensor, waves: Rotation) -> Tensor:
    """Turn heads (B, heads, S, E) by their positions, the first half of a head against the second."""
    low, high = x.chunk(2, -1)
    return x * waves[0] + torch.cat((-high, low), -1) * waves[1]


class GroupedAttention(nn.Module):
    """Causal self-attention of ``num_heads`` query heads on ``num_key_heads`` key and value heads, no biases.

    has_head_norms: an RMS norm of each query and each key head before they are turned (Qwen3).
    """

    def __init__(
        self, width: int, num_heads: int, num_key_heads: int, head_size: int, has_head_norms: bool = False
    ) -> None:
        super().__init__()
        self.head_size = head_size
        self.query = nn.Linear(width, num_heads * head_size, bias=False)
        self.key = nn.Linear(width, num_key_heads * head_size, bias=False)
        self.value = nn.Linear(width, num_key_heads * head_size, bias=False)
        self.proj = nn.Linear(num_heads * head_size, width, bias=False)
        self.query_norm = nn.RMSNorm(head_size, eps=1e-6) if has_head_norms else nn.Identity()
        self.key_norm = nn.RMSNorm(head_size, eps=1e-6) if has_head_norms else nn.Identity()

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_size)

    def forward(self, x: Tensor, waves: Rotation) -> Tensor:
        query = rotated(self.query_norm(self._heads(self.query(x))).transpose(1, 2), waves)
        key = rotated(self.key_norm(self._heads(self.key(x))).transpose(1, 2), waves)
        value = self._heads(self.value(x)).transpose(1, 2)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.proj(y.transpose(1, 2).flatten(2))


class GatedFeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x)), no biases."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class DecoderBlock(nn.Module):
    """Pre-norm block around an attention that takes the rotation and any feed-forward."""

    def __init__(self, width: int, attention: nn.Module, mlp: nn.Module, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(width, eps=epsilon)
        self.attention = attention
        self.norm2 = nn.RMSNorm(width, eps=epsilon)
        self.mlp = mlp

    def forward(self, x: Tensor, waves: Rotation) -> Tensor:
        x = x + self.attention(self.norm1(x), waves)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """Token ids (B, S) to logits (B, S, V); the head is not tied to the embedding.

    blocks: stacks by name, in order. rotary_size: the part of a head that is turned.
    """

    def __init__(
        self, vocabulary: int, width: int, rotary_size: int, theta: float, blocks: Mapping[str, Iterable[nn.Module]]
    ) -> None:
        super().__init__()
        self.rotary_size, self.theta, self.stacks = rotary_size, theta, tuple(blocks)
        self.tokens = nn.Embedding(vocabulary, width)
        for name, stack in blocks.items():
            self.add_module(name, nn.ModuleList(stack))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def positions(self, sequence: int, device: torch.device) -> Rotation | Tensor:
        """Return what turns heads at each position; models that turn them otherwise have their own."""
        return rotation(sequence, self.rotary_size, self.theta, device)

    def forward(self, ids: Tensor) -> Tensor:
        waves = self.positions(ids.shape[1], ids.device)
        x = self.tokens(ids)
        for name in self.stacks:
            for block in self.get_submodule(name):
                x = block(x, waves)
        return self.head(self.norm(x))


def decoder_spec(
    name: str,
    make: Callable[..., nn.Module],
    stacks: Mapping[str, int],
    sequence_length: int,
    assumed: tuple[str, ...] = (),
) -> ModelSpec:
    """Return the specification of a language model in its usual training: Adam, bfloat16, loss of the next token.

    Model: at another length the sequences alone change: positions are turned, so that no weight depends on it.
    """
    tokens = (sequence_length,)
    return ModelSpec(
        name=name,
        make=make,
        inputs=(InputSpec("ids", tokens, "int64"),),
        targets=(InputSpec("targets", tokens, "int64"),),
        loss=token_loss,
        default_optimizer="adam",
        default_precision="bf16_mixed",
        sequence_length=sequence_length,
        stacks=stacks,
        assumed=assumed,
        at_length=lambda length: decoder_spec(name, make, stacks, length, assumed),
    )
