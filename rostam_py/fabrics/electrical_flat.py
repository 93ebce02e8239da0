"""electrical_flat: one ideal switch that joins everything at full bandwidth."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.reducing import ReducingFabricConfig
from rostam_py.units import parse_time

if TYPE_CHECKING:
    from rostam_py.fabrics.layout import Layout


@dataclass(kw_only=True, slots=True)
class ElectricalFlatConfig(ReducingFabricConfig):
    """An ideal electrical switch: every accelerator sends and receives at B to and from any set of peers.

    Model: a route is the sender's port and the receiver's port; the upper bound of all fabrics at equal B.
    Args:
        num_accelerators: >= 1.
        latency: latency end to end ["1 us", the paper's (MODEL A3)].
        link_latency: added by each of the two links on a path; 0, since ``latency`` covers the whole path.
    Source: SiP-ML, section 4.1 (Elect-Flat), table 1.
    """

    num_accelerators: int
    latency: Any = field(default="1 us", metadata={"unit": "time"})
    link_latency: Any = field(default="0 ns", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        ReducingFabricConfig.__post_init__(self)
        self.num_accelerators = check_integer("fabric.num_accelerators", self.num_accelerators, 1)

    def draw(self, fabric: Any, level: int) -> "Layout":
        """Draw accelerators round the ideal switch."""
        from rostam_py.fabrics.layout_tiers import draw_star

        return draw_star(fabric, level, "ideal switch")

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        return {
            "num_accelerators": self.num_accelerators,
            "port_bandwidth_bytes_per_s": self.link_bandwidth_bytes_per_s,
            "latency_s": parse_time(self.latency, "fabric.latency"),
            "link_latency_s": parse_time(self.link_latency, "fabric.link_latency"),
        }
