"""dragonfly: groups of virtual routers, fully joined inside, with global cables between all groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import BillOfMaterials
from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.routers import RouterFabricConfig


@dataclass(kw_only=True, slots=True)
class DragonflyConfig(RouterFabricConfig):
    """A Dragonfly: every two virtual routers of a group are joined, and every two groups by equally many global cables.

    Model: a switch holds ``routers_per_switch`` virtual routers, which need no cable between them and forward to each
        other at full speed; switches of a group are so joined by its square of cables. All a h global ports of a group
        go round-robin over the other groups; ports left over go 1, -1, 2, -2, ... groups on, and one that is still
        left to the opposite group, or stays empty where the groups are odd. Shortest paths take one global cable at
        most (local, global, local); packets change to a second virtual channel behind it. Pairs that failures leave
        without such a path take the shortest of all that works.
        Accelerators are numbered consecutively on switches, switches group by group.
    Args:
        routers_per_group: a, >= 1.
        terminals_per_router: p, accelerators of a virtual router, >= 1.
        global_links_per_router: h, >= 1.
        num_groups: g, 1 to a h + 1.
        routers_per_switch: virtual routers in one switch, a divisor of a; the paper's small example has 2.
        link_latency: latency of every cable; 20 ns, HammingMesh, appendix F.
        switch_latency: latency of every switch on a path; 40 ns, HammingMesh's buffer latency.
    Source: Kim et al., "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA 2008, section 3; two virtual
        routers in a switch, counts: HammingMesh, appendix C; how ports left over are wired: own.
    """

    routers_per_group: int
    terminals_per_router: int
    global_links_per_router: int
    num_groups: int
    routers_per_switch: int = 1

    def __post_init__(self) -> None:
        for key in (
            "routers_per_group", "terminals_per_router", "global_links_per_router", "num_groups", "routers_per_switch",
        ):  # fmt: skip
            setattr(self, key, check_integer(f"fabric.{key}", getattr(self, key), 1))
        if self.routers_per_group % self.routers_per_switch:
            raise ConfigError(
                f"fabric.routers_per_switch is {self.routers_per_switch}; it must divide fabric.routers_per_group, "
                f"which is {self.routers_per_group}"
            )
        most = self.routers_per_group * self.global_links_per_router + 1
        if self.num_groups > most:
            raise ConfigError(
                f"fabric.num_groups is {self.num_groups}; {most - 1} global links of a group (fabric.routers_per_group"
                f" x fabric.global_links_per_router) join at most {most} groups"
            )
        check_integer("the accelerators of the dragonfly", self.num_routers * self.terminals_per_router, 1)
        RouterFabricConfig.__post_init__(self)

    @classmethod
    def example(cls) -> Self:
        """Return four groups of four switches with one accelerator each."""
        return cls(routers_per_group=4, terminals_per_router=1, global_links_per_router=2, num_groups=4)

    @classmethod
    def resized(cls, parameters: Mapping[str, Any], num_accelerators: int) -> dict[str, Any]:
        """Return parameters with ``num_groups`` replaced; groups stay as they are.

        Model: of missing parameters, the balanced a = 2 p = 2 h with p = 2.
        Raises: ConfigError for a number that whole groups do not make up, or more groups than links join.
        """
        shape = {"routers_per_group": 4, "terminals_per_router": 2, "global_links_per_router": 2}
        shape |= {key: parameters[key] for key in shape if parameters.get(key) is not None}
        size = shape["routers_per_group"] * shape["terminals_per_router"]
        most = shape["routers_per_group"] * shape["global_links_per_router"] + 1
        if num_accelerators % size or not size <= num_accelerators <= most * size:
            raise ConfigError(
                f"num_accelerators is {num_accelerators}; groups have {size} accelerators and 1 to {most} groups can "
                f"be joined, so it must be a multiple of {size} up to {most * size}"
            )
        return {**parameters, **shape, "num_groups": num_accelerators // size}

    @property
    def num_routers(self) -> int:
        """Virtual routers of one plane."""
        return self.num_groups * self.routers_per_group

    @property
    def num_switches(self) -> int:
        """Switches of one plane."""
        return self.num_routers // self.routers_per_switch

    @property
    def num_local_cables(self) -> int:
        """Cables inside groups, in one plane: none between routers of one switch."""
        return self.num_routers * (self.routers_per_group - self.routers_per_switch) // 2

    @property
    def num_global_cables(self) -> int:
        """Cables between groups, in one plane."""
        ports = self.routers_per_group * self.global_links_per_router
        if self.num_groups == 1:
            return 0
        is_one_left = ports % (self.num_groups - 1) % 2 == 1 and self.num_groups % 2 == 1
        return self.num_groups * (ports - is_one_left) // 2

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        return {
            "routers_per_group": self.routers_per_group,
            "terminals_per_router": self.terminals_per_router,
            "global_links_per_router": self.global_links_per_router,
            "num_groups": self.num_groups,
            "routers_per_switch": self.routers_per_switch,
            **self._link_parameters(),
        }

    def bill_of_materials(self) -> BillOfMaterials:
        """Price all planes: copper to accelerators and inside groups, active optical cables between groups.

        Raises: ConfigError for switches of more ports than the price list's.
        """
        ports_of_router = (
            self.terminals_per_router + self.global_links_per_router + self.routers_per_group - self.routers_per_switch
        )
        copper = self.num_routers * self.terminals_per_router + self.num_local_cables
        return self._bill(self.num_switches, self.routers_per_switch * ports_of_router, copper, self.num_global_cables)
