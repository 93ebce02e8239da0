"""Forwarding tables of layered routing: what switches hold, how far its paths overlap, what addresses it needs.

Example:
    tables = forwarding_tables(fabric, num_layers=4)
    path_of(tables, 2, 0, 7)                      # [0, 3, 12, 7], by walking layer 2's table
    largest_slim_fly(layers=16, ports=36)         # what 49,151 LIDs address
    virtual_layers(fabric)                        # of dfsssp
Legend: L = layers, S = switches.
"""

from dataclasses import dataclass

import numpy as np

from rostam_py import _core
from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics.fabric import Fabric, check_fabric
from rostam_py.fabrics.slim_fly import constructible, network_degree

UNICAST_LIDS = 49_151  # 0x0001 to 0xBFFF: InfiniBand Architecture Specification 1.4, volume 1, section 4.1.3


def forwarding_tables(fabric: Fabric, num_layers: int = 4) -> np.ndarray:
    """Return the next switch of every switch towards every other one in each layer, of plane 0.

    Switches are all that forwards: accelerators too where they do, then switches, then NICs of servers.

    Model: layer 0 has minimal paths; each further layer an almost-minimal path for every pair that it can give one,
        which overlaps least with those placed before, under destination-based forwarding (csrc/routing/layers.h).
    Args:
        fabric: with its failures.
        num_layers: >= 1.
    Returns: int array (L, S, S), indexed by layer, switch, destination; -1 where there is no way, and on the diagonal.
    Raises: ConfigError for what is no fabric, or fewer layers.
    Cost: layers x pairs of switches x paths of a pair.
    Source: Blach et al., NSDI 2024, section 4.
    """
    if not is_integer(num_layers) or num_layers < 1:
        raise ConfigError(f"num_layers is {num_layers!r}; it must be an integer >= 1")
    return np.asarray(_core.forwarding_tables(check_fabric(fabric).core, int(num_layers)))


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


def virtual_layers(fabric: Fabric) -> int:
    """Return how many virtual layers routing dfsssp needs to keep the paths of plane 0 free of deadlock.

    Model: a circle of channel dependencies loses the paths over its weakest dependency to the next layer
        (csrc/routing/dfsssp.h). InfiniBand has up to 15 virtual lanes for data.
    Raises: ConfigError for what is no fabric, or one too large for its tables.
    Cost: links on the paths of all pairs.
    Source: Domke, Hoefler and Nagel, IPDPS 2011, section IV.
    """
    return int(_core.virtual_layers(check_fabric(fabric).core))


@dataclass(frozen=True, slots=True)
class AddressedSlimFly:
    """The largest Slim Fly that addresses suffice for. radix: ports between switches (k')."""

    layers: int
    q: int
    num_switches: int
    num_endpoints: int
    endpoints_per_switch: int
    radix: int


def largest_slim_fly(layers: int, ports: int, lids: int = UNICAST_LIDS) -> AddressedSlimFly:
    """Return the largest constructible Slim Fly of switches with so many ports under a number of LIDs.

    Model: q is a prime power; p = ceil(k' / 2) endpoints on each switch, k' + p <= ports; one LID for each endpoint and
        layer, one for each switch: endpoints x layers + switches <= lids.
    Args:
        layers: >= 1.
        ports: of a switch.
        lids: unicast addresses.
    Raises: ConfigError where not even q = 3 fits.
    Source: Blach et al., NSDI 2024, section 5 and its table of limits, which also lists sizes (q = 15, 12, 6) that are
        no prime powers and have no MMS graph.
    """
    fitting = [q for q in constructible(ports) if _fits(q, layers, ports, lids)]
    if not fitting:
        raise ConfigError(f"no slim fly has {layers} layers on switches of {ports} ports under {lids} LIDs")
    q = fitting[-1]
    degree = network_degree(q)
    per_switch = -(-degree // 2)
    return AddressedSlimFly(layers, q, 2 * q * q, 2 * q * q * per_switch, per_switch, degree)


def _fits(q: int, layers: int, ports: int, lids: int) -> bool:
    degree = network_degree(q)
    per_switch = -(-degree // 2)
    switches = 2 * q * q
    return degree + per_switch <= ports and switches * per_switch * layers + switches <= lids
