"""DLRM with a low-rank DCNv2 interaction, in plain torch.nn.

Source: the MLPerf DLRM-DCNv2 table set (Criteo 1 TB multi-hot), quoted from memory: MODEL J26 calls
it dcnv2-like and assumed. Gradients of the tables are dense, as plain autograd makes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from rostam_py.models.spec import InputSpec, ModelSpec

TABLE_ROWS = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10,
    2_209, 11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36,
)  # fmt: skip
HOTNESS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)


@dataclass(kw_only=True, slots=True)
class Config:
    """Shape of a DLRM: one entry of ``table_rows`` and ``hotness`` a sparse feature."""

    table_rows: tuple[int, ...] = TABLE_ROWS
    hotness: tuple[int, ...] = HOTNESS
    dimension: int = 128
    num_dense: int = 13
    bottom: tuple[int, ...] = (512, 256, 128)
    top: tuple[int, ...] = (1024, 1024, 512, 256, 1)
    cross_layers: int = 3
    cross_rank: int = 512


def _mlp(sizes: Sequence[int], has_last_relu: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index, (size_in, size_out) in enumerate(zip(sizes, sizes[1:], strict=False)):
        layers.append(nn.Linear(size_in, size_out))
        if has_last_relu or index < len(sizes) - 2:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class CrossLayer(nn.Module):
    """x0 * (V U x + b) + x: one low-rank cross of DCNv2."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width)

    def forward(self, x0: Tensor, x: Tensor) -> Tensor:
        return x0 * self.up(self.down(x)) + x


class DLRM(nn.Module):
    """Dense features (B, 13) and one (B, hotness) id matrix a table, to a logit (B,)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.bottom = _mlp((config.num_dense, *config.bottom), has_last_relu=True)
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, config.dimension, mode="sum") for rows in config.table_rows)
        width = config.bottom[-1] + config.dimension * len(config.table_rows)
        self.cross = nn.ModuleList(CrossLayer(width, config.cross_rank) for _ in range(config.cross_layers))
        self.top = _mlp((width, *config.top), has_last_relu=False)

    def forward(self, dense: Tensor, *sparse: Tensor) -> Tensor:
        pooled = [table(ids) for table, ids in zip(self.tables, sparse, strict=True)]
        x0 = torch.cat([self.bottom(dense), *pooled], dim=1)
        x = x0
        for layer in self.cross:
            x = layer(x0, x)
        return self.top(x).squeeze(1)


def build(name: str, config: Config, assumed: tuple[str, ...] = ()) -> ModelSpec:
    """Return the specification of a DLRM of this shape."""

    def make(num_layers: Mapping[str, int]) -> nn.Module:
        del num_layers
        return DLRM(config)

    sparse = tuple(InputSpec(f"ids_{index}", (hot,), "int64") for index, hot in enumerate(config.hotness))
    return ModelSpec(
        name=name,
        make=make,
        inputs=(InputSpec("dense", (config.num_dense,)), *sparse),
        targets=(InputSpec("clicks", ()),),
        loss=functional.binary_cross_entropy_with_logits,
        default_optimizer="sgd",
        default_precision="fp32",
        assumed=assumed,
    )


def build_dlrm() -> ModelSpec:
    """Return the dcnv2-like DLRM of MODEL J26."""
    return build("dlrm", Config(), ("dlrm: tables and layers are assumed, dcnv2-like (MODEL J26)",))
