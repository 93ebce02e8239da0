"""dgx1_v100: NVIDIA DGX-1 with eight V100."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rostam_py.machines.config import Figure
from rostam_py.machines.servers import ServersConfig

_PAPER = "NVIDIA DGX-1 System Architecture white paper (WP-08437-001), "


@dataclass(kw_only=True, slots=True)
class Dgx1V100Config(ServersConfig):
    """DGX-1 servers: eight V100 32 GB of six NVLink 2 links each, four EDR NICs, 36-port switches.

    Model: approximated: the hybrid cube mesh inside a server counts as a switch of each accelerator's six links, which
        rings over the mesh come near to and pairs without a link do not; two accelerators share a NIC, so that each
        has half of one, and a cable of its own in the bill of materials.
    Source: NVIDIA DGX-1 System Architecture white paper.
    """

    accelerator: ClassVar[str] = "v100_32gb"
    server_size: ClassVar[int] = 8
    figures: ClassVar[Mapping[str, Figure]] = {
        "server_bandwidth": Figure("150 GB/s", _PAPER + "section 3.1: six links of 25 GB/s in each direction"),
        "nic_bandwidth": Figure("50 Gb/s", _PAPER + "section 3.3: four 100 Gb/s InfiniBand EDR ports for eight"),
        "radix": Figure(36, "assumed: 36-port EDR switches, as Mellanox SB7800"),
        "server_watts": Figure(3500, "NVIDIA DGX-1 data sheet (V100): 3,500 W at most"),
        "server_usd": Figure(149_000, "assumed: launch price of 2017, as the press quoted it"),
    }
