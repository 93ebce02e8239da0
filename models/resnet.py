"""ResNet-50, -101 and -152 with bottleneck blocks, for 224 x 224 images and 1,000 classes.

Source: He et al. 2015, Table 1; the stride sits in the 3 x 3 convolution, as in common practice.
"""

import functools
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.spec import InputSpec, ModelSpec

EXPANSION = 4


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1 convolutions around a residual connection."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        channels_out = channels * EXPANSION
        self.conv1 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.downsample = None
        if stride != 1 or channels_in != channels_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return functional.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Images (B, 3, H, W) to logits (B, classes)."""

    def __init__(self, depths: tuple[int, ...], num_classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        channels_in = 64
        for index, depth in enumerate(depths):
            channels = 64 * 2**index
            blocks = []
            for position in range(depth):
                stride = 2 if position == 0 and index > 0 else 1
                blocks.append(Bottleneck(channels_in, channels, stride))
                channels_in = channels * EXPANSION
            self.add_module(f"layer{index + 1}", nn.Sequential(*blocks))
        self.num_stages = len(depths)
        self.fc = nn.Linear(channels_in, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x))), 3, stride=2, padding=1)
        for index in range(self.num_stages):
            x = self.get_submodule(f"layer{index + 1}")(x)
        return self.fc(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))


def build(name: str, depths: tuple[int, ...], image: int = 224) -> ModelSpec:
    """Return the specification of a bottleneck ResNet with ``depths`` blocks a stage."""

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        del num_layers  # blocks differ from stage to stage: always built whole
        return ResNet(depths)

    return ModelSpec(
        name=name,
        make=make,
        inputs=(InputSpec("images", (3, image, image)),),
        targets=(InputSpec("labels", (), "int64"),),
        loss=functional.cross_entropy,
        default_optimizer="momentum",
        default_precision="fp16_mixed",
    )


build_resnet50 = functools.partial(build, "resnet50", (3, 4, 6, 3))
build_resnet101 = functools.partial(build, "resnet101", (3, 4, 23, 3))
build_resnet152 = functools.partial(build, "resnet152", (3, 8, 36, 3))
