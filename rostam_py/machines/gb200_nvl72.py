"""gb200_nvl72: NVIDIA GB200 NVL72 racks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rostam_py.machines.config import Figure
from rostam_py.machines.servers import ServersConfig

_SHEET = "NVIDIA GB200 NVL72 data sheet, "


@dataclass(kw_only=True, slots=True)
class Gb200Nvl72Config(ServersConfig):
    """GB200 NVL72 racks: 72 Blackwell GPUs on NVLink switches, a 400 Gb/s NIC each; a server is a rack.

    Source: NVIDIA GB200 NVL72 data sheet; DGX SuperPOD reference architecture with DGX GB200.
    """

    accelerator: ClassVar[str] = "gb200_186gb"
    server_size: ClassVar[int] = 72
    figures: ClassVar[Mapping[str, Figure]] = {
        "server_bandwidth": Figure("900 GB/s", _SHEET + "NVLink: 130 TB/s over 72, both directions together"),
        "nic_bandwidth": Figure("400 Gb/s", "DGX SuperPOD reference architecture, DGX GB200: NDR of 400 Gb/s"),
        "radix": Figure(64, "assumed: QM9700 switches of 64 ports of 400 Gb/s, as of DGX B200"),
        "server_watts": Figure(120_000, "assumed: 120 kW a rack, as the press quotes it"),
        "server_usd": Figure(None, "no list price is published"),
    }
