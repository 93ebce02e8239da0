"""Levels of a fabric: its links in a few classes that a reader knows apart, such as "NIC to switch".

Model: a link's level is what its two ends are: accelerators, NICs, servers, switches by tier (links from the nearest
accelerator or NIC). Levels whose links have two to four bandwidths are one for each of them.
"""

from collections.abc import Iterable

import numpy as np

from rostam_py.fabrics.fabric import Fabric
from rostam_py.units import format_bandwidth

_MAX_BANDWIDTHS = 4  # of a level that are told apart; more are a spread, not classes


def link_levels(fabric: Fabric) -> tuple[tuple[str, ...], np.ndarray]:
    """Return names of levels, from the accelerators upwards, and which of them each of ``fabric.links`` is of.

    Returns: int array (links,), an index into the names. Cost: links x tiers.
    """
    links = fabric.links
    num_accelerators, num_switches = fabric.num_accelerators, fabric.num_switches // fabric.planes
    tiers = _tiers(links["src"], links["dst"], num_accelerators, num_switches)
    # Ranks of a vertex: accelerator 0, NIC 1, server 2, switches from 3 on by tier.
    vertices = np.zeros(len(tiers), dtype=np.int64)
    is_switch = (np.arange(len(tiers)) >= num_accelerators) & (np.arange(len(tiers)) < num_accelerators + num_switches)
    vertices[is_switch] = 2 + tiers[is_switch]
    parts = num_accelerators + num_switches
    vertices[parts : parts + num_accelerators] = 1
    vertices[parts + num_accelerators :] = 2
    ends = np.sort(np.stack([vertices[links["src"]], vertices[links["dst"]]]), axis=0)
    found, level_of = np.unique(ends.T, axis=0, return_inverse=True)
    level_of = np.asarray(level_of).reshape(-1)
    names = [_name(low, high) for low, high in found.tolist()]
    merged = list(dict.fromkeys(names))  # the two cables of a NIC are one level: they carry the same
    level_of = np.array([merged.index(name) for name in names])[level_of]
    return _by_bandwidth(merged, level_of, links["bandwidth_bytes_per_s"])


def _tiers(src: np.ndarray, dst: np.ndarray, num_accelerators: int, num_switches: int) -> np.ndarray:
    """Return links to the nearest vertex that is no switch, of every vertex."""
    count = max(int(max(src.max(initial=0), dst.max(initial=0))) + 1, num_accelerators + num_switches)
    tiers = np.full(count, -1)
    tiers[:num_accelerators] = tiers[num_accelerators + num_switches :] = 0
    tier = 0
    while True:
        near = np.concatenate([dst[tiers[src] == tier], src[tiers[dst] == tier]])
        near = near[tiers[near] < 0]
        if not len(near):
            return np.maximum(tiers, 1)  # a switch that nothing joins
        tier += 1
        tiers[near] = tier


def _name(low: int, high: int) -> str:
    if 2 in (low, high):
        return "inside servers"
    if 1 in (low, high):
        return "NIC"
    if low >= 3:
        return f"switch tier {low - 2} to {high - 2}"
    if high >= 3:
        return "accelerator to switch" + (f" of tier {high - 2}" if high > 3 else "")
    return "accelerator to accelerator"


def _by_bandwidth(
    names: Iterable[str], level_of: np.ndarray, bandwidths: np.ndarray
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the levels with those apart whose links have a few bandwidths."""
    told_apart: list[str] = []
    found = np.zeros(len(level_of), dtype=np.int64)
    for level, name in enumerate(names):
        own = np.flatnonzero(level_of == level)
        rates = np.unique(bandwidths[own])
        if not 2 <= len(rates) <= _MAX_BANDWIDTHS:
            found[own] = len(told_apart)
            told_apart.append(name)
            continue
        for rate in rates[::-1].tolist():
            found[own[bandwidths[own] == rate]] = len(told_apart)
            told_apart.append(f"{name}, {format_bandwidth(rate)}")
    return tuple(told_apart), found
