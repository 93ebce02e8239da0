"""Islands: which servers of a cluster may form a tensor-parallel group. One file for each kind, a line of ISLANDS."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rostam_py.errors import ConfigError


class Islands(ABC):
    """Links of high bandwidth between the servers of a cluster, which stand in a row."""

    @abstractmethod
    def num_groups(self, works: Sequence[bool], gpus_per_server: int, tp: int) -> int:
        """Return how many disjoint groups of ``tp`` GPUs the working servers form, at most.

        Args:
            works: whether each server works, in the order in which they stand.
            gpus_per_server: all of which fail with it.
            tp: GPUs of one group, on one island.
        """


def groups_of_size(works: Sequence[bool], servers: int, gpus_per_server: int, tp: int) -> int:
    """Return the groups that fit into the working GPUs of islands of so many servers each; the last may have fewer."""
    return sum(sum(works[first : first + servers]) * gpus_per_server // tp for first in range(0, len(works), servers))


def servers_in(gpus: int, gpus_per_server: int, kind: str) -> int:
    """Return the servers of an island of so many GPUs. Raises: ConfigError where servers do not fill it."""
    if gpus % gpus_per_server:
        raise ConfigError(
            f"gpus_per_server is {gpus_per_server}; it must divide the {gpus} GPUs of islands of kind {kind}"
        )
    return gpus // gpus_per_server
