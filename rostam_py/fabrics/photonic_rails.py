"""photonic_rails: servers whose i-th accelerators are joined by optical switches of their own, one rail for each i."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.optical import ONE_SHOT, OpticalConfig
from rostam_py.fabrics.switching import Switching
from rostam_py.units import parse_bandwidth, parse_time

if TYPE_CHECKING:
    from rostam_py.fabrics.layout import Layout

# More ports of a NIC than any has, and more pairs of servers, on all rails, than a core holds in some GB: own choices,
# since both grow what is planned and built.
_MOST_PORTS = 64
_MOST_PAIRS = 2**26


@dataclass(kw_only=True, slots=True)
class PhotonicRailsConfig(OpticalConfig):
    """Servers whose i-th accelerators are rail i, joined by the rail's own optical switches and by nothing else.

    Model: accelerators have B each on their server's switch, as on electrical_cluster, and ``num_ocs`` ports of
        ``port_bandwidth`` each on their rail, one to each of its switches. A message to another server goes inside its
        own server to the accelerator on the rail of its destination, unless it begins there, and then along that rail;
        it never changes servers after it has left a rail, unless parts have failed. Circuits begin one server ahead,
        one back, two ahead and so on; ``one_shot`` leaves them so, and what has no circuit is passed on by accelerators
        of its rail. Other controls set each rail's anew, rails one by one, for what is sent along it (OpticalConfig):
        ``scheduled`` for what the last iteration's phases sent, which is how circuits follow the parallelism that is at
        work; a pair without a circuit waits for one then. Parts do not fail where circuits change, and an iteration's
        demand is not known ahead: the estimator ``iteration`` takes all pairs alike.
    Args:
        num_accelerators: >= 1, a multiple of server_size; they fill servers consecutively.
        server_size: accelerators of a server, and so rails.
        num_ocs: ports of an accelerator on its rail, and optical switches of a rail [2, assumed]; at most 64, or two
            for each other server.
        port_bandwidth: bandwidth of one port, and so of a circuit, in each direction [200 Gb/s, assumed: a NIC of 400
            Gb/s].
        server_latency: latency end to end inside a server. latency: latency of a circuit [both 1 us, assumed: those of
            electrical_cluster and sip_ocs, for comparisons].
        link_latency: added by each link of a path: 2 inside a server, 2 over a circuit.
    Source: Ding, Ouyang and Singh, Photonic Rails in ML Datacenters, 2025 (arXiv 2507.08119): rails of optical
        switches set anew between the phases of parallelism. How circuits are chosen (largest least rate / bytes) is
        this project's.
    """

    # As that of sip_ocs; a period is asked of control=periodic only.
    PERIODS: ClassVar[int] = 5

    num_accelerators: int
    server_size: int = 8
    num_ocs: int = 2
    port_bandwidth: Any = field(default="200 Gb/s", metadata={"unit": "bandwidth"})
    server_latency: Any = field(default="1 us", metadata={"unit": "time"})
    latency: Any = field(default="1 us", metadata={"unit": "time"})
    link_latency: Any = field(default="0 ns", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        OpticalConfig.__post_init__(self)
        for key in ("num_accelerators", "server_size", "num_ocs"):
            setattr(self, key, check_integer(f"fabric.{key}", getattr(self, key), 1))
        if self.num_accelerators % self.server_size:
            raise ConfigError(
                f"fabric.num_accelerators is {self.num_accelerators}; it must be a multiple of fabric.server_size ="
                f" {self.server_size}, so that every rail reaches every server"
            )
        most = max(2 * (self.num_servers - 1), _MOST_PORTS)
        if self.num_ocs > most:
            raise ConfigError(
                f"fabric.num_ocs is {self.num_ocs}; it must be an integer from 1 to {most}, the larger of {_MOST_PORTS}"
                " and two ports for each other server"
            )
        peers = self.num_servers - 1 if self.is_dynamic else min(self.num_ocs, self.num_servers - 1)
        if self.num_accelerators * peers > _MOST_PAIRS:
            raise ConfigError(
                f"fabric.num_accelerators is {self.num_accelerators}, each with {peers:,} peers on its rail"
                f" (fabric.control={self.control}, fabric.num_ocs={self.num_ocs}): {self.num_accelerators * peers:,}"
                f" pairs, a link each; at most {_MOST_PAIRS:,}. Use fewer, a larger fabric.server_size, or"
                f" fabric.control={ONE_SHOT} with fewer fabric.num_ocs"
            )
        self.core_parameters()

    @classmethod
    def example(cls) -> Self:
        """Return four servers of four, which are four rails."""
        return cls(num_accelerators=16, server_size=4)

    def draw(self, fabric: Any, level: int) -> "Layout":
        """Draw accelerators on a circle, and the switches of their servers inside."""
        from rostam_py.fabrics.layout_circle import draw_circle

        return draw_circle(fabric, level, "server switch")

    @property
    def accelerators_per_server(self) -> int:
        """As given."""
        return self.server_size

    @property
    def nics_per_server(self) -> int:
        """As many as accelerators: each has its own ports, on its own rail."""
        return self.server_size

    @property
    def serves_beyond_degree(self) -> bool:
        """True: what has no circuit is passed on, or gets one in its turn."""
        return True

    @property
    def num_servers(self) -> int:
        """As many as each rail has accelerators."""
        return self.num_accelerators // self.server_size

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        return {
            "num_accelerators": self.num_accelerators, "server_size": self.server_size, "num_ocs": self.num_ocs,
            "port_bandwidth_bytes_per_s": self.link_bandwidth_bytes_per_s,
            "circuit_bandwidth_bytes_per_s": self._port,
            "server_latency_s": parse_time(self.server_latency, "fabric.server_latency"),
            "latency_s": parse_time(self.latency, "fabric.latency"),
            "link_latency_s": parse_time(self.link_latency, "fabric.link_latency"),
            "has_all_pairs": int(self.is_dynamic),
        }  # fmt: skip

    @property
    def _port(self) -> float:
        return parse_bandwidth(self.port_bandwidth, "fabric.port_bandwidth") / self.planes

    def switchings(self) -> list[Switching]:
        """Return how the circuits of each rail are set anew; none where they are not, or there is one server."""
        if not self.is_dynamic or self.num_servers == 1:
            return []
        return [self._switching(rail) for rail in range(self.server_size)]

    def unread_keys(self) -> tuple[str, ...]:
        """Return the same, and a note where a schedule is judged without circuits that are set once."""
        notes = OpticalConfig.unread_keys(self)
        if self.control != "scheduled":
            return notes
        return (
            *notes,
            f"fabric.control=scheduled is not compared with {ONE_SHOT}, where accelerators forward data of pairs"
            " without a circuit along their rail: that is faster where phases are shorter than"
            f" fabric.reconfiguration_delay ({self.reconfiguration_delay}); try both",
        )

    def _switching(self, rail: int) -> Switching:
        """Return that of one rail; its links come after those inside servers and of the rails before."""
        size = self.num_servers
        a, b = np.divmod(np.arange(size * size), size)
        a, b = a[a != b], b[a != b]
        # Cables of both directions, ascending by the lower server and the higher one.
        low, high = np.minimum(a, b), np.maximum(a, b)
        cable = low * (2 * size - low - 1) // 2 + high - low - 1
        src, dst = a * self.server_size + rail, b * self.server_size + rail
        # One server ahead, one back, two ahead, ..., as the core's fabric has them.
        turn = np.arange(self.num_ocs) % (size - 1)
        shift = np.where(turn % 2 == 0, turn // 2 + 1, size - turn // 2 - 1)
        pair, channel = np.nonzero(((b - a) % size)[:, None] == shift)
        num, latency_s = len(src), parse_time(self.latency) + 2 * parse_time(self.link_latency)
        return Switching(
            controller="ocs_circuits", src=src, dst=dst,
            bandwidth_bytes_per_s=np.full(num, self.planes * self._port * self.num_ocs),
            latency_s=np.full(num, latency_s),
            parameters={
                **self.switching_parameters(self.num_accelerators, src, dst, np.ones(num), self._port, latency_s),
                "initial_pair": pair.tolist(), "initial_channel": channel.tolist(), "num_ocs": [self.num_ocs],
                "symmetric": [0], "duplex": [0], "rail_size": [self.server_size],
            },
            rail_size=self.server_size,
            links={"link": 2 * self.num_accelerators + rail * num + 2 * cable + (a > b)},
        )  # fmt: skip
