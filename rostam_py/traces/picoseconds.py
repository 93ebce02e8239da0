"""Picoseconds of durations as the core takes them: rounded up, but for rounding noise.

Source: as simulation.picoseconds, which stands on a higher floor; tests/traces/test_chakra.py compares the two.
"""

import math


def whole_ps(seconds: float) -> int:
    """Return whole picoseconds of a duration [s]."""
    ps = seconds * 1e12
    nearest = round(ps)
    return nearest if abs(ps - nearest) <= 1e-6 + 4e-16 * ps else math.ceil(ps)
