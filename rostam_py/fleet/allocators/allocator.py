"""Allocator: what all allocators share: units that are free or held, taken for a job and given back.

Legend: a unit is what jobs do not share: a host, or a board of the fabric's.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from rostam_py.checks import check_booleans
from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import FabricConfig

OPTIONS = "mix.allocation_options"


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """A machine as allocators see it.

    fabric: its parameters. is_working, is_taken: of every accelerator, bool arrays (accelerators,); taken ones belong
    to jobs that name them. host_size: accelerators of a host, which some allocators hand out whole. seed: of "random".
    """

    fabric: FabricConfig
    is_working: np.ndarray
    is_taken: np.ndarray
    host_size: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Given:
    """What one job holds: its accelerators by rank, and its units in their order, which may hold a few more."""

    accelerators: tuple[int, ...]
    units: tuple[int, ...]


@dataclass(kw_only=True)
class AllocatorConfig:
    """Settings of every allocator.

    largest_first: jobs that start together are placed by size, the largest first; otherwise in the order given.
    """

    largest_first: bool = False

    def __post_init__(self) -> None:
        check_booleans(OPTIONS, self)


class Allocator(ABC):
    """Hands out units of a machine; failed units, and those of accelerators that jobs name, are never given.

    Model: a job takes whole units, and of its last one the first accelerators.
    """

    Config: ClassVar[type[AllocatorConfig]] = AllocatorConfig
    unit_name: ClassVar[str] = "hosts of mix.host_size ="
    place_name: ClassVar[str] = "set of free hosts"

    def __init__(self, config: Any, room: Room) -> None:
        self.config = config
        self.room = room
        self.units = self._units()
        self.is_working = room.is_working[self.units].all(axis=1)
        self.is_free = self.is_working & ~room.is_taken[self.units].any(axis=1)

    @classmethod
    def is_made_for(cls, fabric: FabricConfig) -> bool:
        """Return whether it follows the shape of a fabric, so that it is what jobs there take if nothing is said."""
        return False

    @property
    def unit_words(self) -> str:
        """Units in words: "hosts of mix.host_size = 8 accelerators"."""
        return f"{self.unit_name} {self.units.shape[1]} accelerators"

    @property
    def num_free(self) -> int:
        """Units that are free."""
        return int(self.is_free.sum())

    def num_units(self, num_accelerators: int) -> int:
        """Return the units that hold so many accelerators."""
        return -(-num_accelerators // self.units.shape[1])

    def take(self, num_accelerators: int) -> Given | None:
        """Take units for a job; None, and nothing taken, where no place is left."""
        chosen = self._choose(self.num_units(num_accelerators))
        if chosen is None:
            return None
        units = np.asarray(chosen, dtype=np.int64)
        self._mark(units, False)
        ids = self.units[units].reshape(-1)[:num_accelerators]
        return Given(tuple(ids.tolist()), tuple(units.tolist()))

    def give_back(self, given: Given) -> None:
        """Free what a job holds."""
        self._mark(np.array(given.units, dtype=np.int64), True)

    def take_again(self, given: Given) -> None:
        """Take what a job held before, which is free."""
        self._mark(np.array(given.units, dtype=np.int64), False)

    def copy(self) -> Self:
        """Return an allocator with the same units free, of which taking and giving back leave this one as it is."""
        new = copy.copy(self)
        new.is_free = self.is_free.copy()
        return new

    @abstractmethod
    def _choose(self, num_units: int) -> Sequence[int] | np.ndarray | None:
        """Return free units in the order of the job's ranks; None where no place is left."""

    def _units(self) -> np.ndarray:
        """Return the accelerators of every unit, int array (units, accelerators of a unit)."""
        return consecutive_units(len(self.room.is_working), self.room.host_size)

    def _mark(self, units: np.ndarray, is_free: bool) -> None:
        self.is_free[units] = is_free


def consecutive_units(num_accelerators: int, size: int) -> np.ndarray:
    """Return whole units of consecutive accelerators; what they leave is handed to no job."""
    return np.arange(num_accelerators // size * size).reshape(-1, size)


def refuse_fabric(allocation: str, fabric: FabricConfig, wanted: str) -> ConfigError:
    """Return the error of an allocator on a fabric that it is not for."""
    kind = type(fabric).__name__.removesuffix("Config")
    return ConfigError(f"mix.allocation is {allocation!r}, but the fabric is a {kind}; it is for {wanted}")
