"""submesh: boards of a HammingMesh whose rows share their columns, a HammingMesh by themselves."""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import FabricConfig
from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fleet.allocators.allocator import (
    OPTIONS,
    Allocator,
    AllocatorConfig,
    Room,
    consecutive_units,
    refuse_fabric,
)
from rostam_py.fleet.allocators.board_mesh import BoardMesh, SubMesh
from rostam_py.fleet.allocators.shapes import aspect_ratio, boxes, least_box_number
from rostam_py.fleet.allocators.upper_levels import LeafBoards, all_to_all_share, columns_on_fewest_leaves

MOST_ASPECT = 8


@dataclass(kw_only=True)
class SubmeshConfig(AllocatorConfig):
    """How sub-meshes are searched.

    transpose: u x v boards may also be v x u. aspect_ratio: rows over columns, or columns over rows, up to which a job
    may take other factors of its boards than the squarest; 1 takes the squarest alone. locality: of all sub-meshes that
    the search finds, the one with the least traffic over upper levels of row and column networks, not the first.
    exhaustive: finds a sub-mesh wherever there is one, for meshes of a few rows.
    """

    transpose: bool = True
    aspect_ratio: int = 1
    locality: bool = False
    exhaustive: bool = False

    def __post_init__(self) -> None:
        AllocatorConfig.__post_init__(self)
        if not is_integer(self.aspect_ratio) or not 1 <= int(self.aspect_ratio) <= MOST_ASPECT:
            raise ConfigError(
                f"{OPTIONS}.aspect_ratio is {self.aspect_ratio!r}; it must be an integer from 1 to {MOST_ASPECT}"
            )
        if self.locality and self.exhaustive:
            raise ConfigError(f"{OPTIONS}.locality and .exhaustive are both true; they choose differently, take one")


class Submesh(Allocator):
    """Boards of a HammingMesh: rows with common free columns, searched greedily (section IV-A).

    Model: a job of n boards asks for u x v, u <= v, with the squarest exact factors of n that fit; where n has none,
        boards up to the next number that has some stay idle. Ranks are numbered as those of a HammingMesh of v x u
        boards: rings run over the sub-mesh's own networks, which no other job uses. Where its boards are on several
        leaves of a tree, paths are longer by the upper levels' latency; a job of one board in a row or column has no
        cable that wraps it, as a machine of that one board may have.
    Source: HammingMesh, sections IV-A and IV-B.
    """

    Config: ClassVar[type[AllocatorConfig]] = SubmeshConfig
    unit_name: ClassVar[str] = "boards of"
    place_name: ClassVar[str] = "sub-mesh of free boards"
    config: SubmeshConfig

    @classmethod
    def is_made_for(cls, fabric: FabricConfig) -> bool:
        """Return whether it is one."""
        return isinstance(fabric, HammingMeshConfig)

    def __init__(self, config: Any, room: Room) -> None:
        if not isinstance(room.fabric, HammingMeshConfig):
            raise refuse_fabric("submesh", room.fabric, "a HammingMesh")
        x, y = room.fabric.boards
        rows, columns = room.fabric.dimensions
        self.leaves = LeafBoards(rows.leaf_boards, columns.leaf_boards)
        self._board_size = math.prod(room.fabric.board)
        super().__init__(config, room)
        self.mesh = BoardMesh(self.is_free.reshape(y, x))

    def find(self, asked: tuple[int, int]) -> SubMesh | None:
        """Return a sub-mesh of free boards for a job that asks for rows and columns, by the settings; None for none."""
        candidates = self._candidates(asked)
        return self._most_local(candidates) if self.config.locality else next(candidates, None)

    def take_shape(self, asked: tuple[int, int]) -> SubMesh | None:
        """Take a sub-mesh for a job that asks for rows and columns; None, and nothing taken, where none is left."""
        found = self.find(asked)
        if found is not None:
            self._mark(found.boards(self.mesh.shape[1]), False)
        return found

    def copy(self) -> Self:
        """Return a copy, with a board mesh of its own."""
        new = super().copy()
        new.mesh = copy.copy(self.mesh)
        new.mesh.free_columns = self.mesh.free_columns[:]
        return new

    def _most_local(self, candidates: Iterator[SubMesh]) -> SubMesh | None:
        """Return the first with the least share of traffic over upper levels."""
        best, least = None, math.inf
        for found in candidates:
            share = all_to_all_share(found, self.leaves)
            if share < least:
                best, least = found, share
            if not least:
                break
        return best

    def _candidates(self, asked: tuple[int, int]) -> Iterator[SubMesh]:
        """Yield what the search finds, shape by shape: of each start with locality, else one a shape."""
        for rows, columns in job_shapes(asked, self.mesh.shape, self.config):
            if self.config.locality:
                for chosen, common in self.mesh.row_sets(rows, columns):
                    yield SubMesh(chosen, columns_on_fewest_leaves(common, columns, self.leaves.along_row))
                continue
            search = self.mesh.find_exhaustively if self.config.exhaustive else self.mesh.find
            found = search(rows, columns)
            if found is not None:
                yield found

    def _choose(self, num_units: int) -> np.ndarray | None:
        number = least_box_number(num_units, self.mesh.shape)
        if number is None or number > self.num_free:
            return None
        rows, columns = boxes(number, self.mesh.shape)[0]
        found = self.find((rows, columns))
        return None if found is None else found.boards(self.mesh.shape[1])

    def _units(self) -> np.ndarray:
        return consecutive_units(len(self.room.is_working), self._board_size)

    def _mark(self, units: np.ndarray, is_free: bool) -> None:
        super()._mark(units, is_free)
        places = np.divmod(units, self.mesh.shape[1])
        found = SubMesh(*(tuple(np.unique(along).tolist()) for along in places))
        self.mesh.mark(found, is_free=is_free)


def job_shapes(asked: tuple[int, int], room: tuple[int, int], config: SubmeshConfig) -> list[tuple[int, int]]:
    """Return the rows and columns that a job may take, in the order in which they are tried.

    Model: what it asks for, its transpose, then other factors within the aspect ratio, the squarest first; without
        transpose only those that lie the way the job asks.
    """
    rows, columns = asked
    squarest = [(sides[0], sides[1]) for sides in boxes(rows * columns, room)]
    others = [sides for sides in squarest if aspect_ratio(sides) <= config.aspect_ratio]
    tried = dict.fromkeys([asked, (columns, rows), *others])
    if not config.transpose:
        tried = dict.fromkeys(sides for sides in tried if sides == asked or (sides[0] < sides[1]) == (rows < columns))
    return [(u, v) for u, v in tried if u <= room[0] and v <= room[1]]
