"""Vision Transformer: an image as 16 x 16 patches and a class token, through pre-norm blocks.

Shapes: B batch, C channels, P patch, D width, S tokens.
Source: Dosovitskiy et al. 2021, arXiv 2010.11929, table 1 (ViT-Large), patches of 16, images of 224 as for ImageNet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.gpt import Block
from rostam_py.models.spec import InputSpec, ModelSpec


@dataclass(kw_only=True, slots=True)
class Config:
    """Shape of a Vision Transformer."""

    num_layers: int = 24
    width: int = 1024
    num_heads: int = 16
    patch: int = 16
    image: int = 224
    num_classes: int = 1000


class VisionTransformer(nn.Module):
    """Images (B, 3, H, W) to logits (B, classes)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, config.width, config.patch, stride=config.patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.positions = nn.Parameter(torch.zeros(1, 1 + (config.image // config.patch) ** 2, config.width))
        blocks = (Block(config.width, config.num_heads, is_causal=False) for _ in range(config.num_layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.class_token.expand(x.shape[0], -1, -1), x), 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


def build(name: str, config: Config) -> ModelSpec:
    """Return the specification of a Vision Transformer of this shape."""

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        return VisionTransformer(replace(config, num_layers=num_layers["blocks"]))

    return ModelSpec(
        name=name,
        make=make,
        inputs=(InputSpec("images", (3, config.image, config.image)),),
        targets=(InputSpec("labels", (), "int64"),),
        loss=functional.cross_entropy,
        default_optimizer="adam",
        default_precision="bf16_mixed",
        stacks={"blocks": config.num_layers},
    )


def build_vit_large() -> ModelSpec:
    """Return ViT-L/16."""
    return build("vit_large", Config())
