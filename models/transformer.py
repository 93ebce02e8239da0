"""An encoder-decoder Transformer with one vocabulary shared by both sides and the output.

Shapes: B batch, S source and T target sequence, D width, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.gpt import token_loss
from rostam_py.models.spec import InputSpec, ModelSpec


@dataclass(kw_only=True, slots=True)
class Config:
    """Shape of an encoder-decoder Transformer."""

    encoder_layers: int = 11
    decoder_layers: int = 11
    width: int = 1024
    feed_forward: int = 4096
    num_heads: int = 16
    vocabulary: int = 32768
    sequence_length: int = 64


class Attention(nn.Module):
    """Multi-head attention of ``x`` on ``memory`` with separate projections."""

    def __init__(self, width: int, num_heads: int, is_causal: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.is_causal = is_causal
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.proj = nn.Linear(width, width)

    def _heads(self, x: Tensor) -> Tensor:
        batch, sequence, width = x.shape
        return x.view(batch, sequence, self.num_heads, width // self.num_heads).transpose(1, 2)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        query, key, value = self._heads(self.query(x)), self._heads(self.key(memory)), self._heads(self.value(memory))
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        return self.proj(y.transpose(1, 2).reshape(x.shape))


class FeedForward(nn.Module):
    """Two linear layers around a ReLU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.relu(self.up(x)))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, pre-norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = Attention(config.width, config.num_heads, is_causal=False)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = FeedForward(config.width, config.feed_forward)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y)
        return x + self.mlp(self.norm2(x))


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and feed-forward, pre-norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = Attention(config.width, config.num_heads, is_causal=True)
        self.norm2 = nn.LayerNorm(config.width)
        self.cross_attention = Attention(config.width, config.num_heads, is_causal=False)
        self.norm3 = nn.LayerNorm(config.width)
        self.mlp = FeedForward(config.width, config.feed_forward)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y)
        x = x + self.cross_attention(self.norm2(x), memory)
        return x + self.mlp(self.norm3(x))


class Transformer(nn.Module):
    """Source ids (B, S) and target ids (B, T) to logits (B, T, V)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.source_positions = nn.Embedding(config.sequence_length, config.width)
        self.target_positions = nn.Embedding(config.sequence_length, config.width)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.encoder_norm = nn.LayerNorm(config.width)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.decoder_norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.tokens(source) + self.source_positions(torch.arange(source.shape[1], device=source.device))
        for layer in self.encoder:
            memory = layer(memory)
        memory = self.encoder_norm(memory)
        x = self.tokens(target) + self.target_positions(torch.arange(target.shape[1], device=target.device))
        for layer in self.decoder:
            x = layer(x, memory)
        return self.head(self.decoder_norm(x))


def build(name: str, config: Config, assumed: tuple[str, ...] = ()) -> ModelSpec:
    """Return the specification of an encoder-decoder Transformer of this shape."""

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        depth = {"encoder_layers": num_layers["encoder"], "decoder_layers": num_layers["decoder"]}
        return Transformer(replace(config, **depth))

    tokens = (config.sequence_length,)
    return ModelSpec(
        name=name,
        make=make,
        inputs=(InputSpec("source", tokens, "int64"), InputSpec("target", tokens, "int64")),
        targets=(InputSpec("labels", tokens, "int64"),),
        loss=token_loss,
        default_optimizer="adam",
        default_precision="fp32",
        sequence_length=config.sequence_length,
        stacks={"encoder": config.encoder_layers, "decoder": config.decoder_layers},
        assumed=assumed,
        at_length=lambda length: build(name, replace(config, sequence_length=length), assumed),
    )


def build_transformer_350m() -> ModelSpec:
    """Return the 357 M parameter Transformer that MODEL J26 settles."""
    return build("transformer_350m", Config(), ("transformer_350m: the shape is assumed (MODEL J26)",))
