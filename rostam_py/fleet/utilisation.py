"""Utilisation: what share of a HammingMesh's boards mixes of jobs take, and what of their traffic upper levels carry.

Example:
    filled = fill_draws(HammingMeshConfig(board=(2, 2), boards=(16, 16)), Draws("n^-2", 0.15), {"transpose": False})
    [one.utilisation for one in filled]
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostam_py.checks import check_seed
from rostam_py.errors import ConfigError
from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fleet.allocators import Room
from rostam_py.fleet.allocators.board_mesh import SubMesh
from rostam_py.fleet.allocators.shapes import boxes
from rostam_py.fleet.allocators.submesh import Submesh
from rostam_py.fleet.allocators.upper_levels import all_to_all_share, ring_share
from rostam_py.fleet.job_sizes import draw_mixes

Shape = tuple[int, int]
# Which way up jobs ask for their boards.
WAYS = {
    "flat": "at most as many rows as columns", "upright": "at most as many columns as rows",
    "either": "one of both, drawn evenly",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Filled:
    """A machine after a mix. placed: of every job its sub-mesh, None where none was left. num_working: boards."""

    placed: tuple[SubMesh | None, ...]
    num_working: int
    allocator: Submesh

    @property
    def utilisation(self) -> float:
        """Boards that jobs hold over boards that work."""
        return sum(_num_boards(found) for found in self.placed if found) / self.num_working

    @property
    def all_to_all_share(self) -> float:
        """Share of all-to-all crossings that leave their leaf: mean over jobs of several boards, by their boards."""
        return self._mean(all_to_all_share)

    @property
    def ring_share(self) -> float:
        """Share of the rings' steps between boards that leave their leaf: mean as of ``all_to_all_share``."""
        return self._mean(ring_share)

    def _mean(self, share: Any) -> float:
        jobs = [found for found in self.placed if found and _num_boards(found) > 1]
        weights = sum(_num_boards(found) for found in jobs)
        return sum(_num_boards(found) * share(found, self.allocator.leaves) for found in jobs) / max(1, weights)


@dataclass(frozen=True, slots=True)
class Draws:
    """Mixes that are drawn for a machine.

    family: of job sizes. largest_share: the largest job over all boards, rounded down; at most the boards that work.
    way: one of WAYS. num_failed: boards that have failed, others in each draw. num_draws: mixes. seed: of all.
    """

    family: str
    largest_share: float
    way: str = "upright"
    num_failed: int = 0
    num_draws: int = 60
    seed: int = 0


def fill_draws(fabric: HammingMeshConfig, draws: Draws, options: Mapping[str, Any]) -> list[Filled]:
    """Fill an empty machine with each of the drawn mixes, which ask for all boards that work.

    Args: options: fields of SubmeshConfig. Equal draws are of equal jobs, whatever the options.
    Raises: ConfigError as ``draw_mixes``, ``asked_shapes`` and ``draw_failed_boards``.
    """
    x, y = fabric.boards
    num_working = x * y - draws.num_failed
    mixes = draw_mixes(
        draws.family, num_boards=num_working, largest=min(int(draws.largest_share * x * y), num_working), room=(y, x),
        num_mixes=draws.num_draws, seed=draws.seed,
    )  # fmt: skip
    filled = []
    for draw, mix in enumerate(mixes):
        failed = draw_failed_boards(x * y, draws.num_failed, draws.seed, draw)
        shapes = asked_shapes(mix, (y, x), draws.way, draws.seed, draw)
        filled.append(fill_mesh(fabric, shapes, options, failed))
    return filled


def fill_mesh(
    fabric: HammingMeshConfig, mix: Sequence[Shape], options: Mapping[str, Any], failed: Sequence[int] = ()
) -> Filled:
    """Place the jobs of a mix on an empty machine, one after the other; a job without a place is left out.

    Args: mix: rows and columns that each job asks for [boards]. options: fields of SubmeshConfig. failed: boards.
    Raises: ConfigError for unknown or bad options, and boards that there are not.
    """
    x, y = fabric.boards
    size = math.prod(fabric.board)
    for board in failed:
        if not 0 <= board < x * y:
            raise ConfigError(f"failed names board {board}; the machine has 0 to {x * y - 1}")
    is_working = np.ones(x * y, dtype=bool)
    is_working[list(failed)] = False
    each = np.repeat(is_working, size)
    allocator = Submesh(Submesh.Config(**options), Room(fabric, each, np.zeros_like(each)))
    order = list(range(len(mix)))
    if allocator.config.largest_first:
        order.sort(key=lambda k: -math.prod(mix[k]))
    placed: list[SubMesh | None] = [None] * len(mix)
    for k in order:
        placed[k] = allocator.take_shape(mix[k])
    return Filled(tuple(placed), int(is_working.sum()), allocator)


def asked_shapes(mix: Sequence[int], room: Shape, way: str, seed: int = 0, draw: int = 0) -> list[Shape]:
    """Return rows and columns of jobs by their boards: the squarest exact factors that fit, laid one way.

    Args: mix: boards of each job. room: rows and columns of boards. way: one of WAYS. seed, draw: of "either".
    Raises: ConfigError for an unknown way, or a number of boards without factors that fit.
    """
    if way not in WAYS:
        raise ConfigError(f"way is {way!r}; it must be one of: {', '.join(WAYS)}")
    rng = np.random.default_rng([check_seed("seed", seed), draw, *b"ways of jobs"])
    is_upright = rng.random(len(mix)) < {"flat": 0.0, "upright": 1.0, "either": 0.5}[way]
    shapes = []
    for size, turn in zip(mix, is_upright, strict=True):
        fitting = boxes(size, room)
        if not fitting:
            raise ConfigError(f"a job asks for {size} boards, which no block of {room[0]} x {room[1]} boards holds")
        rows, columns = sorted(fitting[0])
        shapes.append((columns, rows) if turn else (rows, columns))
    return shapes


def draw_failed_boards(num_boards: int, num_failed: int, seed: int, draw: int) -> list[int]:
    """Return failed boards, each equally likely, ascending; every draw of a seed has its own."""
    if not 0 <= num_failed < num_boards:
        raise ConfigError(f"num_failed is {num_failed}; it must be from 0 to {num_boards - 1}")
    rng = np.random.default_rng([check_seed("seed", seed), draw, *b"failed boards"])
    return sorted(rng.choice(num_boards, num_failed, replace=False).tolist())


def _num_boards(found: SubMesh) -> int:
    return len(found.rows) * len(found.columns)
