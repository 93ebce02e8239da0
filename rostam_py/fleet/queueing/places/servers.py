"""servers: jobs share servers by best fit; none that fits one server is split."""

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

from rostam_py.fleet.queueing.places.place import Place, Places

Parts = tuple[tuple[int, int], ...]  # (server, number of accelerators)


@dataclass(slots=True, eq=False)
class _Parts(Place):
    """Parts of servers. units: (server, accelerators), in order of the ranks."""

    units: tuple[tuple[int, tuple[int, ...]], ...]

    def accelerators(self) -> tuple[int, ...]:
        """Return them server by server."""
        return tuple(one for _, members in self.units for one in members)


class Servers(Places):
    """Best fit in servers: jobs that fit one are not split, larger ones take empty ones whole.

    Model: a job of at most a server's accelerators takes the server with the least room that is enough, the first of
        equals. A larger one takes empty servers whole, the first ones, and for the rest the server with the least room
        that is enough. The network between servers is not looked at.
    Cost: a look at each possible number of free accelerators of a server.
    Source: own, tests/fleet/queueing/test_places.py.
    """

    def __init__(self, is_working: np.ndarray, server_size: int) -> None:
        self.server_size = server_size
        self.num_servers = -(-len(is_working) // server_size)
        starts = range(0, len(is_working), server_size)
        self._free = [  # tuples, so that copies may share them
            tuple(one for one in range(start, min(start + server_size, len(is_working))) if is_working[one])
            for start in starts
        ]
        self.num_free = self.num_working = sum(map(len, self._free))
        self._faults = [0] * self.num_servers
        # Of each number of free accelerators the servers that work, ascending.
        self._with: list[list[int]] = [[] for _ in range(server_size + 1)]
        for server, free in enumerate(self._free):
            self._with[len(free)].append(server)

    def take(self, size: int) -> Place | None:
        """Take accelerators by best fit."""
        parts = self._parts(size) if size <= self.num_free else None
        if parts is None:
            return None
        units = tuple((server, self._free[server][:count]) for server, count in parts)
        for server, members in units:
            self._change(server, self._free[server][len(members) :])
        self.num_free -= size
        return _Parts(size, size, tuple(server for server, _ in parts), units)

    def give_back(self, place: Place) -> None:
        """Free a job's parts of servers."""
        for server, members in place.units:
            self._change(server, tuple(sorted((*self._free[server], *members))))
            if not self._faults[server]:
                self.num_free += len(members)

    def take_again(self, place: Place) -> None:
        """Take a job's parts of servers."""
        for server, members in place.units:
            self._change(server, tuple(one for one in self._free[server] if one not in members))
            if not self._faults[server]:
                self.num_free -= len(members)

    def fail(self, server: int) -> None:
        """Leave a server out."""
        self._faults[server] += 1
        if self._faults[server] == 1:
            self._leave(server)
            self.num_free -= len(self._free[server])

    def repair(self, server: int) -> None:
        """Take a server in again where it has no other fault."""
        self._faults[server] -= 1
        if not self._faults[server]:
            insort(self._with[len(self._free[server])], server)
            self.num_free += len(self._free[server])

    def copy(self) -> "Servers":
        """Return a copy of all counts."""
        new = object.__new__(type(self))
        new.server_size, new.num_servers = self.server_size, self.num_servers
        new.num_free, new.num_working = self.num_free, self.num_working
        new._free, new._faults = self._free[:], self._faults[:]
        new._with = [servers[:] for servers in self._with]
        return new

    def _parts(self, size: int) -> Parts | None:
        """Return (server, accelerators) of a job that is not split more than it must be, None without room."""
        whole, rest = divmod(size, self.server_size)
        if not rest:
            empty = self._with[self.server_size]
            return tuple((server, self.server_size) for server in empty[:whole]) if len(empty) >= whole else None
        empty = self._with[self.server_size]
        if len(empty) < whole:
            return None
        for room in range(rest, self.server_size):
            if self._with[room]:
                last = self._with[room][0]
                break
        else:
            if len(empty) == whole:
                return None
            last = empty[whole]
        return (*((server, self.server_size) for server in empty[:whole]), (last, rest))

    def _change(self, server: int, free: tuple[int, ...]) -> None:
        """Set the free accelerators of a server."""
        if self._faults[server]:
            self._free[server] = free
            return
        self._leave(server)
        self._free[server] = free
        insort(self._with[len(free)], server)

    def _leave(self, server: int) -> None:
        servers = self._with[len(self._free[server])]
        del servers[bisect_left(servers, server)]
