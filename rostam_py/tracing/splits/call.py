"""What split rules see (a call's shapes and arguments) and what they return."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rostam_py.graph import WHOLE, Halo

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands in ``SplitCall.args`` for the tensor at this place of ``SplitCall.inputs``."""

    index: int


@dataclass(frozen=True, slots=True)
class SplitCall:
    """An op call as split rules see it.

    args, kwargs: the call's, with Slots for tensors. inputs: shape of each tensor argument.
    outputs: shape of each recorded output; positions: their places in the op's returns.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    positions: tuple[int, ...]
    is_pointwise: bool = False

    def argument(self, position: int, default: Any = None) -> Any:
        """Return a positional argument, or ``default`` where the call leaves it out."""
        return self.args[position] if position < len(self.args) else default

    def slot(self, position: int) -> int | None:
        """Return the input index of the tensor at argument ``position``, None if it is no tensor."""
        argument = self.argument(position)
        return argument.index if isinstance(argument, Slot) else None

    def dims(self, by_argument: Mapping[int, int | None]) -> tuple[int | None, ...]:
        """Return input dims (Op.inputs order) from dims by argument position; others WHOLE."""
        dims: list[int | None] = [WHOLE] * len(self.inputs)
        for position, dim in by_argument.items():
            slot = self.slot(position)
            if slot is not None:
                dims[slot] = dim
        return tuple(dims)

    def results(self, by_return: Mapping[int, int | None]) -> tuple[int | None, ...]:
        """Return output dims (Op.outputs order) from dims by place among the op's returns; others WHOLE."""
        return tuple(by_return.get(position, WHOLE) for position in self.positions)


@dataclass(frozen=True, slots=True)
class RawPart:
    """A Part at one batch size; see ``graph.Part``."""

    outer: int = 1
    start: int = 0
    length: int = 0


@dataclass(frozen=True, slots=True)
class RawSplit:
    """A Split at one batch size; see ``graph.Split``."""

    kind: str
    input_dims: tuple[int | None, ...]
    output_dims: tuple[int | None, ...]
    size: int
    comm_kind: str = ""
    comm_bytes: int = 0
    input_parts: tuple[RawPart | None, ...] = ()
    output_parts: tuple[RawPart | None, ...] = ()
    halos: tuple[Halo, ...] = ()


Rule = Callable[[SplitCall], list[RawSplit]]
