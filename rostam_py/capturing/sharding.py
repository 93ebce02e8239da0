"""FSDP2's sharding of parameters: pieces are made as they are asked for.

Model: FSDP2 splits each parameter into as many pieces as there are ranks and takes two of them, the rank's own and the
first. On 16,384 ranks the others, each an op of its own, are almost all of what setting up a model costs. The pieces
taken are torch's own, and no step splits so: rows are the same.
"""

import importlib
from collections.abc import Sequence
from typing import Any

import torch

from rostam_py.capturing.replacing import replace

_SHARDING = "torch.distributed.fsdp._fully_shard._fsdp_common"
_SPLIT = "_chunk_with_empty"


class Pieces(Sequence[torch.Tensor]):
    """What torch.chunk makes of a tensor, with empty ones of one dimension after the last up to ``count``."""

    def __init__(self, tensor: torch.Tensor, count: int, dim: int) -> None:
        self._tensor, self._count, self._dim = tensor, count, dim
        self._length = tensor.size(dim)
        self._most = -(-self._length // count)  # of a piece: torch.chunk rounds up, and the last ones are short

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[k] for k in range(self._count)[place]]
        start = range(self._count)[place] * self._most
        if start < self._length or self._length == 0:
            return self._tensor.narrow(self._dim, start, min(self._most, self._length - start))
        return self._tensor.new_empty(0)


def install_sharding() -> None:
    """Let FSDP2 split parameters into ``Pieces``."""
    module = importlib.import_module(_SHARDING)
    importlib.import_module("torch.distributed.fsdp._fully_shard._fsdp_param")  # takes the name that is replaced
    replace(getattr(module, _SPLIT), _SPLIT, Pieces)
