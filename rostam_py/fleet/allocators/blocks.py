"""blocks: boxes of a torus, across its wrapped ends where need be."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rostam_py.fabrics.config import FabricConfig
from rostam_py.fabrics.torus import TorusConfig
from rostam_py.fleet.allocators.allocator import Allocator, Room, consecutive_units, refuse_fabric
from rostam_py.fleet.allocators.shapes import Sides, boxes, least_box_number


class Blocks(Allocator):
    """Boxes of a torus's boards, or of its accelerators where it has no boards.

    Model: a job of n boards takes the box of n that is nearest to a cube and has a place, at the first corner in
        row-major order; where no box of n fits the torus, boards up to the next number that has one stay idle. Ranks
        are numbered as those of a torus of the box's size; a box as long as the torus keeps its wrapped links, others
        are meshes. Paths within a box are shortest paths, so boxes of two jobs share no link, except where a box is
        longer than half of a dimension and its ends are nearer around.
    Source: own, tests/fleet/test_other_allocators.py searches all corners.
    """

    unit_name: ClassVar[str] = "boards of"
    place_name: ClassVar[str] = "box of free boards"

    @classmethod
    def is_made_for(cls, fabric: FabricConfig) -> bool:
        """Return whether it is one."""
        return isinstance(fabric, TorusConfig)

    def __init__(self, config: Any, room: Room) -> None:
        if not isinstance(room.fabric, TorusConfig):
            raise refuse_fabric("blocks", room.fabric, "a torus")
        dims = room.fabric.dims
        board = (1,) * len(dims) if room.fabric.board is None else room.fabric.board
        self.shape: Sides = tuple(size // part for size, part in zip(dims, board, strict=True))
        self._board_size = math.prod(board)
        super().__init__(config, room)

    def _units(self) -> np.ndarray:
        return consecutive_units(len(self.room.is_working), self._board_size)

    def _choose(self, num_units: int) -> np.ndarray | None:
        number = least_box_number(num_units, self.shape)
        if number is None or number > self.num_free:
            return None
        free = self.is_free.reshape(self.shape)
        for sides in boxes(number, self.shape):
            is_corner = _all_free(free, sides)
            if is_corner.any():
                return self._box(np.unravel_index(int(np.argmax(is_corner)), self.shape), sides)
        return None

    def _box(self, corner: Sequence[Any], sides: Sides) -> np.ndarray:
        """Return the units of a box, row-major from its corner on."""
        along = zip(corner, sides, self.shape, strict=True)
        places = [(start + np.arange(side)) % size for start, side, size in along]
        return np.ravel_multi_index(tuple(np.meshgrid(*places, indexing="ij")), self.shape).ravel()


def _all_free(free: np.ndarray, sides: Sides) -> np.ndarray:
    """Return, for each corner, whether all of the box from it on is free, bool array of the torus's sides."""
    found = free
    for axis, side in enumerate(sides):
        along = found
        for step in range(1, side):
            along = along & np.roll(found, -step, axis)
        found = along
    return found
