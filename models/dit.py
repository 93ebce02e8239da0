"""Diffusion Transformer (DiT): patches of a latent image, blocks modulated by the time step and the class.

Shapes: B batch, C channels, N latent side, P patch, S = (N / P)^2 tokens, D width.
Source: Peebles and Xie 2023, arXiv 2212.09748, table 1 (XL: 28 layers, width 1,152, 16 heads), 2 x 2 patches, latents
of 4 x 32 x 32 for images of 256; its code for what tables leave out (frequencies, null class, modulated last layer).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.gpt import Attention, FeedForward
from rostam_py.models.spec import InputSpec, ModelSpec

_FREQUENCIES = 256  # of the time step's embedding


@dataclass(kw_only=True, slots=True)
class Config:
    """Shape of a DiT."""

    num_layers: int = 28
    width: int = 1152
    num_heads: int = 16
    patch: int = 2
    side: int = 32
    channels: int = 4
    num_classes: int = 1000


class Modulation(nn.Module):
    """Shifts, scales and gates of a block from the condition (B, D): ``count`` vectors (B, 1, D)."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.count = count
        self.linear = nn.Linear(width, count * width)

    def forward(self, condition: Tensor) -> tuple[Tensor, ...]:
        return self.linear(functional.silu(condition))[:, None].chunk(self.count, -1)


class Block(nn.Module):
    """Attention and feed-forward, each between a modulated norm and a gate (adaLN-Zero)."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.modulation = Modulation(width, 6)
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.attention = Attention(width, num_heads, is_causal=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.mlp = FeedForward(width)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition)
        x = x + gate1 * self.attention(self.norm1(x) * (1 + scale1) + shift1)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    """Noisy latents (B, C, N, N), time steps (B,) and classes (B,) to noise and variance (B, 2 C, N, N)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.patch, self.grid = config.patch, config.side // config.patch
        self.patches = nn.Conv2d(config.channels, width, config.patch, stride=config.patch)
        self.register_buffer("positions", torch.zeros(1, self.grid**2, width))  # fixed sines and cosines
        self.times = nn.Sequential(nn.Linear(_FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width))
        self.classes = nn.Embedding(config.num_classes + 1, width)  # and the null class of guidance
        self.blocks = nn.ModuleList(Block(width, config.num_heads) for _ in range(config.num_layers))
        self.modulation = Modulation(width, 2)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.head = nn.Linear(width, config.patch**2 * 2 * config.channels)

    def forward(self, latents: Tensor, times: Tensor, classes: Tensor) -> Tensor:
        half = _FREQUENCIES // 2
        rates = torch.exp(-math.log(10_000) / half * torch.arange(half, device=times.device))
        angles = times[:, None].float() * rates
        condition = self.times(torch.cat((angles.cos(), angles.sin()), -1)) + self.classes(classes)
        x = self.patches(latents).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x, condition)
        shift, scale = self.modulation(condition)
        y = self.head(self.norm(x) * (1 + scale) + shift)
        y = y.view(y.shape[0], self.grid, self.grid, self.patch, self.patch, -1).permute(0, 5, 1, 3, 2, 4)
        return y.reshape(y.shape[0], y.shape[1], self.grid * self.patch, -1)


def build(name: str, config: Config, assumed: tuple[str, ...] = ()) -> ModelSpec:
    """Return the specification of a DiT of this shape."""

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        return DiT(replace(config, num_layers=num_layers["blocks"]))

    image = (config.side, config.side)
    return ModelSpec(
        name=name,
        make=make,
        inputs=(
            InputSpec("latents", (config.channels, *image)),
            InputSpec("times", (), "int64"),
            InputSpec("classes", (), "int64"),
        ),
        targets=(InputSpec("noise", (2 * config.channels, *image)),),
        loss=functional.mse_loss,
        default_optimizer="adam",
        default_precision="tf32",
        stacks={"blocks": config.num_layers},
        assumed=assumed,
    )


def build_dit_xl_2() -> ModelSpec:
    """Return DiT-XL/2 on latents of 256 x 256 images; the autoencoder that makes the latents is not part of it."""
    return build(
        "dit_xl_2", Config(), ("dit_xl_2: squared error of all output channels in place of the variance's bound",)
    )
