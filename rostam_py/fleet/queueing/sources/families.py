"""families: sizes of a named family, log-normal durations."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError
from rostam_py.fleet.job_sizes import FAMILIES, size_chances
from rostam_py.fleet.queueing.sources.source import OPTIONS, Source, SourceConfig, check_times


@dataclass(kw_only=True)
class FamiliesConfig(SourceConfig):
    """Sizes of a family of job_sizes.py.

    family: n^-2, n^-1.5, n^-1 or mixed (60% powers of two, 20% n^-1.5, 20% multiples of ten). largest: units that the
    largest job asks for; null takes 15% of the cluster, as HammingMesh's study. mean, median: of the durations, by
    default those of Philly (AcmeTrace's summary of it). longest: of the durations, likewise.
    """

    family: str = "mixed"
    largest: int | None = None
    mean: Any = field(default="18006 s", metadata={"unit": "time"})
    median: Any = field(default="874 s", metadata={"unit": "time"})
    longest: Any = field(default="4240676 s", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        SourceConfig.__post_init__(self)
        if self.family not in FAMILIES:
            raise ConfigError(f"{OPTIONS}.family is {self.family!r}; it must be one of: {', '.join(FAMILIES)}")
        if self.largest is not None and (not is_integer(self.largest) or self.largest < 1):
            raise ConfigError(f"{OPTIONS}.largest is {self.largest!r}; it must be an integer >= 1")
        check_times(self.mean, self.median, self.longest)


class Families(Source):
    """Sizes of a family (HammingMesh's studies use them), Poisson arrivals, log-normal durations.

    Source: own, tests/fleet/queueing/test_sources.py; the families are rostam_py/fleet/job_sizes.py's.
    """

    Config: ClassVar[type[SourceConfig]] = FamiliesConfig

    def sizes(self, count: int) -> np.ndarray:
        """Return units drawn with the family's chances."""
        room = self.num_accelerators // self.config.unit
        largest = max(1, int(0.15 * room)) if self.config.largest is None else self.config.largest
        if largest > room:
            raise ConfigError(f"{OPTIONS}.largest is {largest}; the cluster has {room} units of fleet.draw.unit")
        edges = np.cumsum(size_chances(self.config.family, largest, (largest,)))
        return 1 + np.searchsorted(edges, self.stream("sizes").random(count) * edges[-1], side="right")

    def durations_s(self, count: int) -> np.ndarray:
        """Return log-normal durations."""
        return self.log_normal_s(check_times(self.config.mean, self.config.median, self.config.longest), count)
