"""Timeline: what a cluster's accelerators did from moment to moment, its integrals and its series.

Legend: ``held`` accelerators work for jobs that asked for them; ``spare`` ones are in units that a job holds and did
not ask for; ``free`` ones work and wait for jobs; ``down`` ones are neither.
"""

import math
from typing import NamedTuple

import numpy as np

STATES = ("held", "spare", "down", "idle", "scattered", "too few")
MEANINGS = {
    "held": "of jobs that asked for them",
    "spare": "in hosts or boards of jobs that did not ask for all of them",
    "down": "failed",
    "idle": "free, and no job waits",
    "scattered": "free while the next job would have enough of them, but not in places that it can take",
    "too few": "free while the next job asks for more",
}
_MOST_BINS = 10_000
_WIDTHS_S = (60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0)


class Moment(NamedTuple):
    """From ``at_s`` on. next_size: accelerators that the next waiting job asks for, 0 without one."""

    at_s: float
    held: int
    spare: int
    free: int
    next_size: int
    num_waiting: int
    waiting: int


class Timeline:
    """Moments in order, and the end of the window. Args: total: accelerators of the cluster."""

    def __init__(self, total: int, moments: list[Moment], end_s: float) -> None:
        self.total, self.end_s = total, end_s
        columns = np.array(moments, dtype=float).T if moments else np.zeros((len(Moment._fields), 1))
        self.at_s = columns[0]
        held, spare, free, next_size = columns[1:5]
        has_next, has_enough = next_size > 0, free >= next_size
        self._counts = {
            "held": held, "spare": spare, "down": total - held - spare - free,
            "idle": np.where(has_next, 0, free),
            "scattered": np.where(has_next & has_enough, free, 0),
            "too few": np.where(has_next & ~has_enough, free, 0),
            "jobs waiting": columns[5], "accelerators waited for": columns[6],
        }  # fmt: skip

    def integral(self, name: str, until_s: float | None = None) -> float:
        """Return the sum over time of a state [accelerator-seconds], from 0 on."""
        end = self.end_s if until_s is None else until_s
        lengths = np.diff(np.minimum(np.append(self.at_s, self.end_s), end))
        return math.fsum((self._counts[name] * lengths).tolist())

    def share(self, name: str, until_s: float | None = None) -> float:
        """Return a state's mean share of the cluster; 0 of no time."""
        end = self.end_s if until_s is None else min(until_s, self.end_s)
        return self.integral(name, end) / (self.total * end) if end > 0 else 0.0

    def series(self) -> tuple[float, list[str], list[list[float]]]:
        """Return means of equal stretches of time: their length [s], the columns' names, and a row for each.

        Model: the shortest of some usual lengths that gives at most 10,000 rows; the last stretch may be shorter.
        """
        width = next((one for one in _WIDTHS_S if self.end_s / one <= _MOST_BINS), self.end_s / _MOST_BINS)
        edges = np.append(np.arange(0.0, self.end_s, width), self.end_s) if self.end_s > 0 else np.zeros(1)
        lengths = np.diff(edges)
        at = np.append(self.at_s, self.end_s)
        columns = []
        for counts in self._counts.values():
            passed = np.concatenate([[0.0], np.cumsum(counts * np.diff(at))])
            columns.append(np.diff(np.interp(edges, at, passed)) / lengths if len(lengths) else lengths)
        rows = [[float(edges[k]), *(float(column[k]) for column in columns)] for k in range(len(lengths))]
        return width, list(self._counts), rows
