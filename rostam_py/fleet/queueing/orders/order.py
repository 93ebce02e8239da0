"""Order: which job of the queue starts next. One file each in ``orders/``, and a line of ORDERS."""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from typing import Any

from rostam_py.fleet.queueing.places.place import Place, Places
from rostam_py.fleet.queueing.run import Run, Upkeep


class View:
    """What an order sees of the cluster, and how it takes accelerators for jobs.

    now: the time [s]. running: jobs that hold accelerators. has_changed: whether any were given back, failed or
    repaired since the last look at the whole queue.
    """

    def __init__(self, places: Places, running: Collection[Run], upkeep: Upkeep) -> None:
        self.places, self.running, self.upkeep = places, running, upkeep
        self.now = 0.0
        self.has_changed = True
        self._cannot_move_for: Run | None = None
        self._full: set[int] = set()  # sizes that there is no room for until something is given back

    def take(self, size: int) -> Place | None:
        """Take accelerators for a job; None without room."""
        if size in self._full:
            return None
        place = self.places.take(size) if size <= self.places.num_free else None
        if place is None:
            self._full.add(size)
        return place

    def change(self) -> None:
        """Note that accelerators were given back, failed or repaired."""
        self._full.clear()
        self._cannot_move_for = None
        self.has_changed = True

    def may_move(self, head: Run) -> bool:
        """Return whether moving jobs for the first one is worth a search: once for each change."""
        is_new = self._cannot_move_for is not head
        self._cannot_move_for = head
        return is_new


class Order(ABC):
    """A queue in an order of its own; jobs that a fault cut come first, by submission."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, ...]] = []  # (key, ..., number, Run), ascending

    def add(self, run: Run) -> None:
        """Let a job wait."""
        insort(self.waiting, self._entry(run))

    def remove(self, run: Run) -> None:
        """Take a job from the queue."""
        del self.waiting[bisect_left(self.waiting, self._entry(run))]

    @property
    def head(self) -> Run | None:
        """The job that is to start next."""
        return self.waiting[0][-1] if self.waiting else None

    def starts(self, view: View) -> Iterator[tuple[Run, Place]]:
        """Yield the jobs that start now with what they hold, each taken from the queue: here, heads that have room."""
        while (run := self.head) is not None:
            place = view.take(run.job.accelerators)
            if place is None:
                return
            del self.waiting[0]
            yield run, place

    @abstractmethod
    def key(self, run: Run) -> float:
        """Return what jobs are sorted by, the least first; equal ones go by submission."""

    def _entry(self, run: Run) -> tuple[Any, ...]:
        return (not run.num_cuts, self.key(run) if not run.num_cuts else 0.0, run.number, run)
