"""Symmetry of demands: groups that stand side by side and send alike are served alike.

A demand that a shift of all accelerators by ``period`` maps onto itself has orbits of equal pairs. Rounded
allocations give some pairs of an orbit one wavelength more than others; without those every group runs at the
same pace, and a simulation may fold them (MODEL H24).
"""

import numpy as np

from rostam_py.fabrics.traffic import Traffic

_TOLERANCE = 1e-12  # sums of equal bytes in another order


def period(traffic: Traffic) -> int:
    """Return the smallest shift, a divisor of the accelerators, that maps the demand onto itself.

    Cost: pairs x log(pairs) for each divisor that the numbers of peers allow.
    """
    num = traffic.num_accelerators
    out, into = traffic.out_degree(), traffic.in_degree()
    keys = traffic.src * num + traffic.dst
    for shift in (s for s in range(1, num) if num % s == 0):
        if not (np.array_equal(out, np.roll(out, shift)) and np.array_equal(into, np.roll(into, shift))):
            continue
        moved = (traffic.src + shift) % num * num + (traffic.dst + shift) % num
        order = np.argsort(moved)
        same_pairs = np.array_equal(moved[order], keys)
        if same_pairs and np.allclose(traffic.num_bytes[order], traffic.num_bytes, rtol=_TOLERANCE, atol=0.0):
            return shift
    return num


def least_of_orbits(traffic: Traffic, count: np.ndarray) -> np.ndarray:
    """Return the least count among the pairs that a shift by the demand's period maps onto one another.

    Args: count: of every pair of the demand, int array (pairs,).
    Returns: int array (pairs,), nowhere above ``count``; its least ratio to the demand is that of ``count``.
    """
    num, shift = traffic.num_accelerators, period(traffic)
    orbit = traffic.src % shift * num + (traffic.dst - traffic.src) % num
    _, which = np.unique(orbit, return_inverse=True)
    least = np.full(which.max(initial=-1) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, which, count)
    return least[which]
