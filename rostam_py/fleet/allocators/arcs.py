"""arcs: hosts that follow one another around a ring."""

from typing import Any, ClassVar

import numpy as np

from rostam_py.fleet.allocators.allocator import Allocator, Room


class Arcs(Allocator):
    """Consecutive hosts of the fabric's ring: the shortest free arc that holds the job.

    Model: the ring is the fabric's own (``ring_order``), its numbering elsewhere. Failed hosts are passed over, as
        light passes a failed accelerator; hosts of other jobs are not. Of arcs as short the first; a job lies at its
        arc's start. Ranks are numbered along the ring.
    Source: own, tests/fleet/test_other_allocators.py searches all starts.
    """

    place_name: ClassVar[str] = "arc of free hosts"

    def __init__(self, config: Any, room: Room) -> None:
        super().__init__(config, room)
        self._ring = np.flatnonzero(self.is_working)

    def _units(self) -> np.ndarray:
        size, order = self.room.host_size, self.room.fabric.ring_order()
        ring = np.arange(len(self.room.is_working)) if order is None else np.asarray(order, dtype=np.int64)
        return ring[: len(ring) // size * size].reshape(-1, size)

    def _choose(self, num_units: int) -> np.ndarray | None:
        is_free = self.is_free[self._ring]
        count = len(is_free)
        held = np.flatnonzero(~is_free)
        if not len(held):
            return self._ring[:num_units] if num_units <= count else None
        starts = held + 1
        lengths = np.diff(np.append(held, held[0] + count)) - 1
        fitting = np.flatnonzero(lengths >= num_units)
        if not len(fitting):
            return None
        start = starts[fitting[np.argmin(lengths[fitting])]]
        return self._ring[(start + np.arange(num_units)) % count]
