"""Server: NVLink inside a server alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from rostam_py.fleet.islands.islands import Islands, groups_of_size


@dataclass(frozen=True)
class Server(Islands):
    """Each server is an island, as a DGX of 8 GPUs: a group larger than a server never fits.

    Source: own, by definition.
    """

    def num_groups(self, works: Sequence[bool], gpus_per_server: int, tp: int) -> int:
        """Return the groups inside working servers."""
        return groups_of_size(works, 1, gpus_per_server, tp)
