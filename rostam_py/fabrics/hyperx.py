"""hyperx: switches on a grid, each joined to every other one of its rows in all dimensions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import BillOfMaterials
from rostam_py.fabrics.blocks import CompactOrder, compact_orders
from rostam_py.fabrics.config import check_dims, check_integer
from rostam_py.fabrics.routers import RouterFabricConfig
from rostam_py.fabrics.sizes import near_equal


@dataclass(kw_only=True, slots=True)
class HyperXConfig(RouterFabricConfig):
    """A HyperX of switches with terminals: one cable between every two switches that differ in one coordinate.

    Model: switches are numbered row-major, the last dimension fastest, accelerators consecutively on them. Every cable
        has the bandwidth of an accelerator's port. This is the router-based HyperX, whose network may carry more than
        its terminals inject; HammingMesh's "2D HyperX" by its cost is ``hammingmesh`` with boards of one accelerator.
        Distance: coordinates that differ, and a cable at each end.
    Args:
        dims: switches along each dimension, such as [8,8], each >= 1.
        terminals: accelerators of a switch, >= 1.
        link_latency: latency of every cable; 20 ns, HammingMesh, appendix F.
        switch_latency: latency of every switch on a path; 40 ns, HammingMesh's buffer latency.
    Source: Ahn et al., "HyperX", SC 2009, section 2, with K = 1 cable for each pair; latencies: HammingMesh,
        appendix F.
    """

    dims: Any  # Any lets text such as 4x4 through to check_dims, whose error says what to write
    terminals: int = 1

    def __post_init__(self) -> None:
        self.dims = check_dims("fabric.dims", self.dims, 1, "dimension")
        self.terminals = check_integer("fabric.terminals", self.terminals, 1)
        count = math.prod(self.dims) * self.terminals
        check_integer(f"the accelerators of fabric.dims {list(self.dims)}, terminals {self.terminals}", count, 1)
        RouterFabricConfig.__post_init__(self)

    @classmethod
    def example(cls) -> Self:
        """Return 2 x 4 switches of two."""
        return cls(dims=(2, 4), terminals=2)

    @classmethod
    def resized(cls, parameters: Mapping[str, Any], num_accelerators: int) -> dict[str, Any]:
        """Return parameters with ``dims`` as near to equal as whole numbers allow, the smallest first.

        Model: the number of dimensions stays, 2 where none are given, and so do the terminals.
        Raises: ConfigError for a number that whole switches do not make up.
        """
        terminals = parameters.get("terminals") or 1
        dims = parameters.get("dims")
        num_dims = len(check_dims("fabric.dims", dims, 1, "dimension")) if dims else 2
        if num_accelerators < 1 or num_accelerators % terminals:
            raise ConfigError(
                f"num_accelerators is {num_accelerators}; fabric.terminals is {terminals}, so it must be a multiple"
            )
        return {**parameters, "dims": near_equal(num_accelerators // terminals, num_dims)[::-1]}

    @property
    def num_switches(self) -> int:
        """Switches of one plane."""
        return math.prod(self.dims)

    @property
    def network_ports(self) -> int:
        """Ports of a switch to other switches."""
        return sum(size - 1 for size in self.dims)

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        return {"dims": self.dims, "terminals": self.terminals, **self._link_parameters()}

    def compact_orders(self, degrees: Sequence[int], num_blocks: int) -> list[CompactOrder]:
        """Return the orders in boxes of least mean distance, the accelerators of a switch first."""
        places = np.arange(self.num_switches * self.terminals).reshape(*self.dims, self.terminals)
        distances = [1 - np.eye(size, dtype=int) for size in self.dims]
        return compact_orders(places, [*distances, np.zeros((self.terminals,) * 2)], degrees, num_blocks)

    def bill_of_materials(self) -> BillOfMaterials:
        """Price all planes: copper to accelerators, active optical cables between switches.

        Raises: ConfigError for switches of more ports than the price list's.
        """
        between = self.num_switches * self.network_ports // 2
        ports = self.terminals + self.network_ports
        return self._bill(self.num_switches, ports, self.num_switches * self.terminals, between)
