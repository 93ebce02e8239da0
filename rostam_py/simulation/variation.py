"""Variation: seeded factors about 1 for what varies between parts of a machine, and from run to run of a kernel.

Example:
    draw_factors("lognormal", 0.05, seed=0, stream="devices", count=1024)     # float array of mean about 1
"""

from dataclasses import dataclass

import numpy as np

from rostam_py import _core
from rostam_py.errors import ConfigError

_ABOUT = {
    "lognormal": "exp of a normal: never below 0, slow ones farther out than fast ones",
    "uniform": "between 1 - 1.73 and 1 + 1.73 standard deviations",
}


def distributions() -> dict[str, str]:
    """Return the names of distributions of factors, and what each is."""
    return {name: _ABOUT[name] for name in _core.distribution_names()}


def check_distribution(name: str, key: str) -> str:
    """Return a known name. Raises: ConfigError naming the key and the names there are."""
    if name not in distributions():
        raise ConfigError(f"{key} is {name!r}; it must be one of: {', '.join(distributions())}")
    return name


def draw_factors(distribution: str, deviation: float, *, seed: int, stream: str, count: int) -> np.ndarray:
    """Return the first factors of a named stream of a seed: mean 1, a relative standard deviation, float array."""
    return np.asarray(_core.draw_factors(distribution, float(deviation), seed, stream, count))


@dataclass(frozen=True, slots=True)
class KernelVariation:
    """How kernels vary from run to run: each run of each kernel on each device takes a factor of its own.

    deviation: relative standard deviation of one kernel's time. stream: of the simulation's seed.
    """

    distribution: str
    deviation: float
    stream: str = "kernels"
