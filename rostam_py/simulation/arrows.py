"""Arrows of a timeline: messages between recorded devices, from the slice that sends to the slice that awaits."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rostam_py.simulation.compile import GraphNames
from rostam_py.simulation.graph_job import GraphJob


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message. sender, receiver: rows of the timeline."""

    sender: int
    receiver: int


def message_arrows(job: GraphJob, number: int, names: GraphNames, timeline: Mapping[str, np.ndarray]) -> list[Arrow]:
    """Return the messages of a job both of whose ends are recorded, by the sender's row.

    Model: a receive matches the send of its peer on the same channel, micro-batch and iteration.
    Args: number: of the job.
    """
    first = int(np.flatnonzero(names.job_of == number)[0])  # devices of a job are numbered in a row
    places: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # sorted devices of a group set, and where they stand in it
    sends: dict[tuple[str, str, int, int, int], int] = {}
    receives: dict[tuple[str, str, int, int, int], int] = {}
    keys = ("device", "template", "task", "microbatch", "iteration")
    for row, (device, template, index, microbatch, iteration) in enumerate(
        zip(*(timeline[key].tolist() for key in keys), strict=True)
    ):
        task = names.templates[template].tasks[index]
        if names.templates[template].job != number or task.kind not in ("send", "recv"):
            continue
        members = job.group_set(task.group).members
        if task.group not in places:
            places[task.group] = (np.sort(members, axis=None), np.argsort(members, axis=None))
        devices, stands = places[task.group]
        group, rank = divmod(int(stands[np.searchsorted(devices, device - first)]), members.shape[1])
        if task.kind == "send":
            receiver = first + int(members[group, rank + task.peer])
            sends[task.group, task.channel, microbatch, iteration, receiver] = row
        else:
            receives[task.group, task.channel, microbatch, iteration, device] = row
    return [Arrow(row, receives[key]) for key, row in sends.items() if key in receives]
