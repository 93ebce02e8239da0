"""Switch: one island of all servers, which no real network is."""

from collections.abc import Sequence
from dataclasses import dataclass

from rostam_py.fleet.islands.islands import Islands


@dataclass(frozen=True)
class Switch(Islands):
    """One switch between all GPUs: the least that any islands can waste.

    Source: own, a lower bound.
    """

    def num_groups(self, works: Sequence[bool], gpus_per_server: int, tp: int) -> int:
        """Return the groups of all working GPUs."""
        return sum(works) * gpus_per_server // tp
