"""simulate_queue: jobs over weeks on a cluster, from their submission to their end.

Example:
    found = simulate_queue(jobs, Servers(np.ones(192, bool), 8), FirstCome())
    found.mean_wait_s, found.utilisation

Model: gang scheduling: a job holds all of its accelerators from its start to its end. At one moment jobs end first,
then servers are repaired, then they fail, then jobs are submitted; then the order is asked who starts. A fault cuts
every job with an accelerator on the server: work since the last checkpoint is lost, the accelerators are held until the
fault is known, and the job waits again, before all that no fault has cut.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rostam_py.errors import ConfigError
from rostam_py.fleet.queueing.defragment import find_moves
from rostam_py.fleet.queueing.fault_feed import FaultFeed
from rostam_py.fleet.queueing.job import QueuedJob, arrivals_in_order
from rostam_py.fleet.queueing.orders.order import Order, View
from rostam_py.fleet.queueing.placements import PlacementLog
from rostam_py.fleet.queueing.places.place import Place, Places
from rostam_py.fleet.queueing.result import QueueResult
from rostam_py.fleet.queueing.run import Run, Upkeep
from rostam_py.fleet.queueing.timeline import Moment, Timeline

_EVERY = 4096  # events between two words of progress
_MOST_IN_VAIN = 1_000  # cuts of a job in a row that leave it no work
_MOST_IDLE_FAULTS = 20_000  # in a row, while jobs wait, none runs and none is submitted


class Network(Protocol):
    """What jobs that share links cost one another."""

    def paces(self, began: Sequence[Run], left: Sequence[Run], running: Iterable[Run]) -> Iterable[tuple[Run, float]]:
        """Return the jobs whose pace changes, and their new one: work for each second."""
        ...


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What jobs meet.

    window_s: what comes later is not simulated. network: None leaves every job its pace alone. move_s: pause of a job
    that moves so that the next one has room; None lets none move.
    """

    upkeep: Upkeep = field(default_factory=Upkeep)
    faults: FaultFeed = field(default_factory=lambda: FaultFeed(None))
    window_s: float = math.inf
    network: Network | None = None
    move_s: float | None = None
    progress: Callable[[str], None] = lambda _: None


def check_sizes(jobs: Sequence[QueuedJob], places: Places) -> None:
    """Raise ConfigError for a job that the empty cluster has no room for."""
    known: dict[int, bool] = {}
    for job in jobs:
        size = job.accelerators
        if size not in known:
            place = places.take(size) if size <= places.num_free else None
            known[size] = place is not None
            if place is not None:
                places.give_back(place)
        if not known[size]:
            why = (
                f"the cluster has {places.num_working:,} that work"
                if size > places.num_working
                else "no set of them that jobs can take is so large even in the empty cluster"
            )
            raise ConfigError(
                f"fleet.jobs: job {job.name} asks for {size:,} accelerators, but {why}; leave it out, or take a larger"
                " fabric or another fleet.allocation"
            )


def simulate_queue(
    jobs: Sequence[QueuedJob], places: Places, order: Order, setting: Setting | None = None
) -> QueueResult:
    """Return what became of jobs on a cluster.

    Args: places: of the empty cluster; it is left as the last job left it. order: an empty queue.
    Raises: ConfigError for no job, a job that the empty cluster has no room for, and jobs that wait for ever.
    Cost: some ten microseconds for each submission, start, end and fault, and what places and order take.
    """
    arriving = arrivals_in_order(jobs)
    check_sizes(arriving, places)
    return _Simulation(arriving, places, order, setting or Setting()).run()


class _Simulation:
    def __init__(self, jobs: Sequence[QueuedJob], places: Places, order: Order, setting: Setting) -> None:
        self.places, self.order, self.setting, self.upkeep = places, order, setting, setting.upkeep
        self.runs = [Run(number=number, job=job, waits_since_s=job.submit_s) for number, job in enumerate(jobs)]
        self.running: dict[int, Run] = {}
        self.view = View(places, self.running.values(), self.upkeep)
        self.now = 0.0
        self.next = 0  # of the jobs that are not submitted yet
        self.ends: list[tuple[float, int, int]] = []  # (end, number, epoch of the run)
        self.on_server: dict[int, set[int]] = {}
        self.held = self.spare = self.waiting = self.num_left = 0
        self.began: list[Run] = []
        self.left: list[Run] = []
        self.moments: list[Moment] = []
        self.log = PlacementLog()
        self.lost_to: dict[str, int] = {}  # cause of a fault -> jobs that it cut
        self.num_faults = self.idle_faults = 0

    def run(self) -> QueueResult:
        """Take all events until the last job has left, or the window ends."""
        events = 0
        while self.num_left < len(self.runs):
            at = self._next_s()
            if at >= self.setting.window_s < math.inf:
                self.now = self.setting.window_s
                break
            if at == math.inf:
                raise ConfigError(
                    f"fleet.faults: {len(self.order.waiting)} jobs wait for ever: servers are never repaired; give"
                    " fleet.days, or faults that end"
                )
            self.now = self.view.now = at
            self._take_events(at)
            self._start_all()
            while self.setting.move_s is not None and self._defragment(self.setting.move_s):
                self._start_all()
            self._change_paces()
            self._note()
            events += 1
            if events % _EVERY == 0 or self.setting.network is not None:  # which takes longer than events
                self._say()
        for run in self.runs:
            if run.job.submit_s <= self.now:
                run.stop(self.now)
        submitted = [run for run in self.runs if run.job.submit_s <= self.now]
        timeline = Timeline(self.places.num_working, self.moments, self.now)
        return QueueResult(
            submitted, timeline, self.lost_to, self.num_faults, num_after=len(self.runs) - len(submitted),
            placements=self.log.placements(self.now),
        )  # fmt: skip

    def _next_s(self) -> float:
        while self.ends and self._is_old(self.ends[0]):
            heapq.heappop(self.ends)
        at = self.ends[0][0] if self.ends else math.inf
        if self.next < len(self.runs):
            at = min(at, self.runs[self.next].job.submit_s)
        return min(at, self.setting.faults.next_s)

    def _is_old(self, entry: tuple[float, int, int]) -> bool:
        return self.runs[entry[1]].epoch != entry[2]

    def _take_events(self, at: float) -> None:
        while self.ends and self.ends[0][0] <= at:
            entry = heapq.heappop(self.ends)
            if not self._is_old(entry):
                self._end(self.runs[entry[1]])
        faults = self.setting.faults
        while faults.next_s <= at:
            event = faults.pop()
            if not event.is_fault:
                self.places.repair(event.server)
                self.log.repair(event.server, at)
                self.view.change()
                continue
            self.num_faults += 1
            self._check_hope()
            self.places.fail(event.server)
            self.log.fail(event.server, at)
            self.view.change()
            if event.cuts:
                self._cut(event.server, event.cause)
        while self.next < len(self.runs) and self.runs[self.next].job.submit_s <= at:
            self._queue(self.runs[self.next])
            self.next += 1

    def _queue(self, run: Run) -> None:
        self.order.add(run)
        self.waiting += run.job.accelerators

    def _start_all(self) -> None:
        for run, place in self.order.starts(self.view):
            self._start(run, place)

    def _start(self, run: Run, place: Place) -> None:
        self.waiting -= place.size
        run.start(self.now, place, self.upkeep)
        self.running[run.number] = run
        self._hold(run, place)

    def _hold(self, run: Run, place: Place) -> None:
        """Count a place that a job has taken and began on."""
        self.held += place.size
        self.spare += place.held - place.size
        for server in place.servers:
            self.on_server.setdefault(server, set()).add(run.number)
        heapq.heappush(self.ends, (run.end_s, run.number, run.epoch))
        self.began.append(run)
        self.log.hold(run.number, place, self.now)

    def _defragment(self, move_s: float) -> bool:
        """Move jobs so that the next one, which would have enough accelerators, has room; return whether it starts."""
        head = self.order.head
        if head is None or head.job.accelerators > self.places.num_free or not self.view.may_move(head):
            return False
        movable = [run for run in self.running.values() if not run.is_dead and run.works_from_s <= self.now < run.end_s]
        found = find_moves(self.places, movable, head.job.accelerators)
        if found is None:
            return False
        for run, _ in found.moved:
            self._let_go(run)
            self.left.append(run)
        for run, place in found.moved:
            self.places.take_again(place)
            run.move(self.now, place, move_s, self.upkeep)
            self._hold(run, place)
        self.places.take_again(found.head)
        self.order.remove(head)
        self._start(head, found.head)
        return True

    def _end(self, run: Run) -> None:
        """Let a job leave, or go back to the queue where a fault has cut it."""
        self._release(run)
        if run.is_dead:
            run.wait_again(self.now)
            self._queue(run)
        else:
            run.finish(self.now)
            self.num_left += 1
            self.left.append(run)

    def _release(self, run: Run) -> None:
        self._let_go(run)
        del self.running[run.number]

    def _let_go(self, run: Run) -> None:
        """Give back what a job holds."""
        place = run.place
        if place is None:
            return
        self.places.give_back(place)
        self.log.let_go(run.number, self.now)
        self.view.change()
        self.held -= place.size
        self.spare -= place.held - place.size
        for server in place.servers:
            self.on_server[server].discard(run.number)

    def _check_hope(self) -> None:
        """Refuse faults that leave jobs no room for ever."""
        busy = self.running or self.next < len(self.runs) or not self.order.waiting
        self.idle_faults = 0 if busy else self.idle_faults + 1
        if self.idle_faults > _MOST_IDLE_FAULTS:
            name = self.order.waiting[0][-1].job.name
            raise ConfigError(
                f"fleet.jobs: job {name} never finds as many servers that work at once; give fleet.days, fewer faults"
                " (fleet.mtbf, fleet.repair) or a larger cluster"
            )

    def _cut(self, server: int, cause: str) -> None:
        for number in sorted(self.on_server.get(server, ())):
            run = self.runs[number]
            if run.is_dead:
                continue
            run.cut(self.now, self.upkeep)
            if run.cuts_in_vain > _MOST_IN_VAIN:
                raise ConfigError(
                    f"fleet.jobs: faults have cut job {run.job.name} {_MOST_IN_VAIN:,} times in a row before it saved"
                    " any work; give fleet.days, a longer fleet.mtbf, or a shorter fleet.restart or"
                    " fleet.checkpoint_every"
                )
            self.left.append(run)
            self.lost_to[cause] = self.lost_to.get(cause, 0) + 1
            if run.end_s <= self.now:
                self._end(run)
            else:
                heapq.heappush(self.ends, (run.end_s, run.number, run.epoch))

    def _change_paces(self) -> None:
        """Ask the network who runs slower or faster now."""
        network = self.setting.network
        if network is not None and (self.began or self.left):
            alive = [run for run in self.running.values() if not run.is_dead]
            for run, pace in network.paces(self.began, self.left, alive):
                run.change_pace(self.now, pace)
                heapq.heappush(self.ends, (run.end_s, run.number, run.epoch))
        self.began.clear()
        self.left.clear()

    def _note(self) -> None:
        head = self.order.head
        moment = Moment(
            at_s=self.now, held=self.held, spare=self.spare, free=self.places.num_free,
            next_size=0 if head is None else head.job.accelerators,
            num_waiting=len(self.order.waiting), waiting=self.waiting,
        )  # fmt: skip
        if self.moments and self.moments[-1].at_s == self.now:
            self.moments[-1] = moment
        else:
            self.moments.append(moment)

    def _say(self) -> None:
        self.setting.progress(
            f"day {self.now / 86_400:,.1f}: {self.num_left:,} of {len(self.runs):,} jobs have left,"
            f" {len(self.running):,} run, {len(self.order.waiting):,} wait"
        )
