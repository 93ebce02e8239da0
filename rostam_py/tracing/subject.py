"""Subject: a module ready to be traced, with inputs that can be made at any batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rostam_py.errors import ConfigError
from rostam_py.models.spec import ModelSpec
from rostam_py.tracing.step import Layout


@dataclass(frozen=True)
class InputSlot:
    """One input tensor: shape, dtype, and the dim that is the batch (None: it has none).

    rows: of a sample along that dim, several images for each text say. label: what messages call it. is_open: it has no
    batch as nobody said that it has one.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    batch_dim: int | None = None
    rows: int = 1
    label: str = "an input"
    is_open: bool = False

    def at(self, batch: int) -> torch.Tensor:
        """Return the input at ``batch`` samples, a tensor of the current (fake) mode."""
        sizes = list(self.shape)
        if self.batch_dim is not None:
            sizes[self.batch_dim] = batch * self.rows
        return torch.empty(sizes, dtype=self.dtype, device="cpu")


@dataclass(frozen=True)
class ExpertLoad:
    """How tokens fill experts; see ``trace``."""

    capacity_factor: float | None = None
    imbalance: float = 1.0

    def __post_init__(self) -> None:
        for key, value, least in (("capacity_factor", self.capacity_factor, 0.0), ("imbalance", self.imbalance, 1.0)):
            if value is None and key == "capacity_factor":
                continue
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not least <= value < 1e6 or value == 0:  # type: ignore[operator]
                bound = ">= 1" if least else "> 0, or None"
                raise ConfigError(f"{key} is {value!r}; it must be a number {bound}")

    @property
    def notes(self) -> tuple[str, ...]:
        """Say where a load has no effect."""
        if self.imbalance == 1:
            return ()
        if self.capacity_factor is not None:
            return (f"imbalance {self.imbalance:g} changes nothing: capacity_factor gives every expert as many rows",)
        return (
            f"imbalance {self.imbalance:g} counts where experts are spread over ranks (strategy ep > 1): the busiest "
            "rank computes and receives more; experts of one rank compute the same together whatever it is",
        )


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is traced. slots: its input tensors; layout: where they stand in the calls of module and loss.

    is_guessed: the slots' batch dims are guesses. is_exported: the module is a torch.export program.
    folds: what repeats may be traced a few times only.
    """

    name: str
    module: nn.Module
    slots: tuple[InputSlot, ...]
    layout: Layout
    loss: Callable[..., Any] | None
    batches: tuple[int, int] = (2, 4)
    optimizer: str = "sgd"
    precision: str = "fp32"
    sequence_length: int = 0
    notes: tuple[str, ...] = ()
    experts: ExpertLoad = ExpertLoad()
    is_guessed: bool = False
    is_exported: bool = False
    folds: bool = False

    def inputs_at(self, batch: int) -> tuple[Any, ...]:
        """Return the step's inputs at ``batch`` samples."""
        return tuple(slot.at(batch) for slot in self.slots)

    @staticmethod
    def of_spec(
        spec: ModelSpec,
        depth: Mapping[str, int],
        build: bool = True,
        experts: ExpertLoad = ExpertLoad(),
    ) -> "Subject":
        """Return a registered model at a given depth, its weights on the meta device."""
        module = nn.Module()
        if build:
            with torch.device("meta"):
                module = spec.build(depth)
        inputs, targets = spec.example_inputs(1), spec.example_targets(1)
        return Subject(
            name=spec.name,
            module=module,
            slots=tuple(InputSlot(shape, getattr(torch, dtype), 0) for shape, dtype in (*inputs, *targets)),
            layout=Layout.positional(len(inputs), len(targets)),
            loss=spec.loss,
            optimizer=spec.default_optimizer,
            precision=spec.default_precision,
            sequence_length=spec.sequence_length,
            notes=tuple(f"assumed: {note}" for note in spec.assumed),
            experts=experts,
        )
