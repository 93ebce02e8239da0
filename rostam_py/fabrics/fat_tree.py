"""fat_tree: two or three levels of switches, nonblocking or tapered at the leaves."""

from dataclasses import dataclass, field
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import BillOfMaterials
from rostam_py.fabrics.config import FabricConfig, check_integer
from rostam_py.units import parse_time


@dataclass(kw_only=True, slots=True)
class FatTreeConfig(FabricConfig):
    """A folded Clos network; accelerators fill leaves consecutively.

    Model: two levels: the uplinks of all leaves go round-robin to the fewest spines that hold them. Three
        levels: at most radix / 2 leaves a pod; each leaf has one link to each of the leaf_up switches of its
        pod; those have as many links up as down, to cores grouped so that every pod reaches every core.
    Args:
        num_accelerators: >= 1.
        levels: 2 or 3; None takes 2 where every spine can reach every leaf, else 3.
        radix: ports of a switch; 64 as in the paper's price list.
        leaf_down, leaf_up: ports of a leaf to accelerators and upwards; by default half of the radix and the
            rest (nonblocking). The paper's cost section tapers with 42 / 22 and 51 / 13.
        link_latency: of every cable; 20 ns in the paper.
        switch_latency: of every switch on a path; 40 ns, the paper's buffer latency.
    Source: HammingMesh, appendices C (counts) and F (latencies).
    """

    num_accelerators: int
    levels: int | None = None
    radix: int = 64
    leaf_down: int | None = None
    leaf_up: int | None = None
    switch_latency: Any = field(default="40 ns", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        FabricConfig.__post_init__(self)
        self.num_accelerators = check_integer("fabric.num_accelerators", self.num_accelerators, 1)
        self.radix = check_integer("fabric.radix", self.radix, 2)
        for key in ("leaf_down", "leaf_up"):
            if getattr(self, key) is not None:
                setattr(self, key, check_integer(f"fabric.{key}", getattr(self, key), 1))
        down, up = self.leaf_ports
        if down < 1 or up < 1 or down + up > self.radix:
            raise ConfigError(
                f"fabric.leaf_down is {down} and fabric.leaf_up is {up}; both must be >= 1 and fit "
                f"fabric.radix {self.radix} together"
            )
        if self.levels not in (None, 2, 3):
            raise ConfigError(f"fabric.levels is {self.levels!r}; allowed: 2, 3")

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
        down, up = self.leaf_ports
        num_leaves = -(-self.num_accelerators // down)
        return 2 if -(-num_leaves * up // self.radix) <= up else 3

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        down, up = self.leaf_ports
        return {
            "num_accelerators": self.num_accelerators,
            "levels": self.num_levels,
            "radix": self.radix,
            "leaf_down": down,
            "leaf_up": up,
            "link_bandwidth_bytes_per_s": self.link_bandwidth_bytes_per_s,
            "link_latency_s": parse_time(self.link_latency, "fabric.link_latency"),
            "switch_latency_s": parse_time(self.switch_latency, "fabric.switch_latency"),
        }

    def bill_of_materials(self) -> BillOfMaterials:
        """Price all planes: copper to accelerators, active optical cables between switches."""
        from rostam_py import _core

        core = _core.make_fabric("fat_tree", self.core_parameters())
        num_between = core.num_cables - self.num_accelerators
        cables = {"DAC": self.planes * self.num_accelerators, "AoC": self.planes * num_between}
        return BillOfMaterials(self.planes * core.num_switches, cables)
