"""T5: an encoder-decoder with RMS norms, no biases, and scores shifted by a learned function of distance.

Shapes: B batch, S tokens of either side, D width, H heads of size E, F hidden width, V vocabulary, N buckets.
Source: Raffel et al. 2020, arXiv 1910.10683, sections 2.1, 3.1 and 3.7 (11B: 24 layers a side, width 1,024, 128 heads
of 128, hidden width 65,536; sequences of 512); vocabulary 32,128 as released. Without dropout.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.gpt import token_loss
from rostam_py.models.spec import InputSpec, ModelSpec


@dataclass(kw_only=True, slots=True)
class Config:
    """Shape of a T5."""

    num_layers: int = 24
    width: int = 1024
    num_heads: int = 128
    head_size: int = 128
    hidden: int = 65536
    vocabulary: int = 32128
    sequence_length: int = 512
    num_buckets: int = 32
    farthest: int = 128


class Attention(nn.Module):
    """Attention of ``x`` on ``memory``: no biases, scores not scaled, ``shifts`` (1, H, S, S) added to them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_size = config.head_size
        inner = config.num_heads * config.head_size
        self.query = nn.Linear(config.width, inner, bias=False)
        self.key = nn.Linear(config.width, inner, bias=False)
        self.value = nn.Linear(config.width, inner, bias=False)
        self.proj = nn.Linear(inner, config.width, bias=False)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_size).transpose(1, 2)

    def forward(self, x: Tensor, memory: Tensor, shifts: Tensor | None = None) -> Tensor:
        query, key, value = self._heads(self.query(x)), self._heads(self.key(memory)), self._heads(self.value(memory))
        y = functional.scaled_dot_product_attention(query, key, value, attn_mask=shifts, scale=1.0)
        return self.proj(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two linear layers around a ReLU, no biases."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.relu(self.up(x)))


class Layer(nn.Module):
    """Self-attention, in the decoder attention on the encoder's output, feed-forward; pre-norm."""

    def __init__(self, config: Config, is_decoder: bool) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(config.width, eps=1e-6)
        self.attention = Attention(config)
        if is_decoder:
            self.norm2 = nn.RMSNorm(config.width, eps=1e-6)
            self.cross_attention = Attention(config)
        self.norm3 = nn.RMSNorm(config.width, eps=1e-6)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, shifts: Tensor, memory: Tensor | None = None) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, shifts)
        if memory is not None:
            x = x + self.cross_attention(self.norm2(x), memory)
        return x + self.mlp(self.norm3(x))


class Distances(nn.Module):
    """A learned shift of each head's scores by the distance of key and query, in buckets that widen."""

    def __init__(self, config: Config, is_causal: bool) -> None:
        super().__init__()
        self.is_causal, self.num_buckets, self.farthest = is_causal, config.num_buckets, config.farthest
        self.table = nn.Embedding(config.num_buckets, config.num_heads)

    def _buckets(self, distances: Tensor) -> Tensor:
        """Return the bucket of each distance, key minus query: half of them exact, then logarithmic."""
        if self.is_causal:
            num, first = self.num_buckets, torch.zeros_like(distances)
            distances = (-distances).clamp(min=0)
        else:
            num = self.num_buckets // 2
            first = (distances > 0) * num
            distances = distances.abs()
        exact = num // 2
        wide = torch.log(distances.clamp(min=1) / exact) / math.log(self.farthest / exact) * (num - exact)
        return first + torch.where(distances < exact, distances, (exact + wide.long()).clamp(max=num - 1))

    def forward(self, sequence: int) -> Tensor:
        places = torch.arange(sequence, device=self.table.weight.device)
        distances = places[None, :] - places[:, None]
        shifts = self.table(self._buckets(distances)).permute(2, 0, 1)[None]
        return shifts.masked_fill(distances > 0, -math.inf) if self.is_causal else shifts


class T5(nn.Module):
    """Source ids (B, S) and target ids (B, S) to logits (B, S, V); one vocabulary for both and for the output."""

    def __init__(self, config: Config, encoder_layers: int, decoder_layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.encoder_distances = Distances(config, is_causal=False)
        self.encoder = nn.ModuleList(Layer(config, is_decoder=False) for _ in range(encoder_layers))
        self.encoder_norm = nn.RMSNorm(config.width, eps=1e-6)
        self.decoder_distances = Distances(config, is_causal=True)
        self.decoder = nn.ModuleList(Layer(config, is_decoder=True) for _ in range(decoder_layers))
        self.decoder_norm = nn.RMSNorm(config.width, eps=1e-6)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, shifts = self.tokens(source), self.encoder_distances(source.shape[1])
        for layer in self.encoder:
            memory = layer(memory, shifts)
        memory = self.encoder_norm(memory)
        x, shifts = self.tokens(target), self.decoder_distances(target.shape[1])
        for layer in self.decoder:
            x = layer(x, shifts, memory)
        return self.head(self.decoder_norm(x) * x.shape[-1] ** -0.5)


def build(name: str, config: Config) -> ModelSpec:
    """Return the specification of a T5 of this shape."""

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        return T5(replace(config), num_layers["encoder"], num_layers["decoder"])

    tokens = (config.sequence_length,)
    return ModelSpec(
        name=name,
        make=make,
        inputs=(InputSpec("source", tokens, "int64"), InputSpec("target", tokens, "int64")),
        targets=(InputSpec("labels", tokens, "int64"),),
        loss=token_loss,
        default_optimizer="adam",
        default_precision="bf16_mixed",
        sequence_length=config.sequence_length,
        stacks={"encoder": config.num_layers, "decoder": config.num_layers},
        at_length=lambda length: build(name, replace(config, sequence_length=length)),
    )


def build_t5_11b() -> ModelSpec:
    """Return T5-11B, first version."""
    return build("t5_11b", Config())
