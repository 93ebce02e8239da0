"""How one tensor lies over a tensor-parallel group, and how a split's axis carries a layout from tensor to tensor.

States: WHOLE (every member holds it), PARTIAL (every member holds a summand), FREE (a weight whose split no op has
asked for yet), or a Shard: one dimension cut into stretches, of each of which every member holds an even part. One
stretch is the plain split; three serve a fused query, key and value by thirds, as many as samples a merged batch and
head.

Example: 12 rows over 2 members: Shard(0, 1, (12,)) gives member 0 rows 0-5, Shard(0, 3, (4,)) rows 0-1, 4-5, 8-9.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rostam_py.graph import PARTIAL, WHOLE, Affine, Part, Split

FREE = -2
MAX_PADDING = 0.01  # share of an axis that padding may add, e.g. vocabulary 50,257 to 50,264 for 8
_MOST_STRETCHES = 4096  # of an axis that is cut or joined: above, the cut is not followed


class Stretches(NamedTuple):
    """An axis as stretches of ``sizes`` entries, all of them ``repeat`` times over."""

    repeat: int
    sizes: tuple[int, ...]

    @property
    def num_stretches(self) -> int:
        """Number of stretches."""
        return self.repeat * len(self.sizes)

    @property
    def is_plain(self) -> bool:
        """Whether the axis is one stretch."""
        return self.num_stretches == 1


class Shard(NamedTuple):
    """A tensor split along ``dim``, which is stretches of ``sizes`` entries, all of them ``repeat`` times over."""

    dim: int
    repeat: int
    sizes: tuple[int, ...]

    @property
    def stretches(self) -> Stretches:
        """The dimension's stretches."""
        return Stretches(self.repeat, self.sizes)


State = int | Shard | None


def local_extent(extent: float, degree: int) -> int:
    """Return one member's part of an axis, padding included."""
    return math.ceil(round(extent) / degree)


def is_divisible(extent: float, degree: int) -> bool:
    """Tell whether an axis can be split ``degree`` ways, with at most MAX_PADDING of padding."""
    size = round(extent)
    return size >= degree and local_extent(size, degree) * degree <= size * (1 + MAX_PADDING)


def plain(extent: int) -> Stretches:
    """Return an axis of one stretch."""
    return Stretches(1, (extent,))


def joined(sizes: Sequence[int]) -> Stretches:
    """Return consecutive stretches in their shortest form."""
    for period in range(1, len(sizes)):
        if len(sizes) % period == 0 and tuple(sizes[:period]) * (len(sizes) // period) == tuple(sizes):
            return Stretches(len(sizes) // period, tuple(sizes[:period]))
    return Stretches(1, tuple(sizes))


class Place(NamedTuple):
    """Where an axis lies in one tensor: its dimension is ``outer`` x axis[start : start + length] x ``inner``."""

    dim: int
    outer: int
    start: int
    length: int
    inner: int

    def state(self, axis: Stretches, size: int) -> State:
        """Return the tensor's state if the axis, of ``size`` entries, is split so; PARTIAL if it cannot be named."""
        if self.length != size:
            cut = _cut(axis, self.start, self.length)
            if cut is None:
                return PARTIAL
            axis = cut
        return Shard(self.dim, self.outer * axis.repeat, tuple(n * self.inner for n in axis.sizes))

    def axis(self, state: Shard) -> Stretches | None:
        """Return how a tensor's state splits this place's stretch of the axis, None if it does not."""
        if state.dim != self.dim or state.repeat % self.outer or any(n % self.inner for n in state.sizes):
            return None
        return Stretches(state.repeat // self.outer, tuple(n // self.inner for n in state.sizes))


def _cut(axis: Stretches, start: int, length: int) -> Stretches | None:
    """Return the whole stretches between start and start + length, None if one is cut."""
    if axis.num_stretches > _MOST_STRETCHES:
        return None
    found, place = [], 0
    for size in axis.sizes * axis.repeat:
        if start <= place and place + size <= start + length:
            found.append(size)
        elif place + size > start and place < start + length:
            return None
        place += size
    return joined(found) if found else None


class SplitAxis(NamedTuple):
    """A Split at one batch: its axis and the place of it in every input and output (WHOLE or PARTIAL where none)."""

    split: Split
    size: int
    inputs: tuple[Place | None, ...]
    outputs: tuple[Place | int | None, ...]

    def is_legal(self, axis: Stretches, degree: int) -> bool:
        """Tell whether every stretch divides; a single one may be padded if no halos cross its borders.

        Halos come from the next members alone: a part is no thinner than they are.
        """
        if self.split.halos and not self._holds_halos(axis, degree):
            return False
        if axis.is_plain:
            return is_divisible(axis.sizes[0], degree)
        return all(size % degree == 0 for size in axis.sizes)

    def _holds_halos(self, axis: Stretches, degree: int) -> bool:
        if not axis.is_plain or axis.sizes[0] % degree:
            return False
        for halo in self.split.halos:
            place = self.inputs[halo.place]
            if place is None or place.outer * place.length * place.inner < degree * max(halo.before, halo.after):
                return False
        return True

    def wanted(self, axis: Stretches) -> tuple[State, ...] | None:
        """Return the states the op wants of its inputs, None if a cut goes through a stretch."""
        states = tuple(WHOLE if p is None else p.state(axis, self.size) for p in self.inputs)
        return None if PARTIAL in states else states

    def made(self, axis: Stretches) -> tuple[State, ...] | None:
        """Return the states of the op's outputs, None if a cut goes through a stretch."""
        states: list[State] = []
        for place in self.outputs:
            if not isinstance(place, Place):
                states.append(place)
                continue
            state = place.state(axis, self.size)
            if state == PARTIAL:
                return None
            states.append(state)
        return tuple(states)

    def driven(self, held: Sequence[State], hint: Stretches | None = None) -> list[Stretches]:
        """Return how the inputs, split as they are, ask the axis to be split; none if no input is split along it.

        Args: hint: how a related op splits the axis, for entries that no input has (the gradient of a slice).
        """
        found: list[Stretches] = []
        pieces: list[tuple[int, int, Stretches]] = []
        for place, state in zip(self.inputs, held, strict=True):
            if place is None or not isinstance(state, Shard):
                continue
            axis = place.axis(state)
            if axis is None:
                continue
            if place.length == self.size:
                found.append(axis)
            else:
                pieces.append((place.start, place.length, axis))
        if pieces:
            whole = self._assembled(pieces, hint)
            found += [] if whole is None else [whole]
        return list(dict.fromkeys(found))

    def _assembled(self, pieces: list[tuple[int, int, Stretches]], hint: Stretches | None) -> Stretches | None:
        """Return the stretches of the axis from those of pieces; gaps are a stretch each, or as the hint has them."""
        if hint is not None and all(_cut(hint, start, length) == axis for start, length, axis in pieces):
            return hint
        sizes: list[int] = []
        end = 0
        for start, length, axis in sorted(pieces):
            if start < end or axis.num_stretches > _MOST_STRETCHES:
                return None
            sizes += [start - end] if start > end else []
            sizes += axis.sizes * axis.repeat
            end = start + length
        sizes += [self.size - end] if end < self.size else []
        return joined(sizes)


def resolve(split: Split, shapes: Sequence[tuple[int, ...]], num_inputs: int, batch: float) -> SplitAxis:
    """Return a split at a batch. Args: shapes: of the op's inputs, then of its outputs."""
    size = round(split.size.at(batch))
    dims = (*split.input_dims, *split.output_dims)
    parts = (
        *(split.input_parts or (None,) * num_inputs),
        *(split.output_parts or (None,) * (len(dims) - num_inputs)),
    )
    places: list[Place | int | None] = []
    for dim, part, shape in zip(dims, parts, shapes, strict=True):
        places.append(dim if dim is None or dim < 0 else _place(dim, part, shape[dim], size, batch))
    return SplitAxis(split, size, tuple(places[:num_inputs]), tuple(places[num_inputs:]))  # type: ignore[arg-type]


def _place(dim: int, part: Part | None, extent: int, size: int, batch: float) -> Place:
    if part is None:
        return Place(dim, 1, 0, size, max(1, extent // size))
    outer, start, length = (round(_at(value, batch)) for value in (part.outer, part.start, part.length))
    return Place(dim, outer, start, length or size, max(1, extent // (outer * (length or size))))


def _at(quantity: Affine, batch: float) -> float:
    return quantity.at(batch)
