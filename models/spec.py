"""ModelSpec: what a registered model declares besides its layers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One example input: its name, its shape behind the batch dimension, torch's dtype name."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model, the step around it and the defaults of its training.

    make: returns the module; takes the keyword ``num_layers``, a mapping from the path of a stack of
        equal blocks to the number of blocks wanted (used to trace few layers of a deep model).
    inputs, targets: what ``module(*inputs)`` and ``loss(output, *targets)`` take.
    at_length: returns the specification at another number of tokens of a sample; None where samples have none.
    stacks: path of each stack of equal blocks (a ModuleList) -> its number of blocks.
    periods: of stacks in which kinds of blocks alternate, path -> number of kinds.
    assumed: what the source leaves open and this model settles (MODEL J).
    """

    name: str
    make: Callable[..., Any]
    inputs: tuple[InputSpec, ...]
    targets: tuple[InputSpec, ...]
    loss: Callable[..., Any]
    default_optimizer: str = "sgd"
    default_precision: str = "fp32"
    sequence_length: int = 0
    stacks: Mapping[str, int] = field(default_factory=dict)
    periods: Mapping[str, int] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    at_length: "Callable[[int], ModelSpec] | None" = None

    def build(self, num_layers: Mapping[str, int] | None = None) -> Any:
        """Return the module; call it under ``torch.device("meta")`` to allocate nothing."""
        return self.make(num_layers={**self.stacks, **(num_layers or {})})

    def example_inputs(self, batch: int) -> list[tuple[tuple[int, ...], str]]:
        """Return (shape, dtype name) of each input of the module at ``batch`` samples."""
        return [((batch, *spec.shape), spec.dtype) for spec in self.inputs]

    def example_targets(self, batch: int) -> list[tuple[tuple[int, ...], str]]:
        """Return (shape, dtype name) of each target of the loss at ``batch`` samples."""
        return [((batch, *spec.shape), spec.dtype) for spec in self.targets]
