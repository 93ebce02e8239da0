"""Failures that are drawn while a run lasts: of each kind a Poisson process of parts / MTBF a second.

Example:
    drawn = DrawnFailures(Outages(mtbf_links="1000 h"), fabric)
    drawn.until(3600.0)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.plan.failures import Failure, Outages
from rostam_py.units import MAX_SIMULATED_S, format_time, parse_time

MOST_DRAWN = 10_000  # failures


@dataclass(slots=True)
class _Process:
    """Failures of one kind. next_s: of the first that is not among them."""

    kind: str
    num_parts: int
    mean_s: float  # between two failures of all parts
    draw: np.random.Generator
    next_s: float
    found: list[Failure]

    def extend(self, until_s: float, repair_s: float | None) -> None:
        """Draw up to a time: the same failures, whatever the times of earlier calls."""
        while self.next_s < until_s:
            number = int(self.draw.integers(self.num_parts))
            repair = None if repair_s is None else self.next_s + repair_s
            if repair is not None and repair >= MAX_SIMULATED_S:
                repair = None
            self.found.append(Failure(self.next_s, self.kind, number, repair=repair))
            self.next_s += self.draw.exponential(self.mean_s)


class DrawnFailures:
    """Draws failures as far as they are needed; equal seeds draw equal ones.

    Raises: ConfigError for a kind of parts that the fabric does not have.
    """

    def __init__(self, wanted: Outages, fabric: Any) -> None:
        self._repair_s = None if wanted.repair is None else parse_time(wanted.repair, "outages.repair")
        self._processes: list[_Process] = []
        self._until_s = 0.0
        for kind, mean_s in wanted.mtbf_s().items():
            count = fabric.num_parts(kind)
            if not count:
                raise ConfigError(f"outages.mtbf_{kind} is {mean_s:g} s; fabric {fabric.name!r} has none")
            draw = np.random.default_rng([wanted.seed, *kind.encode()])
            first_s = draw.exponential(mean_s / count)
            self._processes.append(_Process(kind, count, mean_s / count, draw, first_s, []))

    def check(self, least_s: float) -> None:
        """Raise ConfigError where the shortest run is expected to see more than can be drawn."""
        for one in self._processes:
            expected = least_s / one.mean_s
            if expected > MOST_DRAWN:
                raise ConfigError(
                    f"outages.mtbf_{one.kind} is {one.mean_s * one.num_parts:g} s: about {expected:,.0f} failures in"
                    f" {format_time(least_s)}; at most {MOST_DRAWN:,} can be drawn. Raise it, or lower"
                    " outages.iterations"
                )

    def until(self, until_s: float) -> Sequence[Failure]:
        """Return the failures up to a time, or up to that by which MOST_DRAWN are expected, by kind and time."""
        rate = sum(1 / one.mean_s for one in self._processes)
        self._until_s = min(until_s, MAX_SIMULATED_S, MOST_DRAWN / rate if rate else until_s)
        for one in self._processes:
            one.extend(self._until_s, self._repair_s)
        return [failure for one in self._processes for failure in one.found]

    def is_enough(self, end_s: float) -> bool:
        """Return whether all failures of a run that ends then are drawn.

        Raises: ConfigError if it has not ended when no more can be drawn.
        """
        if not self._processes or end_s <= self._until_s:
            return True
        rates = {one.kind: 1 / one.mean_s for one in self._processes}
        if sum(rates.values()) * self._until_s < MOST_DRAWN * (1 - 1e-9) and self._until_s < MAX_SIMULATED_S:
            return False
        most = max(rates, key=lambda kind: rates[kind])
        raise ConfigError(
            f"the run has not ended by {format_time(self._until_s)}, after"
            f" {sum(len(one.found) for one in self._processes):,} drawn failures; at most {MOST_DRAWN:,} can be drawn."
            f" Raise outages.mtbf_{most}, or lower outages.iterations"
        )
