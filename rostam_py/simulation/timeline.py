"""Write recorded tasks as a trace that ui.perfetto.dev and chrome://tracing open."""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from rostam_py.documents import write_whole
from rostam_py.simulation.arrows import Arrow
from rostam_py.simulation.changes import CIRCUITS, FAILED, LANES, MOVED, REROUTING, Change, Move
from rostam_py.simulation.compile import GraphNames
from rostam_py.simulation.link_counters import LinkCounter
from rostam_py.simulation.phase_spans import PhaseSpan, phase_spans
from rostam_py.simulation.stage_memory import StageMemory

_RECV = "recv"
_RECEIVING = 100  # a thread of receives is numbered so far behind its stream


def write_perfetto(
    path: str, names: GraphNames, timeline: dict[str, np.ndarray], begin_ps: int, end_ps: int,
    memory: Iterable[StageMemory] = (), changes: Iterable[Change] = (), arrows: Iterable[Arrow] = (),
    loads: Iterable[LinkCounter] = (), moves: Iterable[Move] = (),
) -> None:  # fmt: skip
    """Write what of the tasks lies in [begin_ps, end_ps]; times in the file count from begin_ps, so none is below 0.

    One process per device, one thread per stream; on the compute thread tasks lie below a slice that names their phase,
    micro-batch and chunk ("forward 3, chunk 1"), and carry their kernels as slices below them. Waits for the host are
    slices in front of a task, those between its kernels too. What begins before or ends after the iteration is cut
    there; its argument "whole_us" is its full length. Memory is a counter of its device, in bytes. Changes of the
    network are slices of a process of their own, a thread for each lane; its counters are how many circuits are dark
    and how many parts have failed; when messages take new routes is an instant there. The first of these messages are
    slices of a process of their own, on their links before, from the failure or repair on, and on those after, with an
    arrow from one to the other. Arrows lead from sends to receives, too. Loads of links are counters of a process of
    their own, in bytes/s.
    """
    events: list[dict[str, Any]] = []
    seen: set[tuple[int, int]] = set()
    keys = ("device", "stream", "template", "task", "microbatch", "start_ps", "end_ps", "host_wait_ps")
    for device, stream, template, index, microbatch, start, end, host_wait in zip(
        *(timeline[key].tolist() for key in keys), strict=True
    ):
        if end <= begin_ps or start - host_wait >= end_ps:
            continue
        info = names.templates[template]
        task = info.tasks[index]
        accelerator = int(names.accelerators[device])
        thread = stream + (_RECEIVING if task.kind == _RECV else 0)
        if (device, thread) not in seen:
            seen.add((device, thread))
            events += _names(accelerator, info.stage, thread, _stream(names, info.job, stream, task.kind))
        arguments = {"template": info.name, "micro_batch": microbatch, "bytes": task.num_bytes}
        slices = [_slice(task.name, accelerator, thread, start - begin_ps, end - start, arguments)]
        slices += _kernel_slices(task, accelerator, thread, start - begin_ps, end - start)
        if host_wait:
            slices.append(
                _slice("waits for the host", accelerator, thread, start - host_wait - begin_ps, host_wait, {})
            )
        events += _cut(slices, (end_ps - begin_ps) / 1e6)
    for span in phase_spans(names, timeline):
        if span.end_ps > begin_ps and span.start_ps < end_ps:
            one = _phase_slice(span, int(names.accelerators[span.device]), begin_ps)
            events += _cut([one], (end_ps - begin_ps) / 1e6)
    events += [event for one in memory for event in _counters(one, (end_ps - begin_ps) / 1e6)]
    events += _arrow_events(arrows, names, timeline, begin_ps, end_ps)
    process = 1 + max((int(one) for one in names.accelerators), default=0)
    shown = [one for one in changes if one.end_ps > begin_ps and one.begin_ps < end_ps and one.lane != MOVED]
    events += _change_events(shown, process, begin_ps, end_ps)
    moved = [one for one in moves if begin_ps <= one.time_ps <= end_ps]
    events += _move_events(moved, process, begin_ps)
    events += _load_events(loads, process + 1, begin_ps, end_ps)
    events += _path_events(moved, process + 2, begin_ps, end_ps)
    text = json.dumps({"displayTimeUnit": "ns", "traceEvents": events})
    write_whole(path, gzip.compress(text.encode(), mtime=0) if path.endswith(".gz") else text.encode())


def _change_events(changes: Sequence[Change], process: int, begin_ps: int, end_ps: int) -> list[dict[str, Any]]:
    """Return the slices and counters of what changed in the network."""
    events: list[dict[str, Any]] = []
    end_us = (end_ps - begin_ps) / 1e6
    for lane in dict.fromkeys(one.lane for one in changes):
        thread, mine = LANES.index(lane), [one for one in changes if one.lane == lane]
        for one in mine:
            name = "reconfiguration" if lane == CIRCUITS else one.words
            arguments = {"circuits" if lane == CIRCUITS else "parts": one.count}
            events += _cut(
                [_slice(name, process, thread, one.begin_ps - begin_ps, one.end_ps - one.begin_ps, arguments)], end_us
            )
        events.append({"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": lane}})
        if lane in (CIRCUITS, FAILED):
            counter = "dark circuits" if lane == CIRCUITS else "failed parts"
            events += _levels(mine, counter, process, begin_ps, end_us)
    if changes:
        events.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": "network"}})
    return events


def _move_events(moves: Sequence[Move], process: int, begin_ps: int) -> list[dict[str, Any]]:
    """Return an instant for each time that messages took other links, in the lane of new routes."""
    thread = LANES.index(REROUTING)
    events: list[dict[str, Any]] = [
        {
            "ph": "i", "s": "t", "pid": process, "tid": thread,
            "name": f"{one.num_messages:,} message{'s' * (one.num_messages != 1)} on new routes",
            "ts": (one.time_ps - begin_ps) / 1e6,
        }
        for one in moves
    ]  # fmt: skip
    if events:
        events.append({"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": REROUTING}})
        events.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": "network"}})
    return events


def _path_events(moves: Sequence[Move], process: int, begin_ps: int, end_ps: int) -> list[dict[str, Any]]:
    """Return the slices of messages on their links before and after, each with an arrow, on as few threads as hold
    them side by side."""
    events: list[dict[str, Any]] = []
    free_from: list[int] = []  # of each pair of threads
    number = 0
    for move in moves:
        for message in move.messages:
            begin = max(move.time_ps - move.wait_ps, begin_ps)
            end = end_ps if message.end_ps is None else min(message.end_ps, end_ps)
            row = next((k for k, time in enumerate(free_from) if time <= begin), len(free_from))
            free_from[row:row + 1] = [end]  # fmt: skip
            sides = (("before", 2 * row, begin, move.time_ps, message.left),
                     ("after", 2 * row + 1, move.time_ps, end, message.taken))  # fmt: skip
            for side, thread, first, last, path in sides:
                arguments = {"links": path, "side": side}
                events.append(_slice(message.ends, process, thread, first - begin_ps, last - first, arguments))
            ends = (({"ph": "s"}, 2 * row, begin), ({"ph": "f", "bp": "e"}, 2 * row + 1, move.time_ps))
            events += [
                {
                    **shape, "id": number, "name": "new route", "cat": "new route", "pid": process, "tid": thread,
                    "ts": (time - begin_ps) / 1e6,
                }
                for shape, thread, time in ends
            ]  # fmt: skip
            number += 1
    for thread in range(2 * len(free_from)):
        words = f"{('before', 'after')[thread % 2]} {thread // 2}"
        events.append({"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": words}})
    if events:
        events.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": MOVED}})
    return events


def _load_events(loads: Iterable[LinkCounter], process: int, begin_ps: int, end_ps: int) -> list[dict[str, Any]]:
    """Return a counter for each link; of links that are alike one."""
    events: list[dict[str, Any]] = []
    for one in loads:
        alike = f" ({one.num_alike:,} alike)" if one.num_alike > 1 else ""
        for at_ps, rate in one.steps(begin_ps, end_ps):
            events.append({
                "ph": "C", "name": f"{one.name}{alike}", "pid": process, "ts": (at_ps - begin_ps) / 1e6,
                "args": {"bytes_per_s": rate},
            })  # fmt: skip
    if events:
        events.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": "load of links"}})
    return events


def _levels(
    changes: Sequence[Change], counter: str, process: int, begin_ps: int, end_us: float
) -> Iterator[dict[str, Any]]:
    """Yield how many are changed at once: a counter that begins and ends where changes do."""
    steps: dict[float, int] = {0.0: 0}
    for one in changes:
        for at_ps, step in ((one.begin_ps, one.count), (one.end_ps, -one.count)):
            at_us = max((at_ps - begin_ps) / 1e6, 0.0)
            steps[at_us] = steps.get(at_us, 0) + step
    level = 0
    for at_us, step in sorted(steps.items()):
        level += step
        if at_us <= end_us:
            yield {"ph": "C", "name": counter, "pid": process, "ts": at_us, "args": {"count": level}}


def _arrow_events(
    arrows: Iterable[Arrow], names: GraphNames, timeline: dict[str, np.ndarray], begin_ps: int, end_ps: int
) -> Iterator[dict[str, Any]]:
    """Yield the two ends of messages that leave and arrive within [begin_ps, end_ps]."""
    for number, arrow in enumerate(arrows):
        left, arrived = int(timeline["start_ps"][arrow.sender]), int(timeline["end_ps"][arrow.receiver])
        if left < begin_ps or arrived > end_ps:
            continue
        begins, ends = {"ph": "s"}, {"ph": "f", "bp": "e"}
        for row, time, side in ((arrow.sender, left, begins), (arrow.receiver, arrived, ends)):
            thread = int(timeline["stream"][row]) + (_RECEIVING if row == arrow.receiver else 0)
            yield {
                **side, "id": number, "name": "message", "cat": "message",
                "pid": int(names.accelerators[timeline["device"][row]]), "tid": thread, "ts": (time - begin_ps) / 1e6,
            }  # fmt: skip


def _counters(memory: StageMemory, end_us: float) -> Iterator[dict[str, Any]]:
    """Yield the steps of a device's memory in [0, end_us], the first at 0; of equal times the last one holds."""
    levels = {0.0: memory.constant_bytes}
    for time, num_bytes in zip(memory.time_s, memory.num_bytes, strict=True):
        if time * 1e6 <= end_us:
            levels[max(time * 1e6, 0.0)] = num_bytes
    for time, num_bytes in levels.items():
        arguments = {"bytes": num_bytes}
        yield {"ph": "C", "name": "memory", "pid": memory.accelerator, "ts": time, "args": arguments}


def _phase_slice(span: PhaseSpan, process: int, begin_ps: int) -> dict[str, Any]:
    """Return the slice above the tasks of a phase, on the compute thread."""
    arguments = {"phase": span.phase, "micro_batch": span.microbatch, "busy_us": span.busy_ps / 1e6}
    if span.chunk is not None:
        arguments["chunk"] = span.chunk
    return _slice(span.title, process, 0, span.start_ps - begin_ps, span.end_ps - span.start_ps, arguments)


def _kernel_slices(task: Any, process: int, thread: int, start_ps: int, length_ps: int) -> list[dict[str, Any]]:
    """Return the kernels of a compute task, scaled to the task's length (a slow device stretches them)."""
    total = task.duration_s
    if task.kind != "compute" or len(task.kernels) < 2 or total <= 0:
        return []
    slices = []
    cursor = float(start_ps)
    for kernel in task.kernels:
        length = kernel.duration_s / total * length_ps
        arguments = {"module": kernel.module, "op": kernel.op_type, "flops": kernel.flops}
        slices.append(_slice(kernel.name, process, thread, cursor, length, arguments))
        cursor += length
    return slices


def _cut(slices: list[dict[str, Any]], end_us: float) -> list[dict[str, Any]]:
    """Return what of the slices lies in [0, end_us]."""
    kept = []
    for one in slices:
        start, stop = max(one["ts"], 0.0), min(one["ts"] + one["dur"], end_us)
        if one["ts"] >= 0 and one["ts"] + one["dur"] <= end_us:
            kept.append(one)
        elif stop > start:
            arguments = one["args"] | {"whole_us": one["dur"]}
            kept.append(one | {"ts": start, "dur": stop - start, "args": arguments})
    return kept


def _slice(
    name: str, process: int, thread: int, start_ps: float, length_ps: float, arguments: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X", "name": name, "pid": process, "tid": thread, "ts": start_ps / 1e6, "dur": length_ps / 1e6,
        "args": arguments,
    }  # fmt: skip


def _stream(names: GraphNames, job: int, stream: int, kind: str) -> str:
    """Return what a thread of the trace is called."""
    if kind == _RECV:
        return "receive"
    return "compute" if stream == 0 else names.streams[job][stream - 1]


def _names(process: int, stage: int, thread: int, label: str) -> list[dict[str, Any]]:
    return [
        {"ph": "M", "name": "process_name", "pid": process, "args": {"name": f"accelerator {process} (stage {stage})"}},
        {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": label}},
    ]
