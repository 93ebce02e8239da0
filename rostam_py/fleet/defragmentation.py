"""Defragmentation: running jobs are checkpointed, moved together and restarted, so that another one finds a place.

Example:
    packed = repack(allocator, {"a": Running(given, 64)}, "b", 256)
    if packed is not None:
        packed.moved, restart_s(2**36, 800e9)
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rostam_py.errors import ConfigError
from rostam_py.fleet.allocators import Allocator, Given


@dataclass(frozen=True, slots=True)
class Running:
    """A job on a machine: what it holds, and the accelerators that it asked for."""

    given: Given
    num_accelerators: int


@dataclass(frozen=True, slots=True)
class Repacked:
    """Jobs after a shuffle. given: of every job, the new one last. moved: running jobs that lie elsewhere now."""

    given: dict[str, Given]
    moved: tuple[str, ...]


def repack(allocator: Allocator, running: Mapping[str, Running], name: str, num_accelerators: int) -> Repacked | None:
    """Place a job, moving running ones where no place is left for it: the fewest that suffice, smallest first.

    Model: of the running jobs by size, first none are taken up, then the smallest one, the smallest two, and so on up
        to all; they and the new job are then placed largest first. The first time that all find a place counts.
    Returns: None, with nothing moved, where the job has no place even among all others.
    Cost: a placement of k jobs for each k up to the running ones.
    Source: HammingMesh, section IV-B (checkpoint, shuffle, restart); which jobs move: own.
    """
    if name in running:
        raise ConfigError(f"job {name!r} runs already; a new job needs a name of its own")
    by_size = sorted(running, key=lambda job: (running[job].num_accelerators, job))
    for count in range(len(by_size) + 1):
        lifted = {job: running[job] for job in by_size[:count]}
        placed = _place_anew(allocator, lifted, name, num_accelerators)
        if placed is not None:
            kept = {job: placed.get(job, one.given) for job, one in running.items()}
            moved = tuple(job for job in running if kept[job] != running[job].given)
            return Repacked({**kept, name: placed[name]}, moved)
    return None


def _place_anew(
    allocator: Allocator, lifted: Mapping[str, Running], name: str, num_accelerators: int
) -> dict[str, Given] | None:
    """Return new places of the lifted jobs and the new one; None, with all as before, where one has none."""
    for one in lifted.values():
        allocator.give_back(one.given)
    sizes = {job: one.num_accelerators for job, one in lifted.items()} | {name: num_accelerators}
    placed: dict[str, Given] = {}
    for job in sorted(sizes, key=lambda job: -sizes[job]):
        found = allocator.take(sizes[job])
        if found is None:
            break
        placed[job] = found
    if len(placed) == len(sizes):
        return placed
    for given in placed.values():
        allocator.give_back(given)
    for one in lifted.values():
        allocator.take_again(one.given)
    return None


def restart_s(bytes_per_accelerator: float, bytes_per_s: float) -> float:
    """Return the pause of a job that moves [s]: all its accelerators write their memory out, and read it back.

    Model: each way at full injection bandwidth, at the same time on all accelerators; storage never limits.
    Args: bytes_per_accelerator: memory in use. bytes_per_s: injection bandwidth.
    Source: HammingMesh, section IV-B: 64 GiB at 800 GB/s, 85.9 ms each way.
    """
    return 2 * bytes_per_accelerator / bytes_per_s
