"""PlacementLog: which accelerators each job held, and which servers were down, from when to when.

Example:
    log = PlacementLog()
    log.hold(0, place, 0.0)
    log.let_go(0, 60.0)
    log.placements(60.0).stays      # [Stay(job=0, start_s=0.0, end_s=60.0, accelerators="0-7 16-23")]
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rostam_py.fleet.queueing.places.place import Place

MOST_CHARACTERS = 10_000_000
_OF_A_ROW = 40  # characters of a job's number and two times


class Stay(NamedTuple):
    """A job in one place. job: its number by submission. accelerators: that it asked for, written by ``ranges``."""

    job: int
    start_s: float
    end_s: float
    accelerators: str


class Down(NamedTuple):
    """A server that has failed, until all of its faults are repaired."""

    server: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Placements:
    """Stays and servers that were down, each by start.

    num_left_out: stays that begin when there were too many already. until_s: when the first of those begins, infinite
    where there is none.
    """

    stays: tuple[Stay, ...] = ()
    down: tuple[Down, ...] = ()
    num_left_out: int = 0
    until_s: float = math.inf


class PlacementLog:
    """Stays and failed servers as they come.

    Model: once their text has some number of characters, what begins later is counted and not kept. Stays of no length
        are left out.
    Args: most: characters.
    Cost: a sort of the accelerators of each place.
    """

    def __init__(self, most: int = MOST_CHARACTERS) -> None:
        self._left = most
        self._until_s, self._num_left_out = math.inf, 0
        self._open: dict[int, tuple[float, str]] = {}
        self._stays: list[Stay] = []
        self._faults: dict[int, int] = {}
        self._down_from: dict[int, float] = {}
        self._down: list[Down] = []

    def hold(self, job: int, place: Place, now: float) -> None:
        """Note where a job begins to be."""
        if self._left <= 0:
            self._until_s = min(self._until_s, now)
            self._num_left_out += 1
            return
        text = ranges(place.accelerators())
        self._left -= len(text) + _OF_A_ROW
        self._open[job] = (now, text)

    def let_go(self, job: int, now: float) -> None:
        """Note that a job is there no more."""
        found = self._open.pop(job, None)
        if found is not None and now > found[0]:
            self._stays.append(Stay(job, found[0], now, found[1]))

    def fail(self, server: int, now: float) -> None:
        """Note a fault of a server."""
        self._faults[server] = self._faults.get(server, 0) + 1
        if self._faults[server] == 1 and self._left > 0:
            self._left -= _OF_A_ROW
            self._down_from[server] = now

    def repair(self, server: int, now: float) -> None:
        """Note that one fault of a server is repaired."""
        self._faults[server] -= 1
        start = None if self._faults[server] else self._down_from.pop(server, None)
        if start is not None and now > start:
            self._down.append(Down(server, start, now))

    def placements(self, end_s: float) -> Placements:
        """Return all of it; what lasts beyond the end of the window ends there."""
        stays = [*self._stays, *(Stay(job, start, end_s, text) for job, (start, text) in self._open.items())]
        down = [*self._down, *(Down(server, start, end_s) for server, start in self._down_from.items())]
        return Placements(
            tuple(sorted((one for one in stays if one.end_s > one.start_s), key=lambda one: (one.start_s, one.job))),
            tuple(sorted((one for one in down if one.end_s > one.start_s), key=lambda one: (one.start_s, one.server))),
            self._num_left_out, self._until_s,
        )  # fmt: skip


def ranges(members: Sequence[int]) -> str:
    """Return numbers as ascending ranges: "0-7 9 16-23"."""
    ids = np.sort(np.asarray(members, dtype=np.int64))
    if not len(ids):
        return ""
    ends = np.append(np.flatnonzero(np.diff(ids) != 1), len(ids) - 1)
    starts = np.append(0, ends[:-1] + 1)
    pairs = zip(ids[starts].tolist(), ids[ends].tolist(), strict=True)
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)


def read_ranges(text: str) -> list[tuple[int, int]]:
    """Return (first, last) of each range of such text.

    Raises: ValueError for other text.
    """
    pairs = []
    for one in text.split():
        first, dash, last = one.partition("-")
        pairs.append((int(first), int(last) if dash else int(first)))
    return pairs
