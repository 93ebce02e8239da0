"""Direct links between the accelerators of groups: rings and spanning trees over them.

Example:
    are_joined(fabric, members)                        # "auto" weighs `direct` and `spanning_trees`
    direct_rings(fabric, members[None, :])             # orders of the ranks, the channels of `ring`
    spanning_trees(fabric, "all_gather", members[None, :])

Fabrics whose accelerators form a grid have algorithms of their own and are left out, as are circuits, which are set for
the algorithm.
Legend: G = groups that run at once, p = ranks of one, L = links.
"""

from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from rostam_py import _core
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics.disjoint_rings import disjoint_rings
from rostam_py.fabrics.fabric import Fabric

# Own choices: groups beyond take what needs no search, and a packing of so many trees is within a few percent of the
# best (tests/collectives/test_spanning_trees.py).
MOST_RANKS = 32
_MOST_TREES = 128
_MOST_OF_MANY = 64  # of more than 16 ranks, where a packing takes its time
# Branches of a search for rings, of some microseconds each.
_MOST_BRANCHES = 4000

Rings = tuple[tuple[int, ...], ...]
Trees = tuple[tuple[int, ...], ...]


class _Links(NamedTuple):
    """Working links from accelerator to accelerator, all planes' as one [bytes/s], int and float arrays (L,)."""

    src: np.ndarray
    dst: np.ndarray
    rate: np.ndarray


_LINKS: "WeakKeyDictionary[Fabric, _Links]" = WeakKeyDictionary()
_HAS_LINKS: "WeakKeyDictionary[Fabric, bool]" = WeakKeyDictionary()
_COMPONENTS: "WeakKeyDictionary[Fabric, np.ndarray]" = WeakKeyDictionary()
_TREES: "WeakKeyDictionary[Fabric, dict[tuple[str, bytes, int], Trees | None]]" = WeakKeyDictionary()


def direct_links(fabric: Fabric, members: np.ndarray) -> np.ndarray:
    """Return the bandwidth of direct links from each rank to each, over all planes, float array (p, p) [bytes/s]."""
    place = np.full(fabric.num_accelerators, -1)
    place[members] = np.arange(len(members))
    src, dst, rate = _links(fabric)
    is_own = (place[src] >= 0) & (place[dst] >= 0)
    between = np.zeros((len(members), len(members)))
    np.add.at(between, (place[src[is_own]], place[dst[is_own]]), rate[is_own])
    return between


def _links(fabric: Fabric) -> _Links:
    if fabric not in _LINKS:
        table = fabric.links
        is_direct = np.maximum(table["src"], table["dst"]) < fabric.num_accelerators
        table = table[is_direct & ~table["is_failed"].astype(bool)]
        alike = {planes[0]: len(planes) for planes in fabric.plane_classes}
        weight = np.array([alike[plane] for plane in table["plane"].tolist()], float)
        _LINKS[fabric] = _Links(table["src"], table["dst"], table["bandwidth_bytes_per_s"] * weight)
    return _LINKS[fabric]


def has_direct_links(fabric: Fabric) -> bool:
    """Return whether the fabric joins accelerators by links of their own, on no grid and without circuits."""
    if fabric not in _HAS_LINKS:
        is_wired = not fabric.config.has_circuits and fabric.config.grid() is None
        _HAS_LINKS[fabric] = is_wired and len(_links(fabric).src) > 0
    return _HAS_LINKS[fabric]


def are_joined(fabric: Fabric, members: np.ndarray) -> bool:
    """Return whether direct links join some ranks of a group."""
    if len(members) < 2 or not has_direct_links(fabric):
        return False
    is_member = np.zeros(fabric.num_accelerators, bool)
    is_member[members] = True
    src, dst, _ = _links(fabric)
    return bool((is_member[src] & is_member[dst]).any())


def joined_size(fabric: Fabric, members: np.ndarray) -> int:
    """Return how many ranks follow each other that direct links join, where all come in blocks of as many; else 1.

    Args: members: accelerators in rank order.
    """
    if not are_joined(fabric, members):
        return 1
    label = _components(fabric)[members]
    starts = np.flatnonzero(np.diff(label, prepend=-1))
    sizes = np.diff([*starts.tolist(), len(members)])
    is_even = len(np.unique(label)) == len(starts) and (sizes == sizes[0]).all()
    return int(sizes[0]) if is_even else 1


def _components(fabric: Fabric) -> np.ndarray:
    """Return for every accelerator the least of those that direct links join it to, over others too."""
    if fabric not in _COMPONENTS:
        src, dst, _ = _links(fabric)
        label, before = np.arange(fabric.num_accelerators), np.empty(0, np.int64)
        while not np.array_equal(label, before):
            before = label.copy()
            np.minimum.at(label, dst, label[src])
            np.minimum.at(label, src, label[dst])
        _COMPONENTS[fabric] = label
    return _COMPONENTS[fabric]


def direct_rings(fabric: Fabric, groups: np.ndarray) -> Rings:
    """Return orders of the ranks round rings of direct links that share none and are as fast as can be found together.

    Model: a ring takes an equal share of the buffer, so the slowest link among all decides: of the links' bandwidths
        that one counts as a ring's for which rings x bandwidth is most. Of several groups the slower link counts.
    Args: groups: accelerators in rank order, int array (G, p).
    Returns: none where there is no ring, or none was found within the search's limit.
    """
    if groups.shape[1] > MOST_RANKS or not are_joined(fabric, groups[0]):
        return ()
    rates = np.minimum.reduce([direct_links(fabric, group) for group in groups])
    best: Rings = ()
    most = 0.0
    for rate in np.unique(rates[rates > 0])[::-1]:
        counts = np.floor(rates / rate * (1 + 1e-9)).astype(np.int64)
        bound = rate * min(counts.sum(axis=0).min(), counts.sum(axis=1).min())
        if bound <= most * (1 + 1e-9):
            continue
        found = disjoint_rings(counts, enable_relays=False, most_branches=_MOST_BRANCHES)
        if len(found) * rate > most * (1 + 1e-9):
            best, most = found, len(found) * float(rate)
    return best


def spanning_trees(fabric: Fabric, collective: str, groups: np.ndarray) -> Trees:
    """Return trees over the ranks of groups that run at once, as ``ScheduleKey`` has them.

    Model: every pair of ranks that has a route is a way of a tree, over the links of the route in all groups; trees
        load the fullest link as little as csrc/collectives/tree_packing.h finds. Sums go up trees of the opposite ways.
    Args: groups: accelerators in rank order, int array (G, p).
    Returns: none for one rank, or where circuits are set for the algorithm, which then runs as ``direct``.
    Raises: ConfigError for more ranks than 32; NoRouteError where one reaches not all others.
    Cost: routes of all pairs, and the packing, the first time.
    """
    num_ranks = groups.shape[1]
    if num_ranks < 2 or fabric.is_circuit_switched:
        return ()
    if num_ranks > MOST_RANKS:
        raise ConfigError(
            f"{collective} by spanning_trees over {num_ranks} ranks; trees are searched for up to {MOST_RANKS}"
        )
    known = _TREES.setdefault(fabric, {})
    name = (collective, groups.astype(np.int32).tobytes(), num_ranks)
    if name not in known:
        known[name] = _pack(fabric, collective, groups)
    found = known[name]
    if found is None:
        raise NoRouteError(
            f"{collective} by spanning_trees: no tree of routes joins accelerators"
            f" {', '.join(map(str, groups[0].tolist()))}"
        )
    return found


def _pack(fabric: Fabric, collective: str, groups: np.ndarray) -> Trees | None:
    num_ranks = groups.shape[1]
    ways, capacity = _ways(fabric, groups)
    down = None if collective == "reduce_scatter" else _packed(num_ranks, ways, capacity)
    if collective == "all_gather":
        return down
    up = _packed(num_ranks, tuple(sorted((way[1], way[0], *way[2:]) for way in ways)), capacity)
    if collective == "reduce_scatter" or up is None or down is None:
        return up if collective == "reduce_scatter" else None
    # As many of both for every rank, since chunks are those of both.
    each = np.lcm(len(up) // num_ranks, len(down) // num_ranks)
    return _times(up, each, num_ranks) + _times(down, each, num_ranks)


def _times(trees: Trees, each: int, num_ranks: int) -> Trees:
    """Return the trees with every one as often as makes ``each`` of a rank."""
    return tuple(tree for tree in trees for _ in range(each * num_ranks // len(trees)))


_Way = tuple[int, int, tuple[int, ...], tuple[float, ...]]


def _ways(fabric: Fabric, groups: np.ndarray) -> tuple[tuple[_Way, ...], tuple[float, ...]]:
    """Return the ways between ranks, and the capacities of their links, numbered as they come, the largest being 1."""
    router = fabric.router("spray")
    numbers: dict[int, int] = {}
    ways = []
    num_ranks = groups.shape[1]
    for src in range(num_ranks):
        for dst in range(num_ranks):
            routes = _routes(router, groups[:, src], groups[:, dst]) if src != dst else []
            if not routes:
                continue
            links = tuple(numbers.setdefault(int(link), len(numbers)) for found in routes for link in found[0])
            ways.append((src, dst, links, tuple(float(share) for found in routes for share in found[1])))
    rates = np.asarray(router.capacities)[list(numbers)]
    return _without_detours(ways), tuple((rates / rates.max(initial=1e-300)).tolist())


def _without_detours(ways: list[_Way]) -> tuple[_Way, ...]:
    """Return the ways without those over several links of which each joins two of the ranks: a tree does as well."""
    alone = {way[2] for way in ways if len(way[2]) == 1}
    links = {link for way in alone for link in way}
    return tuple(way for way in ways if len(way[2]) == 1 or not links.issuperset(way[2]))


def _routes(router: Any, src: np.ndarray, dst: np.ndarray) -> list[tuple[Any, Any]]:
    """Return links and shares of a message in every group; none where a group has no route."""
    try:
        return [router.route(int(a), int(b))[:2] for a, b in zip(src, dst, strict=True)]
    except NoRouteError:
        return []


@lru_cache(maxsize=256)
def _packed(num_ranks: int, ways: tuple[_Way, ...], capacity: tuple[float, ...]) -> Trees | None:
    most = _MOST_TREES if num_ranks <= _MOST_OF_MANY // 4 else _MOST_OF_MANY
    found = _core.pack_trees(num_ranks, ways, capacity, most)
    return None if found is None else tuple(tuple(tree) for tree in found)
