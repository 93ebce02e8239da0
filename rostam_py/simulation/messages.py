"""What each axis of a run communicates: how often, how much, and how much of its time other work hides.

Example:
    for one in rostam.simulate(plan, timeline=True).messages_by_axis:
        one.words, one.operations, one.bytes_per_rank, one.exposed_s, one.hidden_s
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostam_py.plan.group_kinds import counted_kind, group_kind
from rostam_py.simulation.compile import GraphNames
from rostam_py.simulation.graph_job import GraphJob
from rostam_py.simulation.phase_spans import recorded_stages
from rostam_py.simulation.picoseconds import PS
from rostam_py.units import format_size, format_time

COLUMNS = ("axis", "ranks", "operations", "algorithm", "per rank", "sent", "exposed", "hidden")
CAPTION = (
    "Ranks of a group; operations: collectives and messages of one iteration, of all groups. Bytes per rank are a mean"
    " over all ranks; those of the axes sum to all that the run sends. Exposed: time in which the idle"
    " compute stream waits, mean over ranks. Hidden: time in which a rank computes while a collective, or a message"
    " that it sends, is under way; known where one device of each stage is recorded (timeline=true)."
)
MESSAGE = "message"  # among operations, which are collectives otherwise


@dataclass(frozen=True, slots=True)
class AxisMessages:
    """What the groups of one axis communicate in one iteration.

    axis: a group kind. words: its name for readers. operations: collective, or "message", -> how many, of all groups.
    algorithms: of its collectives. num_bytes: sent by all ranks. exposed_s, hidden_s: mean over ranks [s]; None where
    times were not recorded.
    """

    axis: str
    words: str
    group_sizes: list[int]
    operations: dict[str, int]
    algorithms: list[str]
    num_bytes: int
    bytes_per_rank: float
    exposed_s: float
    hidden_s: float | None


def axis_messages(
    job: GraphJob, algorithms: Iterable[Mapping[str, Any]], bytes_sent: Mapping[str, int],
    exposed: Mapping[str, float], hidden: Mapping[str, float] | None,
) -> list[AxisMessages]:  # fmt: skip
    """Return what each axis that communicates does, in the order of tables.

    Args:
        algorithms: of the job's collectives, as ``collectives_of`` returns them.
        bytes_sent, exposed, hidden: by kind of groups: bytes of all ranks, seconds.
    Cost: tasks of all templates.
    """
    operations: dict[str, Counter[str]] = {}
    sizes: dict[str, set[int]] = {}
    devices = np.bincount(job.stage_of, minlength=len(job.stages))
    for stage in job.stages:
        for name, count in stage.program.counts().items():
            for task in stage.templates[name]:
                if task.kind not in ("collective", "send"):
                    continue
                groups = job.group_set(task.group)
                kind = counted_kind(groups.kind)
                found = operations.setdefault(kind, Counter())
                if task.kind == "send":
                    found[MESSAGE] += count * int(devices[stage.index])
                else:  # the stage of its first rank speaks for a group
                    found[task.collective] += count * int((job.stage_of[groups.members[:, 0]] == stage.index).sum())
                sizes.setdefault(kind, set()).add(groups.members.shape[1])
    ran: dict[str, dict[str, None]] = {}
    for one in algorithms:
        ran.setdefault(counted_kind(job.group_set(one["group"]).kind), {})[one["algorithm"]] = None
    return [
        AxisMessages(
            kind, group_kind(kind).words, sorted(sizes[kind]), dict(operations[kind]), list(ran.get(kind, ())),
            num_bytes, num_bytes / job.num_devices, exposed[kind], None if hidden is None else hidden[kind],
        )
        for kind, num_bytes in bytes_sent.items() if num_bytes and kind in operations
    ]  # fmt: skip


def hidden_times(
    job: GraphJob, names: GraphNames, timeline: Mapping[str, np.ndarray], begin_ps: int, end_ps: int
) -> dict[str, float] | None:
    """Return the time in which a device computes while communication of a kind is under way, mean over devices [s].

    Model: collectives from when a device joins to their end, and messages that it sends; several of a kind at once
        count once. One device of each stage speaks for all of it.
    Returns: None where a stage has no recorded device.
    """
    stage_of = recorded_stages(names, timeline, job.devices, len(job.stages))
    if stage_of is None:
        return None
    counts = np.bincount(job.stage_of, minlength=len(job.stages))
    totals = dict.fromkeys(names.categories, 0.0)
    columns = [timeline[key] for key in ("template", "task", "start_ps", "end_ps")]
    for device, stage in stage_of.items():
        mine = (timeline["device"] == device) & (timeline["end_ps"] > begin_ps) & (timeline["start_ps"] < end_ps)
        spans: dict[str, list[tuple[int, int]]] = {}
        for template, index, start, end in zip(*(column[mine].tolist() for column in columns), strict=True):
            task = names.templates[template].tasks[index]
            if task.kind != "recv" and end > start:
                kind = names.kind(template, task)
                kind = kind if task.kind == "compute" else counted_kind(kind)
                spans.setdefault(kind, []).append((max(start, begin_ps), min(end, end_ps)))
        computes = _merged(spans.pop("compute", ()))
        for kind, found in spans.items():
            totals[kind] += _overlap(_merged(found), computes) * int(counts[stage])
    return {kind: total / job.num_devices * PS for kind, total in totals.items()}


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans that do not overlap and cover the same, in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _overlap(some: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> int:
    """Return how long both are, of merged spans."""
    total = first = 0
    for start, end in some:
        while first < len(others) and others[first][1] <= start:
            first += 1
        place = first
        while place < len(others) and others[place][0] < end:
            total += min(end, others[place][1]) - max(start, others[place][0])
            place += 1
    return total


def message_rows(axes: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the axes in words, in the order of ``COLUMNS``, and last their sum. Args: axes: fields of AxisMessages."""
    rows = [
        (
            one["words"],
            ", ".join(f"{size:,}" for size in one["group_sizes"]),
            ", ".join(_counted(name, count) for name, count in one["operations"].items()),
            ", ".join(one["algorithms"]),
            format_size(one["bytes_per_rank"]),
            format_size(one["num_bytes"]),
            format_time(one["exposed_s"]),
            "" if one["hidden_s"] is None else format_time(one["hidden_s"]),
        )
        for one in axes
    ]
    per_rank, total = (sum(one[key] for one in axes) for key in ("bytes_per_rank", "num_bytes"))
    return [*rows, ("all axes", "", "", "", format_size(per_rank), format_size(total), "", "")]


def _counted(operation: str, count: int) -> str:
    if operation == MESSAGE:
        return f"{count:,} {MESSAGE}" + ("s" if count != 1 else "")
    return f"{count:,} x {operation}"
