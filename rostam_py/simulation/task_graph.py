"""Compile plans into the core's task graph: templates, programs, process groups and devices as arrays.

A rank (d, s, t) of plan number j is device ``offset_j + (d P + s) T + t``. Slots: tp 0, dp 1, next stage 2,
previous stage 3, tied parameter sets from 4 on, then the devices of a sip_ml group twice (sub-ops, gradients);
each is one first-in first-out stream (MODEL B8).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.plan.plan import KernelTime, Plan, Stage, Task
from rostam_py.plan.traffic import ScheduleKey, group_order
from rostam_py.units import check_simulated

VERSION = 1
_TP, _DP, _NEXT, _PREVIOUS, _FIRST_TIED = 0, 1, 2, 3, 4
_KINDS = {"compute": 0, "collective": 1, "send": 2, "recv": 3}
CATEGORIES = ("tp", "dp", "pp", "tied", "mp")


@dataclass(frozen=True, slots=True)
class TemplateInfo:
    """What the core's template index stands for."""

    plan: int
    stage: int
    name: str
    tasks: tuple[Task, ...]


@dataclass
class CompiledGraph:
    """A frozen core task graph and the names of what is in it.

    version: of this format. accelerators: accelerator of each device, int array (num_devices,).
    stage_of, plan_of: of each device. links needed for results are the router's.
    """

    core: Any
    templates: list[TemplateInfo]
    accelerators: np.ndarray
    stage_of: np.ndarray
    plan_of: np.ndarray
    categories: tuple[str, ...] = CATEGORIES
    version: int = VERSION


def seconds_to_ps(seconds: float) -> int:
    """Return whole picoseconds, rounded up as every duration is (a hair above an integer is rounding noise).

    Raises: UnitError beyond the end of simulated time.
    """
    ps = check_simulated(seconds, "a duration") * 1e12
    nearest = round(ps)
    return nearest if abs(ps - nearest) <= 1e-6 + 4e-16 * ps else int(np.ceil(ps))


class _Compiler:
    def __init__(self, plans: Sequence[Plan], starts_ps: Sequence[int], fuse: bool) -> None:
        self.plans = plans
        self.starts_ps = starts_ps
        self.fuse = fuse
        self.core = _core.TaskGraph(list(CATEGORIES), len(plans))
        self.templates: list[TemplateInfo] = []
        self.schedules: dict[ScheduleKey, int] = {}
        self.channels: dict[tuple[int, int, int, str], int] = {}

    def compile(self) -> CompiledGraph:
        accelerators: list[np.ndarray] = []
        stage_of: list[np.ndarray] = []
        plan_of: list[np.ndarray] = []
        offset = 0
        for number, plan in enumerate(self.plans):
            ranks = plan.accelerators
            self._add_devices(number, plan, offset)
            offset += ranks.size
            accelerators.append(ranks.reshape(-1))
            stage_of.append(np.broadcast_to(np.arange(ranks.shape[1])[None, :, None], ranks.shape).reshape(-1))
            plan_of.append(np.full(ranks.size, number))
        self.core.freeze()
        return CompiledGraph(
            self.core, self.templates, np.concatenate(accelerators), np.concatenate(stage_of), np.concatenate(plan_of)
        )

    def _add_devices(self, number: int, plan: Plan, offset: int) -> None:
        ranks = plan.accelerators
        degrees = ranks.shape
        index = offset + np.arange(ranks.size).reshape(degrees)
        programs = np.array([self._add_program(number, plan, stage) for stage in plan.stages])
        slow = plan.machine.slow
        slowdown = np.array([1.0 / slow.get(int(a), 1.0) for a in ranks.reshape(-1)])
        self.core.add_devices(
            ranks.reshape(-1).astype(np.int32),
            np.broadcast_to(programs[None, :, None], degrees).reshape(-1).astype(np.int32),
            np.full(ranks.size, number, np.int32),
            slowdown,
            np.full(ranks.size, self.starts_ps[number], np.int64),
            self._bind_slots(plan, index).reshape(ranks.size, -1, 3),
        )

    def _bind_slots(self, plan: Plan, index: np.ndarray) -> np.ndarray:
        """Return (D, P, T, slots, 3): group, rank and peer device of every slot."""
        num_dp, num_pp, num_tp = index.shape
        first_peer = _FIRST_TIED + len(plan.tied)
        num_peers = 2 * num_pp if plan.strategy.placer == "sip_ml" else 0
        slots = np.full((*index.shape, first_peer + num_peers, 3), -1, np.int32)
        rank_of = _ranks_of(plan, "tp")
        for d in range(num_dp):
            for s in range(num_pp):
                order = rank_of(plan.accelerators[d, s])
                slots[d, s, :, _TP, 0] = self.core.add_group(index[d, s][np.argsort(order)].tolist())
                slots[d, s, :, _TP, 1] = order
        rank_of = _ranks_of(plan, "dp")
        for s in range(num_pp):
            for t in range(num_tp):
                order = rank_of(plan.accelerators[:, s, t])
                slots[:, s, t, _DP, 0] = self.core.add_group(index[:, s, t][np.argsort(order)].tolist())
                slots[:, s, t, _DP, 1] = order
        if num_peers:
            slots[:, :, :, first_peer:, 2] = np.tile(index[:, :, 0], 2)[:, None, None, :]
            return slots
        slots[:, :-1, :, _NEXT, 2] = index[:, 1:]
        slots[:, 1:, :, _PREVIOUS, 2] = index[:, :-1]
        for k, stages in enumerate(plan.tied):
            for d in range(num_dp):
                for t in range(num_tp):
                    group = self.core.add_group(index[d, list(stages), t].tolist())
                    slots[d, list(stages), t, _FIRST_TIED + k, 0] = group
                    slots[d, list(stages), t, _FIRST_TIED + k, 1] = np.arange(len(stages))
        return slots

    def _add_program(self, number: int, plan: Plan, stage: Stage) -> int:
        used = {name for name, _ in stage.program}
        ids = {name: self._add_template(number, plan, stage, name) for name in stage.templates if name in used}
        return self.core.add_program([ids[name] for name, _ in stage.program], [m for _, m in stage.program])

    def _add_template(self, number: int, plan: Plan, stage: Stage, name: str) -> int:
        tasks = stage.templates[name] if self.fuse else _op_level(stage.templates[name])
        rows = [self._row(number, plan, stage, task) for task in tasks]
        columns = list(zip(*rows, strict=True)) if rows else [()] * 7
        deps = [dep for task in tasks for dep in task.deps]
        offsets = np.concatenate([[0], np.cumsum([len(task.deps) for task in tasks])])
        self.templates.append(TemplateInfo(number, stage.index, name, tuple(tasks)))
        return self.core.add_template(*columns, offsets, np.array(deps, np.int32))

    def _row(self, number: int, plan: Plan, stage: Stage, task: Task) -> tuple[int, int, int, int, int, int, int]:
        """Return kind, slot, category, schedule, channel, bytes and duration of a task."""
        kind = _KINDS[task.kind]
        if task.kind == "compute":
            duration = sum(seconds_to_ps(k.duration_s) for k in task.kernels)
            return kind, -1, 0, -1, -1, 0, duration
        if task.kind == "collective":
            slot, category = _slot(task.axis)
            return kind, slot, category, self._schedule(plan, task), -1, task.num_bytes, 0
        sender = stage.index if task.kind == "send" else stage.index + task.stage_offset
        direction = task.stage_offset if task.kind == "send" else -task.stage_offset
        key = (number, sender, direction, task.tensor)
        channel = self.channels.setdefault(key, len(self.channels))
        if task.axis == "pp":
            slot, category = (_NEXT if task.stage_offset > 0 else _PREVIOUS), CATEGORIES.index("pp")
        else:
            streams = len(plan.stages) if task.axis == "mp_gradient" else 0
            slot = _FIRST_TIED + len(plan.tied) + streams + stage.index + task.stage_offset
            category = CATEGORIES.index("mp")
        return kind, slot, category, -1, channel, task.num_bytes, 0

    def _schedule(self, plan: Plan, task: Task) -> int:
        key = plan.schedules[task.axis, task.collective, task.num_bytes]
        if key not in self.schedules:
            self.schedules[key] = self.core.add_schedule(*key)
        return self.schedules[key]


def compile_plans(plans: Sequence[Plan], *, starts_ps: Sequence[int], fuse: bool = True) -> CompiledGraph:
    """Compile plans that share one machine into a task graph; ``fuse=False`` keeps every kernel a task.

    Raises: ConfigError if plans are on different fabrics; DegreeError if they share an accelerator.
    """
    if not plans:
        raise ConfigError("simulate got no plan")
    fabrics = {id(plan.machine.fabric) for plan in plans}
    if len(fabrics) > 1:
        raise ConfigError("the plans of one simulation must share one fabric object; use plan.on(machine)")
    _check_disjoint(plans)
    return _Compiler(plans, starts_ps, fuse).compile()


def _check_disjoint(plans: Sequence[Plan]) -> None:
    owner: dict[int, int] = {}
    for number, plan in enumerate(plans):
        for accelerator in plan.accelerators.reshape(-1).tolist():
            other = owner.setdefault(accelerator, number)
            if other != number:
                raise DegreeError(f"plans {other} and {number} both use accelerator {accelerator}; give each its own")


def _ranks_of(plan: Plan, axis: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return what gives the rank of every member of an axis' groups: their order, or that on a grid."""

    def ranks(group: np.ndarray) -> np.ndarray:
        place = {int(a): r for r, a in enumerate(group_order(plan, axis, group))}
        return np.array([place[int(a)] for a in group])

    return ranks


def _slot(axis: str) -> tuple[int, int]:
    """Return slot and category of a collective's axis."""
    if axis == "tp":
        return _TP, CATEGORIES.index("tp")
    if axis == "dp":
        return _DP, CATEGORIES.index("dp")
    if axis.startswith("tied"):
        return _FIRST_TIED + int(axis.removeprefix("tied")), CATEGORIES.index("tied")
    raise ConfigError(f"a collective names axis {axis!r}; known: tp, dp, tied<k>")


def _op_level(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks with every kernel a compute task of its own."""
    split: list[Task] = []
    last_of: list[int] = []  # old task -> its last new task
    for task in tasks:
        deps = tuple(last_of[dep] for dep in task.deps)
        kernels: Sequence[KernelTime | None] = task.kernels if len(task.kernels) > 1 else (None,)
        for k, kernel in enumerate(kernels):
            if kernel is None:
                split.append(replace(task, deps=deps))
            else:
                before = deps if k == 0 else (len(split) - 1,)
                split.append(replace(task, deps=before, name=kernel.name, kernels=(kernel,)))
        last_of.append(len(split) - 1)
    return split
