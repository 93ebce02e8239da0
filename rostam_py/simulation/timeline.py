"""Write recorded tasks as a trace that ui.perfetto.dev and chrome://tracing open."""

import gzip
import json
from typing import Any

import numpy as np

from rostam_py.simulation.task_graph import CompiledGraph

_STREAMS = {0: "compute", 1: "tp", 2: "dp", 3: "to next stage", 4: "to previous stage"}
_RECV = "recv"


def write_perfetto(
    path: str, graph: CompiledGraph, timeline: dict[str, np.ndarray], begin_ps: int, end_ps: int
) -> None:
    """Write the tasks that overlap [begin_ps, end_ps]; times in the file count from begin_ps.

    One process a device, one thread a stream; compute tasks carry their kernels as slices below them.
    """
    events: list[dict[str, Any]] = []
    seen: set[tuple[int, int]] = set()
    keys = ("device", "stream", "template", "task", "microbatch", "start_ps", "end_ps")
    for device, stream, template, index, microbatch, start, end in zip(
        *(timeline[key].tolist() for key in keys), strict=True
    ):
        if end <= begin_ps or start >= end_ps:
            continue
        info = graph.templates[template]
        task = info.tasks[index]
        accelerator = int(graph.accelerators[device])
        thread = 100 + stream if task.kind == _RECV else stream
        if (device, thread) not in seen:
            seen.add((device, thread))
            events += _names(accelerator, info.stage, thread, task.kind == _RECV)
        arguments = {"template": info.name, "micro_batch": microbatch, "bytes": task.num_bytes}
        events.append(_slice(task.name, accelerator, thread, start - begin_ps, end - start, arguments))
        events += _kernel_slices(task, accelerator, thread, start - begin_ps, end - start)
    text = json.dumps({"displayTimeUnit": "ns", "traceEvents": events})
    if path.endswith(".gz"):
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.write(text)
    else:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


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


def _slice(
    name: str, process: int, thread: int, start_ps: float, length_ps: float, arguments: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X", "name": name, "pid": process, "tid": thread, "ts": start_ps / 1e6, "dur": length_ps / 1e6,
        "args": arguments,
    }  # fmt: skip


def _names(process: int, stage: int, thread: int, is_recv: bool) -> list[dict[str, Any]]:
    label = "receive" if is_recv else _STREAMS.get(thread, "tied parameters")
    return [
        {"ph": "M", "name": "process_name", "pid": process, "args": {"name": f"accelerator {process} (stage {stage})"}},
        {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": label}},
    ]
