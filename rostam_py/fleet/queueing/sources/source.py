"""Source: draws jobs. One file each in ``sources/``, and a line of SOURCES."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rostam_py.checks import check_seed, is_integer
from rostam_py.errors import ConfigError
from rostam_py.fleet.queueing.job import QueuedJob
from rostam_py.registry import Registry
from rostam_py.units import parse_time

OPTIONS = "fleet.draw"
_STRATA = 20_000  # of the chances over which a mean is taken


@dataclass(kw_only=True)
class SourceConfig:
    """What every draw has.

    count: number of jobs. load: accelerators that jobs ask for at a time, over those of the cluster, on average; jobs
    arrive as a Poisson process of that rate. unit: accelerators of which each job asks for multiples.
    """

    count: int = 1_000
    load: float = 0.8
    unit: int = 1

    def __post_init__(self) -> None:
        for key in ("count", "unit"):
            if not is_integer(value := getattr(self, key)) or value < 1:
                raise ConfigError(f"{OPTIONS}.{key} is {value!r}; it must be an integer >= 1")
        if isinstance(self.load, bool) or not isinstance(self.load, int | float) or not 0 < self.load < math.inf:
            raise ConfigError(f"{OPTIONS}.load is {self.load!r}; it must be a number > 0")


class Durations(NamedTuple):
    """Log-normal durations: mean, median and longest one [s]."""

    mean_s: float
    median_s: float
    longest_s: float


class Source(ABC):
    """Draws jobs: sizes and durations of a component's own, Poisson arrivals.

    Model: every quantity has a random stream of its own, named, so that other sizes leave arrivals and durations as
        they are. Durations are log-normal with a given mean and median, drawn by equal strata: in a random order, one
        from each of as many parts of equal chance as there are jobs, so that mean and median are nearly met. Longer
        ones than the longest are cut to that, and the spread is such that the mean is met all the same.
    """

    Config: ClassVar[type[SourceConfig]] = SourceConfig

    def __init__(self, config: Any, num_accelerators: int, seed: int) -> None:
        self.config, self.num_accelerators, self.seed = config, num_accelerators, check_seed("fleet.seed", seed)

    def draw(self) -> list[QueuedJob]:
        """Return the jobs by submission."""
        count = self.config.count
        sizes = self.sizes(count) * self.config.unit
        durations = self.durations_s(count)
        between_s = float((sizes * durations).mean()) / (self.config.load * self.num_accelerators)
        gaps = self.stream("arrivals").exponential(between_s, count)
        submits = np.cumsum(gaps) - gaps[0]
        return [
            QueuedJob(name=str(k + 1), submit_s=submit, accelerators=size, work_s=duration, stated_s=duration)
            for k, (submit, size, duration) in enumerate(
                zip(submits.tolist(), sizes.tolist(), durations.tolist(), strict=True)
            )
        ]

    def stream(self, name: str) -> np.random.Generator:
        """Return the random stream of a name."""
        return np.random.default_rng([self.seed, *name.encode()])

    def log_normal_s(self, wanted: Durations, count: int) -> np.ndarray:
        """Return log-normal durations in whole seconds, at least 1 s.

        Raises: ConfigError where none of the longest has the mean.
        """
        draw = self.stream("durations")
        ranks = (draw.permutation(count) + draw.random(count)) / count
        return np.maximum(np.round(_capped(wanted, _spread(wanted), _scores(ranks))), 1.0)

    @abstractmethod
    def sizes(self, count: int) -> np.ndarray:
        """Return how many units each job asks for, int array (count,)."""

    @abstractmethod
    def durations_s(self, count: int) -> np.ndarray:
        """Return how long each job runs alone [s], float array (count,)."""


def make_source(sources: Registry, name: str, options: Any, num_accelerators: int, seed: int) -> Source:
    """Return a registered source.

    Raises: ConfigError for an unknown name, an unknown key or a bad value.
    """
    kind = sources.get(name)
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(f"{OPTIONS} is {options!r}; it must hold keys with values, such as {{count: 1000}}")
    known = [entry.name for entry in dataclasses.fields(kind.Config)]
    for key in options or {}:
        if key not in known:
            raise ConfigError(f"{OPTIONS} has no key {key!r} for fleet.jobs={name}; it has: {', '.join(known)}")
    source: Source = kind(kind.Config(**(options or {})), num_accelerators, seed)
    return source


def check_times(mean: Any, median: Any, longest: Any) -> Durations:
    """Return mean, median and longest of durations.

    Raises: ConfigError unless 0 < median <= mean < longest, and for a mean that the longest one rules out.
    """
    mean_s, median_s, longest_s = (
        parse_time(value, f"{OPTIONS}.{key}")
        for key, value in (("mean", mean), ("median", median), ("longest", longest))
    )
    if not 0 < median_s <= mean_s < longest_s:
        raise ConfigError(
            f"{OPTIONS}.median is {median!r}, {OPTIONS}.mean {mean!r} and {OPTIONS}.longest {longest!r}; log-normal"
            " durations need 0 < median <= mean < longest"
        )
    found = Durations(mean_s, median_s, longest_s)
    _spread(found)
    return found


def _scores(ranks: np.ndarray) -> np.ndarray:
    """Return the standard normal's quantiles."""
    normal = NormalDist()
    return np.array([normal.inv_cdf(min(max(one, 1e-12), 1 - 1e-12)) for one in ranks.tolist()])


def _capped(wanted: Durations, spread: float, scores: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        found: np.ndarray = np.minimum(wanted.median_s * np.exp(spread * scores), wanted.longest_s)
    return found


def _spread(wanted: Durations) -> float:
    """Return the standard deviation of the logarithm with which the mean is met.

    Raises: ConfigError where even half of all jobs as long as the longest one give less.
    """
    scores = _scores((np.arange(_STRATA) + 0.5) / _STRATA)
    low, high = 0.0, 50.0
    if _capped(wanted, high, scores).mean() < wanted.mean_s:
        raise ConfigError(
            f"{OPTIONS}.mean is {wanted.mean_s:g} s; with a median of {wanted.median_s:g} s and no job longer than"
            f" {wanted.longest_s:g} s it must be less than {wanted.longest_s / 2:g} s"
        )
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _capped(wanted, middle, scores).mean() < wanted.mean_s else (low, middle)
    return low
