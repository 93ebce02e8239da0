"""electrical_cluster: fast servers joined by a slower ideal network."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import PORT_BYTES_PER_S, SWITCH_PORTS, BillOfMaterials, parts_per_port
from rostam_py.fabrics.config import FabricConfig, check_integer
from rostam_py.fabrics.fat_tree import FatTreeConfig
from rostam_py.fabrics.link_classes import LinkClasses, check_server_reduction, link_class
from rostam_py.units import parse_bandwidth, parse_time

if TYPE_CHECKING:
    from rostam_py.fabrics.layout import Layout


@dataclass(kw_only=True, slots=True)
class ElectricalClusterConfig(FabricConfig):
    """Servers whose accelerators have B each, joined by an ideal switch over one uplink per server.

    Model: one port of B per accelerator inside the server, used for all its traffic; ``server_bandwidth`` per
        server and direction between servers (MODEL A2), over all planes together.
    Args:
        num_accelerators: >= 1; they fill servers consecutively, and the last may be partly filled.
        server_size: accelerators of one server; 8 in the paper.
        server_bandwidth: uplink bandwidth per server and direction ["400 Gb/s", the paper's; it also tries 200].
        server_links, network_links: classes of the links inside servers and of their uplinks (link_classes.py):
            achieved share of the bandwidth, and start-up costs.
        in_server_reduction: switches inside servers reduce data (NVLink SHARP), for the algorithm nvls; None as the
            class of server_links has it: true for NVLink 4 and 5, false for ideal links.
        server_latency: latency end to end inside a server.
        network_latency: latency end to end between servers, >= server_latency. Both default to the 1 us that the paper
            gives every electrical fabric, so that comparisons with electrical_flat are at equal latency.
        link_latency: added by each link of a path (2 inside a server, 4 between servers).
    Source: SiP-ML, section 4.1 (Elect-Cluster), table 1.
    """

    # The switches inside its servers, of the full bandwidth, are not on the price list.
    is_fully_priced: ClassVar[bool] = False

    num_accelerators: int
    server_size: int = 8
    server_bandwidth: Any = field(default="400 Gb/s", metadata={"unit": "bandwidth"})
    server_links: str = field(default="ideal", metadata={"is_link_class": True})
    network_links: str = field(default="ideal", metadata={"is_link_class": True})
    in_server_reduction: bool | None = None
    server_latency: Any = field(default="1 us", metadata={"unit": "time"})
    network_latency: Any = field(default="1 us", metadata={"unit": "time"})
    link_latency: Any = field(default="0 ns", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        FabricConfig.__post_init__(self)
        self.num_accelerators = check_integer("fabric.num_accelerators", self.num_accelerators, 1)
        self.server_size = check_integer("fabric.server_size", self.server_size, 1)
        check_server_reduction(self.in_server_reduction, self.server_size, self.link_classes)
        if parse_time(self.network_latency) < parse_time(self.server_latency):
            raise ConfigError(
                f"fabric.network_latency is {self.network_latency!r}; it must be >= fabric.server_latency "
                f"({self.server_latency!r}), since paths between servers cross two of them"
            )

    @classmethod
    def example(cls) -> Self:
        """Return four servers of four."""
        return cls(num_accelerators=16, server_size=4)

    def draw(self, fabric: Any, level: int) -> "Layout":
        """Draw servers round the network that joins them."""
        from rostam_py.fabrics.layout_tiers import draw_star

        return draw_star(fabric, level, "server switch", "network")

    @property
    def link_classes(self) -> LinkClasses:
        """As named."""
        return LinkClasses(
            link_class(self.server_links, "fabric.server_links"), link_class(self.network_links, "fabric.network_links")
        )

    @property
    def accelerators_per_server(self) -> int:
        """As given."""
        return self.server_size

    @property
    def reduces_in_servers(self) -> bool:
        """As given, else as the class of the links inside servers has it."""
        given = self.in_server_reduction
        return self.link_classes.inside.reduces if given is None else given

    @property
    def server_bytes_per_s(self) -> float:
        """Of an accelerator's port [bytes/s]."""
        return self.injection_bandwidth_bytes_per_s * self.link_classes.inside.share

    @property
    def _server_bytes_per_s(self) -> float:
        return parse_bandwidth(self.server_bandwidth, "fabric.server_bandwidth")

    def bill_of_materials(self) -> BillOfMaterials:
        """Price the network between servers: one nonblocking network of 64-port switches a 400 Gb/s port of a server.

        Model: parts inside a server count as packaging, which the price list leaves out. Up to 64 servers share one
            switch over copper; more take a fat tree.
        Source: own, on HammingMesh's price list of 400 Gb/s parts (section III-C, appendix E).
        """
        num_servers = -(-self.num_accelerators // self.server_size)
        if num_servers == 1:
            return BillOfMaterials(0, {"DAC": 0})
        ports = self.planes * parts_per_port(self._server_bytes_per_s / self.planes)
        if num_servers <= SWITCH_PORTS:
            return BillOfMaterials(ports, {"DAC": ports * num_servers})
        tree = FatTreeConfig(
            num_accelerators=num_servers, radix=SWITCH_PORTS, planes=ports, link_bandwidth=PORT_BYTES_PER_S
        )
        return tree.bill_of_materials()

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        inside, between = self.link_classes
        return {
            "num_accelerators": self.num_accelerators,
            "server_size": self.server_size,
            "port_bandwidth_bytes_per_s": self.link_bandwidth_bytes_per_s * inside.share,
            "server_bandwidth_bytes_per_s": self._server_bytes_per_s * between.share / self.planes,
            "server_latency_s": parse_time(self.server_latency),
            "network_latency_s": parse_time(self.network_latency),
            "link_latency_s": parse_time(self.link_latency),
        }
