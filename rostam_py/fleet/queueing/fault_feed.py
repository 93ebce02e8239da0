"""FaultFeed: faults and repairs of servers in order, drawn for as long as jobs last.

Example:
    feed = FaultFeed.drawn(lambda window_s: FaultTrace.drawn(num_servers=48, window=window_s, ...), window_s=30 * DAY_S)
    feed.next_s, feed.pop()
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from rostam_py.fleet.goodput.faults import FaultTrace

_REPAIR, _FAULT = 0, 1  # at one moment repairs come first


class FaultEvent(NamedTuple):
    """A fault or a repair of a server. cuts: whether jobs on it are cut."""

    at_s: float
    is_fault: int
    server: int
    cuts: bool
    cause: str


class FaultFeed:
    """Faults of a trace; a drawn one is drawn further when it has passed.

    Model: a longer window begins with the faults of a shorter one, so that it does not matter how often more are drawn.
    Args: trace: of the window that is known. draw: returns the trace of a longer one; None ends with the trace.
    """

    def __init__(self, trace: FaultTrace | None, draw: Callable[[float], FaultTrace] | None = None) -> None:
        self.trace, self._draw = trace, draw
        self._known_s = 0.0
        self._events: list[FaultEvent] = []
        self._next = 0
        if trace is not None:
            self._add(trace)

    @classmethod
    def drawn(cls, draw: Callable[[float], FaultTrace], window_s: float) -> "FaultFeed":
        """Return a feed that begins with a window."""
        return cls(draw(window_s), draw)

    @property
    def next_s(self) -> float:
        """When the next event is [s]; infinite without one."""
        while self._draw is not None and self.trace is not None and self._is_short():
            self.trace = self._draw(self.trace.window_s * 2)
            self._add(self.trace)
        return self._events[self._next].at_s if self._next < len(self._events) else math.inf

    @property
    def ends_s(self) -> float:
        """From when on no faults are known [s]; infinite where they are drawn, or where there are none."""
        return math.inf if self._draw is not None or self.trace is None else self.trace.window_s

    def pop(self) -> FaultEvent:
        """Return the next event, and pass it."""
        self._next += 1
        return self._events[self._next - 1]

    def _is_short(self) -> bool:
        """Whether the next event could lie beyond the window that is known, or be missing."""
        return self._next >= len(self._events) or self._events[self._next].at_s >= self._known_s

    def _add(self, trace: FaultTrace) -> None:
        """Merge the faults that begin where the known window ends."""
        begin, self._known_s = self._known_s, trace.window_s
        added = [
            event
            for one in trace.faults
            if one.start_s >= begin and one.end_s > one.start_s
            for event in (
                FaultEvent(one.start_s, _FAULT, one.server, one.cuts, one.cause),
                FaultEvent(one.end_s, _REPAIR, one.server, False, one.cause),
            )
            if event.at_s < math.inf
        ]
        self._events = sorted([*self._events[self._next :], *added])
        self._next = 0
