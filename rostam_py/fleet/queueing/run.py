"""Run: a job under way: where it waits or runs, what it has done, and what its time went to.

Legend: work is seconds of the job alone; ``pace`` is work for each second, stops for checkpoints left out.
"""

import math
from dataclasses import dataclass, field

from rostam_py.fleet.queueing.job import QueuedJob
from rostam_py.fleet.queueing.places.place import Place

CAUSES = {
    "useful": "work that counts, at the pace that each job has alone",
    "slower": "what the network took more: neighbours on shared links, places farther apart",
    "checkpoint": "stops for checkpoints, of jobs whose iterations are simulated",
    "redone": "work since the last checkpoint that a fault undid",
    "detection": "from faults until they are known; the job still holds its accelerators",
    "restart": "from the next start on until work goes on",
    "moved": "checkpoints and restarts of jobs that moved so that the next one had room",
    "waiting": "in the queue, at first and after faults",
}


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What faults and checkpoints cost.

    detection_s, restart_s: of every fault. between_s: time between checkpoints; None takes Young's and Daly's optimum.
    checkpoint_s: of one. mtbf_s: of one server, infinite without faults.
    Source: Daly, "A higher order estimate of the optimum checkpoint interval", FGCS 22 (2006): sqrt(2 C M) - C, at
        least C here; C below a second counts as one.
    """

    detection_s: float = 0.0
    restart_s: float = 0.0
    between_s: float | None = None
    checkpoint_s: float = 0.0
    mtbf_s: float = math.inf

    def every_s(self, num_servers: int) -> float:
        """Return the work between two checkpoints of a job on so many servers [s]."""
        if self.between_s is not None:
            return self.between_s
        cost = max(self.checkpoint_s, 1.0)
        return max(math.sqrt(2 * cost * self.mtbf_s / num_servers) - cost, cost)


@dataclass(slots=True, eq=False, kw_only=True)
class Run:
    """A job's way through the cluster.

    number: among the jobs by submission. saved_s: work that no fault undoes any more. cuts_in_vain: those since it last
    saved any. spent: CAUSES -> [s].
    """

    number: int
    job: QueuedJob
    saved_s: float = 0.0
    num_cuts: int = 0
    cuts_in_vain: int = 0
    num_moves: int = 0
    waits_since_s: float = 0.0
    first_start_s: float | None = None
    left_s: float | None = None
    place: Place | None = None
    is_dead: bool = False
    epoch: int = 0
    start_s: float = 0.0
    works_from_s: float = 0.0
    end_s: float = math.inf
    pauses_for: str = "restart"  # the cause of the time from start_s to works_from_s
    pace: float = 1.0
    every_s: float = math.inf
    stop_share: float = 0.0  # of the time that passes, for checkpoints
    _since_s: float = 0.0
    _done_s: float = 0.0
    _slower_s: float = 0.0
    _stopped_s: float = 0.0
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))

    @property
    def left_work_s(self) -> float:
        """Work that no checkpoint has yet [s]."""
        return self.job.work_s - self.saved_s

    def stated_left_s(self, upkeep: Upkeep, num_servers: int = 0) -> float:
        """Return how long the job would hold accelerators from now on, by what was stated of it [s].

        Args: num_servers: that it would be on; 0 leaves stops for checkpoints out.
        """
        left = max(self.job.stated_s - self.saved_s, 0.0) / (1 - self._stop_share(upkeep, num_servers))
        return left + (upkeep.restart_s if self.num_cuts else 0.0)

    def stated_end_s(self, now: float) -> float:
        """Return when a running job should end by what was stated of it [s]; never before now."""
        if self.is_dead:
            return self.end_s
        left = max(self.job.stated_s - self.saved_s, 0.0)
        return max(now, self.works_from_s + left / (1 - self.stop_share))

    def start(self, now: float, place: Place, upkeep: Upkeep) -> None:
        """Begin, or begin again, at the pace of a job alone."""
        self.spent["waiting"] += now - self.waits_since_s
        if self.first_start_s is None:
            self.first_start_s = now
        self.pauses_for = "restart"
        self._begin(now, place, upkeep.restart_s if self.num_cuts else 0.0, upkeep)

    def move(self, now: float, place: Place, pause_s: float, upkeep: Upkeep) -> None:
        """Save all work, and go on elsewhere after a pause."""
        self._advance(now)
        self._keep(now, self._done_s)
        self.saved_s += self._done_s
        self.num_moves, self.pauses_for = self.num_moves + 1, "moved"
        self._begin(now, place, pause_s, upkeep)

    def _begin(self, now: float, place: Place, pause_s: float, upkeep: Upkeep) -> None:
        self.place, self.start_s, self.epoch = place, now, self.epoch + 1
        self.works_from_s = self._since_s = now + pause_s
        self._done_s = self._slower_s = self._stopped_s = 0.0
        self.pace, self.every_s = 1.0, upkeep.every_s(len(place.servers))
        self.stop_share = self._stop_share(upkeep, len(place.servers))
        self._plan()

    def change_pace(self, now: float, pace: float) -> None:
        """Go on at another pace."""
        self._advance(now)
        self.pace, self.epoch = pace, self.epoch + 1
        self._plan()

    def finish(self, now: float) -> None:
        """End with all work done."""
        self._advance(now)
        self._keep(now, self._done_s)
        self.saved_s, self.left_s, self.place = self.job.work_s, now, None

    def cut(self, now: float, upkeep: Upkeep) -> None:
        """Lose what no checkpoint has; the accelerators are held until the fault is known."""
        self._advance(now)
        kept = 0.0
        if self.every_s < math.inf:
            kept = min(math.floor(self._done_s / self.every_s + 1e-9) * self.every_s, self._done_s)
        self._keep(now, kept)
        self.saved_s += kept
        self.cuts_in_vain = 0 if kept else self.cuts_in_vain + 1
        self.is_dead, self.num_cuts, self.epoch = True, self.num_cuts + 1, self.epoch + 1
        self.start_s, self.end_s = now, now + upkeep.detection_s

    def wait_again(self, now: float) -> None:
        """Go back to the queue once the fault is known."""
        self.spent["detection"] += now - self.start_s
        self.is_dead, self.place, self.waits_since_s, self.end_s = False, None, now, math.inf

    def stop(self, now: float) -> None:
        """Count what has been done at the end of the window."""
        if self.left_s is not None:
            return
        if self.place is None:
            self.spent["waiting"] += now - self.waits_since_s
        elif self.is_dead:
            self.spent["detection"] += now - self.start_s
        else:
            self._advance(now)
            self._keep(now, self._done_s)
            self.saved_s += self._done_s

    def _stop_share(self, upkeep: Upkeep, num_servers: int) -> float:
        """Return the share of the time for checkpoints; durations that are given have theirs in them."""
        if self.job.iterations is None or not num_servers:
            return 0.0
        every = upkeep.every_s(num_servers)
        return upkeep.checkpoint_s / (every + upkeep.checkpoint_s) if every < math.inf else 0.0

    def _plan(self) -> None:
        left = self.left_work_s - self._done_s
        self.end_s = self._since_s + left / (self.pace * (1 - self.stop_share))

    def _advance(self, now: float) -> None:
        """Do the work of the time that has passed at this pace."""
        passed = max(now - self._since_s, 0.0)
        self._stopped_s += passed * self.stop_share
        working = passed - passed * self.stop_share
        self._done_s += working * self.pace
        self._slower_s += working - working * self.pace
        self._since_s = max(now, self._since_s)

    def _keep(self, now: float, kept_s: float) -> None:
        """Count the time since the start; what the lost part of the work took, all of it, is done again."""
        self.spent[self.pauses_for] += min(self.works_from_s, now) - self.start_s
        share = kept_s / self._done_s if self._done_s > 0 else 0.0
        slower, stopped = self._slower_s * share, self._stopped_s * share
        self.spent["useful"] += kept_s
        self.spent["slower"] += slower
        self.spent["checkpoint"] += stopped
        self.spent["redone"] += self._done_s - kept_s + self._slower_s - slower + self._stopped_s - stopped
