"""Convolutions as tiles of the products that compute them without copies.

Model: cuDNN's kernels compute tiles of the output, each over the whole contraction, whose operands they gather from the
level-two cache: (rows + columns) x contraction elements of each tile, an input as often as it is in a window. They
multiply whole tiles and whole groups of channels.
* Forward: outputs' positions by channels, over input channels and taps.
* The input's gradient: inputs' positions by input channels, over output channels and taps.
* The weight's: output channels by input channels and taps, over positions, which as many blocks share as leave no
  multiprocessor idle, and add up in fp32.
Ignores that blocks of a cluster may load an operand once for all of them, as cuDNN's names of its kernels on H100 show
none, and transforms (Winograd, FFT), which matrix units do without.
Source: NVIDIA, Convolutional Layers User's Guide ("virtual" GEMM dimensions, tensor core requirements) and Matrix
Multiplication Background User's Guide (tile quantization); OpenXLA, gpu_dot_fusion_cost_model.cc at ea1955d
(CalculateL2Bytes, CalculateL2Time), which times products so; sizes of tiles: names of cuDNN's kernels.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rostam_py.costs.kernel_kinds import GROUPED_STAGES

# Rows and columns of the tiles that cuDNN's convolutions on Ampere and Hopper are named for.
TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (64, 256), (256, 64), (128, 256), (256, 128))
_ALIGNED_BYTES = 16  # of channels, that one load takes
_FEW_CHANNELS = 4  # kernels of their own, which load the channels of a window's row at once
_SUM_BYTES = 2 * 4  # written and read, of a partial sum
FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = GROUPED_STAGES


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution's sizes and what of it a kernel computes.

    positions, inputs: of outputs and of inputs, all samples. outputs, channels: their channels. taps: of the filter.
    stages: names in GROUPED_STAGES. element_bytes: of an operand.
    """

    positions: float
    inputs: float
    outputs: float
    channels: float
    taps: float
    stages: tuple[str, ...]
    element_bytes: float


@dataclass(frozen=True, slots=True)
class Tiling:
    """One stage in tiles of one size: FLOPs of whole tiles, bytes through the level-two cache, outputs, contraction."""

    flops: float
    cache_bytes: float
    outputs: float
    contraction: float


def tilings(one: Convolution, stage: str, multiprocessors: int) -> Iterator[Tiling]:
    """Yield the ways to compute a stage, one for each size of tiles."""
    channels, outputs = _whole_groups(one.channels, one), _whole_groups(one.outputs, one)
    if stage == FORWARD:
        sizes = one.positions, outputs, channels * one.taps
    elif stage == INPUT_GRADIENT:
        sizes = one.inputs, channels, outputs * one.taps * one.positions / one.inputs
    else:
        sizes = outputs, channels * one.taps, one.positions
    height, width, contraction = sizes
    for rows, columns in TILES:
        tiles = math.ceil(height / rows) * math.ceil(width / columns)
        loaded = tiles * (rows + columns) * contraction * one.element_bytes
        pieces = math.ceil(multiprocessors / tiles) if stage == WEIGHT_GRADIENT else 1
        sums = pieces * height * width * _SUM_BYTES if pieces > 1 else 0.0
        yield Tiling(2.0 * tiles * rows * columns * contraction, loaded + sums, height * width, contraction)


def _whole_groups(channels: float, one: Convolution) -> float:
    """Return channels filled up to what a load takes; up to 4 to 4."""
    if channels <= _FEW_CHANNELS:
        return float(_FEW_CHANNELS)
    group = _ALIGNED_BYTES / one.element_bytes
    return math.ceil(channels / group) * group
