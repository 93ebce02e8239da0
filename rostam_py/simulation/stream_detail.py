"""What the streams that a program names carry in an iteration, for the page of a run."""

from typing import Any

from rostam_py.programs.placed import PlacedProgram
from rostam_py.simulation.drawing import short
from rostam_py.simulation.queues import stream_name


def stream_rows(placed: PlacedProgram) -> list[dict[str, Any]]:
    """Return what one rank of each role has on each of its streams in an iteration, as the program names them.

    Returns: dicts of role, stream, num_tasks, kernels_s (of its kernels alone on the device) and num_bytes (of its
        collectives and sends, as in MODEL A4), by role and first use; none where no step names a stream.
    Cost: tasks of all templates.
    """
    stages = placed.stages
    if not any(task.stream for stage in stages for tasks in stage.templates.values() for task in tasks):
        return []
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for stage in stages:
        for name, count in stage.program.counts().items():
            for task in stage.templates[name]:
                if task.is_mark or task.kind == "recv":
                    continue
                stream = stream_name(task)
                row = rows.setdefault(
                    (stage.name, stream),
                    {"role": stage.name, "stream": stream, "num_tasks": 0, "kernels_s": 0.0, "num_bytes": 0},
                )
                row["num_tasks"] += count
                row["kernels_s"] += count * task.duration_s
                row["num_bytes"] += count * int(task.num_bytes)
    return [row | {"kernels_s": short(row["kernels_s"], 10)} for row in rows.values()]
