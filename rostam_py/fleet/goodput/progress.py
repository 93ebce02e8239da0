"""Run: iterations and checkpoints of a job that runs undisturbed for a while.

Example:
    Run(100.0, 6.0, every=10, checkpoint_s=20.0, since=0).progress     # 13 iterations, 1 checkpoint, 2 s into the next
"""

import math
from dataclasses import dataclass

_SLACK = 1e-6  # of an iteration: ends within it count as reached


@dataclass(frozen=True, slots=True)
class Progress:
    """What a stretch of running came to.

    iterations: that ended in it. checkpoints: likewise. since_checkpoint: iterations since the last one, those before
    the stretch included; since_checkpoint_s: what they took [s]. unfinished_s: what went into an iteration, or a
    checkpoint, that has not ended [s]. under_way_s: what that iteration takes [s]. in_checkpoint: that it is a
    checkpoint.
    """

    iterations: int
    checkpoints: int
    since_checkpoint: int
    since_checkpoint_s: float
    unfinished_s: float
    under_way_s: float
    in_checkpoint: bool


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of running of elapsed_s [s].

    iteration_s: of each iteration [s]. every: a checkpoint of checkpoint_s [s] follows each so many iterations and
    stops the job; one of no length counts as soon as its iteration ends. since: iterations since the last checkpoint at
    the beginning, at most ``every``. slow: the first of those after a checkpoint, during which it is written, take
    slow_s each [s].
    """

    elapsed_s: float
    iteration_s: float
    every: int
    checkpoint_s: float
    since: int
    slow: int = 0
    slow_s: float = 0.0

    def length_s(self, iterations: int) -> float:
        """Return what so many iterations behind a checkpoint take [s]."""
        slow = min(iterations, self.slow)
        return slow * self.slow_s + (iterations - slow) * self.iteration_s

    def extra_s(self, iterations: int) -> float:
        """Return how much of that is because a checkpoint is being written [s]."""
        return min(iterations, self.slow) * (self.slow_s - self.iteration_s)

    def _ended(self, seconds: float) -> int:
        """Return how many iterations behind a checkpoint end in a time, at most ``every``."""
        slow = min(self.slow, self.every)
        if slow and seconds < self.length_s(slow):
            return min(math.floor((seconds + self._slack_s) / self.slow_s), slow)
        left = seconds - self.length_s(slow)
        return min(slow + math.floor((left + self._slack_s) / self.iteration_s), self.every)

    @property
    def progress(self) -> Progress:
        """What the stretch comes to."""
        cycle = self.length_s(self.every) + self.checkpoint_s
        left = self.elapsed_s + self.length_s(self.since)  # as if it had begun behind the checkpoint
        cycles = math.floor((left + self._slack_s) / cycle)
        rest = max(left - cycles * cycle, 0.0)
        ended = self._ended(rest)
        ended_s = self.length_s(ended)
        return Progress(
            iterations=cycles * self.every + ended - self.since, checkpoints=cycles, since_checkpoint=ended,
            since_checkpoint_s=ended_s, unfinished_s=max(rest - ended_s, 0.0),
            under_way_s=self.slow_s if ended < self.slow else self.iteration_s, in_checkpoint=ended == self.every,
        )  # fmt: skip

    @property
    def _slack_s(self) -> float:
        return self.iteration_s * _SLACK

    @property
    def until_boundary(self) -> float:
        """How much longer it goes on to the next end of an iteration, or of a checkpoint [s]; 0 at one."""
        found = self.progress
        whole = self.checkpoint_s if found.in_checkpoint else found.under_way_s
        return max(whole - found.unfinished_s, 0.0) if found.unfinished_s > self._slack_s else 0.0

    @property
    def until_checkpoint(self) -> float:
        """How much longer it goes on to the end of its next checkpoint [s]; 0 at one."""
        found = self.progress
        if not found.since_checkpoint and found.unfinished_s <= self._slack_s:
            return 0.0
        if found.in_checkpoint:
            return self.checkpoint_s - found.unfinished_s
        left_s = self.length_s(self.every) - found.since_checkpoint_s
        return left_s - found.unfinished_s + self.checkpoint_s
