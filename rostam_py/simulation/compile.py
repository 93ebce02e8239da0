"""Compile task graphs for the core: templates, programs, process groups and devices as arrays.

Device n of job number j is device ``offset_j + n``. A slot of a device binds communication to a process group, or to
one peer of messages; it is one first-in first-out stream, unless tasks name others (queues.py, MODEL B8).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.collectives.channels import taken_share
from rostam_py.collectives.transport import PLAIN, Transport, add_protocol, message_transport, transport
from rostam_py.garbage import without_collections
from rostam_py.plan.expert_groups import EXPERTS
from rostam_py.plan.group_kinds import counted_kind, listed_kinds
from rostam_py.plan.pairs import Pair, pair_up
from rostam_py.plan.tasks import KernelTime, Task
from rostam_py.plan.traffic import ScheduleKey
from rostam_py.simulation.graph_job import GraphJob, StageTasks
from rostam_py.simulation.interleaving import one_behind_the_other, take_turns, with_joint_messages
from rostam_py.simulation.picoseconds import seconds_to_ps
from rostam_py.simulation.queues import Queues, slot_of
from rostam_py.simulation.task_graph import TaskGraph

_KINDS = {"compute": 0, "collective": 1, "send": 2, "recv": 3}
# Of a task: kind, slot, category, schedule, channel, bytes, duration or start-up [ps], protocol.
_Row = tuple[int, int, int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class TemplateInfo:
    """What the core's template index stands for."""

    job: int
    stage: int
    name: str
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class GraphNames:
    """What the numbers in a session's result stand for.

    categories: kinds of groups that bytes and exposed time are listed by. kind_of: (job, group label) -> kind.
    streams: of each job, what its devices' streams but that of kernels are called. accelerators: accelerator of each
    device, int array (num_devices,). stage_of, job_of: of each device. has_hosts: hosts take time to launch kernels.
    """

    templates: list[TemplateInfo]
    categories: tuple[str, ...]
    kind_of: dict[tuple[int, str], str]
    streams: list[list[str]]
    accelerators: np.ndarray
    stage_of: np.ndarray
    job_of: np.ndarray
    has_hosts: bool = False

    def kind(self, template: int, task: Task) -> str:
        """Return the kind of a task: compute, or that of the groups it communicates in."""
        return "compute" if task.kind == "compute" else self.kind_of[self.templates[template].job, task.group]


def compile_graph(graph: TaskGraph, *, fuse: bool = True, is_varied: bool = False) -> tuple[Any, GraphNames]:
    """Return the core's frozen task graph, and its names.

    Args: fuse: False keeps every kernel a task. is_varied: say by how much each task varies where its kernels do.
    """
    with without_collections():  # of hundreds of thousands of tasks nothing is a cycle
        return _Compiler(graph, fuse, is_varied).compile()


class _Compiler:
    def __init__(self, graph: TaskGraph, fuse: bool, is_varied: bool) -> None:
        self.jobs, self.slow = graph.jobs, graph.machine.slow
        self.host, self.host_sync = graph.machine.host_costs, graph.machine.host_sync
        self.has_hosts = self.host.launch_s > 0
        self.device = graph.machine.device
        self.takes_channels = graph.machine.comm_compute_fraction is None
        self.shares: dict[tuple[int, str, str, int], int] = {}
        self.fuse, self.is_varied = fuse, is_varied
        self.categories = listed_kinds(one.kind for job in graph.jobs for one in job.groups)
        self.category_of = [
            {one.label: self.categories.index(counted_kind(one.kind)) for one in job.groups} for job in graph.jobs
        ]
        self.core = _core.TaskGraph(list(self.categories), len(graph.jobs))
        self.templates: list[TemplateInfo] = []
        self.fabric = graph.machine.fabric
        self.core.server_size = self.fabric.config.accelerators_per_server
        self.schedules: dict[ScheduleKey, int] = {}
        self.protocols: dict[Transport, int] = {}
        self.channels: dict[tuple[int, str, int, str], int] = {}
        self.durations: dict[float, int] = {}  # of kernels: [s] -> [ps]
        self.messages: dict[tuple[int, str, str, int, int], tuple[int, int, int, int, int, int]] = {}
        self.streams: list[list[str]] = []

    def compile(self) -> tuple[Any, GraphNames]:
        offset = 0
        for number, job in enumerate(self.jobs):
            self._add_devices(number, job, offset)
            offset += job.num_devices
        self.core.freeze()
        kinds = {(j, one.label): one.kind for j, job in enumerate(self.jobs) for one in job.groups}
        return self.core, GraphNames(
            self.templates, self.categories, kinds, self.streams,
            np.concatenate([job.devices for job in self.jobs]),
            np.concatenate([job.stage_of for job in self.jobs]),
            np.concatenate([np.full(job.num_devices, number) for number, job in enumerate(self.jobs)]),
            self.has_hosts,
        )  # fmt: skip

    def _add_devices(self, number: int, job: GraphJob, offset: int) -> None:
        queues = Queues.of(job)
        self.streams.append(queues.names)
        programs = np.array([self._add_program(number, job, stage, queues) for stage in job.stages])
        slowdown = np.array([1.0 / self.slow.get(int(a), 1.0) for a in job.devices])
        self.core.add_devices(
            job.devices.astype(np.int32),
            programs[job.stage_of].astype(np.int32),
            np.full(job.num_devices, number, np.int32),
            slowdown,
            np.full(job.num_devices, job.start_ps, np.int64),
            self._bind_slots(job, queues, offset),
        )

    def _bind_slots(self, job: GraphJob, queues: Queues, offset: int) -> np.ndarray:
        """Return (devices, slots, 3): group, rank and peer device of every slot."""
        bound = np.full((job.num_devices, len(queues.slots), 3), -1, np.int32)
        for (label, peer), slot in queues.slots.items():
            if peer is None:
                ordered = job.ordered(label)
                ids = np.array([self.core.add_group(row) for row in (offset + ordered).tolist()])
                bound[ordered, slot, 0] = ids[:, None]
                bound[ordered, slot, 1] = np.arange(ordered.shape[1])
                continue
            members = job.group_set(label).members
            if abs(peer) >= members.shape[1]:  # no rank has such a peer: the core refuses the task
                continue
            first, last = max(0, -peer), members.shape[1] - max(0, peer)
            if first >= last:  # no rank has such a peer: the core says which device sends to none
                continue
            bound[members[:, first:last], slot, 2] = offset + members[:, first + peer : last + peer]
        return bound

    def _add_program(self, number: int, job: GraphJob, stage: StageTasks, queues: Queues) -> int:
        counts = stage.program.counts()
        names = [name for name in stage.templates if name in counts]
        ids = {name: self._add_template(number, job, stage, name, queues) for name in names}
        program = stage.program
        if stage.takes_turns or stage.joins_pairs:
            program, pairs = pair_up(program)
            ids |= {name: self._add_pair(number, job, stage, pair, ids, queues) for name, pair in pairs.items()}
        entries = [entry for segment in program.segments for entry in segment.entries]
        strides = [segment.stride for segment in program.segments for _ in segment.entries]
        offsets = np.cumsum([0, *(len(segment.entries) for segment in program.segments)])
        return self.core.add_program(
            [ids[name] for name, _ in entries], [m for _, m in entries], np.array(strides, np.int32),
            block_offset=offsets, count=[segment.count for segment in program.segments],
        )  # fmt: skip

    def _add_template(self, number: int, job: GraphJob, stage: StageTasks, name: str, queues: Queues) -> int:
        return self._add_tasks(number, job, stage, name, self._tasks_of(stage, name), queues)

    def _tasks_of(self, stage: StageTasks, name: str) -> Sequence[Task]:
        return stage.templates[name] if self.fuse else _op_level(stage.templates[name])

    def _add_pair(
        self, number: int, job: GraphJob, stage: StageTasks, pair: Pair, ids: dict[str, int], queues: Queues
    ) -> int:
        """Add a forward and a backward that take turns, or messages together, each task known by its own template."""
        forward, backward = (self._tasks_of(stage, name) for name in (pair.forward, pair.backward))
        if stage.takes_turns:
            turns = take_turns(
                pair, forward, backward,
                lambda task: task.collective == "all_to_all" and job.group_set(task.group).kind == EXPERTS,
            )  # fmt: skip
        else:
            turns = one_behind_the_other(pair, forward, backward)
        if stage.joins_pairs:
            turns = with_joint_messages(turns)
        origins = np.array([(ids[turn.template], turn.index, turn.ahead) for turn in turns], np.int32)
        return self._add_tasks(number, job, stage, pair.name, [turn.task for turn in turns], queues, origins)

    def _add_tasks(
        self, number: int, job: GraphJob, stage: StageTasks, name: str, tasks: Sequence[Task],
        queues: Queues, origins: np.ndarray | None = None,
    ) -> int:  # fmt: skip
        rows = self._rows(number, job, tasks, queues)
        kind, slot, category, schedule, channel, num_bytes, duration_ps, protocol = (
            zip(*rows, strict=True) if rows else [()] * 8
        )
        deps = [dep for task in tasks for dep in task.deps]
        offsets = np.concatenate([[0], np.cumsum([len(task.deps) for task in tasks])])
        self.templates.append(TemplateInfo(number, stage.index, name, tuple(tasks)))
        launches = self._launches(tasks, stage.takes_turns) if self.has_hosts else {}
        variation = np.array([_variation(task) for task in tasks] if self.is_varied else ())
        return self.core.add_template(
            kind,
            slot,
            category,
            schedule,
            channel,
            num_bytes,
            duration_ps,
            offsets,
            np.array(deps, np.int32),
            **launches,
            protocol=np.array(protocol, np.int32),
            variation=variation,
            taken_ppm=np.array(
                [0 if task.kind != "collective" else self._taken_ppm(number, job, task) for task in tasks], np.int32
            ),
            **({} if origins is None else {"origin": origins}),
            **({} if (queue := queues.rows(tasks)) is None else {"queue": queue}),
        )

    def _launches(self, tasks: Sequence[Task], takes_turns: bool) -> dict[str, np.ndarray]:
        """Return what hosts launch: kernels of compute tasks in CSR form [ps], and which tasks they wait for."""
        kernels = [
            [one for kernel in task.kernels for one in self._launched(kernel, task.is_optimizer, takes_turns)]
            for task in tasks
        ]
        offsets = np.cumsum([0, *map(len, kernels)])
        waits = [self._is_awaited(tasks, index) for index in range(len(tasks))]
        flat = np.array([one for row in kernels for one in row], np.int64).reshape(-1, 2)
        found = {"kernel_offset": offsets, "kernel_ps": flat[:, 0], "is_awaited_by_host": np.array(waits, bool)}
        return found | ({} if self.host.is_even else {"issue_ps": flat[:, 1]})

    def _launched(self, kernel: KernelTime, is_optimizer: bool, takes_turns: bool) -> list[tuple[int, int]]:
        """Return what a host launches for a kernel, in equal parts: how long each runs, and what it costs it [ps]."""
        duration = seconds_to_ps(kernel.duration_s)
        issues = [seconds_to_ps(one) for one in self.host.issues_s(kernel, is_optimizer, takes_turns)]
        even, left = divmod(duration, len(issues))
        return [(even + (k < left), issue) for k, issue in enumerate(issues)]

    def _taken_ppm(self, number: int, job: GraphJob, task: Task) -> int:
        """Return the millionths of a device's compute that a collective takes (MODEL B8)."""
        if not self.takes_channels:
            return 0
        if task.multiprocessors and self.device.multiprocessors and not self.fabric.config.link_classes.are_ideal:
            return round(min(1.0, task.multiprocessors / self.device.multiprocessors) * 1_000_000)
        key = (number, task.group, task.collective, task.num_bytes)
        if key not in self.shares:
            accelerators = job.devices[job.group_set(task.group).members[0]]
            schedule = job.schedules[task.group, task.collective, task.num_bytes]
            share = taken_share(self.fabric, schedule, task.num_bytes, accelerators, self.device)
            self.shares[key] = round(share * 1_000_000)
        return self.shares[key]

    def _is_awaited(self, tasks: Sequence[Task], index: int) -> bool:
        """Tell whether a host waits for what a task needs before it launches it (software.rules.host_sync)."""
        task = tasks[index]
        if task.kind == "collective":
            return task.is_routed and self.host_sync == "experts"
        if task.is_awaited:
            return True
        if task.kind != "compute" or self.host_sync == "none":
            return False
        if self.host_sync == "messages" and any(tasks[dep].kind == "recv" for dep in task.deps):
            return True
        return task.is_optimizer and not any(one.is_optimizer for one in tasks[:index])

    def _rows(self, number: int, job: GraphJob, tasks: Sequence[Task], queues: Queues) -> list[_Row]:
        """Return the rows of a template's tasks; groups send a few sizes thousands of times, worked out once each."""
        rows: list[_Row] = []
        channels, durations, messages = self.channels, self.durations, self.messages
        for task in tasks:
            kind = task.kind
            if kind == "compute":
                duration = 0
                for kernel in task.kernels:
                    seconds = kernel.duration_s
                    if seconds not in durations:
                        durations[seconds] = seconds_to_ps(seconds)
                    duration += durations[seconds]
                rows.append((0, -1, 0, -1, -1, 0, duration, -1))
            elif kind == "collective":
                rows.append(self._collective_row(number, job, task, queues))
            else:
                key = (number, kind, task.group, task.peer, task.num_bytes)
                if key not in messages:
                    messages[key] = self._message(number, job, task, queues)
                code, slot, category, way, start_up, protocol = messages[key]
                channel = channels.setdefault((number, task.group, way, task.channel), len(channels))
                rows.append((code, slot, category, -1, channel, task.num_bytes, start_up, protocol))
        return rows

    def _collective_row(self, number: int, job: GraphJob, task: Task, queues: Queues) -> _Row:
        how = transport(self.fabric, job.schedules[task.group, task.collective, task.num_bytes], task.num_bytes)
        return (
            _KINDS[task.kind], queues.slots[slot_of(task)], self.category_of[number][task.group],
            self._schedule(job, task), -1, task.num_bytes, seconds_to_ps(how.startup_s), self._protocol(how),
        )  # fmt: skip

    def _message(self, number: int, job: GraphJob, task: Task, queues: Queues) -> tuple[int, int, int, int, int, int]:
        """Return kind, slot, category, way of the channel, start-up [ps] and protocol of a message's end.

        Both ends name a channel by the way it goes; mailboxes are told apart by the receiver.
        """
        slot, category = queues.slots[slot_of(task)], self.category_of[number][task.group]
        if task.kind == "recv":
            return _KINDS[task.kind], slot, category, -task.peer, 0, -1
        size = job.group_set(task.group).members.shape[1]
        how = message_transport(self.fabric, task.num_bytes, size, is_both_ways=True)
        return _KINDS[task.kind], slot, category, task.peer, seconds_to_ps(how.startup_s), self._protocol(how)

    def _schedule(self, job: GraphJob, task: Task) -> int:
        key = job.schedules[task.group, task.collective, task.num_bytes]
        if key not in self.schedules:
            self.schedules[key] = self.core.add_schedule(*key.shape)
        return self.schedules[key]

    def _protocol(self, how: Transport) -> int:
        """Return the core's protocol of messages that go so; -1 where nothing is added."""
        own = how._replace(startup_s=0.0)
        if own == PLAIN:
            return -1
        if own not in self.protocols:
            self.protocols[own] = add_protocol(self.core, own)
        return self.protocols[own]


def _variation(task: Task) -> float:
    """Return a task's standard deviation as a share of one kernel's: of a sum of independent kernels."""
    seconds = [kernel.duration_s for kernel in task.kernels]
    return math.hypot(*seconds) / sum(seconds) if sum(seconds) > 0 else 0.0


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
