"""Cube: blocks of 4 x 4 x 4 accelerators that work as a whole or not at all."""

from collections.abc import Sequence
from dataclasses import dataclass

from rostam_py.fleet.islands.islands import Islands, servers_in


@dataclass(frozen=True)
class Cube(Islands):
    """Blocks of 64 accelerators, cut into tori of ``tp``; a fault inside takes the whole block.

    Model: groups beyond a block join whole blocks through optical switches, of any that work.
    Source: Jouppi et al., "TPU v4", ISCA 2023 (arXiv 2304.01433), sections 2.2 and 2.3: slices are made of blocks of
        4^3 chips, and a block whose host is down is left out.
    """

    gpus: int = 64

    def num_groups(self, works: Sequence[bool], gpus_per_server: int, tp: int) -> int:
        """Return the groups of whole blocks."""
        servers = servers_in(self.gpus, gpus_per_server, "cube")
        firsts = range(0, len(works) - servers + 1, servers)
        whole = sum(all(works[first : first + servers]) for first in firsts)
        return whole * (self.gpus // tp) if tp <= self.gpus else whole // -(-tp // self.gpus)
