"""Driver: hands out the points of a sweep in batches, keeps the books, and survives what happens to workers."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rostam_py.spec.settings import Settings
from rostam_py.sweep.backend import Backend, Batch, Finished, Outcome
from rostam_py.sweep.columns import settings_row
from rostam_py.sweep.evaluate import shared_work
from rostam_py.sweep.points import Point
from rostam_py.sweep.queues import Queues
from rostam_py.sweep.store import WORKER_LOST, Store, has_point, write_point

# Long enough that a task's overhead (1 to 5 ms) vanishes, short enough that little is lost, and progress moves.
_BATCH_S = 1.0
_IN_FLIGHT = 2  # batches a worker: one runs, one waits
_POLL_S = 0.5
_FOLD_AT = 2000

Progress = Callable[["Tally"], None]


@dataclass
class Tally:
    """How far a sweep is. total: points; stored: those found finished at the start; done: since then; errors: of those
    done; lost: points whose worker died, tried again. keys: of those done, in the order in which they finished."""

    total: int
    stored: int = 0
    done: int = 0
    errors: int = 0
    lost: int = 0
    begin: float = field(default_factory=time.monotonic)
    keys: list[str] = field(default_factory=list)

    def finish(self, key: str) -> None:
        """Count a point as done."""
        self.done += 1
        self.keys.append(key)

    @property
    def seconds(self) -> float:
        """Wall time since the start [s]."""
        return time.monotonic() - self.begin

    @property
    def rate_per_s(self) -> float:
        """Points finished a second since the start."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Time left at this rate [s], None before the first point."""
        left = self.total - self.stored - self.done
        return left / self.rate_per_s if self.rate_per_s > 0 else None


class Driver:
    """Run points on a backend until all are stored.

    Args: points: those to do, keys all different. retries: times that a point may lose its worker.
        progress: called whenever something has changed.
    """

    def __init__(
        self, store: Store, backend: Backend, points: Sequence[Point], tally: Tally, *, retries: int,
        progress: Progress,
    ) -> None:  # fmt: skip
        self._store, self._backend, self._tally = store, backend, tally
        self._retries, self._progress = retries, progress
        self._settings: dict[str, Settings] = {point.key: point.settings for point in points}
        self._queue = Queues((point.key, shared_work(point.settings)) for point in points)
        self._suspects: deque[str] = deque()  # points whose worker died while it computed them
        self._attempts: dict[str, int] = {}
        self._in_flight = 0
        self._runs_suspect = False
        self._point_s: float | None = None  # moving average of a point's wall time
        self._to_fold: list[str] = []

    def run(self) -> None:
        """Return when every point is stored.

        Raises: what a worker raises beyond a point's own errors (different code on a worker, a fault of rostam's).
        """
        while len(self._queue) or self._suspects or self._in_flight:
            self._submit()
            outcomes = self._backend.wait(_POLL_S)
            for outcome in outcomes:
                self._in_flight -= 1
                self._runs_suspect = False if self._in_flight == 0 else self._runs_suspect
                self._record(outcome)
            self._progress(self._tally)
        self._store.fold(self._to_fold)

    def _submit(self) -> None:
        """Fill the workers' queues: what a dead worker was computing first, alone if its death takes others along."""
        alone = self._backend.shares_crashes
        while self._suspects and (not alone or self._in_flight == 0):
            self._runs_suspect = alone
            self._start([self._suspects.popleft()], self._backend.next_lane())
        if self._runs_suspect or (alone and self._suspects):
            return
        while len(self._queue) and self._in_flight < _IN_FLIGHT * self._backend.num_workers:
            lane = self._backend.next_lane()
            self._start(self._queue.take(lane, self._batch_size()), lane)

    def _batch_size(self) -> int:
        """Return how many points to put in a batch: about a second of work, less towards the end."""
        if self._point_s is None:
            return 1
        fair = len(self._queue) // (2 * _IN_FLIGHT * self._backend.num_workers)
        return max(1, min(int(_BATCH_S / max(self._point_s, 1e-4)), fair))

    def _start(self, keys: list[str], lane: int) -> None:
        self._backend.submit(Batch(tuple((key, self._settings[key]) for key in keys)), lane)
        self._in_flight += 1

    def _record(self, outcome: Outcome) -> None:
        for one in outcome.finished:
            if one.row is not None:
                write_point(self._store.folder, one.row, one.wall_s)
            self._count(one)
        if outcome.lost:
            self._retry(outcome)
        else:
            self._to_fold.extend(key for key, _ in outcome.batch.points)
            known = {one.key for one in outcome.finished}
            for key, _ in outcome.batch.points:
                if key not in known:  # an earlier attempt's
                    self._tally.finish(key)
        if len(self._to_fold) >= _FOLD_AT:
            self._store.fold(self._to_fold)
            self._to_fold.clear()

    def _count(self, one: Finished) -> None:
        self._tally.finish(one.key)
        self._tally.errors += one.is_error
        weight = 0.1
        self._point_s = one.wall_s if self._point_s is None else (1 - weight) * self._point_s + weight * one.wall_s

    def _retry(self, outcome: Outcome) -> None:
        """Queue again what a lost worker had not stored; blame the first of it, which it was computing."""
        left = []
        for key, _ in outcome.batch.points:
            if has_point(self._store.folder, key):
                self._tally.finish(key)
                self._to_fold.append(key)
            else:
                left.append(key)
        if not left:
            return
        suspect = left.pop(0)
        self._queue.put_back(left)
        self._attempts[suspect] = self._attempts.get(suspect, 0) + 1
        self._tally.lost += 1
        if self._attempts[suspect] <= self._retries:
            self._suspects.append(suspect)
            return
        text = f"its worker died {self._attempts[suspect]} times, last: {outcome.lost}"
        row = settings_row(suspect, self._settings[suspect])
        row |= {"status": "error", "error_type": WORKER_LOST, "error": text}
        write_point(self._store.folder, row, 0.0)
        self._tally.finish(suspect)
        self._tally.errors += 1
        self._to_fold.append(suspect)


def store_folder(folder: Path, store: str | None) -> Path:
    """Return where a sweep's points are kept: below its own folder, or where the user shares one between sweeps."""
    return folder / "store" if store is None else Path(store)
