"""Hold jobs to their accelerators' limits of power: where the clock settles, and what that makes of kernels.

Model: the devices of a stage all run the same kernels, and each has its own limit. What their kernels draw is averaged
over an iteration, waits included, as a first simulation at the clocks of short runs has them
(``costs.power``): a longer stage keeps its waits. Waits of a pipeline, and for what its first and last micro-batches
alone exchange (gradients, updated weights), are left out: they last longer than power is averaged over, and the clock
has to fall again behind them. Messages draw what memory takes
to move their bytes, during kernels or while they wait, as much on all devices. Where the mean is beyond the limit even
so, kernels that draw most last longer, and the job is simulated with those.
Ignores that waits change where other stages are held as well, the clock of collectives' kernels, and what their
multiprocessors draw while they poll.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from rostam_py.costs.power import PowerModel, level_w, power_model, slowdown
from rostam_py.plan.machine import Machine
from rostam_py.plan.phases import is_first, is_last
from rostam_py.plan.plan import Plan
from rostam_py.plan.tasks import KernelTime, Stage, Task
from rostam_py.programs.placed import PlacedProgram, PlacedRole
from rostam_py.simulation.graph_job import GraphJob, StageTasks
from rostam_py.simulation.job_result import JobResult

_SHORT = ("compute", "launch", "host")  # of a breakdown: what no group is waited for in
_MOST_SENT = 2.0  # bytes that a rank sends for each of a collective (MODEL A4): an all-reduce's
Job = TypeVar("Job", Plan, PlacedProgram, GraphJob)
AnyStage = TypeVar("AnyStage", Stage, PlacedRole, StageTasks)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What a stage does in one iteration.

    seconds, watts: of its kernels, above idle, float arrays (kernels,). most_bytes: that its collectives send at most.
    """

    seconds: np.ndarray
    watts: np.ndarray
    most_bytes: float

    @classmethod
    def by(cls, stage: Stage | PlacedRole | StageTasks) -> "_Drawn":
        found: defaultdict[tuple[float, float], int] = defaultdict(int)
        most_bytes = 0.0
        for name, count in stage.program.counts().items():
            for task in stage.templates[name]:
                for kernel in task.kernels:
                    found[kernel.duration_s, kernel.watts] += count
                if task.kind == "collective":
                    most_bytes += _MOST_SENT * task.num_bytes * count
        table = np.array([(count * seconds, watts) for (seconds, watts), count in found.items()]).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1], most_bytes)

    @property
    def busy_s(self) -> float:
        return float(self.seconds.sum())


def held_at_power(
    jobs: Sequence[Job], models: Sequence[PowerModel | None], first: Callable[[], Sequence[JobResult]]
) -> list[Job]:
    """Return jobs with the kernels that they have at their accelerators' limits of power, and notes of it.

    Args: models: power of each job's accelerators, None where it is not known. first: simulates the jobs as they are;
        not called where no device is at its limit even if it never waits.
    Cost: kernels of all templates, and one more simulation where a device may be held.
    """
    drawn = [[_Drawn.by(one) for one in job.stages] if model else [] for job, model in zip(jobs, models, strict=True)]
    if not any(
        level_w(model, one.seconds, one.watts, 0.0, model.messages_j(one.most_bytes))
        for model, stages in zip(models, drawn, strict=True) if model
        for one in stages
    ):  # fmt: skip
        return list(jobs)
    return [
        _held(job, model, stages, result) if model else job
        for job, model, stages, result in zip(jobs, models, drawn, first(), strict=True)
    ]


def power_of(machine: Machine) -> PowerModel | None:
    """Return the power of a machine's accelerators, None where it is not known."""
    return power_model(machine.device)


def _held(job: Job, model: PowerModel, drawn: Sequence[_Drawn], first: JobResult) -> Job:
    kinds = _kinds_of_layers(first)
    sent = sum(size for kind, size in first.bytes_sent.items() if kind in kinds) / first.job.num_devices
    waits_s = [max(0.0, _averaged_s(first, number, kinds) - one.busy_s) for number, one in enumerate(drawn)]
    levels = [
        level_w(model, one.seconds, one.watts, idle_s, model.messages_j(sent))
        for one, idle_s in zip(drawn, waits_s, strict=True)
    ]
    if not any(levels):
        return job
    stages = tuple(
        one if level is None else _held_stage(one, model, level) for one, level in zip(job.stages, levels, strict=True)
    )
    return replace(job, stages=stages, notes=(*job.notes, _note(model, drawn, levels)))


def _kinds_of_layers(result: JobResult) -> set[str]:
    """Return the kinds of groups that layers of every micro-batch communicate in, not stages with each other."""
    labels = {
        task.group for stage in result.job.stages for name, tasks in stage.templates.items()
        if not is_first(name) and not is_last(name)
        for task in tasks if task.group
    }  # fmt: skip
    return {result._names.kind_of[result._number, label] for label in labels} - {"pp"}


def _averaged_s(result: JobResult, stage: int, kinds: Collection[str]) -> float:
    """Return for how long of an iteration a stage computes, or waits for less than power is averaged over [s].

    Args: kinds: of groups that layers communicate in.
    """
    counted = [kind in kinds or kind in _SHORT for kind in result.breakdown]
    return float(result.breakdown_by_device[result.job.stage_of == stage][:, counted].sum(axis=1).mean())


def _held_stage(stage: AnyStage, model: PowerModel, level: float) -> AnyStage:
    known: dict[int, KernelTime] = {}  # by identity: repeated blocks share kernels, and the stage holds them meanwhile

    def kernel_at(kernel: KernelTime) -> KernelTime:
        if kernel.watts <= level:
            return kernel
        if id(kernel) not in known:
            longer = kernel.stretched(slowdown(model, kernel.watts, level))
            known[id(kernel)] = replace(longer, watts=level)
        return known[id(kernel)]

    def task_at(task: Task) -> Task:
        return replace(task, kernels=tuple(map(kernel_at, task.kernels))) if task.kernels else task

    return replace(stage, templates={name: tuple(map(task_at, tasks)) for name, tasks in stage.templates.items()})


def _note(model: PowerModel, drawn: Sequence[_Drawn], levels: Sequence[float | None]) -> str:
    """Return in words what the stages' clocks make of their kernels."""
    held = [(one, level) for one, level in zip(drawn, levels, strict=True) if level is not None]
    slowed = [np.maximum(1.0, one.watts / level) ** model.exponent for one, level in held]
    longest = max(float(factors.max()) for factors in slowed) - 1
    more = [
        float((one.seconds * factors).sum()) / one.busy_s - 1 for (one, _), factors in zip(held, slowed, strict=True)
    ]
    least, most = (model.idle_w + pick(level for _, level in held) for pick in (min, max))
    level_text = f"{least:,.0f}" if f"{least:,.0f}" == f"{most:,.0f}" else f"{least:,.0f} to {most:,.0f}"
    stages = f"{len(held):,} of {len(levels):,} stages are" if len(levels) > 1 else "devices are"
    return (
        f"power: {stages} held at {model.limit_w:,.0f} W, averaged over an iteration: kernels that would draw more than"
        f" {level_text} W take up to {longest:.1%} longer, all compute {max(more):.1%}"
    )
