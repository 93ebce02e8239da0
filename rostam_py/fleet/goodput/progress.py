"""Progress: iterations and checkpoints of a job that runs undisturbed for a while."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """What a stretch of running came to.

    iterations: that ended in it. checkpoints: likewise. since_checkpoint: iterations since the last one, those before
    the stretch included. unfinished_s: what went into an iteration, or a checkpoint, that has not ended [s].
    in_checkpoint: that it is a checkpoint.
    """

    iterations: int
    checkpoints: int
    since_checkpoint: int
    unfinished_s: float
    in_checkpoint: bool


def progress(elapsed_s: float, iteration_s: float, *, every: int, checkpoint_s: float, since: int = 0) -> Progress:
    """Return what a stretch comes to.

    Model: a checkpoint follows every ``every`` iterations and stops the job; one of no length counts as soon as its
        iteration ends. Ends within a millionth of an iteration count as reached.
    Args: since: iterations since the last checkpoint at its beginning, below ``every``.
    """
    slack = iteration_s * 1e-6
    cycle = every * iteration_s + checkpoint_s
    left = elapsed_s + since * iteration_s  # as if it had begun behind the checkpoint
    cycles = math.floor((left + slack) / cycle)
    rest = max(left - cycles * cycle, 0.0)
    ended = min(math.floor((rest + slack) / iteration_s), every)
    is_saving = ended == every
    return Progress(
        iterations=cycles * every + ended - since, checkpoints=cycles, since_checkpoint=ended,
        unfinished_s=max(rest - ended * iteration_s, 0.0), in_checkpoint=is_saving,
    )  # fmt: skip


def until_boundary(elapsed_s: float, iteration_s: float, *, every: int, checkpoint_s: float, since: int = 0) -> float:
    """Return how much longer the stretch goes on to the next end of an iteration, or of a checkpoint [s]."""
    found = progress(elapsed_s, iteration_s, every=every, checkpoint_s=checkpoint_s, since=since)
    whole = checkpoint_s if found.in_checkpoint else iteration_s
    return max(whole - found.unfinished_s, 0.0) if found.unfinished_s > iteration_s * 1e-6 else 0.0


def until_checkpoint(elapsed_s: float, iteration_s: float, *, every: int, checkpoint_s: float, since: int = 0) -> float:
    """Return how much longer the stretch goes on to the end of its next checkpoint [s]; 0 at the end of one."""
    found = progress(elapsed_s, iteration_s, every=every, checkpoint_s=checkpoint_s, since=since)
    if not found.since_checkpoint and found.unfinished_s <= iteration_s * 1e-6:
        return 0.0
    if found.in_checkpoint:
        return checkpoint_s - found.unfinished_s
    return (every - found.since_checkpoint) * iteration_s - found.unfinished_s + checkpoint_s
