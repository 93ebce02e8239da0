"""Units: an allocator of the fabric's hands out hosts or boards, and jobs smaller than one share it."""

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

from rostam_py.fleet.allocators import Allocator, Given
from rostam_py.fleet.queueing.places.place import Place, Places


@dataclass(slots=True, eq=False)
class _Whole(Place):
    """Whole units. units: as the allocator gave them."""

    units: Given

    def accelerators(self) -> tuple[int, ...]:
        """Return them as the allocator numbers ranks."""
        return self.units.accelerators


@dataclass(slots=True, eq=False)
class _Shared(Place):
    """A part of a unit. units: the unit, and its accelerators that the job has."""

    units: tuple[int, tuple[int, ...]]

    def accelerators(self) -> tuple[int, ...]:
        """Return them in ascending order."""
        return self.units[1]


class Units(Places):
    """Units of an allocator: a job takes whole ones, and jobs smaller than a unit share one by best fit.

    Model: a small job takes the shared unit with the least room that is enough, the first of equals, else a unit of its
        own, which others may share from then on. What a larger job leaves of its last unit stays idle. A server that
        is down takes the units that it is part of with it.
    """

    def __init__(self, allocator: Allocator, server_size: int) -> None:
        self.allocator = allocator
        self.unit_size = allocator.units.shape[1]
        self._server_of = np.arange(len(allocator.room.is_working)) // server_size
        self.num_servers = int(self._server_of[-1]) + 1
        self.num_working = int(allocator.is_free.sum()) * self.unit_size
        self.num_free = self.num_working
        self._units_of: dict[int, list[int]] = {}
        for unit, members in enumerate(allocator.units.tolist()):
            for server in {int(self._server_of[one]) for one in members}:
                self._units_of.setdefault(server, []).append(unit)
        self._faults: dict[int, int] = {}  # of units
        self._out: set[int] = set()  # units that are down and held by no job
        self._room: dict[int, list[int]] = {}  # free accelerators of shared units
        self._with: list[list[int]] = [[] for _ in range(self.unit_size + 1)]  # shared units that work, by room

    def take(self, size: int) -> Place | None:
        """Take whole units, or a part of one."""
        if size < self.unit_size:
            return self._share(size)
        if size > self.num_free:
            return None
        given = self.allocator.take(size)
        if given is None:
            return None
        held = len(given.units) * self.unit_size
        self.num_free -= held
        servers = tuple(sorted(set(self._server_of[list(given.accelerators)].tolist())))
        return _Whole(size, held, servers, given)

    def give_back(self, place: Place) -> None:
        """Free whole units, or a part of one."""
        if isinstance(place, _Whole):
            self.allocator.give_back(place.units)
            self._release(place.units.units)
            return
        unit, members = place.units
        self._unlist(unit)
        free = self._room[unit] = sorted([*self._room[unit], *members])
        if unit not in self._faults:
            self.num_free += len(members)
        if len(free) < self.unit_size:
            self._list(unit)
            return
        del self._room[unit]
        self.allocator.give_back(Given((), (unit,)))
        if unit not in self._faults:
            self.num_free -= self.unit_size  # _release counts it
        self._release((unit,))

    def take_again(self, place: Place) -> None:
        """Take whole units, or a part of one, that are free."""
        if isinstance(place, _Whole):
            self.allocator.take_again(place.units)
            self.num_free -= place.held
            return
        unit, members = place.units
        if unit not in self._room:
            self.allocator.take_again(Given((), (unit,)))
            self._room[unit] = self.allocator.units[unit].tolist()
        else:
            self._unlist(unit)
        self._room[unit] = [one for one in self._room[unit] if one not in members]
        self.num_free -= len(members)
        self._list(unit)

    def fail(self, server: int) -> None:
        """Leave the units of a server out."""
        for unit in self._units_of.get(server, ()):
            faults = self._faults.get(unit, 0)
            if not faults and unit in self._room:
                self._unlist(unit)
                self.num_free -= len(self._room[unit])
            self._faults[unit] = faults + 1
            if not faults and self.allocator.is_free[unit]:
                self._put_out(unit)
                self.num_free -= self.unit_size

    def repair(self, server: int) -> None:
        """Take the units of a server in again where they have no other fault."""
        for unit in self._units_of.get(server, ()):
            self._faults[unit] -= 1
            if self._faults[unit]:
                continue
            del self._faults[unit]
            if unit in self._out:
                self._out.remove(unit)
                self.allocator.give_back(Given((), (unit,)))
                self.num_free += self.unit_size
            elif unit in self._room:
                self.num_free += len(self._room[unit])
                self._list(unit)

    def copy(self) -> "Units":
        """Return a copy over a copy of the allocator."""
        new = object.__new__(type(self))
        for name, value in vars(self).items():
            setattr(new, name, value)
        new.allocator = self.allocator.copy()
        new._faults, new._out = dict(self._faults), set(self._out)
        new._room = {unit: free[:] for unit, free in self._room.items()}
        new._with = [units[:] for units in self._with]
        return new

    def _share(self, size: int) -> Place | None:
        unit = next((self._with[room][0] for room in range(size, self.unit_size) if self._with[room]), None)
        if unit is None:
            given = self.allocator.take(self.unit_size)
            if given is None:
                return None
            unit = given.units[0]
            self._room[unit] = sorted(given.accelerators)
        else:
            self._unlist(unit)
        free = self._room[unit]
        members, self._room[unit] = tuple(free[:size]), free[size:]
        self._list(unit)
        self.num_free -= size
        servers = tuple(sorted(set(self._server_of[list(members)].tolist())))
        return _Shared(size, size, servers, (unit, members))

    def _release(self, units: tuple[int, ...]) -> None:
        """Count units that a job gave back to the allocator, and leave out those that are down."""
        for unit in units:
            if unit in self._faults:
                self._put_out(unit)
            else:
                self.num_free += self.unit_size

    def _put_out(self, unit: int) -> None:
        self.allocator.take_again(Given((), (unit,)))
        self._out.add(unit)

    def _list(self, unit: int) -> None:
        if unit not in self._faults:
            insort(self._with[len(self._room[unit])], unit)

    def _unlist(self, unit: int) -> None:
        if unit not in self._faults:
            units = self._with[len(self._room[unit])]
            del units[bisect_left(units, unit)]
