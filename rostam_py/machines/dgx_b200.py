"""dgx_b200: NVIDIA DGX B200."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rostam_py.machines.config import Figure
from rostam_py.machines.servers import SwitchedServersConfig

_GUIDE = "NVIDIA DGX B200 user guide, hardware overview: "


@dataclass(kw_only=True, slots=True)
class DgxB200Config(SwitchedServersConfig):
    """DGX B200 servers: eight B200 180 GB on NVSwitch, a 400 Gb/s NIC each, 64-port NDR switches.

    Source: NVIDIA DGX B200 user guide; DGX SuperPOD reference architecture with DGX B200, table of component counts.
    """

    accelerator: ClassVar[str] = "b200_180gb"
    server_size: ClassVar[int] = 8
    server_links: ClassVar[str] = "nvlink5"
    figures: ClassVar[Mapping[str, Figure]] = {
        "server_bandwidth": Figure("900 GB/s", _GUIDE + "14.4 TB/s over eight, both directions together"),
        "nic_bandwidth": Figure("400 Gb/s", _GUIDE + "eight single-port ConnectX-7 of up to 400 Gb/s"),
        "radix": Figure(64, "DGX SuperPOD reference architecture, DGX B200: 32 leaves, 16 spines for 128 servers"),
        "server_watts": Figure(14_300, _GUIDE + "power specifications: 14.3 kW at most"),
        "server_usd": Figure(None, "no list price is published"),
    }
