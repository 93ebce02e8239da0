"""gb200_nvl72: NVIDIA GB200 NVL72 racks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rostam_py.machines.config import Figure
from rostam_py.machines.servers import SwitchedServersConfig

_SHEET = "NVIDIA GB200 NVL72 data sheet, "
_GUIDE = "NVIDIA DGX GB200 user guide, hardware: "
_POWER = "NVIDIA Domain Power Service documentation, device specifications, DGX_GB200: "


@dataclass(kw_only=True, slots=True)
class Gb200Nvl72Config(SwitchedServersConfig):
    """GB200 NVL72 racks: 72 Blackwell GPUs on NVLink switches, a 400 Gb/s NIC each; a server is a rack.

    Model: NVIDIA's rails join GPU i of every tray of four, of which a rack has 18; ``rails=true`` joins GPU i of every
        rack, 72 rails, so it is off here. NVLink has the constants of eight B200: no table measures racks.
    Source: NVIDIA GB200 NVL72 data sheet; NVIDIA DGX GB200 user guide, hardware.
    """

    accelerator: ClassVar[str] = "gb200_186gb"
    server_size: ClassVar[int] = 72
    server_links: ClassVar[str] = "nvlink5"
    figures: ClassVar[Mapping[str, Figure]] = {
        "server_bandwidth": Figure("900 GB/s", _SHEET + "NVLink: 130 TB/s over 72, both directions together"),
        "nic_bandwidth": Figure("400 Gb/s", _GUIDE + "18 compute trays of 4 GPUs and 4 ConnectX-7 of 400 Gb/s each"),
        "radix": Figure(64, "assumed: QM9700 switches of 64 ports of 400 Gb/s, as of DGX B200"),
        "server_watts": Figure(
            18 * 6_667, _POWER + "6,667 W at most of a compute tray; 18 of them, without switch trays"
        ),
        "server_usd": Figure(None, "no list price is published"),
    }

    rails: bool = False
