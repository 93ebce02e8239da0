"""slim_fly: the McKay-Miller-Siran graph of switches, diameter 2, for every prime power."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rostam_py.errors import ConfigError
from rostam_py.fabrics.bill import BillOfMaterials
from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.lids import UNICAST_LIDS, num_lids
from rostam_py.fabrics.routers import RouterFabricConfig

_LEAST_Q = 3
_MOST_Q = 128  # 32,768 switches


@dataclass(kw_only=True, slots=True)
class SlimFlyConfig(RouterFabricConfig):
    """A Slim Fly: 2 q^2 switches, each joined to k' = (3 q - delta) / 2 others, any two at most two cables apart.

    Model: q = 4 w + delta, delta in {-1, 0, 1}, a prime power >= 3. Switches are (0, x, y) and (1, m, c) over the field
        GF(q), numbered row-major: (0, x, y) is joined to (0, x, y') where y - y' is in X, (1, m, c) to (1, m, c') where
        c - c' is in X', and (0, x, y) to (1, m, c) where y = m x + c. Rack i holds the subgroups (0, i, *), (1, i, *);
        2 q cables run between every two racks. Accelerators are numbered consecutively on switches.
    Args:
        q: a prime power >= 3.
        terminals_per_switch: accelerators of a switch; by default ceil(k' / 2), for full global bandwidth.
        link_latency: latency of every cable; 20 ns, HammingMesh, appendix F.
        switch_latency: latency of every switch on a path; 40 ns, HammingMesh's buffer latency.
    Source: Besta and Hoefler, "Slim Fly", SC 2014, section II-B; generator sets: Hafner, "Geometric realisation of the
        graphs of McKay-Miller-Siran", 2004; racks: Blach et al., NSDI 2024; latencies: HammingMesh, appendix F.
    """

    q: int
    terminals_per_switch: int | None = None

    def __post_init__(self) -> None:
        self.q = check_q(self.q)
        if self.terminals_per_switch is not None:
            self.terminals_per_switch = check_integer("fabric.terminals_per_switch", self.terminals_per_switch, 1)
        check_integer("the accelerators of the slim fly", self.num_switches * self.terminals, 1)
        RouterFabricConfig.__post_init__(self)

    @classmethod
    def example(cls) -> Self:
        """Return the 18 switches of q = 3, with one accelerator each."""
        return cls(q=3, terminals_per_switch=1)

    @classmethod
    def resized(cls, parameters: Mapping[str, Any], num_accelerators: int) -> dict[str, Any]:
        """Return parameters with ``q`` replaced; the terminals stay where they are given.

        Raises: ConfigError for a number that no q gives, with the nearest.
        """
        terminals = parameters.get("terminals_per_switch")
        sizes = {2 * q * q * (terminals or default_terminals(q)): q for q in constructible(_MOST_Q)}
        if num_accelerators not in sizes:
            near = min(sizes, key=lambda size: abs(size - num_accelerators))
            on = "" if terminals is None else f" with fabric.terminals_per_switch {terminals}"
            raise ConfigError(
                f"num_accelerators is {num_accelerators}; no slim fly{on} has as many, the nearest has {near} "
                f"(fabric.q {sizes[near]})"
            )
        return {**parameters, "q": sizes[num_accelerators]}

    @property
    def terminals(self) -> int:
        """Accelerators of a switch."""
        return default_terminals(self.q) if self.terminals_per_switch is None else self.terminals_per_switch

    @property
    def num_switches(self) -> int:
        """Switches of one plane."""
        return 2 * self.q**2

    @property
    def network_ports(self) -> int:
        """Ports of a switch to other switches: k'."""
        return network_degree(self.q)

    def nearest_with_layers(self, layers: int) -> str:
        """Return, in words, the q nearest to this one of which as many layers have addresses."""
        try:
            q = nearest_addressed(self.q, layers, terminals=self.terminals_per_switch)
        except ConfigError:
            return ""
        return f"the nearest fabric.q that {layers} layers fit is {q}"

    def core_parameters(self) -> dict[str, Any]:
        """Return the core's plain arguments in SI units."""
        return {"q": self.q, "terminals_per_switch": self.terminals, **self._link_parameters()}

    def bill_of_materials(self) -> BillOfMaterials:
        """Price all planes: copper to accelerators and inside racks, active optical cables between racks.

        Raises: ConfigError for switches of more ports than the price list's.
        """
        between_racks = self.q * (self.q - 1) // 2 * 2 * self.q
        cables = self.num_switches * self.network_ports // 2
        copper = self.num_switches * self.terminals + cables - between_racks
        return self._bill(self.num_switches, self.terminals + self.network_ports, copper, between_racks)


def is_prime_power(number: int) -> bool:
    """Return whether a field of so many elements exists."""
    if number < 2:
        return False
    prime = next((p for p in range(2, math.isqrt(number) + 1) if number % p == 0), number)
    while number % prime == 0:
        number //= prime
    return number == 1


def constructible(most: int) -> list[int]:
    """Return every q up to ``most`` that has an MMS graph, ascending: prime powers from 3 on."""
    return [q for q in range(_LEAST_Q, most + 1) if is_prime_power(q)]


def check_q(value: Any) -> int:
    """Return q as an int.

    Raises: ConfigError naming the nearest q that has an MMS graph.
    """
    q = check_integer("fabric.q", value, 1)
    known = constructible(_MOST_Q)
    if q not in known:
        apart = min(abs(q - one) for one in known)
        near = " or ".join(str(one) for one in known if abs(one - q) == apart)
        raise ConfigError(
            f"fabric.q is {q}, which has no MMS graph here; q must be a prime power from {_LEAST_Q} to {_MOST_Q}, the "
            f"nearest is {near}"
        )
    return q


def network_degree(q: int) -> int:
    """Return k' = (3 q - delta) / 2, where q = 4 w + delta."""
    delta = -1 if q % 4 == 3 else q % 4
    return (3 * q - delta) // 2


def default_terminals(q: int) -> int:
    """Return ceil(k' / 2) accelerators for a switch."""
    return -(-network_degree(q) // 2)


def nearest_addressed(
    q: int, layers: int, *, terminals: int | None = None, ports: int | None = None, lids: int = UNICAST_LIDS
) -> int:
    """Return the constructible q nearest to the given one whose Slim Fly has addresses for so many layers.

    Args:
        q: of the MMS graph wished for; of two as near the smaller one is taken.
        layers: of routing.
        terminals: of a switch; None for ceil(k' / 2).
        ports: of a switch, at least k' + terminals; None for as many as it takes.
        lids: unicast addresses.
    Raises: ConfigError where not even q = 3 fits.
    """
    fitting = [
        one for one in constructible(_MOST_Q) if _fits(one, terminals or default_terminals(one), layers, ports, lids)
    ]
    if not fitting:
        least = terminals or default_terminals(_LEAST_Q)
        needed, endpoints, switches = network_degree(_LEAST_Q) + least, 2 * _LEAST_Q**2 * least, 2 * _LEAST_Q**2
        if ports is not None and needed > ports:
            raise ConfigError(f"ports is {ports}; the smallest slim fly, fabric.q {_LEAST_Q}, needs {needed}")
        most = (lids - switches) // endpoints
        raise ConfigError(
            f"layers is {layers}; with {lids:,} LIDs the smallest slim fly, fabric.q {_LEAST_Q} of {switches} switches "
            f"and {endpoints} endpoints, has at most {most}"
        )
    return min(fitting, key=lambda one: (abs(one - q), one))


def _fits(q: int, terminals: int, layers: int, ports: int | None, lids: int) -> bool:
    if ports is not None and network_degree(q) + terminals > ports:
        return False
    return num_lids(2 * q * q * terminals, layers, 2 * q * q) <= lids
