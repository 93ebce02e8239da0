"""K-hop ring: servers on a ring with links to the next K on either side."""

from collections.abc import Sequence
from dataclasses import dataclass

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError
from rostam_py.fleet.islands.islands import Islands


@dataclass(frozen=True)
class KHopRing(Islands):
    """A ring of all servers that skips up to K - 1 neighbours which are down; groups are arcs of working servers.

    Model: the ring breaks where K or more consecutive servers are down. A group closes its own ring through servers at
        its ends, whatever their number. hops: K.
    Source: Shou et al., "InfiniteHBD", SIGCOMM 2025 (arXiv 2502.03885): the reconfigurable K-hop ring.
    """

    hops: int = 2

    def __post_init__(self) -> None:
        if not is_integer(self.hops) or self.hops < 1:
            raise ConfigError(f"k_hop_ring.hops is {self.hops!r}; it must be an integer >= 1")

    def num_groups(self, works: Sequence[bool], gpus_per_server: int, tp: int) -> int:
        """Return the groups of the arcs that whole breaks leave."""
        return (
            sum(arc * gpus_per_server // tp for arc in self._arcs(works))
            if tp >= gpus_per_server
            else (sum(works) * (gpus_per_server // tp))
        )

    def _arcs(self, works: Sequence[bool]) -> list[int]:
        """Return the number of working servers of each arc."""
        at = [place for place, one in enumerate(works) if one]
        if not at:
            return []
        arcs = [1]
        for before, place in zip(at, at[1:], strict=False):
            if place - before <= self.hops:
                arcs[-1] += 1
            else:
                arcs.append(1)
        is_closed = at[0] + len(works) - at[-1] <= self.hops
        if is_closed and len(arcs) > 1:
            arcs[0] += arcs.pop()
        return arcs
