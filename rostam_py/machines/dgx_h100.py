"""dgx_h100: NVIDIA DGX H100."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rostam_py.machines.config import Figure
from rostam_py.machines.servers import SwitchedServersConfig

_SHEET = "NVIDIA DGX H100 data sheet, "


@dataclass(kw_only=True, slots=True)
class DgxH100Config(SwitchedServersConfig):
    """DGX H100 servers: eight H100 80 GB on NVSwitch, a 400 Gb/s NIC each, 64-port NDR switches.

    Source: NVIDIA DGX H100 data sheet; DGX SuperPOD reference architecture RA-11333-001.
    """

    accelerator: ClassVar[str] = "h100_80gb"
    server_size: ClassVar[int] = 8
    server_links: ClassVar[str] = "nvlink4"
    figures: ClassVar[Mapping[str, Figure]] = {
        "server_bandwidth": Figure("450 GB/s", "NVIDIA H100 data sheet: NVLink 900 GB/s, both directions together"),
        "nic_bandwidth": Figure("400 Gb/s", _SHEET + "networking: eight single-port ConnectX-7 of 400 Gb/s"),
        "radix": Figure(64, "DGX SuperPOD reference architecture RA-11333-001: QM9700, 64 ports of 400 Gb/s NDR"),
        "server_watts": Figure(10_200, _SHEET + "power: 10.2 kW at most"),
        "server_usd": Figure(None, "no list price is published"),
    }
