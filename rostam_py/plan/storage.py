"""Plans as files: everything that a simulation needs, in versioned JSON.

A file holds the machine (fabric by name, parameters and failed parts), the strategy, devices, groups and the stages'
templates in columns, kernels once each. A plan that is read simulates to an equal result. Not in it: the placer's own
details, which an estimate may use.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from rostam_py.costs.accelerators import Accelerator
from rostam_py.documents import Reader, array_record, read_document, write_document
from rostam_py.errors import ConfigError, RostamError
from rostam_py.fabrics import FABRICS
from rostam_py.fabrics.fabric import Fabric, Failures
from rostam_py.fabrics.traffic import Traffic
from rostam_py.plan.data import Batches, PlanData
from rostam_py.plan.groups import GroupSet
from rostam_py.plan.machine import PHYSICS, Machine
from rostam_py.plan.program import Program, Segment
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.tasks import TASK_KINDS, KernelTime, MemoryBytes, Stage, Task

FORMAT, VERSION = "rostam-plan", 1
_PLAIN = ("graph_name", "cost", "precision", "optimizer")
_TEXTS = ("kind", "name", "group", "collective", "channel", "stream")
_KERNEL_TEXTS, _KERNEL_NUMBERS = ("name", "module", "op_type"), ("duration_s", "flops")
_STAGE_NUMBERS = ("flops", "hardware_flops")


def save_plan(plan: PlanData, path: str | Path) -> None:
    """Write a plan to a file, gzip-compressed if its name ends in .gz."""
    kernels: dict[KernelTime, int] = {}
    stages = [_stage_record(stage, kernels) for stage in plan.stages]
    write_document(
        path,
        {
            "format": FORMAT,
            "version": VERSION,
            **{key: getattr(plan, key) for key in _PLAIN},
            "notes": list(plan.notes),
            "max_circuit_degree": plan.max_circuit_degree,
            "machine": _machine_record(plan.machine),
            "strategy": _plain(dataclasses.asdict(plan.strategy)),
            "batches": dataclasses.asdict(plan.batches),
            "algorithms": dict(plan.algorithms),
            "devices": array_record(plan.devices),
            "stage_of": array_record(plan.stage_of),
            "groups": [
                {"kind": one.kind, "label": one.label, "members": array_record(one.members)} for one in plan.groups
            ],
            "kernels": {
                **{key: [getattr(kernel, key) for kernel in kernels] for key in _KERNEL_TEXTS},
                **{key: [float(getattr(kernel, key)) for kernel in kernels] for key in _KERNEL_NUMBERS},
            },
            "stages": stages,
        },
    )


def read_plan(path: str | Path) -> dict[str, Any]:
    """Return the fields of a saved plan, checked.

    Raises: ConfigError that names the file, the place in it and what is wrong there.
    """
    reader = read_document(path, FORMAT, (VERSION,), "a plan")
    machine = _machine(reader.item("machine"))
    kernels = _kernels(reader.item("kernels"))
    stages = tuple(_stage(one, k, kernels) for k, one in enumerate(reader.item("stages").entries()))
    devices = _devices(reader.item("devices"), machine)
    stage_of = _indices(reader.item("stage_of"), len(stages), 1)
    if stage_of.shape != devices.shape or not len(stages):
        raise reader.item("stage_of").error(f"has {len(stage_of)} entries for {len(devices)} devices")
    groups = tuple(_group(one, len(devices)) for one in reader.item("groups").entries())
    labels = {one.label for one in groups}
    if len(labels) != len(groups):
        raise reader.item("groups").error("hold a label twice; each set needs one of its own")
    for k, stage in enumerate(stages):
        _check_groups(reader.item("stages").place + f"[{k}]", stage, labels, reader)
    limit = reader.item("max_circuit_degree")
    algorithms = reader.item("algorithms")
    return {
        **{key: reader.item(key).text() for key in _PLAIN},
        "notes": tuple(one.text() for one in reader.item("notes").entries()),
        "max_circuit_degree": None if limit.value is None else limit.integer(1),
        "machine": machine,
        "strategy": _made(reader.item("strategy"), Strategy),
        "batches": Batches(*(reader.item("batches").item(e.name).integer(1) for e in dataclasses.fields(Batches))),
        "algorithms": {key: algorithms.item(key).text() for key in algorithms.names()},
        "devices": devices,
        "stage_of": stage_of,
        "groups": groups,
        "stages": stages,
    }


# Writing


def _plain(value: Any) -> Any:
    """Return a setting as JSON has it: arrays and tuples as lists."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value) if isinstance(value, Path) else value


def _machine_record(machine: Machine) -> dict[str, Any]:
    fabric, demand = machine.fabric, machine.fabric.demand
    circuits = None
    if demand is not None:
        traffic, seed = demand
        circuits = {"seed": seed, **{key: array_record(getattr(traffic, key)) for key in ("src", "dst", "num_bytes")}}
    return {
        "fabric": {
            "name": fabric.name,
            "parameters": _plain({e.name: getattr(fabric.config, e.name) for e in dataclasses.fields(fabric.config)}),
            "failures": _plain(dataclasses.asdict(fabric.failures)),
            "circuits": circuits,
        },
        "accelerator": dataclasses.asdict(machine.device),
        "slow": [[accelerator, factor] for accelerator, factor in sorted(machine.slow.items())],
        **{key: getattr(machine, key) for key in PHYSICS},
    }


def _stage_record(stage: Stage, kernels: dict[KernelTime, int]) -> dict[str, Any]:
    return {
        "num_parameters": stage.num_parameters,
        "modules": list(stage.modules),
        **{key: getattr(stage, key) for key in _STAGE_NUMBERS},
        "memory": dataclasses.asdict(stage.memory),
        "program": [{"count": one.count, "entries": [list(entry) for entry in one.entries]} for one in
                    stage.program.segments],
        "templates": {name: _columns(tasks, kernels) for name, tasks in stage.templates.items()},
    }  # fmt: skip


def _columns(tasks: tuple[Task, ...], kernels: dict[KernelTime, int]) -> dict[str, list[Any]]:
    return {
        **{key: [getattr(task, key) for task in tasks] for key in (*_TEXTS, "num_bytes", "peer", "is_optimizer")},
        "deps": [list(task.deps) for task in tasks],
        "kernels": [[kernels.setdefault(one, len(kernels)) for one in task.kernels] for task in tasks],
    }


# Reading


def _made(reader: Reader, make: Any, **others: Any) -> Any:
    """Return what a dataclass makes of a mapping; what it refuses is told with file and place."""
    known = {entry.name for entry in dataclasses.fields(make)}
    for key in reader.names():
        if key not in known:
            raise reader.error(f"has an unknown key {key!r}; keys are: {', '.join(sorted(known))}")
    try:
        return make(**reader.value, **others)
    except RostamError as error:
        raise reader.error(f"is refused: {error}") from error
    except (TypeError, ValueError, KeyError, OverflowError, ArithmeticError, AttributeError) as error:
        raise reader.error(f"is damaged: {type(error).__name__}: {error}") from error


def _machine(reader: Reader) -> Machine:
    at = reader.item("fabric")
    name = at.item("name").text()
    if name not in FABRICS:
        raise at.item("name").error(f"is {name!r}; it must be one of: {', '.join(FABRICS)}")
    config = _made(at.item("parameters"), FABRICS.get(name))
    failures = at.item("failures")
    ids = {
        entry.name: tuple(one.integer() for one in failures.item(entry.name).entries())
        for entry in dataclasses.fields(Failures)
    }
    try:
        fabric = Fabric(name, config, Failures(**ids), _demand(at.item("circuits"), config, name))
    except RostamError as error:
        raise at.error(f"is refused: {error}") from error
    accelerator = _made(reader.item("accelerator"), Accelerator)
    slow = {}
    for one in reader.item("slow").entries():
        place, factor = one.entries(2)
        slow[place.integer()] = factor.number()
    physics = {key: reader.item(key).value for key in PHYSICS}
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


def _kernels(reader: Reader) -> list[KernelTime]:
    texts = [[one.text() for one in reader.item(key).entries()] for key in _KERNEL_TEXTS]
    length = len(texts[0])
    numbers = [[one.number() for one in reader.item(key).entries(length)] for key in _KERNEL_NUMBERS]
    if any(len(column) != length for column in texts):
        raise reader.error("have columns of different lengths")
    return [KernelTime(*row) for row in zip(*texts, *numbers, strict=True)]


def _stage(reader: Reader, index: int, kernels: list[KernelTime]) -> Stage:
    at = reader.item("templates")
    templates = {name: _template(at.item(name), kernels) for name in at.names()}
    memory = reader.item("memory")
    return Stage(
        index=index,
        templates=templates,
        program=_program(reader.item("program"), templates),
        memory=MemoryBytes(*(memory.item(entry.name).integer() for entry in dataclasses.fields(MemoryBytes))),
        num_parameters=reader.item("num_parameters").integer(),
        modules=tuple(one.text() for one in reader.item("modules").entries()),
        **{key: reader.item(key).number() for key in _STAGE_NUMBERS},
    )


def _program(reader: Reader, templates: dict[str, Any]) -> Program:
    segments = []
    for one in reader.entries():
        entries = []
        for entry in one.item("entries").entries():
            name, microbatch = entry.entries(2)
            if name.text() not in templates:
                raise name.error(f"is {name.value!r}; the stage's templates are: {', '.join(templates)}")
            entries.append((name.text(), microbatch.integer(0, 2**31 - 1)))
        segments.append(Segment(tuple(entries), one.item("count").integer(1, 2**31 - 1)))
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
            peer=peers[k], is_optimizer=flags[k],
        )
        for k in range(length)
    )  # fmt: skip


def _devices(reader: Reader, machine: Machine) -> np.ndarray:
    devices = _indices(reader, machine.num_accelerators, 1)
    if len(np.unique(devices)) != len(devices) or not len(devices):
        raise reader.error("must name at least one accelerator, each once")
    failed = set(devices.tolist()) - set(machine.healthy_accelerators)
    if failed:
        raise reader.error(f"name accelerator {min(failed)}, which has failed")
    return devices


def _indices(reader: Reader, count: int, dimensions: int) -> np.ndarray:
    found = reader.array(dimensions)
    if found.dtype.kind != "i" or (found.size and not (found.min() >= 0 and found.max() < count)):
        raise reader.error(f"must hold integers from 0 to {count - 1}")
    return found


def _group(reader: Reader, num_devices: int) -> GroupSet:
    members = _indices(reader.item("members"), num_devices, 2)
    try:
        return GroupSet(reader.item("kind").text(), reader.item("label").text(), members)
    except ConfigError as error:
        if str(error).startswith(reader.path):
            raise
        raise reader.error(f"is refused: {error}") from error


def _check_groups(place: str, stage: Stage, labels: set[str], reader: Reader) -> None:
    for name, tasks in stage.templates.items():
        for k, task in enumerate(tasks):
            if task.kind != "compute" and task.group not in labels:
                said = f"is {task.group!r}; groups are: {', '.join(sorted(labels))}"
                raise Reader(None, reader.path, f"{place}.templates.{name}.group[{k}]").error(said)
