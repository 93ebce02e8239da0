"""Which rows of embedding tables samples look up: uniformly drawn ids, or measured frequencies of a data set.

Legend: a table of V rows of which n samples look up h each.

A profile is a file of ``ids``: of each table, in the model's order, its rows, the distinct ids U of the N samples that
were counted, and the share of samples that had the most frequent 1% and 10% of these ids.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from rostam_py.errors import ConfigError

UNIFORM = "uniform"
_FOLDER = Path(__file__).parent / "ids"
ID_PROFILES = (UNIFORM, *sorted(path.stem for path in _FOLDER.glob("*.json")))
_EXACT, _POINTS = 10_000, 2_000  # ranks summed one by one, then so many ranges of ranks for each e-fold


@dataclass(frozen=True, slots=True)
class IdFrequencies:
    """How often ids of a table were seen. head, middle: share of samples with the first 1% and 10% of ``num_ids``.

    num_samples: that were counted, one id each. is_set_fixed: an id stands for itself and h - 1 rows that are drawn
    uniformly once for all samples; else every sample draws h ids.
    """

    num_rows: int
    num_ids: int
    exponent: float
    head: float
    middle: float
    num_samples: float = math.inf
    is_set_fixed: bool = False

    def distinct_ids(self, num_draws: float) -> float:
        """Return the expected distinct ids of so many draws: the sum over ids of 1 - (1 - p)^n.

        Model: three ranges of ranks have the measured shares of samples, and p falls in each as rank^-exponent. For
            draws up to ``num_samples`` the ids that were seen suffice (rarefaction); those not seen are not counted.
        Source: Hurlbert 1971 (Ecology 52), "The nonconcept of species diversity": rarefaction.
        """
        bounds = (0, max(1, self.num_ids // 100), max(1, self.num_ids // 10), self.num_ids)
        total = 0.0
        shares = (self.head, self.middle - self.head, 1 - self.middle)
        for first, last, share in zip(bounds[:-1], bounds[1:], shares, strict=True):
            if last > first:
                ranks, counts = _ranges(first + 1, last)
                weights = ranks**-self.exponent
                p = np.minimum(share * weights / (weights * counts).sum(), 1 - 1e-15)
                total += float((counts * -np.expm1(num_draws * np.log1p(-p))).sum())
        return total

    def distinct_rows(self, num_samples: float, lookups: float) -> float:
        """Return the expected distinct rows that so many samples look up."""
        if not self.is_set_fixed:
            return self.distinct_ids(num_samples * lookups)
        ids = self.distinct_ids(num_samples)
        return ids + (1 - ids / self.num_rows) * uniform_rows(self.num_rows, ids * (lookups - 1))


def uniform_rows(num_rows: int, num_ids: float) -> float:
    """Return the expected distinct rows of a table that uniformly drawn ids look up; others look up no more."""
    if num_rows == 1:
        return min(1.0, num_ids)
    return -num_rows * math.expm1(num_ids * math.log1p(-1 / num_rows))


def frequencies(profile: str, rows: Sequence[int], where: str, num_samples: float) -> list[IdFrequencies | None]:
    """Return how often ids of each table are looked up, None for uniform ones.

    Args:
        rows: of each table, in the model's order.
        where: the model's name, for errors.
        num_samples: of an iteration.
    Raises: ConfigError for tables, or a number of samples, that the profile is not of.
    """
    if profile == UNIFORM:
        return [None] * len(rows)
    found = _read(profile)
    known = [table.num_rows for table in found]
    if known != list(rows):
        raise ConfigError(
            f"strategy.placing.table_ids is {profile!r}, whose {len(known)} tables have {_listed(known)} rows; those of"
            f" {where} have {_listed(rows)}; set strategy.placing.table_ids={UNIFORM}"
        )
    if num_samples > found[0].num_samples:
        raise ConfigError(
            f"strategy.placing.table_ids is {profile!r}, frequencies of {found[0].num_samples:,} samples, but"
            f" {num_samples:,.0f} are looked up at once; it must be at most as many, or"
            f" strategy.placing.table_ids={UNIFORM}"
        )
    return list(found)


@cache
def _read(profile: str) -> tuple[IdFrequencies, ...]:
    said = json.loads((_FOLDER / f"{profile}.json").read_text())
    samples, is_fixed = said["num_samples"], said["is_set_fixed"]
    return tuple(
        IdFrequencies(rows, ids, exponent, head / 100, middle / 100, samples, is_fixed)
        for rows, ids, exponent, head, middle in said["tables"]
    )


def _listed(rows: Sequence[int]) -> str:
    return ", ".join(map(str, rows[:4])) + (", ..." if len(rows) > 4 else "")


@cache
def _ranges(first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ranks from first to last: the geometric mean of each range, and how many it has."""
    single = min(last + 1, first + _EXACT)
    edges = np.arange(first, single + 1)
    if last + 1 > single:
        count = math.ceil(_POINTS * math.log((last + 1) / single))
        edges = np.unique(np.concatenate([edges, np.rint(np.geomspace(single, last + 1, count + 2)).astype(np.int64)]))
    edges = edges[edges <= last + 1]
    return np.sqrt(edges[:-1] * (edges[1:] - 1.0)), np.diff(edges)
