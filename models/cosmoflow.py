"""CosmoFlow: five 3-D convolutions and three linear layers that regress four parameters.

Source: Mathuriya et al. 2018 as in MLPerf HPC: 4 x 128^3 voxels, filters 32 to 512, kernel 3, pool 2.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.spec import InputSpec, ModelSpec


@dataclass(kw_only=True, slots=True)
class Config:
    """Shape of a CosmoFlow network; ``side`` must be divisible by 2 ** len(filters)."""

    side: int = 128
    channels: int = 4
    filters: tuple[int, ...] = (32, 64, 128, 256, 512)
    hidden: tuple[int, ...] = (128, 64)
    num_outputs: int = 4


class CosmoFlow(nn.Module):
    """Voxels (B, 4, side, side, side) to parameters (B, 4)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        sizes = (config.channels, *config.filters)
        self.convolutions = nn.ModuleList(
            nn.Conv3d(size_in, size_out, 3, padding=1) for size_in, size_out in zip(sizes, sizes[1:], strict=False)
        )
        side = config.side // 2 ** len(config.filters)
        widths = (side**3 * config.filters[-1], *config.hidden, config.num_outputs)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False))

    def forward(self, x: Tensor) -> Tensor:
        for convolution in self.convolutions:
            x = functional.max_pool3d(functional.leaky_relu(convolution(x)), 2)
        x = torch.flatten(x, 1)
        for layer in self.layers[:-1]:
            x = functional.leaky_relu(layer(x))
        return torch.tanh(self.layers[-1](x))


def build(name: str, config: Config) -> ModelSpec:
    """Return the specification of a CosmoFlow network of this shape."""

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        del num_layers
        return CosmoFlow(config)

    return ModelSpec(
        name=name,
        make=make,
        inputs=(InputSpec("voxels", (config.channels,) + (config.side,) * 3),),
        targets=(InputSpec("parameters", (config.num_outputs,)),),
        loss=functional.mse_loss,
        default_optimizer="momentum",
        default_precision="fp32",
    )


def build_cosmoflow() -> ModelSpec:
    """Return CosmoFlow at its published size."""
    return build("cosmoflow", Config())
