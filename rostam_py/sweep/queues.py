"""Queues: which points a worker gets next, so that those that share costly work come to one worker.

A search keeps its placed plans and kernel times for the next machine; two workers that take turns at the searches of
one model do all of that twice.
"""

from collections import deque
from collections.abc import Iterable, Sequence

COMMON = ""  # points that share nothing with one another


class Queues:
    """Points that wait, by what they share; each lane (a worker, or all of them) empties one queue after the other.

    Args: points: (key, what it shares) in the order in which they should come.
    """

    def __init__(self, points: Iterable[tuple[str, str]]) -> None:
        groups: dict[str, deque[str]] = {}
        for key, shares in points:
            groups.setdefault(shares, deque()).append(key)
        self._common = groups.pop(COMMON, deque())
        self._unclaimed = deque(groups.values())
        self._lanes: dict[int, deque[str]] = {}

    def __len__(self) -> int:
        return len(self._common) + sum(map(len, (*self._unclaimed, *self._lanes.values())))

    def take(self, lane: int, size: int) -> list[str]:
        """Return at most ``size`` points for a lane, at least one while any are left.

        Model: of the lane's own queue; without one, of the next that no lane has, of the points that share nothing, or
            of the latter half of another lane's.
        """
        queue = self._queue_of(lane)
        return [queue.popleft() for _ in range(min(size, len(queue)))]

    def put_back(self, keys: Sequence[str]) -> None:
        """Queue points again, before all that share nothing: what they shared is lost with their worker."""
        self._common.extendleft(reversed(keys))

    def _queue_of(self, lane: int) -> deque[str]:
        own = self._lanes.get(lane)
        if own:
            return own
        self._lanes.pop(lane, None)
        if self._unclaimed:
            self._lanes[lane] = self._unclaimed.popleft()
            return self._lanes[lane]
        if self._common:
            return self._common
        fullest = max(self._lanes.values(), key=len, default=deque[str]())
        half = deque(reversed([fullest.pop() for _ in range((len(fullest) + 1) // 2)]))
        self._lanes[lane] = half
        return half
