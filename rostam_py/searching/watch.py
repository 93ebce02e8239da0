"""Watch: who is told how far a search is, what it has found so far, and when its time is over."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.searching.result import Candidate, SearchResult
from rostam_py.units import format_time, parse_time

Progress = Callable[[str, int, int], None]
NOT_TRIED = "not tried: the search's budget was spent"
# Of the budget estimates have this share, so that time is left for simulations of the best.
_ESTIMATES = 2 / 3


def check_budget(budget: Any, key: str = "budget") -> float | None:
    """Return the time that a search may take [s], None for as long as it takes. Raises: UnitError, ConfigError."""
    if budget is None:
        return None
    seconds = parse_time(budget, key)
    if seconds <= 0:
        raise ConfigError(f"{key} is {budget!r}; it must be > 0, or null for as long as the search takes")
    return seconds


@dataclass(slots=True)
class Watch:
    """A search that runs.

    progress: called with a text, the steps done and their number. so_far: called with what makes a result of the
    candidates known, now and then. budget_s: wall-clock time that the search may take.
    """

    progress: Progress
    so_far: Callable[[Callable[[], SearchResult]], None] = lambda make: None
    budget_s: float | None = None
    make: Callable[[Sequence[Candidate]], SearchResult] | None = None
    _begin: float = field(default_factory=time.monotonic)

    @property
    def estimates_are_over(self) -> bool:
        """Whether no more candidates may be planned or estimated."""
        return self._is_over(_ESTIMATES)

    @property
    def is_over(self) -> bool:
        """Whether no more candidates may be simulated."""
        return self._is_over(1.0)

    def _is_over(self, share: float) -> bool:
        return self.budget_s is not None and time.monotonic() - self._begin > share * self.budget_s

    def show(self, candidates: Sequence[Candidate]) -> None:
        """Hand out what was found so far. Args: candidates: the best ones first, as far as they are known."""
        made = self.make
        if made is not None:
            known = list(candidates)
            self.so_far(lambda: made(known))

    def notes(self, candidates: Sequence[Candidate]) -> tuple[str, ...]:
        """Return what a budget kept from being tried, in words."""
        missing = sum(one.reason == NOT_TRIED for one in candidates)
        if self.budget_s is None or not missing:
            return ()
        return (
            f"search.budget = {format_time(self.budget_s)} was spent: {missing:,} of {len(candidates):,} candidates"
            " were not tried, and the best of the others need not be the best of all",
        )
