"""Machines of servers: accelerators joined inside, NICs, leaves and spines between servers."""

from dataclasses import dataclass
from typing import Any, ClassVar

from rostam_py.checks import check_booleans
from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import check_integer
from rostam_py.machines.config import MachineConfig, Site


@dataclass(kw_only=True, slots=True)
class ServersConfig(MachineConfig):
    """Servers below leaf and spine switches.

    Model: power and price are those of all servers; fabric and NICs are each kind's own. Links achieve what their
        classes do, of the data sheet's rate.
    Args:
        servers: >= 1.
        taper: bandwidth of a leaf's ports to servers over that of its ports to spines, 1 to the radix less 1; 1 is
            nonblocking.
    """

    server_size: ClassVar[int]
    # Classes of the links inside servers, and of NICs and switches (fabrics/link_classes.py).
    server_links: ClassVar[str]
    network_links: ClassVar[str] = "infiniband"
    sizes: ClassVar[tuple[str, ...]] = ("num_accelerators",)

    takes_part: ClassVar[bool] = True

    servers: int = 1
    taper: float = 1.0

    @classmethod
    def holding(cls, given: dict[str, Any], num_accelerators: Any) -> dict[str, Any]:
        """Return keys of as many servers as hold so many accelerators, unless their number is given."""
        count = check_integer("num_accelerators", num_accelerators, 1)
        if "servers" not in given:
            return {**given, "servers": -(-count // cls.server_size)}
        held = check_integer("machine.servers", given["servers"], 1) * cls.server_size
        if count > held:
            raise ConfigError(
                f"num_accelerators is {count}, but machine.servers={given['servers']} have {held}; leave one of them"
                " out"
            )
        return given

    def __post_init__(self) -> None:
        check_booleans("machine", self)
        self.servers = check_integer("machine.servers", self.servers, 1)
        most = self.figure("radix") - 1
        if isinstance(self.taper, bool) or not isinstance(self.taper, int | float) or not 1 <= self.taper <= most:
            raise ConfigError(f"machine.taper is {self.taper!r}; it must be a number from 1 to {most}")

    def _site(self, fabric: str, parameters: dict[str, Any]) -> Site:
        """Return these servers below the switches of a fabric. Args: parameters: of the fabric, apart from its size."""
        usd = self.figure("server_usd")
        return Site(
            fabric,
            {
                "num_accelerators": self.servers * self.server_size,
                "radix": self.figure("radix"),
                "server_links": self.server_links,
                "network_links": self.network_links,
                **parameters,
            },
            self.accelerator,
            float(self.figure("server_watts") * self.servers),
            None if usd is None else float(usd * self.servers),
        )

    def _leaf_ports(self, unit: int = 1) -> tuple[int, int]:
        """Return the ports of a leaf down, a multiple of ``unit``, and up, by the taper."""
        radix = self.figure("radix")
        down = min(radix - 1, round(radix * self.taper / (1 + self.taper))) // unit * unit
        if down == 0:
            raise ConfigError(f"machine.taper is {self.taper!r}; a leaf of {radix} ports then has none for a server")
        return down, radix - down


@dataclass(kw_only=True, slots=True)
class SwitchedServersConfig(ServersConfig):
    """Servers with a switch inside and a NIC for each accelerator.

    Model: the fabric is a ``fat_tree`` with ``server_size``. Latencies are the fabric's.
    Args:
        in_network_reduction: switches between servers add up what comes through them (SHARP).
        rails: accelerator i of all servers of a unit is on leaf i, as in the reference architectures of DGX SuperPODs;
            false fills leaves with consecutive servers.
    Source: rails: NVIDIA DGX SuperPOD reference architectures RA-09950-001 (A100) and RA-11333-001 (H100), compute
        fabric; NVIDIA enterprise reference architecture of HGX H100, H200 and B200, compute network.
    """

    sizes: ClassVar[tuple[str, ...]] = ("num_accelerators", "server_size")

    rails: bool = True
    in_network_reduction: bool = False

    def site(self) -> Site:
        """Return the tree of these servers."""
        down, up = self._leaf_ports()
        parameters = {
            "server_size": self.server_size,
            "server_bandwidth": self.figure("server_bandwidth"),
            "accelerator_bandwidth": self.figure("nic_bandwidth"),
            "leaf_down": down,
            "leaf_up": up,
            "rails": self.rails,
            "in_network_reduction": self.in_network_reduction,
        }
        return self._site("fat_tree", parameters)
