"""Memory of a device of each stage over the last iteration, from when its phases ran.

Example:
    for one in rostam.simulate(plan, timeline=True).memory_over_time():
        one.stage, one.time_s, one.num_bytes
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rostam_py.errors import InternalError
from rostam_py.plan.phases import BACKWARDS, FORWARD, chunk_of, phase_of
from rostam_py.plan.plan import Plan
from rostam_py.plan.tasks import Stage
from rostam_py.simulation.compile import GraphNames, TemplateInfo
from rostam_py.simulation.phase_spans import OPTIMIZER, PhaseSpan, phase_spans, recorded_stages
from rostam_py.simulation.picoseconds import PS

_TOLERANCE = 1e-9  # relative, of sums of the same bytes in another order


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Steps of a device's memory: num_bytes[k] from time_s[k] on, which counts from the end of the iteration before.

    constant_bytes: of it, what it holds all the time: weights, gradients, optimizer state.
    """

    stage: int
    accelerator: int
    constant_bytes: int
    time_s: list[float]
    num_bytes: list[int]


def stage_memory(
    plan: Plan, names: GraphNames, timeline: Mapping[str, np.ndarray], ends_ps: np.ndarray
) -> list[StageMemory]:
    """Return the memory of a recorded device of each stage in the last iteration.

    Model: weights, gradients and optimizer state all the time; activations as the placement counts them (MODEL D15): a
        forward takes what its micro-batch keeps, a backward what it replays at once, and gives both back at its end;
        gathered weights (ZeRO 3) from the start of their gather, when their buffer is there, to the end of the last
        kernel that uses them, and the gradients of the largest unit while a backward runs.
    Args:
        names, timeline: of a session.
        ends_ps: of its iterations, the start of the first one first [ps].
    Returns: nothing where a stage has no recorded device, and for placers that do not tell activations apart in time.
    Raises: InternalError if the highest is not the memory that the plan reports.
    """
    stage_of = recorded_stages(names, timeline, plan.devices, len(plan.stages))
    if stage_of is None or not all(stage.activation_changes for stage in plan.stages):
        return []
    spans: dict[int, list[PhaseSpan]] = {device: [] for device in stage_of}
    for span in phase_spans(names, timeline, len(ends_ps) - 2):
        if span.device in spans and span.phase != OPTIMIZER:
            spans[span.device].append(span)
    begin = int(ends_ps[-2])
    found = []
    for device, stage in stage_of.items():
        steps = _steps(plan.stages[stage], spans[device], plan.strategy.rules.ep_overlap)
        if any(plan.stages[stage].gathered_changes.values()):
            steps = _summed(steps, _gathered(plan.stages[stage], names, timeline, device, len(ends_ps) - 2))
        memory = plan.stages[stage].memory
        constant = memory.total - memory.activations - memory.gathered
        held = [(time, constant + level) for time, level in steps]
        peak = max(level for _, level in held)
        if abs(peak - memory.total) > max(1.0, _TOLERANCE * memory.total):
            raise InternalError(
                f"stage {stage} holds at most {peak} bytes while it runs, but {memory.total} in its plan"
            )
        found.append(
            StageMemory(
                stage, int(names.accelerators[device]), constant,
                [(time - begin) * PS for time, _ in held], [round(level) for _, level in held],
            )
        )  # fmt: skip
    return found


def _steps(stage: Stage, spans: Iterable[PhaseSpan], takes_turns: bool) -> list[tuple[int, float]]:
    """Return (time, bytes of activations from then on) of a device, the last of them 0.

    Args: takes_turns: a forward and a backward run part by part in turn (ep_overlap).
    """
    whole: dict[tuple[str, int | None, int], tuple[int, int]] = {}
    for span in spans:  # one phase may be several spans, where it waited for a message
        key = span.phase, span.chunk, span.microbatch
        start, end = whole.get(key, (span.start_ps, span.end_ps))
        whole[key] = min(start, span.start_ps), max(end, span.end_ps)
    changes = _by_phase(stage)
    backwards = [times for (phase, _, _), times in whole.items() if phase in BACKWARDS]
    moments: list[tuple[int, int, float]] = []
    for number, ((phase, chunk, _), (start, end)) in enumerate(sorted(whole.items(), key=lambda item: item[1])):
        if phase == FORWARD and takes_turns:  # what it keeps comes as a backward's goes that it takes turns with
            start = max((stop for begin, stop in backwards if begin < end and start < stop), default=start)
        moments += [
            (time, number, change) for time, change in zip((start, max(start, end)), changes[phase, chunk], strict=True)
        ]
    level, steps = 0.0, list[tuple[int, float]]()
    for time, _, change in sorted(moments, key=lambda one: one[:2]):
        level += change
        steps.append((time, level))
    return steps


def _by_phase(stage: Stage) -> dict[tuple[str, int | None], tuple[float, float]]:
    return {(phase_of(name), chunk_of(name)): change for name, change in stage.activation_changes.items()}


def _gathered(
    stage: Stage, names: GraphNames, timeline: Mapping[str, np.ndarray], device: int, iteration: int
) -> list[tuple[int, float]]:
    """Return (time, bytes of gathered weights from then on) of a device, in order."""
    keys = ("template", "microbatch", "task", "start_ps", "end_ps")
    mine = (timeline["device"] == device) & (timeline["iteration"] == iteration)
    instances: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for template, microbatch, task, start, end in zip(*(timeline[key][mine].tolist() for key in keys), strict=True):
        if names.templates[template].tasks[task].kind == "compute":
            instances.setdefault((template, microbatch), []).append((start, end, task))
    under_way: dict[int | None, int] = {}  # of each chunk, micro-batches between forward and backward
    level, steps = 0.0, list[tuple[int, float]]()
    for (template, _), tasks in sorted(instances.items(), key=lambda item: min(item[1])):
        info = names.templates[template]
        changes = stage.gathered_changes.get(info.name, ())
        chunk, kept = chunk_of(info.name), 0
        if phase_of(info.name) == FORWARD:
            if under_way.get(chunk, 0):
                kept = sum(size for _, size in changes)
                changes = () if kept else changes
            under_way[chunk] = under_way.get(chunk, 0) + 1
        elif phase_of(info.name) in BACKWARDS:
            under_way[chunk] -= 1
            kept = -sum(size for _, size in changes)
            if kept and under_way[chunk]:
                changes = (*changes, (changes[-1][0], kept))
        ends = _kernel_ends(info, sorted(tasks, key=lambda one: one[2]))
        for kernels, size in changes:
            level += size
            steps.append((ends[kernels], level))
    return steps


def _kernel_ends(info: TemplateInfo, tasks: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return when the template begins, and when each of its kernels ends [ps]. Args: tasks: (start, end, number)."""
    ends = [tasks[0][0]]
    for start, end, number in tasks:
        task = info.tasks[number]
        done = 0.0
        for kernel in task.kernels:
            done += kernel.duration_s
            ends.append(round(start + (end - start) * done / task.duration_s) if task.duration_s else end)
    return ends


def _summed(some: Sequence[tuple[int, float]], others: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the steps of two levels as steps of their sum; of equal times what falls comes first."""
    changes = []
    for steps in (some, others):
        level = 0.0
        for time, size in steps:
            changes.append((time, size - level))
            level = size
    total, found = 0.0, list[tuple[int, float]]()
    for time, change in sorted(changes, key=lambda one: (one[0], one[1] > 0)):
        total += change
        found.append((time, total))
    return found
