"""leaves: hosts of a fat tree below as few switches as hold the job."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rostam_py.fabrics.config import FabricConfig
from rostam_py.fabrics.fat_tree import FatTreeConfig
from rostam_py.fleet.allocators.allocator import Allocator, Room, refuse_fabric


class Leaves(Allocator):
    """Hosts of a fat tree on one leaf where one has room, else in one pod, else anywhere, on few leaves.

    Model: of the leaves, or pods, that have room for a job, the one with the fewest free hosts. A job larger than each
        takes those with the most free hosts whole, and the rest by the same rule. A host is where its first accelerator
        is. With rails the servers that share leaves count as one leaf. Ranks are numbered host by host, ascending.
    Source: own, tests/fleet/test_other_allocators.py compares the leaves of small trees with all choices.
    """

    place_name: ClassVar[str] = "set of free hosts"

    @classmethod
    def is_made_for(cls, fabric: FabricConfig) -> bool:
        """Return whether it is one."""
        return isinstance(fabric, FatTreeConfig)

    def __init__(self, config: Any, room: Room) -> None:
        if not isinstance(room.fabric, FatTreeConfig):
            raise refuse_fabric("leaves", room.fabric, "a fat tree")
        super().__init__(config, room)
        first = self.units[:, 0]
        # Of every host, from the outermost groups in.
        self.groups = [first // size for size in group_sizes(room.fabric)]

    def _choose(self, num_units: int) -> np.ndarray | None:
        if num_units > self.num_free:
            return None
        return np.sort(self._within(np.flatnonzero(self.is_free), num_units, self.groups))

    def _within(self, hosts: np.ndarray, count: int, groups: Sequence[np.ndarray]) -> np.ndarray:
        """Return ``count`` of the free hosts, in as few groups as hold them at every level."""
        if not groups:
            return hosts[:count]
        number, members, sizes = np.unique(groups[0][hosts], return_inverse=True, return_counts=True)
        chosen = [hosts[:0]]
        is_left = np.ones(len(number), dtype=bool)
        while count:
            enough = np.flatnonzero(is_left & (sizes >= count))
            is_last = len(enough) > 0
            group = enough[np.argmin(sizes[enough])] if is_last else np.argmax(np.where(is_left, sizes, 0))
            own = hosts[members == group]
            chosen.append(self._within(own, count, groups[1:]) if is_last else own)
            count -= min(count, len(own))
            is_left[group] = False
        return np.concatenate(chosen)


def group_sizes(fabric: FatTreeConfig) -> list[int]:
    """Return the accelerators of a pod, on three levels, and of a leaf; with rails of servers that share leaves."""
    down = fabric.leaf_ports[0]
    leaf = down * (fabric.server_size if fabric.rails else 1)
    if fabric.num_levels == 2:
        return [leaf]
    num_pods = -(-fabric.num_leaves // (fabric.radix // 2))
    pod_leaves = -(-fabric.num_leaves // num_pods) if fabric.pod_leaves is None else fabric.pod_leaves
    pod = pod_leaves * down
    return [pod, leaf] if pod % leaf == 0 else [leaf]
