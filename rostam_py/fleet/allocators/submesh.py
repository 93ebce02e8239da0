"""submesh: boards of a HammingMesh whose rows share their columns, a HammingMesh by themselves."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError
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

    Model: a job of n boards is u x v, u <= v, with the squarest exact factors of n that fit; where n has none, boards
        up to the next number that has some stay idle. Ranks are numbered as those of a HammingMesh of v x u boards:
        rings run over the sub-mesh's own networks, which no other job uses.
    Source: HammingMesh, sections IV-A and IV-B.
    """

    Config: ClassVar[type[AllocatorConfig]] = SubmeshConfig
    unit_name: ClassVar[str] = "boards of"
    place_name: ClassVar[str] = "sub-mesh of free boards"
    config: SubmeshConfig

    def __init__(self, config: Any, room: Room) -> None:
        if not isinstance(room.fabric, HammingMeshConfig):
            raise refuse_fabric("submesh", room.fabric, "a HammingMesh")
        x, y = room.fabric.boards
        rows, columns = room.fabric.dimensions
        self.leaves = LeafBoards(rows.leaf_boards, columns.leaf_boards)
        self._board_size = math.prod(room.fabric.board)
        super().__init__(config, room)
        self.mesh = BoardMesh(self.is_free.reshape(y, x))

    def find(self, num_boards: int) -> SubMesh | None:
        """Return a sub-mesh of exactly as many free boards, by the settings; None for none."""
        candidates = self._candidates(num_boards)
        return self._most_local(candidates) if self.config.locality else next(candidates, None)

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

    def _candidates(self, num_boards: int) -> Iterator[SubMesh]:
        """Yield what the search finds, the squarest first: of each start with locality, else one a shape."""
        for rows, columns in job_shapes(num_boards, self.mesh.shape, self.config):
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
        found = None if number is None else self.find(number)
        return None if found is None else found.boards(self.mesh.shape[1])

    def _units(self) -> np.ndarray:
        return consecutive_units(len(self.room.is_working), self._board_size)

    def _mark(self, units: np.ndarray, is_free: bool) -> None:
        super()._mark(units, is_free)
        places = np.divmod(units, self.mesh.shape[1])
        found = SubMesh(*(tuple(np.unique(along).tolist()) for along in places))
        self.mesh.mark(found, is_free=is_free)


def job_shapes(num_boards: int, room: tuple[int, int], config: SubmeshConfig) -> list[tuple[int, int]]:
    """Return the rows and columns that a job may take, in the order in which they are tried.

    Model: the squarest factors that fit, rows <= columns unless only the other way fits; their transpose; then other
        factors within the aspect ratio.
    """
    fitting = [(sides[0], sides[1]) for sides in boxes(num_boards, room)]
    if not fitting:
        return []
    least = aspect_ratio(fitting[0])
    allowed = [one for one in fitting if aspect_ratio(one) <= max(least, config.aspect_ratio)]
    if config.transpose:
        return allowed
    kept: dict[frozenset[int], tuple[int, int]] = {}
    for one in allowed:
        kept.setdefault(frozenset(one), one)
    return list(kept.values())
