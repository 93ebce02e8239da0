"""Machines of servers: accelerators on a switch inside, a NIC for each, leaves and spines between servers."""

from dataclasses import dataclass
from typing import Any, ClassVar

from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import check_integer
from rostam_py.machines.config import MachineConfig, Site

_FABRIC = "fat_tree"


@dataclass(kw_only=True, slots=True)
class ServersConfig(MachineConfig):
    """Servers below leaf and spine switches.

    Model: the fabric is a ``fat_tree`` with ``server_size``. Approximated: the servers of a leaf are consecutive ones,
        where a rail-optimised network has accelerator i of all servers of a unit on leaf i; without taper both are
        nonblocking and what differs is the hops between accelerators of one rail. Links run at the data sheet's rate,
        latencies are the fabric's.
    Args:
        servers: >= 1.
        taper: bandwidth of a leaf's ports to servers over that of its ports to spines, 1 to the radix less 1; 1 is
            nonblocking.
    """

    server_size: ClassVar[int]
    sizes: ClassVar[tuple[str, ...]] = ("num_accelerators", "server_size")

    servers: int = 1
    taper: float = 1.0

    def __post_init__(self) -> None:
        self.servers = check_integer("machine.servers", self.servers, 1)
        most = self.figure("radix") - 1
        if isinstance(self.taper, bool) or not isinstance(self.taper, int | float) or not 1 <= self.taper <= most:
            raise ConfigError(f"machine.taper is {self.taper!r}; it must be a number from 1 to {most}")

    def site(self) -> Site:
        """Return the tree of these servers."""
        usd = self.figure("server_usd")
        return Site(
            _FABRIC, self._parameters(), self.accelerator, float(self.figure("server_watts") * self.servers),
            None if usd is None else float(usd * self.servers),
        )  # fmt: skip

    def _parameters(self) -> dict[str, Any]:
        radix = self.figure("radix")
        down = min(radix - 1, round(radix * self.taper / (1 + self.taper)))
        return {
            "num_accelerators": self.servers * self.server_size,
            "server_size": self.server_size,
            "server_bandwidth": self.figure("server_bandwidth"),
            "accelerator_bandwidth": self.figure("nic_bandwidth"),
            "radix": radix,
            "leaf_down": down,
            "leaf_up": radix - down,
        }
