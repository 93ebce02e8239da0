"""PlacedProgram: a program on a machine, with what a simulation needs of it: times, accelerators, algorithms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from rostam_py.checks import check_integers
from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.collectives.unequal import UnequalBytes
from rostam_py.costs import DEFAULT_COST
from rostam_py.costs.written import price_written
from rostam_py.documents import refused
from rostam_py.errors import ConfigError, DegreeError, MemoryCapacityError
from rostam_py.fabrics.traffic import Traffic
from rostam_py.html import html_pairs
from rostam_py.plan.degree import check_fabric_degree
from rostam_py.plan.groups import GroupSet
from rostam_py.plan.host import DEFAULT_HOST
from rostam_py.plan.machine import Machine
from rostam_py.plan.program import Program as Order
from rostam_py.plan.tasks import KernelTime, MemoryBytes, Task
from rostam_py.plan.traffic import Volumes, plan_traffic, plan_volumes, rank_orders, schedule_of_groups
from rostam_py.programs.data import ProgramData
from rostam_py.programs.kernels import Kernel
from rostam_py.programs.roles import Role
from rostam_py.programs.splits import Place, step_at, unequal_parts
from rostam_py.programs.steps import Collective, Compute, Wait, dependences
from rostam_py.units import format_size


@dataclass(frozen=True, slots=True)
class PlacedRole:
    """What the ranks of a role run.

    templates: phase -> tasks. program: one iteration. memory: of a rank, by part, where the program tells parts.
    memory_bytes: all of it, 0 where the program does not say.
    """

    index: int
    name: str
    templates: dict[str, tuple[Task, ...]]
    program: Order
    memory: MemoryBytes
    memory_bytes: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class PlacedProgram:
    """A program on a machine; ``simulate`` runs it as it runs a plan.

    devices: accelerator of every rank, int array (n,). stages: roles, in the order of the file. stage_of: index of each
    rank's role. algorithms: (group, collective, bytes) -> as the file names it.
    """

    program: ProgramData
    machine: Machine
    devices: np.ndarray
    stages: tuple[PlacedRole, ...]
    algorithms: Mapping[tuple[str, str, int], str]
    cost: str = DEFAULT_COST
    cost_config: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    _circuits: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, program: ProgramData, machine: Machine, *, accelerators: Sequence[int] | None = None,
        cost: str = DEFAULT_COST, cost_config: Mapping[str, Any] | None = None,
    ) -> "PlacedProgram":  # fmt: skip
        """Return a program on a machine; see ``Program.on``. Where the machine's host is the default, hosts are as the
        program has them and wait where it says; ``host_launch`` replaces their launches as ever."""
        if machine.host == DEFAULT_HOST and program.host != DEFAULT_HOST:
            machine = replace(machine, host=program.host, host_sync="none")
        devices = _devices(program, machine, accelerators)
        _check_memory(program, machine)
        kernels, notes = _timed(program.kernels, machine, cost, cost_config)
        parts = unequal_parts(program)
        stages = tuple(
            _placed_role(index, name, role, kernels, parts) for index, (name, role) in enumerate(program.roles.items())
        )
        return cls(
            program=program, machine=machine, devices=devices, stages=stages, algorithms=_algorithms(program, parts),
            cost=cost, cost_config=dict(cost_config or {}),
            notes=(*notes, *_open_ends(stages), *_idle_waits(program, machine)),
        )  # fmt: skip

    def __post_init__(self) -> None:
        check_fabric_degree(self.machine.fabric, lambda: self.traffic)

    @property
    def name(self) -> str:
        """The program's name."""
        return self.program.name

    @property
    def num_devices(self) -> int:
        """Ranks of the program."""
        return len(self.devices)

    @property
    def stage_of(self) -> np.ndarray:
        """Index of each rank's role, int array (n,)."""
        return self.program.role_of

    @property
    def groups(self) -> tuple[GroupSet, ...]:
        """The process groups."""
        return tuple(self.program.group_sets.values())

    @property
    def memory_bytes(self) -> int:
        """Memory that the fullest rank needs [bytes]; 0 where the program does not say."""
        return max(stage.memory_bytes for stage in self.stages)

    def group_set(self, label: str) -> GroupSet:
        """Return the process groups with a label. Raises: ConfigError, with the labels there are."""
        sets = self.program.group_sets
        if label not in sets:
            raise ConfigError(f"group is {label!r}; it must be one of: {', '.join(sets)}")
        return sets[label]

    @cached_property
    def volumes(self) -> Volumes:
        """Bytes that the roles send and reduce in one iteration."""
        return plan_volumes(self)

    @cached_property
    def schedules(self) -> dict[tuple[str, str, int], ScheduleKey]:
        """What every collective, by (group, name, bytes), runs on this machine, "auto" resolved."""
        found = {}
        for (label, name, size), algorithm in self.algorithms.items():
            accelerators = self.devices[self.group_set(label).members]
            with refused(f"program {self.name!r}: {name} in groups {label!r} by {algorithm!r} is refused"):
                found[label, name, size] = schedule_of_groups(
                    self.machine.fabric, accelerators, name, size, algorithm=algorithm, label=label
                )
        return {key: self._with_parts(key, schedule, found) for key, schedule in found.items()}

    def _with_parts(
        self, key: tuple[str, str, int], schedule: ScheduleKey, schedules: dict[tuple[str, str, int], ScheduleKey]
    ) -> ScheduleKey:
        """Return a schedule with its unequal parts, if it has any, in the order in which schedules number ranks."""
        label, _, size = key
        if not isinstance(size, UnequalBytes):
            return schedule
        groups = self.devices[self.group_set(label).members]
        ordered = rank_orders(self, label, schedules)
        places = np.argsort(groups, axis=1)
        found = np.take_along_axis(places, np.argsort(np.argsort(ordered, axis=1), axis=1), axis=1)
        if (found != found[0]).any():
            raise ConfigError(
                f"program {self.name!r}: groups {label!r} stand on servers in different orders, and have all-to-alls of"
                " unequal parts; give them labels of their own"
            )
        return schedule._replace(parts=size.ordered(found[0].tolist()).chunks)

    @cached_property
    def traffic(self) -> Traffic:
        """Bytes exchanged by every pair of accelerators in one iteration, collectives included."""
        return plan_traffic(self, self.volumes, self.schedules)

    def fabric_with_circuits(self, seed: int = 0) -> Any:
        """Return the machine's fabric as a run finds it: with circuits for the program's traffic where it needs some.

        Raises: ConfigError if the fabric cannot hold circuits for all pairs that exchange data.
        """
        fabric = self.machine.fabric
        if not fabric.is_circuit_switched or fabric.circuits is not None:
            return fabric
        if seed not in self._circuits:
            self._circuits[seed] = fabric.with_circuits(self.traffic, seed=seed)
        return self._circuits[seed]

    def on(self, machine: Machine) -> "PlacedProgram":
        """Return the program on another machine, kernels and algorithms anew, on its first accelerators that work."""
        return PlacedProgram.of(self.program, machine, cost=self.cost, cost_config=self.cost_config)

    def __repr__(self) -> str:
        return f"PlacedProgram({self.name!r}: {self.num_devices:,} ranks on {self.machine.fabric.describe()})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: what runs where, and what memory that takes."""
        device = self.machine.device
        has = format_size(device.memory_bytes)
        pairs = {
            "accelerators": f"{self.num_devices:,} x {device.name}",
            "roles": ", ".join(stage.name for stage in self.stages),
            "memory": f"{format_size(self.memory_bytes)} of {has} on the fullest rank" if self.memory_bytes else None,
            "notes": "; ".join(self.notes) or None,
        }
        return html_pairs(f"program: {self.name} on {self.machine.fabric.describe()}", pairs)


def _devices(program: ProgramData, machine: Machine, accelerators: Sequence[int] | None) -> np.ndarray:
    """Return the accelerator of every rank."""
    healthy = machine.healthy_accelerators
    if accelerators is None:
        if program.num_ranks > len(healthy):
            raise DegreeError(
                f"program {program.name!r} has {program.num_ranks} ranks; the machine has {len(healthy)} accelerators"
                " that work"
            )
        return np.array(healthy[: program.num_ranks], np.int64)
    found = check_integers("accelerators", accelerators).astype(np.int64)
    if len(found) != program.num_ranks or len(np.unique(found)) != len(found):
        raise ConfigError(
            f"accelerators names {len(np.unique(found))} different ones; program {program.name!r} has"
            f" {program.num_ranks} ranks, which take one each"
        )
    unknown = sorted(set(found.tolist()) - set(healthy))
    if unknown:
        raise ConfigError(f"accelerators names {unknown[0]}, which the machine does not have, or which has failed")
    return found


def _check_memory(program: ProgramData, machine: Machine) -> None:
    has = machine.device.memory_bytes
    for name, role in program.roles.items():
        if role.memory_bytes > has:
            raise MemoryCapacityError(
                f"role {name!r} of program {program.name!r} needs {format_size(role.memory_bytes)} a rank; a"
                f" {machine.device.name} has {format_size(has)}"
            )


def _timed(
    kernels: Mapping[str, Kernel], machine: Machine, cost: str, config: Mapping[str, Any] | None
) -> tuple[dict[str, KernelTime], tuple[str, ...]]:
    """Return the kernels with their times, and what to know of those that were priced."""
    written = {name: kernel.written for name, kernel in kernels.items() if kernel.time is None}
    found = {name: kernel.timed(name) for name, kernel in kernels.items() if kernel.time is not None}
    if not written:
        return found, ()
    priced, notes = price_written(written, cost, machine.device, machine.min_kernel_time, config)
    for name, (model, call) in priced.items():
        kernel = kernels[name]
        found[name] = KernelTime.of(
            model, call, kernel.name or name, kernel.launches, kernel.calls, module=kernel.module or name
        )
    assumed = sorted({kernel.op for kernel in kernels.values() if kernel.assume})
    if assumed:
        notes = [
            *notes,
            f"{len(assumed)} ops without a formula take the time of their tensors' bytes, as the program says:"
            f" {', '.join(assumed)}",
        ]
    return found, tuple(notes)


def _placed_role(
    index: int, name: str, role: Role, kernels: Mapping[str, KernelTime], parts: Mapping[Place, UnequalBytes]
) -> PlacedRole:
    templates = {}
    for phase, steps in role.phases.items():
        tasks: list[Task] = []
        last: list[int] = []  # of each step, its last task
        for step, after in zip(steps, dependences(steps, role.place(phase), role.after), strict=True):
            own = [kernels[one] for one in step.kernels] if isinstance(step, Compute) else []
            tasks += step.tasks(tuple(last[k] for k in after), len(tasks), own)
            if isinstance(step, Collective) and step.is_unequal:
                tasks[-1] = replace(tasks[-1], num_bytes=parts[index, phase, len(last)])
            last.append(len(tasks) - 1)
        templates[phase] = tuple(tasks)
    memory = MemoryBytes(**role.memory_parts)
    return PlacedRole(index, name, templates, role.order, memory, role.memory_bytes)


def _open_ends(stages: Sequence[PlacedRole]) -> list[str]:
    """Return which roles end an iteration with collectives that nothing waits for."""
    said = []
    for stage in stages:
        last = next((tasks for name in reversed(list(stage.program.counts())) if (tasks := stage.templates[name])), ())
        awaited = {dep for task in last for dep in task.deps}
        behind = max((k for k, task in enumerate(last) if task.kind == "compute"), default=-1)
        names = [
            task.name for k, task in enumerate(last) if task.kind == "collective" and k > behind and k not in awaited
        ]
        if names:
            said.append(
                f"role {stage.name!r} ends with {names[-1]}, which no compute step waits for: the next iteration begins"
                " meanwhile, and the wait for it is listed as bubble; a last step of kind 'wait' waits for it"
            )
    return said


def _idle_waits(program: ProgramData, machine: Machine) -> list[str]:
    """Return that hosts wait in vain, where they do."""
    steps = (step for role in program.roles.values() for steps in role.phases.values() for step in steps)
    count = sum(isinstance(step, Wait) and step.host for step in steps)
    if not count or machine.host_launch_s:
        return []
    return [
        f"{count} steps have the host wait, which delays no launch here: launches take hosts no time; set"
        " machine.host_launch, or give the machine a host"
    ]


def _algorithms(program: ProgramData, parts: Mapping[Place, UnequalBytes]) -> dict[tuple[str, str, int], str]:
    """Return the algorithms of all collectives, as the program names them."""
    steps = (step for role in program.roles.values() for steps in role.phases.values() for step in steps)
    labels = {place: step_at(program, place).group for place in parts}
    return {
        (step.group, step.collective, step.size_bytes): step.algorithm
        for step in steps
        if isinstance(step, Collective) and not step.is_unequal
    } | {(labels[place], "all_to_all", size): "direct" for place, size in parts.items()}
