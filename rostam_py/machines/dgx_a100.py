"""dgx_a100: NVIDIA DGX A100."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rostam_py.machines.config import Figure
from rostam_py.machines.servers import SwitchedServersConfig

_SHEET = "NVIDIA DGX A100 data sheet, "


@dataclass(kw_only=True, slots=True)
class DgxA100Config(SwitchedServersConfig):
    """DGX A100 servers: eight A100 80 GB on NVSwitch, a 200 Gb/s NIC each, 40-port HDR switches.

    Source: NVIDIA DGX A100 data sheet; DGX SuperPOD reference architecture RA-09950-001.
    """

    accelerator: ClassVar[str] = "a100_80gb"
    server_size: ClassVar[int] = 8
    server_links: ClassVar[str] = "nvlink3"
    figures: ClassVar[Mapping[str, Figure]] = {
        "server_bandwidth": Figure("300 GB/s", "NVIDIA A100 data sheet: NVLink 600 GB/s, both directions together"),
        "nic_bandwidth": Figure("200 Gb/s", _SHEET + "networking: eight single-port ConnectX-6 of 200 Gb/s HDR"),
        "radix": Figure(40, "DGX SuperPOD reference architecture RA-09950-001: QM8790, 40 ports of 200 Gb/s"),
        "server_watts": Figure(6500, _SHEET + "system power usage: 6.5 kW at most"),
        "server_usd": Figure(199_000, "assumed: press release of 14 May 2020, starting price, of the 320 GB version"),
    }
