"""hybrid_cube_mesh: servers of eight accelerators on direct links, as NVIDIA's DGX-1, below leaves and spines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import BillOfMaterials
from rostam_py.fabrics.config import FabricConfig, check_integer
from rostam_py.fabrics.disjoint_rings import disjoint_paths, disjoint_rings
from rostam_py.fabrics.fat_tree import FatTreeConfig, most_leaves
from rostam_py.fabrics.link_classes import LinkClasses, link_class
from rostam_py.units import parse_bandwidth, parse_time

if TYPE_CHECKING:
    from rostam_py.fabrics.layout import Layout

# Links between the places of a server: NVIDIA DGX-1 with Tesla V100 System Architecture (WP-08437-002), figure 4; the
# matrix NV1 / NV2 of ``nvidia-smi topo -m`` on DGX-1V. Six of every accelerator.
_LINKS = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2, (2, 6): 1, (3, 7): 1,
    (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip
_SIZE = 8
_PORTS = 6
_PER_NIC = 2
_NICS = _SIZE // _PER_NIC
_NVLINK = "150 GB/s"  # over six links of 25 GB/s


@dataclass(kw_only=True, slots=True)
class HybridCubeMeshConfig(FabricConfig):
    """Servers of eight accelerators joined by direct links, some pairs by two, and four NICs.

    Model: accelerators 0 to 3 of a server, and 4 to 7, are all joined, by one link or two; accelerator i is joined to
        i + 4. Messages between accelerators without a link go through one between them, spread over shortest paths,
        without PCI Express and the host's memory in between. Accelerators 2k and 2k + 1 share NIC k through their PCI
        Express links; NICs fill the leaves of a tree of 36-port switches, those of a server on one leaf. Rings run in
        as many channels as direct links give edge-disjoint rings over the ranks, and as many as there are NICs where
        the ranks are on several servers. B is that of the six direct links.
    Args:
        num_accelerators: a multiple of 8.
        accelerator_bandwidth: total of an accelerator's six direct links, in each direction, over all planes; 150 GB/s,
            NVLink 2 of 25 GB/s a link.
        nic_bandwidth: bandwidth of a NIC, which two accelerators share; 100 Gb/s, EDR InfiniBand.
        server_links, network_links: classes of the direct links, and of NICs and switches (link_classes.py).
        pcie_bandwidth: bandwidth between an accelerator and its NIC; 15.75 GB/s, PCI Express 3.0 x16 after 128b/130b
            coding.
        radix, leaf_down, leaf_up, levels: parameters of the switches between servers, as in ``fat_tree``; leaf_down is
            a multiple of four, by default the largest up to half of the radix, and leaf_up as much.
        link_latency: latency of every cable; 20 ns, as in the other fabrics.
        switch_latency: latency of every switch on a path; 40 ns, as in ``fat_tree``.
    Source: NVIDIA DGX-1 with Tesla V100 System Architecture (WP-08437-002); rings: own, see disjoint_rings.py.
    """

    server_size: ClassVar[int] = _SIZE
    has_direct_links: ClassVar[bool] = True

    num_accelerators: int
    nic_bandwidth: Any = field(default="100 Gb/s", metadata={"unit": "bandwidth"})
    pcie_bandwidth: Any = field(default="15.75 GB/s", metadata={"unit": "bandwidth"})
    server_links: str = field(default="ideal", metadata={"is_link_class": True})
    network_links: str = field(default="ideal", metadata={"is_link_class": True})
    radix: int = 36
    leaf_down: int | None = None
    leaf_up: int | None = None
    levels: int | None = None
    switch_latency: Any = field(default="40 ns", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        if self.link_bandwidth is None and self.accelerator_bandwidth is None:
            self.accelerator_bandwidth = _NVLINK
        FabricConfig.__post_init__(self)
        _ = self.link_classes  # registered ones
        self.num_accelerators = check_integer("fabric.num_accelerators", self.num_accelerators, _SIZE)
        if self.num_accelerators % _SIZE:
            raise ConfigError(
                f"fabric.num_accelerators is {self.num_accelerators}; servers have {_SIZE}, so it must be a multiple"
            )
        self.radix = check_integer("fabric.radix", self.radix, 2 * _NICS)
        if self.leaf_down is not None and check_integer("fabric.leaf_down", self.leaf_down, _NICS) % _NICS:
            raise ConfigError(
                f"fabric.leaf_down is {self.leaf_down}; all {_NICS} NICs of a server are on one leaf, so it must be a"
                f" multiple of {_NICS}"
            )
        if self.leaf_down is not None and self.leaf_down >= self.radix:
            raise ConfigError(
                f"fabric.leaf_down is {self.leaf_down}; it must be < {self.radix}, fabric.radix, for a port upwards"
            )
        if self.levels in (None, 2, 3):
            self._check_size(self.levels or 3)
        self._network()

    def _check_size(self, levels: int) -> None:
        down = self._leaf_down
        most = most_leaves(self.radix, levels) * down * _PER_NIC
        if self.num_accelerators > most:
            raise ConfigError(
                f"fabric.num_accelerators is {self.num_accelerators:,}; {levels} levels of fabric.radix {self.radix} "
                f"join at most {most:,}, whose {most // _PER_NIC:,} NICs fill leaves of fabric.leaf_down = {down}"
            )

    @property
    def _leaf_down(self) -> int:
        return self.radix // 2 // _NICS * _NICS if self.leaf_down is None else self.leaf_down

    def _network(self) -> FatTreeConfig:
        """Return the tree above the NICs, which are its accelerators."""
        down = self._leaf_down
        return FatTreeConfig(
            num_accelerators=self.num_accelerators // _PER_NIC,
            radix=self.radix,
            leaf_down=down,
            leaf_up=min(down, self.radix - down) if self.leaf_up is None else self.leaf_up,
            levels=self.levels,
            link_bandwidth=self.nic_bandwidth_bytes_per_s,
            planes=self.planes,
        )

    @classmethod
    def whole_size(cls, num_accelerators: int) -> int:
        """Return the accelerators of as many servers as hold so many."""
        return -(-num_accelerators // _SIZE) * _SIZE

    @classmethod
    def resized(cls, parameters: Mapping[str, Any], num_accelerators: int) -> dict[str, Any]:
        """Return parameters of so many accelerators.

        Raises: ConfigError for a number that whole servers do not make up.
        """
        if num_accelerators < 1 or num_accelerators % _SIZE:
            near = max(_SIZE, num_accelerators // _SIZE * _SIZE)
            raise ConfigError(
                f"num_accelerators is {num_accelerators}; servers of a hybrid cube mesh have {_SIZE}, so it must be a"
                f" multiple of {_SIZE}, such as {near}"
            )
        return {**parameters, "num_accelerators": num_accelerators}

    def draw(self, fabric: Any, level: int) -> "Layout":
        """Draw servers, NICs and tiers of switches in layers."""
        from rostam_py.fabrics.layout_tiers import draw_layers

        return draw_layers(fabric, level, {1: ("leaf",), 2: ("leaf", "spine"), 3: ("leaf", "pod switch", "core")})

    @property
    def ports_per_plane(self) -> int:
        """Direct links of an accelerator in one plane."""
        return _PORTS

    @property
    def nic_bandwidth_bytes_per_s(self) -> float:
        """What a NIC sends, and receives, in one plane [bytes/s]."""
        return parse_bandwidth(self.nic_bandwidth, "fabric.nic_bandwidth") / self.planes

    @property
    def peak_bandwidth_bytes_per_s(self) -> float:
        """What an accelerator can send at most, over its direct links and its NIC at once [bytes/s]."""
        pcie = parse_bandwidth(self.pcie_bandwidth, "fabric.pcie_bandwidth")
        return self.injection_bandwidth_bytes_per_s + min(pcie, self.planes * self.nic_bandwidth_bytes_per_s)

    @property
    def link_classes(self) -> LinkClasses:
        """As named."""
        return LinkClasses(
            link_class(self.server_links, "fabric.server_links"), link_class(self.network_links, "fabric.network_links")
        )

    @property
    def accelerators_per_server(self) -> int:
        """Eight."""
        return _SIZE

    @property
    def server_bytes_per_s(self) -> float:
        """Of the six direct links [bytes/s]."""
        return self.injection_bandwidth_bytes_per_s * self.link_classes.inside.share

    @property
    def nics_per_server(self) -> int:
        """Accelerators of a server; two share a NIC."""
        return _SIZE

    def ring_channels(self, places: Sequence[int], num_servers: int) -> tuple[tuple[int, ...], ...]:
        """Return edge-disjoint rings over ranks of one server, or paths from NIC to NIC through each of several."""
        links = np.zeros((_SIZE, _SIZE), np.int64)
        for (a, b), count in _LINKS.items():
            links[a, b] = links[b, a] = count
        own = links[np.ix_(places, places)]
        if num_servers == 1:
            return disjoint_rings(own)
        return disjoint_paths(own, [place // _PER_NIC for place in places], _NICS)

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        network = self._network()
        inside, between = self.link_classes
        down, up = network.leaf_ports
        cables = [pair for pair, count in _LINKS.items() for _ in range(count)]
        return {
            "num_accelerators": self.num_accelerators,
            "server_size": _SIZE,
            "accelerators_per_nic": _PER_NIC,
            "mesh_src": [a for a, _ in cables],
            "mesh_dst": [b for _, b in cables],
            "levels": network.num_levels,
            "radix": self.radix,
            "leaf_down": down,
            "leaf_up": up,
            "num_spines": 0,
            "pod_leaves": 0,
            "nic_bandwidth_bytes_per_s": self.nic_bandwidth_bytes_per_s * between.share,
            "pcie_bandwidth_bytes_per_s": parse_bandwidth(self.pcie_bandwidth) / self.planes,
            "link_bandwidth_bytes_per_s": self.link_bandwidth_bytes_per_s * inside.share,
            "link_latency_s": parse_time(self.link_latency, "fabric.link_latency"),
            "switch_latency_s": parse_time(self.switch_latency, "fabric.switch_latency"),
        }

    def bill_of_materials(self) -> BillOfMaterials:
        """Price the network between servers, as a ``fat_tree`` above the NICs; one server needs none."""
        if self.num_accelerators == _SIZE:
            return BillOfMaterials(0, {"DAC": 0})
        return self._network().bill_of_materials()
