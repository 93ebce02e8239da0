"""Goodput: where the wall time of a job over weeks went."""

import math
from dataclasses import dataclass, field
from typing import Any

from rostam_py.errors import InternalError
from rostam_py.fleet.goodput.faults import DAY_S

CAUSES = {
    "useful": "iterations that count, at the pace of all replicas",
    "slower": "what iterations on fewer replicas take more for the same samples",
    "redone": "work since the last checkpoint that a fault undid",
    "checkpoint": "stops for checkpoints, and what iterations take more while one is written",
    "detection": "from faults until they are known",
    "waiting": "for a repair or a spare",
    "restart": "restarts, and replicas that rejoin",
}


@dataclass(frozen=True)
class Goodput:
    """A job over a window.

    wall_s: of the window [s]. seconds: cause (CAUSES) -> [s]; their sum is the wall time. num_faults: of its servers
    while it had them; num_cuts: those that cut it. samples: useful ones, as iterations of the whole global batch. days:
    cause -> seconds of each day, the last one not a whole one.
    """

    wall_s: float
    seconds: dict[str, float]
    num_faults: int
    num_cuts: int
    samples: float
    days: dict[str, list[float]] = field(repr=False)

    def __post_init__(self) -> None:
        total = math.fsum(self.seconds.values())
        if not math.isclose(total, self.wall_s, rel_tol=1e-9, abs_tol=1e-6):
            raise InternalError(f"goodput: causes sum to {total!r} s of {self.wall_s!r} s")

    @property
    def goodput(self) -> float:
        """Share of the wall time that is useful: the effective training time ratio."""
        return self.seconds["useful"] / self.wall_s

    def share(self, cause: str) -> float:
        """Return the share of the wall time that a cause took."""
        return self.seconds[cause] / self.wall_s

    def time_to_s(self, iterations: float) -> float | None:
        """Return the wall time to so many useful iterations at the window's mean pace [s]; None where none is useful.

        A window that begins luckily does not shorten it; ``reached_s`` is when this window had them.
        """
        return self.wall_s * iterations / self.samples if self.samples else None

    def reached_s(self, iterations: float) -> float | None:
        """Return when the window had so many useful iterations [s], evenly spread over a day's; None if it had not."""
        if not self.samples or iterations > self.samples:
            return None
        left = self.seconds["useful"] * iterations / self.samples
        for day, useful in enumerate(self.days["useful"]):
            if useful and useful >= left:
                return day * DAY_S + min(DAY_S, self.wall_s - day * DAY_S) * left / useful
            left -= useful
        return self.wall_s

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return {
            "wall_s": self.wall_s, "goodput": self.goodput, "seconds": dict(self.seconds),
            "num_faults": self.num_faults, "num_cuts": self.num_cuts, "iterations": self.samples,
            "days": {cause: list(values) for cause, values in self.days.items()},
        }  # fmt: skip


class Account:
    """Adds up seconds by cause, in all and for each day. Args: window_s: what is beyond it is not counted."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._num_days = math.ceil(window_s / DAY_S)
        self.parts: dict[str, list[float]] = {cause: [] for cause in CAUSES}
        self.days: dict[str, list[float]] = {cause: [0.0] * self._num_days for cause in CAUSES}

    def add(self, start_s: float, end_s: float, shares: dict[str, float]) -> None:
        """Add a stretch of time. Args: shares: cause -> seconds of it; their sum is its length."""
        length = end_s - start_s
        if length <= 0:
            return
        for cause, seconds in shares.items():
            self.parts[cause].append(seconds)
        first, last = int(start_s // DAY_S), min(int(end_s // DAY_S), self._num_days - 1)
        for day in range(first, last + 1):
            overlap = min(end_s, (day + 1) * DAY_S) - max(start_s, day * DAY_S)
            for cause, seconds in shares.items():
                self.days[cause][day] += seconds * overlap / length

    def totals(self) -> dict[str, float]:
        """Return the seconds of every cause."""
        return {cause: math.fsum(values) for cause, values in self.parts.items()}
