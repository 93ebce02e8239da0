"""Queues: the first-in first-out queues of a job's devices (MODEL B8): streams, and orders of communicators.

Slots bind communication to process groups and peers. A slot has a stream of its own, which tasks leave that name
another one. Where the collectives of a communicator are on several streams they have an order too, in which they run.

Example:
    queues = Queues.of(job)
    queues.names[queues.stream_of(task) - 1]      # "copy-in"
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rostam_py.plan.tasks import COMPUTE_STREAM, Task
from rostam_py.simulation.graph_job import GraphJob

Slot = tuple[str, int | None]  # group, peer; no peer for collectives


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues of a job's devices, numbered as in the core.

    slots: number of each. names: of streams 1, 2, ...: those of the slots, then others that tasks name. named: numbers
    of streams by name. orders: numbers of communicators' orders, behind all streams.
    """

    slots: dict[Slot, int]
    names: list[str]
    named: dict[str, int]
    orders: dict[Slot, int]

    @classmethod
    def of(cls, job: GraphJob) -> "Queues":
        """Return the queues of a job, its slots in the order of its groups."""
        slots = _slots_of(job)
        names = [_own_name(*slot) for slot in slots]
        named = {COMPUTE_STREAM: 0} | {label: number + 1 for (label, peer), number in slots.items() if peer is None}
        for task in _tasks_of(job):
            if task.stream and task.kind != "recv" and task.stream not in named:
                names.append(task.stream)
                named[task.stream] = len(names)
        found = cls(slots, names, named, {})
        used: dict[Slot, set[int]] = {}
        for task in _tasks_of(job):
            if task.group and task.kind != "recv":
                used.setdefault(slot_of(task), set()).add(found.stream_of(task))
        several = [slot for slot, streams in used.items() if len(streams) > 1]
        found.orders.update({slot: len(names) + 1 + k for k, slot in enumerate(several)})
        return found

    def stream_of(self, task: Task) -> int:
        """Return the number of a task's stream: 0 that of kernels; of a receive, which holds none, its slot's own."""
        if task.stream and task.kind != "recv":
            return self.named[task.stream]
        return 0 if task.kind == "compute" else self.slots[slot_of(task)] + 1

    def rows(self, tasks: Sequence[Task]) -> np.ndarray | None:
        """Return stream, order (-1: none) and whether it is a mark of each task; None where slots say it all."""
        if not any(task.stream or task.is_mark for task in tasks) and not self.orders:
            return None
        return np.array([self._row(task) for task in tasks], np.int32).reshape(-1, 3)

    def _row(self, task: Task) -> tuple[int, int, int]:
        has_order = task.group and task.kind != "recv"
        return self.stream_of(task), self.orders.get(slot_of(task), -1) if has_order else -1, int(task.is_mark)


def stream_name(task: Task) -> str:
    """Return what a task's stream is called."""
    return task.stream or (COMPUTE_STREAM if task.kind == "compute" else _own_name(*slot_of(task)))


def slot_of(task: Task) -> Slot:
    """Return the slot of a task that names a group; of a mark, that of the group's collectives."""
    return task.group, task.peer if task.kind in ("send", "recv") else None


def _tasks_of(job: GraphJob) -> Iterator[Task]:
    for stage in job.stages:
        for tasks in stage.templates.values():
            yield from tasks


def _slots_of(job: GraphJob) -> dict[Slot, int]:
    """Return the slots that the devices of a job have, numbered in the order of its groups."""
    used = dict.fromkeys(slot_of(task) for task in _tasks_of(job) if task.kind != "compute")
    place = {one.label: k for k, one in enumerate(job.groups)}
    for label, _ in used:
        job.group_set(label)  # known, or an error

    def order(slot: Slot) -> tuple[int, int, int]:
        label, peer = slot
        return place[label], int(peer is not None), peer or 0

    return {slot: number for number, slot in enumerate(sorted(used, key=order))}


def _own_name(label: str, peer: int | None) -> str:
    return label if peer is None else f"{label} to rank {peer:+d}"
