"""fat_tree: two or three levels of switches, nonblocking or tapered at the leaves."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import BillOfMaterials
from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.link_classes import LinkClasses, check_server_reduction, link_class
from rostam_py.fabrics.reducing import ReducingFabricConfig
from rostam_py.units import parse_bandwidth, parse_time

if TYPE_CHECKING:
    from rostam_py.fabrics.layout import Layout

# By how many tiers a tree has.
_TIERS = {1: ("leaf",), 2: ("leaf", "spine"), 3: ("leaf", "pod switch", "core")}


def most_leaves(radix: int, levels: int) -> int:
    """Return how many leaves a tree of two or three levels joins: a port of every spine, or radix pods of radix / 2."""
    return radix if levels == 2 else radix * (radix // 2)


@dataclass(kw_only=True, slots=True)
class FatTreeConfig(ReducingFabricConfig):
    """A folded Clos network; accelerators fill leaves consecutively, or each rail has leaves of its own.

    Model: two levels: the uplinks of all leaves go round-robin to the fewest spines that hold them. Three
        levels: at most radix / 2 leaves a pod; each leaf has one link to each of the leaf_up switches of its
        pod; those have as many links up as down, to cores grouped so that every pod reaches every core.
        With servers an accelerator keeps its own port, now a NIC's, on the leaf, and has one more link to the switch
        in its server; messages inside a server take that (2 links), all others NIC and leaf. B is the NIC's. A NIC
        adds no latency, so paths between servers are as long as without servers. Parts of servers are not counted as
        switches or links, and fail with their accelerators only; a cut cable to the leaf leaves the server.
        With rails accelerator i of every server is on leaf i of its unit, which is as many servers as a leaf has ports
        down. Fewer servers, in the last unit, have rails that share leaves: 8 rails of 16 servers are on 4 leaves of
        32 ports down, those of 4 servers on one.
        Switches are numbered leaves first, then spines (pod by pod on three levels), then cores: the 32 spines above
        64 leaves are switches 64 to 95.
    Args:
        num_accelerators: >= 1.
        levels: 2 or 3; None takes 2 where every spine can reach every leaf, else 3.
        radix: ports of a switch; 64 as in the paper's price list.
        leaf_down, leaf_up: ports of a leaf to accelerators and upwards; by default half of the radix and the
            rest (nonblocking). The paper's cost section tapers with 42 / 22 and 51 / 13.
        num_spines: spines of a two-level tree, from the fewest that hold all uplinks (None) to leaf_up.
        pod_leaves: leaves of a pod on three levels, 1 to radix / 2, whose switches are then packed: a pod has the
            fewest that hold its leaves' uplinks in half of their ports, and there are the fewest cores that hold all of
            theirs, round-robin. Such a tree is cheaper where leaves taper; its links carry unequal loads, since pods
            have unequal numbers of cables to a core. None: even pods, as above.
        server_size: accelerators per server; 1 means no servers. The last server may be partly filled.
        rails: accelerator i of every server is on leaf i of its unit, as in rail-optimised networks; needs servers.
        server_bandwidth: bandwidth of an accelerator's link inside its server, in each direction, over all planes; 300
            GB/s, half of the 600 GB/s (both directions) of NVLink 3.
        server_links, network_links: classes of the links inside servers and of all others (link_classes.py): achieved
            share of the bandwidth, and start-up costs.
        in_server_reduction: switches inside servers reduce data (NVLink SHARP), for nvls and nvls_tree; None as the
            class of server_links has it: true for NVLink 4 and 5, false for ideal links.
        in_network_reduction: switches between servers reduce data (SHARP), for the algorithm collnet; without servers
            for pull, push and multicast.
        link_latency: latency of every cable, including those inside servers; 20 ns in the paper.
        switch_latency: latency of every switch on a path; 40 ns, the paper's buffer latency.
    Source: HammingMesh, appendices C (counts) and F (latencies); NVIDIA A100 data sheet (NVLink 3); servers of 8
        accelerators with a NIC each below 32-port leaves: Cohen et al., "Routing for Large ML Models", evaluation;
        rails: NVIDIA DGX SuperPOD reference architecture RA-11333-001, compute fabric.
    """

    num_accelerators: int
    levels: int | None = None
    radix: int = 64
    leaf_down: int | None = None
    leaf_up: int | None = None
    num_spines: int | None = None
    pod_leaves: int | None = None
    server_size: int = 1
    rails: bool = False
    server_bandwidth: Any = field(default="300 GB/s", metadata={"unit": "bandwidth"})
    server_links: str = field(default="ideal", metadata={"is_link_class": True})
    network_links: str = field(default="ideal", metadata={"is_link_class": True})
    in_server_reduction: bool | None = None
    switch_latency: Any = field(default="40 ns", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        ReducingFabricConfig.__post_init__(self)
        self.num_accelerators = check_integer("fabric.num_accelerators", self.num_accelerators, 1)
        self.radix = check_integer("fabric.radix", self.radix, 2)
        self.server_size = check_integer("fabric.server_size", self.server_size, 1)
        if self.rails and self.server_size == 1:
            raise ConfigError("fabric.rails is true, but fabric.server_size is 1; a rail joins accelerators of servers")
        for key in ("leaf_down", "leaf_up", "num_spines", "pod_leaves"):
            if getattr(self, key) is not None:
                setattr(self, key, check_integer(f"fabric.{key}", getattr(self, key), 1))
        self._check_leaf_ports()
        if self.levels is not None and (not is_integer(self.levels) or self.levels not in (2, 3)):
            raise ConfigError(f"fabric.levels is {self.levels!r}; allowed: 2, 3")
        self._check_levels()
        if self.num_spines is not None:
            self._check_spines(self.num_spines)
        if self.pod_leaves is not None:
            self._check_pods(self.pod_leaves)
        check_server_reduction(self.in_server_reduction, self.server_size, self.link_classes)

    def _check_leaf_ports(self) -> None:
        down, up = self.leaf_ports
        if down >= 1 and up >= 1 and down + up <= self.radix:
            return
        if self.leaf_down is None or self.leaf_up is None:
            key, value = ("leaf_up", up) if self.leaf_down is None else ("leaf_down", down)
            raise ConfigError(
                f"fabric.{key} is {value}; it must be from 1 to {self.radix - 1}, the other way has the rest of the "
                f"ports of fabric.radix {self.radix}"
            )
        raise ConfigError(
            f"fabric.leaf_down is {down} and fabric.leaf_up is {up}; both must be >= 1 and fit "
            f"fabric.radix {self.radix} together"
        )

    def _check_levels(self) -> None:
        """Refuse more leaves than the levels join: a spine, or the cores above one switch of each pod, hold radix."""
        most = most_leaves(self.radix, self.num_levels)
        if self.num_leaves <= most:
            return
        down, up = self.leaf_ports
        holds = f"at most {most:,} leaves, {most * down:,} accelerators with fabric.leaf_down = {down}"
        if self.num_levels == 2:
            spines = -(-self.num_leaves * up // self.radix)
            raise ConfigError(
                f"fabric.levels is 2, but {self.num_leaves:,} leaves with fabric.leaf_up = {up} need {spines:,} spines "
                f"of fabric.radix {self.radix} and a leaf reaches only leaf_up of them; two levels join {holds}; use 3"
            )
        raise ConfigError(
            f"fabric.num_accelerators is {self.num_accelerators:,} on {self.num_leaves:,} leaves; three levels of "
            f"fabric.radix {self.radix} join {holds}"
        )

    def _check_pods(self, pod_leaves: int) -> None:
        if self.num_levels != 3:
            raise ConfigError(f"fabric.pod_leaves is {pod_leaves}, but the tree has two levels; pods are of three")
        most = self.radix // 2
        fewest = -(-self.num_leaves // self.radix)  # each pod but the last has a cable to every core
        if not fewest <= pod_leaves <= most:
            raise ConfigError(
                f"fabric.pod_leaves is {pod_leaves}; {self.num_leaves:,} leaves allow {fewest} (a cable from every pod "
                f"to every core) to {most} (half of fabric.radix {self.radix})"
            )

    def _check_spines(self, num_spines: int) -> None:
        up = self.leaf_ports[1]
        if self.num_leaves == 1 or self.levels == 3:
            shape = "three levels" if self.levels == 3 else f"one leaf for {self.num_accelerators} accelerators"
            raise ConfigError(f"fabric.num_spines is {num_spines}, but the tree has {shape}; it goes with two levels")
        fewest = -(-self.num_leaves * up // self.radix)
        if not fewest <= num_spines <= up:
            raise ConfigError(
                f"fabric.num_spines is {num_spines}; {self.num_leaves} leaves with fabric.leaf_up = {up} allow {fewest}"
                f" (fabric.radix = {self.radix}) to {up} (a link from every leaf to every spine)"
            )

    @classmethod
    def example(cls) -> Self:
        """Return four leaves of four below two spines."""
        return cls(num_accelerators=16, radix=8)

    def draw(self, fabric: Any, level: int) -> "Layout":
        """Draw accelerators and tiers of switches in layers."""
        from rostam_py.fabrics.layout_tiers import draw_layers

        return draw_layers(fabric, level, _TIERS)

    @property
    def num_leaves(self) -> int:
        """Switches that accelerators are on."""
        down = self.leaf_ports[0]
        if not self.rails:
            return -(-self.num_accelerators // down)
        num_units, rest = divmod(-(-self.num_accelerators // self.server_size), down)
        leaves_of_rest = -(-self.server_size // min(self.server_size, down // rest)) if rest else 0
        return num_units * self.server_size + leaves_of_rest

    @property
    def leaf_ports(self) -> tuple[int, int]:
        """Ports of a leaf: (down, up)."""
        if self.leaf_down is not None:
            return self.leaf_down, self.radix - self.leaf_down if self.leaf_up is None else self.leaf_up
        if self.leaf_up is not None:
            return self.radix - self.leaf_up, self.leaf_up
        return self.radix // 2, self.radix - self.radix // 2

    @property
    def num_levels(self) -> int:
        """2 or 3: as given, or the fewest that join all leaves."""
        if self.levels is not None:
            return self.levels
        up = self.leaf_ports[1]
        return 2 if -(-self.num_leaves * up // self.radix) <= up else 3

    @property
    def _server_bandwidth(self) -> float:
        return parse_bandwidth(self.server_bandwidth, "fabric.server_bandwidth")

    @property
    def peak_bandwidth_bytes_per_s(self) -> float:
        """What an accelerator can send at most, through its NIC and inside its server at once [bytes/s]."""
        inside = self._server_bandwidth if self.server_size > 1 else 0.0
        return self.injection_bandwidth_bytes_per_s + inside

    @property
    def link_classes(self) -> LinkClasses:
        """As named; without servers all links are of the network's class."""
        between = link_class(self.network_links, "fabric.network_links")
        inside = link_class(self.server_links, "fabric.server_links")
        return LinkClasses(inside if self.server_size > 1 else between, between)

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
        """Of a link inside its server; the NIC's without servers [bytes/s]."""
        if self.server_size == 1:
            return self.injection_bandwidth_bytes_per_s * self.link_classes.between.share
        return self._server_bandwidth * self.link_classes.inside.share

    @property
    def nics_per_server(self) -> int:
        """Accelerators of a server, each of which keeps its port on the leaf."""
        return self.server_size

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        down, up = self.leaf_ports
        inside, between = self.link_classes
        return {
            "num_accelerators": self.num_accelerators,
            "levels": self.num_levels,
            "radix": self.radix,
            "leaf_down": down,
            "leaf_up": up,
            "num_spines": self.num_spines or 0,
            "pod_leaves": self.pod_leaves or 0,
            "server_size": self.server_size,
            "rails": int(self.rails),
            "server_bandwidth_bytes_per_s": self._server_bandwidth * inside.share / self.planes,
            "link_bandwidth_bytes_per_s": self.link_bandwidth_bytes_per_s * between.share,
            "link_latency_s": parse_time(self.link_latency, "fabric.link_latency"),
            "switch_latency_s": parse_time(self.switch_latency, "fabric.switch_latency"),
        }

    def bill_of_materials(self) -> BillOfMaterials:
        """Price all planes: copper to accelerators, active optical cables between switches.

        Model: a link faster than 400 Gb/s takes several parts. What is inside a server counts as packaging, which the
            price list leaves out.
        """
        from rostam_py import _core

        core = _core.make_fabric("fat_tree", self.core_parameters())
        num_between = core.num_cables - self.num_accelerators
        cables = {"DAC": self.parts_per_link * self.num_accelerators, "AoC": self.parts_per_link * num_between}
        return BillOfMaterials(self.parts_per_link * core.num_switches, cables)
