"""linear: the lowest-numbered free hosts."""

import numpy as np

from rostam_py.fleet.allocators.allocator import Allocator


class Linear(Allocator):
    """The lowest-numbered free hosts, wherever they lie.

    Source: own, tests/fleet/test_place_mix.py.
    """

    def _choose(self, num_units: int) -> np.ndarray | None:
        free = np.flatnonzero(self.is_free)
        return free[:num_units] if len(free) >= num_units else None
