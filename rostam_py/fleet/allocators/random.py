"""random: free hosts in a seeded random order."""

from typing import Any

import numpy as np

from rostam_py.fleet.allocators.allocator import Allocator, Room


class Random(Allocator):
    """Free hosts in a random order, drawn once for each seed.

    Model: the order is of the hosts that are free at first; a job takes the first of them that are free now.
    Source: own, tests/fleet/test_place_mix.py.
    """

    def __init__(self, config: Any, room: Room) -> None:
        super().__init__(config, room)
        free = np.flatnonzero(self.is_free)
        self._order = free[np.random.default_rng(room.seed).permutation(len(free))]

    def _choose(self, num_units: int) -> np.ndarray | None:
        free = self._order[self.is_free[self._order]]
        return free[:num_units] if len(free) >= num_units else None
