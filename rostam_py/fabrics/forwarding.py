"""Forwarding tables of layered routing: what switches hold, how far its paths overlap, what addresses it needs.

Example:
    tables = forwarding_tables(fabric, num_layers=4)
    path_of(tables, 2, 0, 7)                      # [0, 3, 12, 7], by walking layer 2's table
    print(count_disjoint_paths(fabric, 4))        # pairs of switches with 2, 3 paths without a common cable
    largest_slim_fly(layers=16, ports=40)         # what 49,151 LIDs address
    virtual_layers(fabric)                        # of dfsssp
Legend: L = layers, S = switches.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics.fabric import Fabric, check_fabric
from rostam_py.fabrics.lids import UNICAST_LIDS, check_lids, num_lids
from rostam_py.fabrics.routings import layers_of
from rostam_py.fabrics.slim_fly import constructible, default_terminals, nearest_addressed, network_degree

_MOST_PATHS = 8  # of one pair: subsets of paths are tried, and pairs of a slim fly have k' of them at most


def forwarding_tables(fabric: Fabric, num_layers: int | None = None) -> np.ndarray:
    """Return the next switch of every switch towards every other one in each layer, of plane 0.

    Switches are all that forwards: accelerators too where they do, then switches, then NICs of servers.

    Model: layer 0 has minimal paths; each further layer an almost-minimal path for every pair that it can give one,
        which overlaps least with those placed before, under destination-based forwarding (csrc/routing/layers.h).
    Args:
        fabric: with its failures.
        num_layers: >= 1; None for as many as routing ``layers`` has.
    Returns: int array (L, S, S), indexed by layer, switch, destination; -1 where there is no way, and on the diagonal.
    Raises: ConfigError for a non-fabric, or fewer layers.
    Cost: layers x pairs of switches x paths of a pair.
    Source: Blach et al., NSDI 2024, section 4.
    """
    return np.asarray(_core.forwarding_tables(check_fabric(fabric).core, _check_layers(num_layers)))


def _check_layers(num_layers: int | None) -> int:
    if num_layers is None:
        return layers_of("layers")
    if not is_integer(num_layers) or num_layers < 1:
        raise ConfigError(f"num_layers is {num_layers!r}; it must be an integer >= 1")
    return layers_of(f"layers:{num_layers}")


def path_of(tables: np.ndarray, layer: int, source: int, target: int) -> list[int]:
    """Return the switches from one to another by walking a layer's table.

    Raises: NoRouteError where the table has no way, or leads round in a circle.
    """
    path = [source]
    while path[-1] != target:
        path.append(int(tables[layer, path[-1], target]))
        if path[-1] < 0 or len(path) > tables.shape[1]:
            raise NoRouteError(f"layer {layer} has no way from switch {source} to switch {target}: {path}")
    return path


def disjoint_layers(tables: np.ndarray, source: int, target: int) -> int:
    """Return how many of the layers' paths of a pair share no cable with one another, at most.

    Cost: 2^(different paths).
    """
    ways = {tuple(path_of(tables, layer, source, target)) for layer in range(len(tables))}
    cables = [frozenset(frozenset(ends) for ends in zip(way, way[1:], strict=False)) for way in sorted(ways)]
    most = 0
    for chosen in range(1, 2 ** len(cables)):
        taken = [one for k, one in enumerate(cables) if chosen >> k & 1]
        if len(taken) > most and len(frozenset().union(*taken)) == sum(map(len, taken)):
            most = len(taken)
    return most


@dataclass(frozen=True, slots=True)
class DisjointPaths:
    """How many pairs of switches have several paths of the layers that share no cable.

    num_layers: of the tables. num_pairs: ordered pairs of switches that are joined. num_with: of these, those with at
    least 1, 2, ... such paths. num_lids: addresses that the layers take on a plane; max_lids: that there are.
    """

    num_layers: int
    num_pairs: int
    num_with: tuple[int, ...]
    num_lids: int
    max_lids: int = UNICAST_LIDS

    def share_with(self, paths: int) -> float:
        """Return the share of pairs with at least so many paths without a common cable, 0 to 1.

        Raises: ConfigError for a number of paths that was not counted.
        """
        if not is_integer(paths) or not 1 <= paths <= len(self.num_with):
            raise ConfigError(f"paths is {paths!r}; 1 to {len(self.num_with)} were counted")
        return self.num_with[paths - 1] / self.num_pairs if self.num_pairs else 0.0

    def __str__(self) -> str:
        """Return the shares and the addresses in a line."""
        layers = f"{self.num_layers} layer{'' if self.num_layers == 1 else 's'}"
        shares = ", ".join(f"{self.share_with(k):.1%} with {k}" for k in range(2, len(self.num_with) + 1))
        disjoint = f", {shares} paths or more without a common cable" if shares else ""
        addresses = f"{self.num_lids:,} of {self.max_lids:,} addresses (LIDs)"
        return f"{layers}: {self.num_pairs:,} pairs of switches{disjoint}; {addresses}"

    def to_dict(self) -> dict[str, Any]:
        """Return all counts."""
        return asdict(self) | {"num_with": list(self.num_with)}


def count_disjoint_paths(fabric: Fabric, num_layers: int | None = None, *, most: int = 3) -> DisjointPaths:
    """Count the pairs of switches of plane 0 by how many paths of their layers share no cable with one another.

    Model: of the paths that the layers give an ordered pair, the largest set of which no two have a cable in common;
        parallel cables are one. What the fabric could offer beyond the layers does not count.
    Args:
        fabric: with its failures.
        num_layers: >= 1; None for as many as routing ``layers`` has.
        most: paths to count up to, 1 to 8; three settle nearly all collisions (Source).
    Raises: ConfigError for a non-fabric, other numbers, or layers that addresses do not suffice for.
    Cost: that of ``forwarding_tables``, and pairs x layers^most.
    Source: Blach et al., NSDI 2024, sections 4 and 6.1; tests count every subset of paths.
    """
    layers = _check_layers(num_layers)
    switches = check_fabric(fabric).num_switches // fabric.planes
    check_lids(f"layers:{layers}", layers, fabric.num_accelerators, switches)
    if not is_integer(most) or not 1 <= most <= _MOST_PATHS:
        raise ConfigError(f"most is {most!r}; it must be an integer from 1 to {_MOST_PATHS}")
    pairs = _core.count_disjoint(fabric.core, layers, int(most))
    with_more = tuple(sum(pairs[k:]) for k in range(1, int(most) + 1))
    return DisjointPaths(layers, sum(pairs), with_more, num_lids(fabric.num_accelerators, layers, switches))


def virtual_layers(fabric: Fabric) -> int:
    """Return how many virtual layers routing dfsssp needs to keep the paths of plane 0 free of deadlock.

    Model: a circle of channel dependencies loses the paths over its weakest dependency to the next layer
        (csrc/routing/dfsssp.h). InfiniBand has up to 15 virtual lanes for data.
    Raises: ConfigError for a non-fabric, or one too large for its tables.
    Cost: links on the paths of all pairs.
    Source: Domke, Hoefler and Nagel, IPDPS 2011, section IV.
    """
    return int(_core.virtual_layers(check_fabric(fabric).core))


@dataclass(frozen=True, slots=True)
class AddressedSlimFly:
    """A Slim Fly that addresses suffice for. radix: ports between switches (k')."""

    layers: int
    q: int
    num_switches: int
    num_endpoints: int
    endpoints_per_switch: int
    radix: int

    @property
    def num_lids(self) -> int:
        """Addresses that it takes."""
        return num_lids(self.num_endpoints, self.layers, self.num_switches)


def largest_slim_fly(layers: int, ports: int, lids: int = UNICAST_LIDS) -> AddressedSlimFly:
    """Return the largest constructible Slim Fly of switches with so many ports under a number of LIDs.

    Model: q is a prime power; p = ceil(k' / 2) endpoints on each switch, k' + p <= ports; one LID for each endpoint and
        layer, one for each switch: endpoints x layers + switches <= lids.
    Args:
        layers: >= 1.
        ports: of a switch, >= 1.
        lids: unicast addresses, >= 1.
    Raises: ConfigError for another kind of number, or where not even q = 3 fits.
    Source: Blach et al., NSDI 2024, section 5 and its table of limits, which also lists sizes (q = 15, 12, 6) that are
        no prime powers and have no MMS graph.
    """
    _check_limits(layers, ports, lids)
    return _addressed(nearest_addressed(ports, layers, ports=ports, lids=lids), layers)


def addressed_slim_fly(q: int, layers: int, ports: int, lids: int = UNICAST_LIDS) -> AddressedSlimFly:
    """Return the Slim Fly of one q, where it exists and its layers have addresses; see ``largest_slim_fly``.

    Raises: ConfigError naming what does not allow it (no prime power, ports or LIDs) and the nearest q that is allowed.
    """
    _check_limits(layers, ports, lids)
    if not is_integer(q) or q < 1:
        raise ConfigError(f"fabric.q is {q!r}; it must be an integer >= 1")
    nearest = nearest_addressed(q, layers, ports=ports, lids=lids)
    if nearest == q:
        return _addressed(q, layers)
    degree = network_degree(q)
    needed, per_switch = num_lids(2 * q * q * -(-degree // 2), layers, 2 * q * q), -(-degree // 2)
    if q not in constructible(q):
        why = "no prime power from 3 on, so it has no MMS graph"
    elif degree + per_switch > ports:
        why = f"switches of {degree + per_switch} ports, where ports is {ports}"
    else:
        why = f"{needed:,} addresses with layers {layers}, where lids is {lids:,}"
    raise ConfigError(f"fabric.q is {q}: {why}; the nearest that is allowed is {nearest}")


def _check_limits(layers: int, ports: int, lids: int) -> None:
    for key, value in (("layers", layers), ("ports", ports), ("lids", lids)):
        if not is_integer(value) or value < 1:
            raise ConfigError(f"{key} is {value!r}; it must be an integer >= 1")


def _addressed(q: int, layers: int) -> AddressedSlimFly:
    degree, per_switch = network_degree(q), default_terminals(q)
    return AddressedSlimFly(layers, q, 2 * q * q, 2 * q * q * per_switch, per_switch, degree)
