"""Shapes: the boxes of whole units that hold a number of them, the squarest first."""

import functools
import math

Sides = tuple[int, ...]


@functools.lru_cache(maxsize=65536)
def boxes(number: int, room: Sides) -> tuple[Sides, ...]:
    """Return every box of exactly ``number`` units within the room, the least longest side over shortest first.

    Model: of boxes that are alike except for the order of their sides, the one with the shortest sides first is first.
    """
    found = _boxes(number, room)
    return tuple(sorted(found, key=lambda sides: (max(sides) / min(sides), sorted(sides), sides)))


def _boxes(number: int, room: Sides) -> list[Sides]:
    if len(room) == 1:
        return [(number,)] if number <= room[0] else []
    return [
        (side, *others)
        for side in range(1, min(room[0], number) + 1)
        if number % side == 0
        for others in _boxes(number // side, room[1:])
    ]


@functools.lru_cache(maxsize=65536)
def least_box_number(number: int, room: Sides) -> int | None:
    """Return the least number of units, >= ``number``, that a box within the room holds; None for too many."""
    for larger in range(number, math.prod(room) + 1):
        if _boxes(larger, room):
            return larger
    return None


def aspect_ratio(sides: Sides) -> float:
    """Return the longest side over the shortest."""
    return max(sides) / min(sides)
