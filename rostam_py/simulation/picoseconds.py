"""Picoseconds: the core's whole unit of time."""

import numpy as np

from rostam_py.units import check_simulated

PS = 1e-12


def seconds_to_ps(seconds: float) -> int:
    """Return whole picoseconds, rounded up as every duration is (a hair above an integer is rounding noise).

    Raises: UnitError beyond the end of simulated time.
    """
    ps = check_simulated(seconds, "a duration") * 1e12
    nearest = round(ps)
    return nearest if abs(ps - nearest) <= 1e-6 + 4e-16 * ps else int(np.ceil(ps))
