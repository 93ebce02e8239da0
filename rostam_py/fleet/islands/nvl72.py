"""NVL72: racks of 72 GPUs behind NVLink switches."""

from collections.abc import Sequence
from dataclasses import dataclass

from rostam_py.fleet.islands.islands import Islands, groups_of_size, servers_in


@dataclass(frozen=True)
class Nvl72(Islands):
    """Racks of 72 GPUs, any of which form a group; of a cluster that is no multiple the last rack has fewer.

    Model: working switches; a server that is down takes its own GPUs alone.
    Source: NVIDIA GB200 NVL72: one NVLink domain of 72 GPUs, fully connected by 9 switch trays.
    """

    gpus: int = 72

    def num_groups(self, works: Sequence[bool], gpus_per_server: int, tp: int) -> int:
        """Return the groups inside racks."""
        return groups_of_size(works, servers_in(self.gpus, gpus_per_server, "nvl72"), gpus_per_server, tp)
