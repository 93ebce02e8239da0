"""Defragment: jobs that run are checkpointed, moved together and restarted, so that the next one finds a place.

Example:
    found = find_moves(places, running, 64)
    if found is not None:
        found.head, found.moved         # the new job's place, and (run, place) of those that move
"""

from collections.abc import Collection
from dataclasses import dataclass

from rostam_py.fleet.queueing.places.place import Place, Places
from rostam_py.fleet.queueing.run import Run

MOST_MOVED = 16  # jobs at a time


@dataclass(frozen=True, slots=True)
class Moves:
    """head: where the next job goes. moved: jobs that lie elsewhere then, each with its new place."""

    head: Place
    moved: tuple[tuple[Run, Place], ...]


def find_moves(places: Places, running: Collection[Run], size: int) -> Moves | None:
    """Return where a job has room once others have moved: the fewest that suffice, smallest first; None for none.

    Model: of the running jobs by size, the smallest one is taken up, then the smallest two, and so on up to 16; they
        and the new job are then placed largest first. The first time that all find a place counts.
    Cost: 16 copies of the places, and as many placements of up to 17 jobs.
    Source: HammingMesh, section IV-B (checkpoint, shuffle, restart); which jobs move: own.
    """
    lifted = places.copy()
    jobs: list[Run] = []
    for run in sorted(running, key=lambda run: (run.job.accelerators, run.number))[:MOST_MOVED]:
        if run.place is None:
            continue
        jobs.append(run)
        lifted.give_back(run.place)
        found = _placed(lifted.copy(), jobs, size)
        if found is not None:
            return found
    return None


def restart_s(bytes_per_accelerator: float, bytes_per_s: float) -> float:
    """Return the pause of a job that moves [s]: all its accelerators write their memory out, and read it back.

    Model: each way at full injection bandwidth, at the same time on all accelerators; storage never limits.
    Args: bytes_per_accelerator: memory in use. bytes_per_s: injection bandwidth.
    Source: HammingMesh, section IV-B: 64 GiB at 800 GB/s, 85.9 ms each way.
    """
    return 2 * bytes_per_accelerator / bytes_per_s


def _placed(trial: Places, jobs: list[Run], size: int) -> Moves | None:
    """Return new places of jobs that were taken up and of the new one; None where one has none."""
    if trial.num_free < size + sum(run.job.accelerators for run in jobs):
        return None
    head: Place | None = None
    moved = []
    for run in sorted([None, *jobs], key=lambda run: -size if run is None else -run.job.accelerators):
        place = trial.take(size if run is None else run.job.accelerators)
        if place is None:
            return None
        if run is None:
            head = place
        elif run.place is not None and place.accelerators() != run.place.accelerators():
            moved.append((run, place))
    return None if head is None else Moves(head, tuple(moved))
