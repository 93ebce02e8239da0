"""What fabrics of switches that form a graph of their own share: latencies, ports and prices."""

from dataclasses import dataclass, field
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import SWITCH_PORTS, BillOfMaterials
from rostam_py.fabrics.config import FabricConfig
from rostam_py.units import parse_time


@dataclass(kw_only=True, slots=True)
class RouterFabricConfig(FabricConfig):
    """Switches joined by cables of one kind, each with as many consecutive accelerators on it.

    Args:
        link_latency: latency of every cable; 20 ns, HammingMesh, appendix F.
        switch_latency: latency of every switch on a path; 40 ns, HammingMesh's buffer latency.
    """

    switch_latency: Any = field(default="40 ns", metadata={"unit": "time"})

    def _link_parameters(self) -> dict[str, Any]:
        """Return what the core needs to know of links."""
        return {
            "link_bandwidth_bytes_per_s": self.link_bandwidth_bytes_per_s,
            "link_latency_s": parse_time(self.link_latency, "fabric.link_latency"),
            "switch_latency_s": parse_time(self.switch_latency, "fabric.switch_latency"),
        }

    def _bill(self, num_switches: int, ports: int, copper: int, optical: int) -> BillOfMaterials:
        """Price one plane's parts in all planes.

        Args: ports: that a switch uses.
        Raises: ConfigError for more ports than the priced switch has.
        """
        if ports > SWITCH_PORTS:
            raise ConfigError(f"switches of {ports} ports have no price; the price list's have {SWITCH_PORTS}")
        parts = self.parts_per_link
        return BillOfMaterials(parts * num_switches, {"DAC": parts * copper, "AoC": parts * optical})
