"""Compile plans into the core's task graph: templates, programs, process groups and devices as arrays.

Device n of plan number j is device ``offset_j + n``. A slot of a device is one first-in first-out stream (MODEL B8):
one for each stream of collectives of a set of groups, and one for each stream and peer of its messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.plan.group_kinds import counted_kind, listed_kinds
from rostam_py.plan.plan import Plan
from rostam_py.plan.tasks import KernelTime, Stage, Task
from rostam_py.plan.traffic import ScheduleKey, rank_orders
from rostam_py.units import check_simulated

VERSION = 1
_KINDS = {"compute": 0, "collective": 1, "send": 2, "recv": 3}
_Slot = tuple[str, str, int | None]  # group, stream, peer; no peer for collectives


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

    categories: kinds of groups that bytes and exposed time are listed by. kind_of: (plan, group label) -> kind.
    streams: of each plan, what its devices' communication streams are called. accelerators: accelerator of each
    device, int array (num_devices,). stage_of, plan_of: of each device. version: of this format.
    """

    core: Any
    templates: list[TemplateInfo]
    categories: tuple[str, ...]
    kind_of: dict[tuple[int, str], str]
    streams: list[list[str]]
    accelerators: np.ndarray
    stage_of: np.ndarray
    plan_of: np.ndarray
    version: int = VERSION

    def kind(self, template: int, task: Task) -> str:
        """Return the kind of a task: compute, or that of the groups it communicates in."""
        return "compute" if task.kind == "compute" else self.kind_of[self.templates[template].plan, task.group]


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
        self.categories = listed_kinds(one.kind for plan in plans for one in plan.groups)
        self.core = _core.TaskGraph(list(self.categories), len(plans))
        self.templates: list[TemplateInfo] = []
        self.schedules: dict[ScheduleKey, int] = {}
        self.channels: dict[tuple[int, str, int, str], int] = {}
        self.streams: list[list[str]] = []

    def compile(self) -> CompiledGraph:
        offset = 0
        for number, plan in enumerate(self.plans):
            self._add_devices(number, plan, offset)
            offset += plan.num_devices
        self.core.freeze()
        kinds = {(j, one.label): one.kind for j, plan in enumerate(self.plans) for one in plan.groups}
        plan_of = [np.full(plan.num_devices, number) for number, plan in enumerate(self.plans)]
        return CompiledGraph(
            self.core, self.templates, self.categories, kinds, self.streams,
            np.concatenate([plan.devices for plan in self.plans]),
            np.concatenate([plan.stage_of for plan in self.plans]), np.concatenate(plan_of),
        )  # fmt: skip

    def _add_devices(self, number: int, plan: Plan, offset: int) -> None:
        slots = _slots_of(plan)
        self.streams.append([_stream_name(*slot) for slot in slots])
        programs = np.array([self._add_program(number, plan, stage, slots) for stage in plan.stages])
        slow = plan.machine.slow
        slowdown = np.array([1.0 / slow.get(int(a), 1.0) for a in plan.devices])
        self.core.add_devices(
            plan.devices.astype(np.int32),
            programs[plan.stage_of].astype(np.int32),
            np.full(plan.num_devices, number, np.int32),
            slowdown,
            np.full(plan.num_devices, self.starts_ps[number], np.int64),
            self._bind_slots(plan, slots, offset),
        )

    def _bind_slots(self, plan: Plan, slots: dict[_Slot, int], offset: int) -> np.ndarray:
        """Return (devices, slots, 3): group, rank and peer device of every slot."""
        bound = np.full((plan.num_devices, len(slots), 3), -1, np.int32)
        known: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # members in schedule order, the core's groups
        for (label, _, peer), slot in slots.items():
            if peer is None:
                if label not in known:
                    ordered = _in_schedule_order(plan, label)
                    groups = [self.core.add_group(row) for row in (offset + ordered).tolist()]
                    known[label] = ordered, np.array(groups)
                ordered, ids = known[label]
                bound[ordered, slot, 0] = ids[:, None]
                bound[ordered, slot, 1] = np.arange(ordered.shape[1])
                continue
            members = plan.group_set(label).members
            first, last = max(0, -peer), members.shape[1] - max(0, peer)
            bound[members[:, first:last], slot, 2] = offset + members[:, first + peer : last + peer]
        return bound

    def _add_program(self, number: int, plan: Plan, stage: Stage, slots: dict[_Slot, int]) -> int:
        counts = stage.program.counts()
        names = [name for name in stage.templates if name in counts]
        ids = {name: self._add_template(number, plan, stage, name, slots) for name in names}
        entries = [entry for segment in stage.program.segments for entry in segment.entries]
        offsets = np.cumsum([0, *(len(segment.entries) for segment in stage.program.segments)])
        return self.core.add_program(
            [ids[name] for name, _ in entries], [m for _, m in entries], np.ones(len(entries), np.int32),
            block_offset=offsets, count=[segment.count for segment in stage.program.segments],
        )  # fmt: skip

    def _add_template(self, number: int, plan: Plan, stage: Stage, name: str, slots: dict[_Slot, int]) -> int:
        tasks = stage.templates[name] if self.fuse else _op_level(stage.templates[name])
        rows = [self._row(number, plan, task, slots) for task in tasks]
        columns = list(zip(*rows, strict=True)) if rows else [()] * 7
        deps = [dep for task in tasks for dep in task.deps]
        offsets = np.concatenate([[0], np.cumsum([len(task.deps) for task in tasks])])
        self.templates.append(TemplateInfo(number, stage.index, name, tuple(tasks)))
        return self.core.add_template(*columns, offsets, np.array(deps, np.int32))

    def _row(
        self, number: int, plan: Plan, task: Task, slots: dict[_Slot, int]
    ) -> tuple[int, int, int, int, int, int, int]:
        """Return kind, slot, category, schedule, channel, bytes and duration of a task."""
        kind = _KINDS[task.kind]
        if task.kind == "compute":
            duration = sum(seconds_to_ps(k.duration_s) for k in task.kernels)
            return kind, -1, 0, -1, -1, 0, duration
        slot = slots[_slot_key(task)]
        category = self.categories.index(counted_kind(plan.group_set(task.group).kind))
        if task.kind == "collective":
            return kind, slot, category, self._schedule(plan, task), -1, task.num_bytes, 0
        # Both ends name a channel by the way it goes; mailboxes are told apart by the receiver.
        key = (number, task.group, task.peer if task.kind == "send" else -task.peer, task.channel)
        channel = self.channels.setdefault(key, len(self.channels))
        return kind, slot, category, -1, channel, task.num_bytes, 0

    def _schedule(self, plan: Plan, task: Task) -> int:
        key = plan.schedules[task.group, task.collective, task.num_bytes]
        if key not in self.schedules:
            self.schedules[key] = self.core.add_schedule(*key)
        return self.schedules[key]


def _slot_key(task: Task) -> _Slot:
    return task.group, task.stream or task.group, None if task.kind == "collective" else task.peer


def _slots_of(plan: Plan) -> dict[_Slot, int]:
    """Return the slots that the devices of a plan have, numbered in the order of its groups."""
    used: dict[_Slot, None] = {}
    for stage in plan.stages:
        for tasks in stage.templates.values():
            for task in tasks:
                if task.kind != "compute":
                    used[_slot_key(task)] = None
    place = {one.label: k for k, one in enumerate(plan.groups)}
    owner: dict[str, str] = {}
    for label, stream, _ in used:
        plan.group_set(label)  # known, or an error
        if owner.setdefault(stream, label) != label:
            raise ConfigError(
                f"groups {owner[stream]!r} and {label!r} both use stream {stream!r}; a stream belongs to one set"
            )

    def order(slot: _Slot) -> tuple[int, str, int, int]:
        label, stream, peer = slot
        return place[label], stream, int(peer is not None), peer or 0

    return {slot: number for number, slot in enumerate(sorted(used, key=order))}


def _stream_name(label: str, stream: str, peer: int | None) -> str:
    name = label if stream == label else f"{label} ({stream})"
    return name if peer is None else f"{name} to rank {peer:+d}"


def _in_schedule_order(plan: Plan, label: str) -> np.ndarray:
    """Return the devices of groups in the order in which schedules number their ranks, int array (groups, ranks)."""
    members = plan.group_set(label).members
    accelerators = plan.devices[members]
    ordered = rank_orders(plan, label, plan.schedules)
    if np.array_equal(ordered, accelerators):
        return members
    place = np.argsort(accelerators, axis=1)
    found = np.array([np.searchsorted(row[p], want) for row, p, want in zip(accelerators, place, ordered, strict=True)])
    return np.take_along_axis(members, np.take_along_axis(place, found, axis=1), axis=1)


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
        for accelerator in plan.devices.tolist():
            other = owner.setdefault(accelerator, number)
            if other != number:
                raise DegreeError(f"plans {other} and {number} both use accelerator {accelerator}; give each its own")


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
