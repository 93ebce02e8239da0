"""dgx1_v100: NVIDIA DGX-1 with eight V100."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rostam_py.machines.config import Figure, Site
from rostam_py.machines.servers import ServersConfig

_PAPER = "NVIDIA DGX-1 System Architecture white paper (WP-08437-002), "
_NICS = 4


@dataclass(kw_only=True, slots=True)
class Dgx1V100Config(ServersConfig):
    """DGX-1 servers: eight V100 32 GB of six NVLink 2 links each, four EDR NICs, 36-port switches.

    Model: the fabric is a ``hybrid_cube_mesh``: rings run over the direct links, in as many channels as there are
        edge-disjoint rings of the ranks, and two accelerators share a NIC. All NICs of a server are on one leaf.
    Source: NVIDIA DGX-1 System Architecture white paper.
    """

    accelerator: ClassVar[str] = "v100_32gb"
    server_size: ClassVar[int] = 8
    server_links: ClassVar[str] = "nvlink2"
    figures: ClassVar[Mapping[str, Figure]] = {
        "server_bandwidth": Figure("150 GB/s", _PAPER + "NVLink: six links of 25 GB/s in each direction"),
        "nic_bandwidth": Figure("100 Gb/s", _PAPER + "networking: four 100 Gb/s InfiniBand EDR ports for eight"),
        "radix": Figure(36, "assumed: 36-port EDR switches, as Mellanox SB7800"),
        "server_watts": Figure(3500, "NVIDIA DGX-1 data sheet (V100): 3,500 W at most"),
        "server_usd": Figure(149_000, "assumed: launch price of 2017, as the press quoted it"),
    }

    def site(self) -> Site:
        """Return the meshes of these servers and the tree above their NICs."""
        down, up = self._leaf_ports(_NICS)
        parameters = {
            "accelerator_bandwidth": self.figure("server_bandwidth"),
            "nic_bandwidth": self.figure("nic_bandwidth"),
            "leaf_down": down,
            "leaf_up": up if self.taper > 1 else down,
        }
        return self._site("hybrid_cube_mesh", parameters)
