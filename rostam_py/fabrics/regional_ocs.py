"""regional_ocs: servers on an electrical network, those of a region joined by optical circuits besides."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.optical import OpticalConfig, picoseconds
from rostam_py.fabrics.switching import Switching
from rostam_py.units import parse_bandwidth, parse_time

if TYPE_CHECKING:
    from rostam_py.fabrics.layout import Layout


@dataclass(kw_only=True, slots=True)
class RegionalOcsConfig(OpticalConfig):
    """Servers whose NICs are shared between an electrical network and the optical switches of their region.

    Model: accelerators have B each inside a server, as on electrical_cluster, and share its NICs: ``num_ocs`` of them
        lead to as many optical switches that only the ``region_servers`` consecutive servers of a region have, the
        ``num_electrical`` others to an ideal network of all servers. A message between servers takes the circuits that
        they have at that time or, while none is lit, the network, and moves with its remaining bytes when that changes.
        Circuits begin spread evenly over a region; ``one_shot`` leaves them so. Other controls set each region's anew,
        regions one by one, for the traffic between its servers (OpticalConfig): ``scheduled`` for what the last
        iteration's phases sent, as MixNet does between the all-to-alls of experts. Parts do not fail where circuits
        change, and an iteration's demand is not known ahead: the estimator ``iteration`` takes all pairs alike.
    Args:
        num_accelerators: >= 1; they fill servers consecutively, and the last may be partly filled.
        server_size: accelerators of a server. region_servers: servers of a region; the last may have fewer.
        num_ocs: NICs of a server to its region's optical switches, one to each. num_electrical: NICs of a server to the
            network.
        nic_bandwidth: bandwidth of one NIC, and so of a circuit, in each direction.
        server_latency: latency end to end inside a server. network_latency: latency between servers, >= server_latency,
            over circuits too [both 1 us, assumed: that of electrical_cluster, for comparisons].
        link_latency: added by each link of a path: 2 inside a server, 3 over a circuit, 4 over the network.
    Source: Liao et al., MixNet, SIGCOMM 2025 (arXiv 2501.03905) and the authors' simulator (mixnet-sim): 8 GPUs and 8
        NICs in a server, 6 of the NICs on the optical switch, 25 ms to reconfigure; a region has the servers of one
        expert-parallel group, EP x TP / 8. How circuits are chosen (largest least rate / bytes) is this project's.
    """

    # As that of sip_ocs; a period is asked of control=periodic only.
    PERIODS: ClassVar[int] = 5
    ROUTINGS_ANEW: ClassVar[tuple[str, ...]] = ("dfsssp", "hash", "spray")

    num_accelerators: int
    server_size: int = 8
    region_servers: int = 8
    num_ocs: int = 6
    num_electrical: int = 2
    nic_bandwidth: Any = field(default="400 Gb/s", metadata={"unit": "bandwidth"})
    server_latency: Any = field(default="1 us", metadata={"unit": "time"})
    network_latency: Any = field(default="1 us", metadata={"unit": "time"})
    link_latency: Any = field(default="0 ns", metadata={"unit": "time"})
    reconfiguration_delay: Any = field(default="25 ms", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        OpticalConfig.__post_init__(self)
        for key in ("num_accelerators", "server_size", "region_servers", "num_ocs", "num_electrical"):
            setattr(self, key, check_integer(f"fabric.{key}", getattr(self, key), 1))
        found = self.core_parameters()
        if found["network_latency_s"] < found["server_latency_s"]:
            raise ConfigError(
                f"fabric.network_latency is {self.network_latency!r}; it must be >= fabric.server_latency "
                f"({self.server_latency!r}), since paths between servers cross two of them"
            )

    @classmethod
    def example(cls) -> Self:
        """Return two regions of two servers of four."""
        return cls(num_accelerators=16, server_size=4, region_servers=2)

    def draw(self, fabric: Any, level: int) -> "Layout":
        """Draw servers round the network that joins them."""
        from rostam_py.fabrics.layout_tiers import draw_star

        return draw_star(fabric, level, "server switch", "network")

    @property
    def accelerators_per_server(self) -> int:
        """As given."""
        return self.server_size

    @property
    def serves_beyond_degree(self) -> bool:
        """True: what has no circuit takes the network."""
        return True

    @property
    def num_servers(self) -> int:
        """The last of which may be part full."""
        return -(-self.num_accelerators // self.server_size)

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        nic = parse_bandwidth(self.nic_bandwidth, "fabric.nic_bandwidth") / self.planes
        return {
            "num_accelerators": self.num_accelerators, "server_size": self.server_size,
            "region_servers": self.region_servers, "num_ocs": self.num_ocs,
            "port_bandwidth_bytes_per_s": self.link_bandwidth_bytes_per_s,
            "electrical_bandwidth_bytes_per_s": self.num_electrical * nic, "circuit_bandwidth_bytes_per_s": nic,
            "server_latency_s": parse_time(self.server_latency, "fabric.server_latency"),
            "network_latency_s": parse_time(self.network_latency, "fabric.network_latency"),
            "link_latency_s": parse_time(self.link_latency, "fabric.link_latency"),
            "has_all_pairs": int(self.is_dynamic),
        }  # fmt: skip

    def switchings(self) -> list[Switching]:
        """Return how the circuits of each region with several servers are set anew; none where they are not."""
        if not self.is_dynamic:
            return []
        regions = range(0, self.num_servers, self.region_servers)
        sizes = [min(self.region_servers, self.num_servers - first) for first in regions]
        before = 2 * (self.num_accelerators + self.num_servers)
        switchings = []
        for first, size in zip(regions, sizes, strict=True):
            if size > 1:
                switchings.append(self._switching(first, size, before))
                before += size * (size - 1)
        return switchings

    def _switching(self, first: int, size: int, first_link: int) -> Switching:
        """Return that of the region that begins with server ``first``; its links are numbered from ``first_link``."""
        src, dst = (first + side for side in np.divmod(np.arange(size * size), size))
        src, dst = src[src != dst], dst[src != dst]
        nic = parse_bandwidth(self.nic_bandwidth) / self.planes
        between, link = parse_time(self.network_latency), parse_time(self.link_latency)
        # Switch k begins with shifts by 1 + k mod (size - 1), as the core's fabric does.
        shift = 1 + np.arange(self.num_ocs) % (size - 1)
        pair, channel = np.nonzero(((dst - src) % size)[:, None] == shift)
        accelerators = 2 * np.arange(self.num_accelerators)
        servers = 2 * (self.num_accelerators + np.arange(self.num_servers))
        num, over_circuit_s = len(src), between + 3 * link
        return Switching(
            controller="ocs_circuits", src=src, dst=dst,
            bandwidth_bytes_per_s=np.full(num, self.planes * nic * self.num_ocs),
            latency_s=np.full(num, over_circuit_s),
            parameters={
                **self.switching_parameters(self.num_servers, src, dst, np.ones(num), nic, over_circuit_s),
                "initial_pair": pair.tolist(), "initial_channel": channel.tolist(), "num_ocs": [self.num_ocs],
                "symmetric": [0], "duplex": [0], "server_size": [self.server_size],
                "server_circuit_latency_ps": [picoseconds(over_circuit_s)],
                "network_bytes_per_s": [self.num_electrical * nic],
                "network_latency_ps": [picoseconds(between + 4 * link)],
            },
            server_size=self.server_size,
            links={
                "link": first_link + np.arange(num), "up": accelerators, "down": accelerators + 1,
                "network_up": servers, "network_down": servers + 1,
            },
        )  # fmt: skip
