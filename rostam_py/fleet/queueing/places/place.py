"""Places: what all ways to give jobs accelerators share.

Example:
    places = Servers(is_working, server_size=8)
    place = places.take(12)         # None where there is no room now
    places.fail(0)                  # jobs keep what they hold; it is given out no more
    places.give_back(place)
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class Place:
    """What one job holds.

    size: accelerators that it asked for. held: those that nobody else can have, >= size. servers: that it is on.
    units: the placement's own record.
    """

    size: int
    held: int
    servers: tuple[int, ...]
    units: Any

    def accelerators(self) -> tuple[int, ...]:
        """Return the accelerators by rank."""
        raise NotImplementedError


class Places(ABC):
    """Accelerators in servers, free, held or down.

    num_free: accelerators that are free and work. num_working: those of the cluster that did not fail before it began.
    """

    num_free: int
    num_working: int
    num_servers: int

    @abstractmethod
    def take(self, size: int) -> Place | None:
        """Take accelerators for a job; None, and nothing taken, where there is no room for it now."""

    @abstractmethod
    def give_back(self, place: Place) -> None:
        """Free what a job holds; what is down meanwhile stays out."""

    @abstractmethod
    def take_again(self, place: Place) -> None:
        """Take what a job held before, which is free."""

    @abstractmethod
    def fail(self, server: int) -> None:
        """Give out nothing of a server until it is repaired as often as it has failed."""

    @abstractmethod
    def repair(self, server: int) -> None:
        """Undo one fault of a server."""

    @abstractmethod
    def copy(self) -> "Places":
        """Return a copy, of which taking and giving back leave this one as it is."""
