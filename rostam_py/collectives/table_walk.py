"""All-reduces through the reduction tables of switches, walked packet by packet with the integers that they add up.

Example:
    fabric = rostam.fabric("electrical_flat", num_accelerators=16, in_network_reduction=True, reduction_table="64 KiB")
    walk_all_reduce(fabric, "push", 2**20).num_evicted
"""

from dataclasses import dataclass

import numpy as np

from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.switch_reduction import PAYLOAD_BYTES

_ALGORITHMS = ("pull", "push")


@dataclass(frozen=True, slots=True)
class TableWalk:
    """What a walk took.

    time_s: from the first start to the last sum at the last rank, barriers included. data_s: without barriers.
    num_evicted: entries evicted from full tables. num_passed: requests of a pull that found no entry at a switch
    between. most_entries: that a table held at once. link_bytes: of every directed link over all planes, int array.
    """

    time_s: float
    data_s: float
    num_evicted: int
    num_passed: int
    most_entries: int
    link_bytes: np.ndarray


def walk_all_reduce(
    fabric: Fabric, algorithm: str, num_bytes: int, *, seed: int = 0, skew_s: float = 0.0, draws_victims: bool = False,
    barrier_s: float | None = None,
) -> TableWalk:  # fmt: skip
    """Walk an all-reduce of all accelerators through the tables of a fabric's switches.

    Model: csrc/packet/table_walk.h. Owners' shares go in packets of 128 B, with the flits of ``reduction_flit`` and
        ``reduction_control_flits``; ``reduction_table`` holds one packet in each of its 128 B, in every switch. Planes
        that are alike are one of their joint rate. Every rank's sums are checked. A pull has a barrier before, a push
        an access to memory and a barrier after; the flag behind a pull's results is added. Alone on the network, and
        buffers hold what waits.
    Args:
        fabric: switches that reduce, accelerators with one switch each.
        algorithm: pull or push.
        num_bytes: S, rounded up to whole packets of every owner.
        seed: of operands, starts and drawn victims.
        skew_s: ranks start up to so much later, drawn [s].
        draws_victims: full tables of a push evict a drawn entry, not the least recently used.
        barrier_s: of a barrier [s]; None: a crossing of the network and a flag.
    Raises: ConfigError for other algorithms, sizes below 1, and fabrics that do not reduce or have failed parts.
    Cost: some 0.2 us a packet and link.
    Source: Klenk et al. (ISCA 2020); tests/packet/test_table_walk.py.
    """
    if algorithm not in _ALGORITHMS:
        raise ConfigError(f"algorithm is {algorithm!r}; tables are walked for {' and '.join(_ALGORITHMS)}")
    if num_bytes < 1:
        raise ConfigError(f"num_bytes is {num_bytes}; it must be >= 1")
    if not 0 <= skew_s < 1:
        raise ConfigError(f"skew_s is {skew_s}; it must be from 0 to below 1 s")
    if not fabric.config.reduces_in_network:
        raise ConfigError(f"switches of {fabric.name} do not reduce (fabric.in_network_reduction)")
    how, size = fabric.config.switch_reduction, fabric.num_accelerators
    trees, crossing_s = _trees(fabric)
    options = _core.TableOptions(
        is_pull=algorithm == "pull", packets_per_owner=-(-num_bytes // (size * PAYLOAD_BYTES))
    )  # fmt: skip
    options.packet_bytes = round(PAYLOAD_BYTES * how.wire_overhead)
    options.speedup, options.injection, options.waves = how.speedup, how.injection, how.waves
    options.memory_ps, options.most_skew_ps = round(how.memory_s * 1e12), round(skew_s * 1e12)
    options.seed, options.draws_victims = seed, draws_victims
    if how.table_bytes is not None:
        options.entries = max(1, int(how.table_bytes) // PAYLOAD_BYTES)
    if how.wave_bytes is not None:
        options.packets_per_wave = max(1, how.wave_bytes // (size * PAYLOAD_BYTES))
    found = _core.walk_tables(trees, options)
    data_s = found.time_ps * 1e-12
    barrier_s = crossing_s + how.flag_s if barrier_s is None else barrier_s
    more_s = barrier_s + (how.flag_s if algorithm == "pull" else how.memory_s)
    return TableWalk(
        time_s=data_s + more_s, data_s=data_s, num_evicted=found.num_evicted, num_passed=found.num_passed,
        most_entries=found.most_entries, link_bytes=np.asarray(found.link_bytes),
    )  # fmt: skip


def _trees(fabric: Fabric) -> tuple[_core.TableTrees, float]:
    """Return the trees of all owners, and the longest crossing of the network [s]."""
    links, size = fabric.links, fabric.num_accelerators
    if links["is_failed"].any() or len(fabric.healthy_accelerators) < size:
        raise ConfigError(f"parts of {fabric.name} have failed; tables are walked on whole fabrics")
    out: list[list[int]] = [[] for _ in range(fabric.core.num_vertices)]
    for number, src in enumerate(links["src"]):
        out[src].append(number)
    several = [member for member in range(size) if len({int(links["dst"][one]) for one in out[member]}) != 1]
    if several:
        raise ConfigError(f"accelerator {several[0]} of {fabric.name} has several switches; tables need one each")
    back = _links_back(links)
    parents, homes = [], []
    farthest = most = 0
    for owner in range(size):
        parent, depth = _tree(links, out, back, owner)
        homes.append(int(links["dst"][out[owner][0]]))
        parents.append(parent.tolist())
        if owner == 0:
            depth[owner] = 0
            farthest, most = int(depth[:size].argmax()), int(depth[:size].max())
    src, dst = np.array([0], np.int32), np.array([farthest], np.int32)
    latency_ps, _ = _core.route_costs(fabric.router("spray"), src, dst, np.ones(1))
    # Depth counts from the home switch: a path has one link more, and as many switches as its depth.
    path_s = (most + 1) * float(links["latency_s"].max())
    forward_ps = max(0.0, float(latency_ps[0]) - path_s * 1e12) / max(1, most)
    rows = [
        (int(one["src"]), int(one["dst"]), back[number], float(one["bandwidth_bytes_per_s"]) * fabric.planes,
         round(one["latency_s"] * 1e12 + (forward_ps if one["dst"] >= size else 0)))
        for number, one in enumerate(links)
    ]  # fmt: skip
    trees = _core.TableTrees(
        num_members=size, num_vertices=fabric.core.num_vertices, links=rows, home=homes, parent=parents
    )
    return trees, float(latency_ps[0]) * 1e-12


def _links_back(links: np.ndarray) -> list[int]:
    """Return of every directed link the one of its cable that leads the other way."""
    ends: dict[tuple[int, int], int] = {}
    for number, one in enumerate(links):
        ends[int(one["cable"]), int(one["src"])] = number
    return [ends[int(one["cable"]), int(one["dst"])] for one in links]


def _tree(links: np.ndarray, out: list[list[int]], back: list[int], owner: int) -> tuple[np.ndarray, np.ndarray]:
    """Return of every vertex the link towards an owner's home switch, and how many links lead there.

    Of several ways an owner takes the one of its own number, so that those of all owners are used alike.
    """
    home = int(links["dst"][out[owner][0]])
    parent, depth = np.full(len(out), -1), np.full(len(out), -1)
    depth[home] = 0
    queue = [home]
    ways: dict[int, list[int]] = {}
    for vertex in queue:
        for link in out[vertex]:
            other = int(links["dst"][link])
            if depth[other] < 0:
                depth[other] = depth[vertex] + 1
                ways[other] = []
                queue.append(other)  # an accelerator leads back to its switch alone
            if depth[other] == depth[vertex] + 1:
                ways[other].append(back[link])
    for vertex, found in ways.items():
        parent[vertex] = found[owner % len(found)]
    return parent, depth
