"""Replay: weeks of one job as events over states, each of which runs at a pace that is known.

Example:
    found = replay(LongJob(num_servers=376, iteration="6 s", restart="10 min"), trace, policy="spares")
    found.goodput, found.share("redone")

Model: between two events the job runs at one pace, so that iterations and checkpoints of weeks are counted and not
simulated. A fault of one of its servers cuts it: what the policy says is lost, the fault is detected, servers are found
or waited for, the job begins again. A further fault of its servers before it runs begins detection anew. Faults that
cut no job take a server when the job begins the next time.
Checkpoints may be written while the job goes on (LongJob.write_iterations): the first iterations behind each take
longer, and so do those behind a restart; a fault that sends the job back undoes one that is not written yet. A planned
stop lasts until it is.
"""

import math
from typing import NamedTuple

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError
from rostam_py.fleet.goodput.crew import Crew
from rostam_py.fleet.goodput.faults import FaultTrace
from rostam_py.fleet.goodput.long_job import LongJob, Pace
from rostam_py.fleet.goodput.names import POLICIES
from rostam_py.fleet.goodput.policy import Policy
from rostam_py.fleet.goodput.progress import Run
from rostam_py.fleet.goodput.result import Account, Goodput

_REPAIR, _FAULT = 0, 1  # at one moment repairs come first


class _Stretch(NamedTuple):
    """Iterations that no checkpoint has: from start_s to end_s, the last one under way for unfinished_s of under_way_s.

    extra_s: of the ended ones, because a checkpoint was being written.
    """

    start_s: float
    end_s: float
    iterations: int
    unfinished_s: float
    pace: Pace
    under_way_s: float
    extra_s: float = 0.0


def replay(job: LongJob, faults: FaultTrace, policy: str = "spares", *, spares: int | None = None) -> Goodput:
    """Return where the wall time of a job went over the window of a trace.

    Args:
        policy: of POLICIES.
        spares: servers beyond the job's that stand by; None takes all others of the trace.
    Raises: ConfigError for more servers than the trace has, or replicas whose pace is not known.
    Cost: faults x (log faults + servers).
    """
    most = faults.num_servers - job.num_servers
    if most < 0:
        raise ConfigError(
            f"fleet.num_servers is {job.num_servers}; the faults are of {faults.num_servers} servers, so that it must"
            f" be at most {faults.num_servers}"
        )
    if spares is not None and (not is_integer(spares) or not 0 <= spares <= most):
        raise ConfigError(f"fleet.spares is {spares!r}; it must be an integer from 0 to {most}")
    servers = range(job.num_servers + (most if spares is None else spares))
    return _Replay(job, faults, POLICIES.get(policy)(), servers).run()


class _Replay:
    """One job's weeks. Args: servers: the job's first ones, then the spares."""

    def __init__(self, job: LongJob, faults: FaultTrace, policy: Policy, servers: range) -> None:
        self.job, self.policy, self.window_s = job, policy, faults.window_s
        self.crew = Crew(job, servers)
        self.account = Account(self.window_s)
        events = [
            (at, kind, one.server, one.cuts)
            for one in faults.faults
            if one.server in servers and one.end_s > one.start_s
            for at, kind in ((one.start_s, _FAULT), (one.end_s, _REPAIR))
            if at < self.window_s
        ]
        self.events = sorted(events)
        self.next = 0
        self.now, self.since = 0.0, 0.0  # since: beginning of the stretch that runs
        self.offset = 0  # iterations since the last checkpoint at that beginning
        self.unsaved: list[_Stretch] = []
        self.num_faults = self.num_cuts = 0
        self.samples: list[float] = []
        self.lost_server = -1  # of the last cut

    def run(self) -> Goodput:
        """Replay all events."""
        while self.now < self.window_s:
            grows_s = self._grows_s()
            at = self._next_s()
            if grows_s < at:
                self._grow(grows_s)
                continue
            self.now = at
            if at >= self.window_s:
                self._close(at, is_cut=False)
            elif self._take_event():
                self._cut()
        self._keep(is_end=True)
        return Goodput(
            self.window_s, self.account.totals(), self.num_faults, self.num_cuts, math.fsum(self.samples),
            self.account.days,
        )  # fmt: skip

    # Events

    def _next_s(self) -> float:
        return self.events[self.next][0] if self.next < len(self.events) else self.window_s

    def _take_event(self) -> bool:
        """Take the next event; return whether it cuts the job."""
        _, kind, server, cuts = self.events[self.next]
        self.next += 1
        if kind == _REPAIR:
            self.crew.repair(server)
            return False
        self.crew.fail(server)
        if not self.crew.has(server):
            return False
        self.num_faults += 1
        if cuts:
            self.num_cuts += 1
            self.lost_server = server
        return cuts

    # Running

    @property
    def _pace(self) -> Pace:
        return self.policy.pace(self.job, self.crew)

    def _run(self, at: float) -> Run:
        """Return the stretch that runs, up to a moment."""
        return Run(
            at - self.since, self._pace.iteration_s, every=self.job.checkpoint_iterations,
            checkpoint_s=float(self.job.checkpoint), since=self.offset, slow=self.job.write_iterations,
            slow_s=self._pace.iteration_s * self.job.write_stretch,
        )  # fmt: skip

    def _grows_s(self) -> float:
        """Return when a replica comes back, as things are; never where none can."""
        if not self.policy.GROWS_AT or not self.policy.can_grow(self.crew):
            return math.inf
        run = self._run(self.now)
        return self.now + (run.until_checkpoint if self.policy.GROWS_AT == "checkpoint" else run.until_boundary)

    def _grow(self, at: float) -> None:
        """Let replicas come back at a moment at which nothing is lost."""
        if at >= self.window_s:
            self.now = self.window_s
            self._close(self.window_s, is_cut=False)
            return
        self._close(at, is_cut=False)
        self.now = at
        self.policy.grow(self.crew)
        self._begin_again(self.policy.grow_s(self.job))

    def _close(self, at: float, *, is_cut: bool) -> None:
        """End the stretch that runs: what its checkpoints have is useful, the rest is not saved yet."""
        pace, begin = self._pace, self.since
        run = self._run(at)
        found, every = run.progress, self.job.checkpoint_iterations
        # One that is still being written when a fault undoes it counts no more than the work behind it.
        is_lost = is_cut and self.policy.UNDOES and found.since_checkpoint < self.job.write_iterations
        kept = max(found.checkpoints - is_lost, 0)
        own, extra_s = found.iterations, run.extra_s(found.since_checkpoint) - run.extra_s(self.offset)
        if kept:
            behind_s = (found.checkpoints - kept) * (run.length_s(every) + float(self.job.checkpoint))
            ended = at - behind_s - found.since_checkpoint_s - found.unfinished_s
            self._keep()
            stops_s = kept * (run.extra_s(every) + float(self.job.checkpoint)) - run.extra_s(self.offset)
            self._useful(begin, ended, kept * every - self.offset, pace, stops_s)
            begin = ended
            own = found.iterations - (kept * every - self.offset)
            extra_s = run.extra_s(found.since_checkpoint)
        unfinished = found.unfinished_s
        if found.in_checkpoint and not is_cut:  # only at the end of the window
            self.account.add(at - unfinished, at, {"checkpoint": unfinished})
            at, unfinished = at - unfinished, 0.0
        self.unsaved.append(_Stretch(begin, at, own, unfinished, pace, found.under_way_s, extra_s=extra_s))
        self.offset = found.since_checkpoint

    def _useful(self, start: float, end: float, iterations: int, pace: Pace, checkpoint_s: float = 0.0) -> None:
        self.samples.append(iterations * pace.share)
        self._add(start, end, max(end - start - checkpoint_s, 0.0), pace, checkpoint_s)

    def _add(self, start: float, end: float, running_s: float, pace: Pace, checkpoint_s: float = 0.0) -> None:
        """Count running time as useful as far as all replicas would take for the same samples."""
        useful = running_s * (pace.share * self.job.whole.iteration_s / pace.iteration_s)
        slower = 0.0 if pace == self.job.whole else running_s - useful
        self.account.add(start, end, {"useful": useful, "slower": slower, "checkpoint": checkpoint_s})

    def _keep(self, *, is_end: bool = False) -> None:
        """Count iterations that no checkpoint had as useful; one under way at the end of the window in part."""
        for one in self.unsaved:
            ended = one.end_s - one.unfinished_s
            self._useful(one.start_s, ended, one.iterations, one.pace, one.extra_s)
            if one.unfinished_s > 0 and is_end:
                done = one.unfinished_s / one.under_way_s
                self.samples.append(done * one.pace.share)
                own_s = done * one.pace.iteration_s
                self._add(ended, one.end_s, own_s, one.pace, max(one.unfinished_s - own_s, 0.0))
        self.unsaved.clear()

    # Cuts

    def _cut(self) -> None:
        """End the stretch that a fault cut, and begin again."""
        self._close(self.now, is_cut=True)
        self._begin_again(self._lose(), is_known=False)

    def _lose(self) -> float:
        """Lose what the policy says; return how long the restart takes [s]."""
        self.policy.lose(self.crew, self.lost_server)
        if self.policy.UNDOES or not self.crew.replicas:
            for one in self.unsaved:
                self.account.add(one.start_s, one.end_s, {"redone": one.end_s - one.start_s})
            self.unsaved.clear()
            self.offset = 0
            return self.policy.restart_s(self.job) if self.policy.UNDOES else float(self.job.restart)
        kept = []
        for one in self.unsaved:  # the iteration under way alone
            ended = one.end_s - one.unfinished_s
            self.account.add(ended, one.end_s, {"redone": one.unfinished_s})
            kept.append(one._replace(end_s=ended, unfinished_s=0.0))
        self.unsaved = kept
        return self.policy.restart_s(self.job)

    def _begin_again(self, restart_s: float, *, is_known: bool = True) -> None:
        """Pass detection, wait for servers and restart, as often as a further cut begins it anew."""
        while True:
            is_cut = self._passes(0.0 if is_known else float(self.job.detection), "detection")
            while not is_cut and self.now < self.window_s and not self._is_whole():
                is_cut = self._passes(self._next_s() - self.now, "waiting")
            if not is_cut and self._passes(restart_s, "restart") is False:
                self.since = self.now
                return
            restart_s, is_known = self._lose(), False

    def _is_whole(self) -> bool:
        self.policy.fill(self.crew)
        return self.policy.is_ready(self.crew)

    def _passes(self, seconds: float, cause: str) -> bool:
        """Let time pass, at most to the end of the window; return whether the job was cut meanwhile, at that moment."""
        end = min(self.now + seconds, self.window_s)
        while self._next_s() <= end and self._next_s() < self.window_s:
            at = self._next_s()
            self.account.add(self.now, at, {cause: at - self.now})
            self.now = at
            if self._take_event():
                return True
        self.account.add(self.now, end, {cause: end - self.now})
        self.now = end
        return False
