"""Relocation: move what a sub-op reads from into range, backwards, then verify forwards until no window is violated.

Example:
    relocation = Relocation(placed)
    relocation.add(index)                      # each node in turn, before its sub-ops
    relocation.put_in_range(index, part, unit, device)
"""

import heapq
from collections import deque

from rostam_py.errors import MemoryCapacityError
from rostam_py.placement.sip_ml.assignment import Assignment
from rostam_py.placement.sip_ml.window import bits

_MOVES_PER_UNIT = 4  # relocations allowed, times the sub-ops that can move


class GiveUp(Exception):
    """The relocation bound is reached, or a device is overfilled: then ``error`` says by how much."""

    def __init__(self, error: MemoryCapacityError | None = None) -> None:
        super().__init__()
        self.error = error


class Relocation:
    """Keep an assignment within its windows while it grows; ``num_relocations`` counts the units moved for it."""

    def __init__(self, placed: Assignment) -> None:
        self.placed, self.num_relocations = placed, 0
        self._readers: list[list[int]] = [[] for _ in placed.nodes]
        self._suspects: list[int] = []  # nodes to verify, a heap
        self._suspected: set[int] = set()

    def add(self, index: int) -> None:
        """Note what the next node reads."""
        for read in self.placed.binding[index]:
            self._readers[read.node].append(index)

    def put_in_range(self, index: int, part: int, unit: int, device: int) -> None:
        """Put a sub-op on ``device``, relocate what it reads from, then verify forwards until nothing is violated."""
        self.placed.settle(unit, device)
        self._relocate_backwards([(i, device) for i in self._violating(index, part, device)])
        self._suspect(index)
        self._verify(index, part, unit)

    def _violating(self, index: int, part: int, device: int) -> list[int]:
        """Return the units that a sub-op on ``device`` reads from out of range."""
        inward = self.placed.inward[device]
        found = [self.placed.units[source][i] for source, i in self.placed.sources(index, part)]
        return [u for u in dict.fromkeys(found) if not inward >> self.placed.device_of[u] & 1]

    def _relocate_backwards(self, wanted: list[tuple[int, int]]) -> None:
        """Move every unit of ``wanted`` into range of the device next to it, then what it reads from, recursively."""
        pending = deque(wanted)
        while pending:
            unit, reader = pending.popleft()
            here = self.placed.device_of[unit]
            if self.placed.inward[reader] >> here & 1:
                continue
            device = self._nearest(unit, here, self.placed.inward[reader])
            self._move(unit, device)
            for index, part in self.placed.members[unit]:
                pending.extend((u, device) for u in self._violating(index, part, device) if u != unit)

    def _nearest(self, unit: int, here: int, allowed: int) -> int:
        """Return the device of ``allowed`` nearest to ``here``, one with room if there is one."""
        room = self.placed.capacity - self.placed.bytes_of[unit]
        k = self.placed.num_devices

        def order(device: int) -> tuple[bool, int, int]:
            gap = (device - here) % k
            return self.placed.memory[device] > room, min(gap, k - gap), device

        return min(bits(allowed), key=order)

    def _move(self, unit: int, device: int) -> None:
        self._count_relocation()
        self.placed.shift(unit, device)
        for index, _ in self.placed.members[unit]:
            self._suspect(index)
            for reader in self._readers[index]:
                if reader < len(self.placed.devices):
                    self._suspect(reader)

    def _count_relocation(self) -> None:
        self.num_relocations += 1
        if self.num_relocations > _MOVES_PER_UNIT * len(self.placed.device_of):
            raise GiveUp

    def _suspect(self, index: int) -> None:
        """Note that a node must be verified."""
        if index not in self._suspected:
            self._suspected.add(index)
            heapq.heappush(self._suspects, index)

    def _verify(self, index: int, part: int, unit: int) -> None:
        """Walk forwards over all that moved or reads what moved, and the sub-op being placed; mend until all holds."""
        while self._suspects:
            n = heapq.heappop(self._suspects)
            self._suspected.discard(n)
            for p in range(part + 1 if n == index else self.placed.nodes[n].num_parts):
                own = unit if (n, p) == (index, part) else self.placed.units[n][p]
                if not self._holds(n, p, self.placed.device_of[own]):
                    self._suspect(n)
                    self._mend(n, p, own)
                    break

    def _holds(self, index: int, part: int, device: int) -> bool:
        """Tell whether a sub-op on ``device`` is in range of what it reads."""
        inward = self.placed.inward[device]
        return all(inward >> self.placed.devices[s][i] & 1 for s, i in self.placed.sources(index, part))

    def _mend(self, index: int, part: int, unit: int) -> None:
        """Move one violated sub-op into all windows if they meet, else what it reads from towards it."""
        mask, members = self.placed.everyone, list(self.placed.members[unit])
        if (index, part) not in members:
            members.append((index, part))
        for n, p in members:
            for source, i in self.placed.sources(n, p):
                if self.placed.units[source][i] != unit:
                    mask &= self.placed.outward[self.placed.devices[source][i]]
        here = self.placed.device_of[unit]
        if mask:
            self._move(unit, self._nearest(unit, here, mask))
            return
        self._relocate_backwards([(u, here) for u in self._violating(index, part, here)])
        self._count_relocation()
