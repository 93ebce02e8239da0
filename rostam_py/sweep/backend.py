"""Backends: where batches of points run. Each takes batches, and hands back what became of them.

inline   in this process, one batch at a time
process  processes on this machine (loky), each a lane of its own: what points share stays with one of them
ray      plain Ray tasks, on this machine or on a cluster (ray_backend.py)
"""

import concurrent.futures
import os
import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rostam_py.errors import ConfigError
from rostam_py.graph import OperatorGraph
from rostam_py.spec.settings import Settings
from rostam_py.sweep.evaluate import Evaluator
from rostam_py.sweep.identity import code_version
from rostam_py.sweep.store import has_point, write_point

TOKEN_FILE = ".sweep"
_WATCH_S = 1.0  # within which workers notice that their driver is gone


@dataclass(frozen=True, slots=True)
class Work:
    """What every worker of a sweep is told once. token: names this run of the driver; store: its folder."""

    token: str
    store: str
    code: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Points that one worker evaluates in order. points: (key, settings)."""

    points: tuple[tuple[str, Settings], ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """A point that is done. row: None if the worker has stored it already."""

    key: str
    wall_s: float
    is_error: bool
    row: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch: its finished points, or why its worker was lost."""

    batch: Batch
    finished: tuple[Finished, ...] = ()
    lost: str = ""


class Backend(Protocol):
    """Runs batches somewhere. shares_crashes: a dying worker takes other batches with it."""

    num_workers: int
    shares_crashes: bool

    def next_lane(self) -> int:
        """Return the lane that should get the next batch: a worker, or 0 for all where none can be chosen."""

    def submit(self, batch: Batch, lane: int) -> None:
        """Start a batch on a lane, or queue it there."""

    def wait(self, timeout_s: float) -> list[Outcome]:
        """Return batches that have ended, after at most ``timeout_s``."""

    def close(self) -> None:
        """Stop all workers."""


def evaluate_batch(evaluator: Evaluator, work: Work, batch: Batch) -> tuple[Finished, ...]:
    """Evaluate a batch in a worker, storing each point as soon as it is done.

    Points that an earlier attempt at this batch has stored are passed over. A worker that does not see the driver's
    store (another machine without a shared folder) hands the rows back instead.
    """
    if code_version() != work.code:
        raise ConfigError(
            f"a worker has rostam {code_version()}, the sweep began with {work.code}: its code changed, or machines"
            " differ; install the same everywhere and run the command again"
        )
    token = Path(work.store) / TOKEN_FILE
    sees_store = token.exists() and token.read_text(encoding="utf-8") == work.token
    finished = []
    for key, settings in batch.points:
        if sees_store and has_point(work.store, key):
            continue
        begin = time.perf_counter()
        row = evaluator.row(key, settings)
        wall_s = time.perf_counter() - begin
        if sees_store:
            write_point(work.store, row, wall_s)
        finished.append(Finished(key, wall_s, row["status"] == "error", None if sees_store else row))
    return tuple(finished)


class InlineBackend:
    """Evaluate in the driver's own process."""

    num_workers = 1
    shares_crashes = False

    def __init__(self, work: Work, graphs: dict[str, OperatorGraph]) -> None:
        self._work = work
        self._evaluator = Evaluator(graphs.__getitem__)
        self._waiting: list[Batch] = []

    def next_lane(self) -> int:
        """Return 0: there is one."""
        return 0

    def submit(self, batch: Batch, lane: int) -> None:
        """Queue a batch."""
        self._waiting.append(batch)

    def wait(self, timeout_s: float) -> list[Outcome]:
        """Evaluate the oldest batch."""
        if not self._waiting:
            return []
        batch = self._waiting.pop(0)
        return [Outcome(batch, evaluate_batch(self._evaluator, self._work, batch))]

    def close(self) -> None:
        """Forget what waits."""
        self._waiting.clear()


# One evaluator a worker process and sweep: what it keeps between points must survive from batch to batch.
_evaluators: dict[str, Evaluator] = {}


def worker_evaluator(work: Work, load_graph: Callable[[str], OperatorGraph]) -> Evaluator:
    """Return this process's evaluator of a sweep; a new sweep drops the one before."""
    if work.token not in _evaluators:
        _evaluators.clear()
        _evaluators[work.token] = Evaluator(load_graph)
    return _evaluators[work.token]


def _start_worker(work: Work, graphs: Path, driver: int) -> None:
    threading.Thread(target=_end_with, args=(driver,), daemon=True).start()
    worker_evaluator(work, lambda model: _graphs_in(graphs)[model])


def _graphs_in(path: Path) -> dict[str, OperatorGraph]:
    """Return the graphs that the driver has written, read again for each model, of which there are few."""
    found: dict[str, OperatorGraph] = pickle.loads(path.read_bytes())
    return found


def _end_with(driver: int) -> None:
    """End this process once the driver, its parent, is gone: killed, it cannot stop its workers."""
    while os.getppid() == driver:
        time.sleep(_WATCH_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _run_in_worker(work: Work, batch: Batch) -> tuple[Finished, ...]:
    return evaluate_batch(_evaluators[work.token], work, batch)


class ProcessBackend:
    """Processes on this machine, each a pool of one; one that breaks is replaced.

    Graphs come to them in a file: what does not fit the pipe that a process is started through would block the driver
    for good if that process died meanwhile.
    """

    shares_crashes = True

    def __init__(self, work: Work, graphs: dict[str, OperatorGraph], num_workers: int) -> None:
        self.num_workers = num_workers
        self._folder = tempfile.TemporaryDirectory(prefix="rostam-sweep-")
        path = Path(self._folder.name) / "graphs.pickle"
        path.write_bytes(pickle.dumps(graphs))
        self._arguments = (work, path, os.getpid())
        self._work = work
        self._pools: list[Any] = [None] * num_workers
        self._in_flight = [0] * num_workers
        self._running: dict[Any, tuple[Batch, int]] = {}

    def next_lane(self) -> int:
        """Return the process with the fewest batches."""
        return self._in_flight.index(min(self._in_flight))

    def submit(self, batch: Batch, lane: int) -> None:
        """Hand a batch to a process."""
        from loky.process_executor import BrokenProcessPool

        try:
            future = self._pool(lane).submit(_run_in_worker, self._work, batch)
        except BrokenProcessPool:
            self._pools[lane] = None
            future = self._pool(lane).submit(_run_in_worker, self._work, batch)
        self._running[future] = batch, lane
        self._in_flight[lane] += 1

    def wait(self, timeout_s: float) -> list[Outcome]:
        """Return batches that have ended."""
        from loky.process_executor import BrokenProcessPool

        done, _ = concurrent.futures.wait(self._running, timeout_s, concurrent.futures.FIRST_COMPLETED)
        outcomes = []
        for future in done:
            batch, lane = self._running.pop(future)
            self._in_flight[lane] -= 1
            try:
                outcomes.append(Outcome(batch, future.result()))
            except (BrokenProcessPool, MemoryError) as error:
                self._pools[lane] = None if isinstance(error, BrokenProcessPool) else self._pools[lane]
                outcomes.append(Outcome(batch, lost=_first_line(error)))
        return outcomes

    def close(self) -> None:
        """Stop the processes at once."""
        for pool in self._pools:
            if pool is not None:
                pool.shutdown(wait=True, kill_workers=True)
        self._pools = [None] * self.num_workers
        self._folder.cleanup()

    def _pool(self, lane: int) -> Any:
        if self._pools[lane] is None:
            from loky import ProcessPoolExecutor

            self._pools[lane] = ProcessPoolExecutor(
                1, initializer=_start_worker, initargs=self._arguments, env={"OMP_NUM_THREADS": "1"}
            )
        return self._pools[lane]


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
