"""LoadedModule: a module from outside the registry, with what its file says of a training step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from rostam_py.tracing.batches import Examples


@dataclass(frozen=True)
class LoadedModule:
    """A module and how it is trained.

    inputs: for two batches. loss: None for the module's own. optimizer, precision: None for those of any user's module.
    notes: of the graph.
    """

    name: str
    module: nn.Module
    inputs: Examples
    loss: Callable[..., Any] | None
    optimizer: str | None = None
    precision: str | None = None
    sequence_length: int = 0
    notes: tuple[str, ...] = ()
