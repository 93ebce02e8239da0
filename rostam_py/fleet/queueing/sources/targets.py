"""targets: jobs with the mean and median sizes and run times of a public cluster."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError
from rostam_py.fleet.queueing.sources.source import OPTIONS, Durations, Source, SourceConfig


class Target(NamedTuple):
    """A cluster's GPU jobs: mean, median and longest run time [s], mean and largest number of GPUs; the median is 1."""

    mean_s: float
    median_s: float
    longest_s: float
    mean_size: float
    largest: int


# InternLM/AcmeTrace at 6d6ac9c, data/cluster_summary.csv (CC-BY-4.0): avg_run_time_gpu, med_run_time_gpu,
# max_run_time_gpu, avg_gpu_num, max_gpu. PAI is left out: its jobs share GPUs.
TARGETS = {
    "Seren": Target(1_414.335, 122.0, 1_209_604.0, 5.68, 1_024),
    "Kalos": Target(1_259.689, 124.0, 625_740.0, 26.77, 1_024),
    "Philly": Target(18_006.055, 874.0, 4_240_676.0, 1.928, 128),
    "Helios": Target(6_651.681, 206.0, 4_320_009.0, 3.716, 2_048),
}
_JUST_ABOVE_HALF = 0.51  # share of the least size where the median is to be that


@dataclass(kw_only=True)
class TargetsConfig(SourceConfig):
    """Which cluster's jobs.

    cluster: Seren, Kalos, Philly or Helios. largest: accelerators of the largest job; null takes the cluster's, or all
    of the fabric's where it has fewer.
    """

    cluster: str = "Philly"
    largest: int | None = None

    def __post_init__(self) -> None:
        SourceConfig.__post_init__(self)
        if self.cluster not in TARGETS:
            raise ConfigError(f"{OPTIONS}.cluster is {self.cluster!r}; it must be one of: {', '.join(TARGETS)}")
        if self.largest is not None and (not is_integer(self.largest) or self.largest < 1):
            raise ConfigError(f"{OPTIONS}.largest is {self.largest!r}; it must be an integer >= 1")
        if self.unit != 1:
            raise ConfigError(f"{OPTIONS}.unit is {self.unit}; it must be 1 for fleet.jobs=targets")


class Targets(Source):
    """Sizes and run times with the means and medians of a public cluster (AcmeTrace's summary), Poisson arrivals.

    Model: sizes are powers of two whose chances fall by one ratio from each to the next, such that the mean is met;
        where the median would then exceed 1, 51% of the jobs ask for 1 and the ratio is that of all others. Sizes and
        durations are independent, which real ones are not: large jobs run longer, so that real clusters are fuller.
    Source: AcmeTrace, data/cluster_summary.csv; the form of the distributions: own.
    """

    Config: ClassVar[type[SourceConfig]] = TargetsConfig

    def sizes(self, count: int) -> np.ndarray:
        """Return powers of two."""
        target = TARGETS[self.config.cluster]
        largest = min(target.largest, self.num_accelerators) if self.config.largest is None else self.config.largest
        values = 2 ** np.arange(int(largest).bit_length())
        chances = _chances(values, target.mean_size)
        if chances is not None and chances[0] < _JUST_ABOVE_HALF:
            rest = _chances(values[1:], (target.mean_size - _JUST_ABOVE_HALF) / (1 - _JUST_ABOVE_HALF))
            chances = None if rest is None else np.append(_JUST_ABOVE_HALF, (1 - _JUST_ABOVE_HALF) * rest)
        if chances is None:
            raise ConfigError(
                f"{OPTIONS}.largest is {largest}; jobs of {self.config.cluster} have a mean of {target.mean_size} GPUs,"
                " which powers of two up to that cannot have: take a larger fabric"
            )
        draw = self.stream("sizes")
        ranks = (draw.permutation(count) + draw.random(count)) / count
        return values[np.minimum(np.searchsorted(np.cumsum(chances), ranks, side="right"), len(values) - 1)]

    def durations_s(self, count: int) -> np.ndarray:
        """Return log-normal durations."""
        target = TARGETS[self.config.cluster]
        return self.log_normal_s(Durations(target.mean_s, target.median_s, target.longest_s), count)


def _chances(values: np.ndarray, mean: float) -> np.ndarray | None:
    """Return chances that fall, or rise, by one ratio and give a mean; None where no ratio does."""
    if not len(values) or not values[0] < mean < values[-1]:
        return None
    steps = np.arange(len(values))
    low, high = -50.0, 50.0  # of the ratio's logarithm
    for _ in range(200):
        middle = (low + high) / 2
        weights = np.exp(middle * (steps - (steps[-1] if middle > 0 else 0)))
        weights /= weights.sum()
        low, high = (middle, high) if (weights * values).sum() < mean else (low, middle)
    found: np.ndarray = weights
    return found
