"""Rings on a fabric that could be numbered in several ways: the order of the ranks that takes least.

Example:
    relabelled_rings(torus_2x8, members, is_both_ways=False)    # the order that ranks have on torus [8, 2]
"""

from weakref import WeakKeyDictionary

import numpy as np

from rostam_py import _core
from rostam_py.fabrics.fabric import Fabric

_KNOWN: "WeakKeyDictionary[Fabric, dict[bytes, tuple[int, ...]]]" = WeakKeyDictionary()


def relabelled_rings(fabric: Fabric, members: np.ndarray, *, is_both_ways: bool) -> tuple[tuple[int, ...], ...]:
    """Return the ranks' order round a ring that the fabric's numbering would give with its dimensions in another order.

    Model: of all orders of the dimensions the one whose ring is fastest for large buffers, of equal ones that of least
        latency, so that the same torus has the same ring however its dimensions are listed.
    Args: members: accelerators in rank order; another order than the fabric's numbering is the user's and stays.
        is_both_ways: the ring runs backwards as well.
    Returns: an order, and backwards, as ``ScheduleKey.rings``; none where the ranks' own order is as good.
    Cost: a route for each rank and order of unequal dimensions, the first time.
    """
    if len(members) < 3 or (np.diff(members) < 0).any():
        return ()
    known = _KNOWN.setdefault(fabric, {})
    name = members.astype(np.int32).tobytes()
    if name not in known:
        known[name] = _best(fabric, members, fabric.config.numberings())
    best = known[name]
    if not best:
        return ()
    return (best, best[::-1]) if is_both_ways else (best,)


def _best(fabric: Fabric, members: np.ndarray, orders: list[np.ndarray]) -> tuple[int, ...]:
    if not orders:
        return ()
    place = np.full(fabric.num_accelerators, -1)
    place[members] = np.arange(len(members))
    router = fabric.router("spray")
    best, least = (), _step_costs(router, members)
    for order in orders:
        ranks = place[order]
        ranks = ranks[ranks >= 0]
        costs = _step_costs(router, members[ranks])
        if costs < least:
            best, least = tuple(ranks.tolist()), costs
    return best


def _step_costs(router: "_core.RouteTable", ring: np.ndarray) -> tuple[float, float]:
    """Return what a step of a ring takes for each byte, and its latency, to ten digits [s per byte, s].

    Model: ranks run ahead of each other, so a mean hop counts, unless one port is slower.
    """
    ring = ring.astype(np.int32)
    latency_ps, seconds = _core.route_costs(router, ring, np.roll(ring, -1), np.ones(len(ring)))
    return float(f"{max(seconds.max(), seconds.mean()):.10g}"), float(f"{latency_ps.mean():.10g}")
