"""Records that files of plans and of task graphs share: the machine, tasks, programs, groups and devices.

Tasks are written in columns, kernels once each for a whole file. What is read is checked: an error names file and
place.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rostam_py.costs.accelerators import Accelerator
from rostam_py.documents import Reader, array_record
from rostam_py.errors import ConfigError, RostamError
from rostam_py.fabrics import FABRICS
from rostam_py.fabrics.fabric import Fabric, Failures
from rostam_py.fabrics.traffic import Traffic
from rostam_py.plan.groups import GroupSet
from rostam_py.plan.machine import HOST, PHYSICS, UPKEEP, Machine
from rostam_py.plan.program import Program, Segment
from rostam_py.plan.tasks import TASK_KINDS, KernelTime, Task

_TEXTS = ("kind", "name", "group", "collective", "channel", "stream")
_KERNEL_TEXTS, _KERNEL_NUMBERS = ("name", "module", "op_type"), ("duration_s", "flops")
_ROLE = "role"  # of kernels; files of earlier versions have none
_HELD = "multiprocessors"  # of tasks; in files where one has some
_FLAGS = ("is_routed", "is_awaited", "is_mark")  # of tasks; likewise
_LAUNCHES, _CALLS = "launches", "calls"  # of kernels; earlier versions' files have not both
_WATTS = "watts"  # of kernels; in files where one is known to draw some
Templates = Mapping[str, tuple[Task, ...]]

# Writing


def plain_record(value: Any) -> Any:
    """Return a setting as JSON has it: arrays and tuples as lists."""
    if isinstance(value, dict):
        return {str(key): plain_record(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_record(inner) for inner in value]
    if hasattr(value, "tolist"):
        return plain_record(value.tolist())
    return str(value) if isinstance(value, Path) else value


def machine_record(machine: Machine) -> dict[str, Any]:
    """Return the fabric by name, parameters and failed parts, the accelerator and the physics."""
    fabric, demand = machine.fabric, machine.fabric.demand
    circuits = None
    if demand is not None:
        traffic, seed = demand
        circuits = {"seed": seed, **{key: array_record(getattr(traffic, key)) for key in ("src", "dst", "num_bytes")}}
    return {
        "fabric": {
            "name": fabric.name,
            "parameters": plain_record(
                {e.name: getattr(fabric.config, e.name) for e in dataclasses.fields(fabric.config)}
            ),
            "failures": plain_record(dataclasses.asdict(fabric.failures)),
            "circuits": circuits,
        },
        "accelerator": dataclasses.asdict(machine.device),
        "slow": [[accelerator, factor] for accelerator, factor in sorted(machine.slow.items())],
        **{key: getattr(machine, key) for key in PHYSICS},
        **({key: getattr(machine, key) for key in HOST} if machine.host_launch_s else {}),
        **{key: getattr(machine, key) for key in UPKEEP if getattr(machine, key) is not None},
    }


def kernel_records(kernels: Iterable[KernelTime]) -> dict[str, list[Any]]:
    """Return a file's kernels in columns."""
    listed = list(kernels)
    return {
        **{key: [getattr(kernel, key) for kernel in listed] for key in _KERNEL_TEXTS},
        **{key: [float(getattr(kernel, key)) for kernel in listed] for key in _KERNEL_NUMBERS},
        _ROLE: [kernel.role for kernel in listed],
        _LAUNCHES: [kernel.launches for kernel in listed],
        _CALLS: [kernel.calls for kernel in listed],
        **({_WATTS: [float(kernel.watts) for kernel in listed]} if any(kernel.watts for kernel in listed) else {}),
    }


def tasks_record(templates: Templates, program: Program, kernels: dict[KernelTime, int]) -> dict[str, Any]:
    """Return the templates and the program of a class of devices; kernels get the numbers of their first use."""
    return {
        "program": [
            {"count": one.count, "entries": [list(entry) for entry in one.entries]}
            | ({} if one.stride == 1 else {"stride": one.stride})
            for one in program.segments
        ],
        "templates": {name: _columns(tasks, kernels) for name, tasks in templates.items()},
    }


def _columns(tasks: tuple[Task, ...], kernels: dict[KernelTime, int]) -> dict[str, list[Any]]:
    return {
        **{key: [getattr(task, key) for task in tasks] for key in (*_TEXTS, "num_bytes", "peer", "is_optimizer")},
        **{key: row for key in _FLAGS if any(row := [getattr(task, key) for task in tasks])},
        **({_HELD: [task.multiprocessors for task in tasks]} if any(task.multiprocessors for task in tasks) else {}),
        "deps": [list(task.deps) for task in tasks],
        "kernels": [[kernels.setdefault(one, len(kernels)) for one in task.kernels] for task in tasks],
    }


def group_records(groups: Iterable[GroupSet]) -> list[dict[str, Any]]:
    """Return sets of process groups."""
    return [{"kind": one.kind, "label": one.label, "members": array_record(one.members)} for one in groups]


# Reading


def read_made(reader: Reader, make: Any, *, keys: Iterable[str] = (), **others: Any) -> Any:
    """Return what a dataclass, or a function of ``keys``, makes of a mapping; refusals are told with file and place."""
    known = set(keys) or {entry.name for entry in dataclasses.fields(make)}
    for key in reader.names():
        if key not in known:
            raise reader.error(f"has an unknown key {key!r}; keys are: {', '.join(sorted(known))}")
    try:
        return make(**reader.value, **others)
    except RostamError as error:
        raise reader.error(f"is refused: {error}") from error
    except (TypeError, ValueError, KeyError, OverflowError, ArithmeticError, AttributeError) as error:
        raise reader.error(f"is damaged: {type(error).__name__}: {error}") from error


def read_machine(reader: Reader) -> Machine:
    """Return a machine."""
    at = reader.item("fabric")
    name = at.item("name").text()
    if name not in FABRICS:
        raise at.item("name").error(f"is {name!r}; it must be one of: {', '.join(FABRICS)}")
    config = read_made(at.item("parameters"), FABRICS.get(name))
    failures = at.item("failures")
    ids = {
        entry.name: tuple(one.integer() for one in failures.item(entry.name).entries())
        for entry in dataclasses.fields(Failures)
    }
    try:
        fabric = Fabric(name, config, Failures(**ids), _demand(at.item("circuits"), config, name))
    except RostamError as error:
        raise at.error(f"is refused: {error}") from error
    accelerator = read_made(reader.item("accelerator"), Accelerator)
    slow = {}
    for one in reader.item("slow").entries():
        place, factor = one.entries(2)
        slow[place.integer()] = factor.number()
    known = (*PHYSICS, *(one for one in (*HOST, *UPKEEP) if one in reader.names()))
    physics = {key: reader.item(key).value for key in known}
    try:
        return Machine(fabric=fabric, accelerator=accelerator, slow=slow, **physics)
    except RostamError as error:
        raise reader.error(f"is refused: {error}") from error
    except (TypeError, ValueError) as error:
        raise reader.error(f"is damaged: {type(error).__name__}: {error}") from error


def _demand(reader: Reader, config: Any, name: str) -> tuple[Traffic, int] | None:
    if reader.value is None:
        return None
    columns = {key: reader.item(key).array(1) for key in ("src", "dst", "num_bytes")}
    return Traffic(Fabric(name, config).num_accelerators, **columns), reader.item("seed").integer(0, 2**64 - 1)


def read_kernels(reader: Reader) -> list[KernelTime]:
    """Return the kernels of a file, in the order of their numbers."""
    texts = [[one.text() for one in reader.item(key).entries()] for key in _KERNEL_TEXTS]
    length = len(texts[0])
    numbers = [[one.number() for one in reader.item(key).entries(length)] for key in _KERNEL_NUMBERS]
    if any(len(column) != length for column in texts):
        raise reader.error("have columns of different lengths")
    roles = [one.text() for one in reader.item(_ROLE).entries(length)] if _ROLE in reader.names() else [""] * length
    counts, calls = [1] * length, [""] * length
    if _LAUNCHES in reader.names() and _CALLS in reader.names():
        counts = [one.integer(1) for one in reader.item(_LAUNCHES).entries(length)]
        calls = [one.text() for one in reader.item(_CALLS).entries(length)]
    watts = [0.0] * length
    if _WATTS in reader.names():
        watts = [one.number() for one in reader.item(_WATTS).entries(length)]
    fields = (*_KERNEL_TEXTS, *_KERNEL_NUMBERS, "role")
    rows = zip(*texts, *numbers, roles, strict=True)
    read: list[KernelTime] = [KernelTime(**dict(zip(fields, row, strict=True))) for row in rows]
    return [
        dataclasses.replace(one, launches=count, calls=call, watts=drawn)
        for one, count, call, drawn in zip(read, counts, calls, watts, strict=True)
    ]


def read_tasks(reader: Reader, kernels: list[KernelTime]) -> tuple[dict[str, tuple[Task, ...]], Program]:
    """Return the templates and the program of a class of devices."""
    at = reader.item("templates")
    templates = {name: _template(at.item(name), kernels) for name in at.names()}
    return templates, _program(reader.item("program"), templates)


def _program(reader: Reader, templates: dict[str, Any]) -> Program:
    segments = []
    for one in reader.entries():
        entries = []
        for entry in one.item("entries").entries():
            name, microbatch = entry.entries(2)
            if name.text() not in templates:
                raise name.error(f"is {name.value!r}; the stage's templates are: {', '.join(templates)}")
            entries.append((name.text(), microbatch.integer(0, 2**31 - 1)))
        stride = one.item("stride").integer(1, 2**31 - 1) if "stride" in one.names() else 1
        segments.append(Segment(tuple(entries), one.item("count").integer(1, 2**31 - 1), stride))
    return Program(tuple(segments))


def _template(reader: Reader, kernels: list[KernelTime]) -> tuple[Task, ...]:
    length = len(list(reader.item("kind").entries()))
    texts = {key: [one.text() for one in reader.item(key).entries(length)] for key in _TEXTS}
    for one in reader.item("kind").entries():
        if one.value not in TASK_KINDS:
            raise one.error(f"is {one.value!r}; it must be one of: {', '.join(TASK_KINDS)}")
    sizes = [one.integer() for one in reader.item("num_bytes").entries(length)]
    peers = [one.integer(-(2**31), 2**31 - 1) for one in reader.item("peer").entries(length)]
    flags = [one.flag() for one in reader.item("is_optimizer").entries(length)]
    told = {
        key: [one.flag() for one in reader.item(key).entries(length)] if key in reader.names() else [False] * length
        for key in _FLAGS
    }
    is_held = _HELD in reader.names()
    held = [one.integer() for one in reader.item(_HELD).entries(length)] if is_held else [0] * length
    deps = [
        tuple(dep.integer(0, k - 1) for dep in one.entries())
        for k, one in enumerate(reader.item("deps").entries(length))
    ]
    used = [
        tuple(kernels[index.integer(0, len(kernels) - 1)] for index in one.entries())
        for one in reader.item("kernels").entries(length)
    ]
    return tuple(
        Task(
            **{key: texts[key][k] for key in _TEXTS}, deps=deps[k], kernels=used[k], num_bytes=sizes[k],
            peer=peers[k], is_optimizer=flags[k], multiprocessors=held[k],
            is_routed=told["is_routed"][k], is_awaited=told["is_awaited"][k], is_mark=told["is_mark"][k],
        )
        for k in range(length)
    )  # fmt: skip


def read_devices(reader: Reader, machine: Machine) -> np.ndarray:
    """Return the accelerator of every device: healthy ones, each once."""
    devices = read_indices(reader, machine.num_accelerators, 1)
    named, counts = np.unique(devices, return_counts=True)
    if not len(devices):
        raise reader.error("must name at least one accelerator")
    if (counts > 1).any():
        raise reader.error(f"name accelerator {named[counts > 1][0]} more than once")
    failed = set(devices.tolist()) - set(machine.healthy_accelerators)
    if failed:
        raise reader.error(f"name accelerator {min(failed)}, which has failed")
    return devices


def read_indices(reader: Reader, count: int, dimensions: int) -> np.ndarray:
    """Return an array of integers from 0 to count - 1."""
    found = reader.array(dimensions)
    if found.dtype.kind != "i" or (found.size and not (found.min() >= 0 and found.max() < count)):
        raise reader.error(f"must hold integers from 0 to {count - 1}")
    return found


def read_groups(reader: Reader, num_devices: int) -> tuple[GroupSet, ...]:
    """Return sets of process groups, each with a label of its own."""
    groups = tuple(_group(one, num_devices) for one in reader.entries())
    if len({one.label for one in groups}) != len(groups):
        raise reader.error("hold a label twice; each set needs one of its own")
    return groups


def _group(reader: Reader, num_devices: int) -> GroupSet:
    members = read_indices(reader.item("members"), num_devices, 2)
    try:
        return GroupSet(reader.item("kind").text(), reader.item("label").text(), members)
    except ConfigError as error:
        if str(error).startswith(reader.path):
            raise
        raise reader.error(f"is refused: {error}") from error


def check_groups(reader: Reader, templates: Templates, groups: Iterable[GroupSet]) -> None:
    """Check that every task that communicates names one of the groups. Args: reader: of the templates."""
    labels = {one.label for one in groups}
    for name, tasks in templates.items():
        for task, place in zip(tasks, reader.item(name).item("group").entries(), strict=True):
            if task.kind != "compute" and task.group not in labels:
                raise place.error(f"is {task.group!r}; groups are: {', '.join(sorted(labels))}")


def read_stage_of(reader: Reader, num_stages: int, num_devices: int) -> np.ndarray:
    """Return the stage of every device."""
    stage_of = read_indices(reader, num_stages, 1)
    if len(stage_of) != num_devices or not num_stages:
        raise reader.error(f"has {len(stage_of)} entries for {num_devices} devices")
    return stage_of
