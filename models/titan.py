"""Llama as torchtitan writes it: positions turn pairs of numbers as complex ones do, key heads are repeated.

Queries and keys are multiplied by complex numbers of 64 bits, which PyTorch's compiler leaves to a kernel of its own
(torch/_inductor/lowering.py of pytorch/pytorch falls back for complex dtypes); attention gets as many key as query
heads. All else, and all shapes, are as in models/llama.py.
Shapes: B batch, S sequence, D width, E size of a head.
Source: torchtitan/models/llama/model.py of pytorch/torchtitan, 2024 to 2025: apply_rotary_emb, repeat_kv; its
benchmarks/llama3_h100_202412_torchtitan.md, tables 2 and 6, for the long sequences.
"""

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models import llama
from rostam_py.models.decoder import Decoder
from rostam_py.models.spec import ModelSpec


def complex_rotation(sequence: int, size: int, theta: float, device: torch.device) -> Tensor:
    """Return the complex numbers (S, E / 2) that turn pairs of a head's entries at each position."""
    frequencies = theta ** (-torch.arange(0, size, 2, device=device) / size)
    angles = torch.outer(torch.arange(sequence, device=device), frequencies)
    return torch.polar(torch.ones_like(angles), angles)


def turned(x: Tensor, waves: Tensor) -> Tensor:
    """Turn heads (B, S, heads, E) by their positions, each entry against the one next to it."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * waves[:, None]).flatten(3).type_as(x)


def repeated(x: Tensor, times: int) -> Tensor:
    """Repeat key heads (B, S, heads, E) so that there is one for each query head."""
    if times == 1:
        return x
    return x[:, :, :, None].expand(-1, -1, -1, times, -1).flatten(2, 3)


class RepeatedAttention(nn.Module):
    """Causal self-attention of ``num_heads`` query heads on repeated key and value heads, no biases."""

    def __init__(self, width: int, num_heads: int, num_key_heads: int, head_size: int) -> None:
        super().__init__()
        self.head_size, self.times = head_size, num_heads // num_key_heads
        self.query = nn.Linear(width, num_heads * head_size, bias=False)
        self.key = nn.Linear(width, num_key_heads * head_size, bias=False)
        self.value = nn.Linear(width, num_key_heads * head_size, bias=False)
        self.proj = nn.Linear(num_heads * head_size, width, bias=False)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_size)

    def forward(self, x: Tensor, waves: Tensor) -> Tensor:
        query = turned(self._heads(self.query(x)), waves).transpose(1, 2)
        key = repeated(turned(self._heads(self.key(x)), waves), self.times).transpose(1, 2)
        value = repeated(self._heads(self.value(x)), self.times).transpose(1, 2)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.proj(y.transpose(1, 2).flatten(2))


class TitanDecoder(Decoder):
    """A decoder whose positions are complex numbers."""

    def positions(self, sequence: int, device: torch.device) -> Tensor:
        return complex_rotation(sequence, self.rotary_size, self.theta, device)


def build(name: str, config: llama.Config) -> ModelSpec:
    """Return the specification of a Llama of this shape."""
    return llama.build(name, config, attention=RepeatedAttention, decoder=TitanDecoder)


def _preset(shape: str) -> ModelSpec:
    return build(f"titan_{shape}", llama.SHAPES[shape])


build_titan_llama2_13b = functools.partial(_preset, "llama2_13b")
build_titan_llama2_70b = functools.partial(_preset, "llama2_70b")
build_titan_llama3_8b = functools.partial(_preset, "llama3_8b")
build_titan_llama3_8b_32k = functools.partial(_preset, "llama3_8b_32k")
build_titan_llama3_8b_64k = functools.partial(_preset, "llama3_8b_64k")
build_titan_llama3_8b_256k = functools.partial(_preset, "llama3_8b_256k")
build_titan_llama3_70b = functools.partial(_preset, "llama3_70b")
build_titan_llama3_405b = functools.partial(_preset, "llama3_405b")
build_titan_llama3_405b_32k = functools.partial(_preset, "llama3_405b_32k")
build_titan_llama3_405b_128k = functools.partial(_preset, "llama3_405b_128k")
build_titan_llama3_405b_256k = functools.partial(_preset, "llama3_405b_256k")
