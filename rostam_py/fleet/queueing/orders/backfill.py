"""backfill: by submission, and others overtake where that delays the first job by nothing."""

import math
from collections.abc import Iterator

from rostam_py.fleet.queueing.orders.order import Order, View
from rostam_py.fleet.queueing.places.place import Place, Places
from rostam_py.fleet.queueing.run import Run


class _Reservation:
    """When the first job will have room by stated durations, and what is free then.

    at_s: infinite where nothing that runs could make room for it, for example while servers are down.
    """

    def __init__(self, head: Run, view: View) -> None:
        self.head, self.size = head, head.job.accelerators
        self.later: Places = view.places.copy()
        self.at_s = math.inf
        ends = sorted((run.stated_end_s(view.now), run.number, run) for run in view.running)
        for end, _, run in ends:
            if self.at_s < end:
                break
            if run.place is not None:
                self.later.give_back(run.place)
            if self.at_s == math.inf and self._has_room():
                self.at_s = end

    def admits(self, place: Place, end_s: float) -> bool:
        """Return whether a job on free accelerators delays the first one by nothing; note it if it stays longer."""
        if end_s <= self.at_s:
            return True
        self.later.take_again(place)
        if self._has_room():
            return True
        self.later.give_back(place)
        return False

    def _has_room(self) -> bool:
        if self.later.num_free < self.size:
            return False
        place = self.later.take(self.size)
        if place is None:
            return False
        self.later.give_back(place)
        return True


class Backfill(Order):
    """EASY: by submission; others overtake if the first job still starts by its reservation, as durations are stated.

    Model: the reservation is the first moment at which jobs that run have ended, by their stated durations, so that
        the first job has room. Another job starts now if it fits, and either ends by then, or leaves the first job
        room at that moment. Faults and paces that differ from what was stated make a new reservation.
    Source: Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and Feitelson, IEEE TPDS 12 (2001).
    """

    def __init__(self) -> None:
        super().__init__()
        self._reservation: _Reservation | None = None
        self._fresh: list[Run] = []

    def add(self, run: Run) -> None:
        """Let a job wait."""
        super().add(run)
        self._fresh.append(run)

    def key(self, run: Run) -> float:
        """Return nothing: equal ones go by submission."""
        return 0.0

    def starts(self, view: View) -> Iterator[tuple[Run, Place]]:
        """Yield the heads that have room, then those that may overtake the first one that has none."""
        yield from super().starts(view)
        fresh, self._fresh = self._fresh, []
        head = self.head
        if head is None:
            self._reservation = None
            return
        is_same = self._reservation is not None and self._reservation.head is head
        if view.has_changed or not is_same or self._reservation is None:
            self._reservation = _Reservation(head, view)
            fresh = [entry[-1] for entry in self.waiting]
        view.has_changed = False
        yield from self._overtaking(fresh, head, self._reservation, view)

    def _overtaking(
        self, candidates: list[Run], head: Run, reservation: _Reservation, view: View
    ) -> Iterator[tuple[Run, Place]]:
        """Yield those of the candidates that may start."""
        too_long: set[int] = set()  # sizes of which jobs that stay beyond the reservation would delay it
        for run in candidates:
            if not view.places.num_free:
                return
            size = run.job.accelerators
            end_s = view.now + run.stated_left_s(view.upkeep)  # at least
            if run is head or run.place is not None or (size in too_long and end_s > reservation.at_s):
                continue
            place = view.take(size)
            if place is None:
                continue
            end_s = view.now + run.stated_left_s(view.upkeep, len(place.servers))
            if not reservation.admits(place, end_s):
                too_long.add(size)
                view.places.give_back(place)
                continue
            self.remove(run)
            yield run, place
