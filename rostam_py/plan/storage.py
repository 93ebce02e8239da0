"""Plans as files: everything that a simulation needs, in versioned JSON.

A file holds the machine (fabric by name, parameters and failed parts), the strategy, devices, groups and the stages'
templates in columns, kernels once each. A plan that is read simulates to an equal result. Not in it: the placer's own
details, which an estimate may use.
"""

import dataclasses
from pathlib import Path
from typing import Any

from rostam_py.documents import Reader, array_record, read_document, write_document
from rostam_py.plan.data import Batches, PlanData
from rostam_py.plan.records import (
    check_groups,
    group_records,
    kernel_records,
    machine_record,
    plain_record,
    read_devices,
    read_groups,
    read_kernels,
    read_machine,
    read_made,
    read_stage_of,
    read_tasks,
    tasks_record,
)
from rostam_py.plan.software import IDEAL_SOFTWARE, Software
from rostam_py.plan.strategy import Strategy, default_settings
from rostam_py.plan.tasks import MEMORY_PARTS, KernelTime, MemoryBytes, Stage, Task

FORMAT, VERSION = "rostam-plan", 1
_PLAIN = ("graph_name", "cost", "precision", "optimizer")
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
            "sequence_length": plan.sequence_length,
            "has_experts": plan.has_experts,
            "software": plain_record(dataclasses.asdict(plan.software)),
            "max_circuit_degree": plan.max_circuit_degree,
            "machine": machine_record(plan.machine),
            "strategy": plain_record(plan.strategy.settings()),
            "batches": dataclasses.asdict(plan.batches),
            "algorithms": dict(plan.algorithms),
            "devices": array_record(plan.devices),
            "stage_of": array_record(plan.stage_of),
            "groups": group_records(plan.groups),
            "kernels": kernel_records(kernels),
            "stages": stages,
        },
    )


def read_plan(path: str | Path) -> dict[str, Any]:
    """Return the fields of a saved plan, checked.

    Raises: ConfigError that names the file, the place in it and the error there.
    """
    reader = read_document(path, FORMAT, (VERSION,), "a plan")
    machine = read_machine(reader.item("machine"))
    kernels = read_kernels(reader.item("kernels"))
    stages = tuple(_stage(one, k, kernels) for k, one in enumerate(reader.item("stages").entries()))
    devices = read_devices(reader.item("devices"), machine)
    stage_of = read_stage_of(reader.item("stage_of"), len(stages), len(devices))
    groups = read_groups(reader.item("groups"), len(devices))
    for one, stage in zip(reader.item("stages").entries(), stages, strict=True):
        check_groups(one.item("templates"), stage.templates, groups)
    limit = reader.item("max_circuit_degree")
    algorithms = reader.item("algorithms")
    return {
        **{key: reader.item(key).text() for key in _PLAIN},
        "notes": tuple(one.text() for one in reader.item("notes").entries()),
        # Files of plans may be older than these.
        "sequence_length": reader.item("sequence_length").integer() if "sequence_length" in reader.names() else 0,
        "has_experts": "has_experts" in reader.names() and reader.item("has_experts").flag(),
        "software": _software(reader.item("software")) if "software" in reader.names() else IDEAL_SOFTWARE,
        "max_circuit_degree": None if limit.value is None else limit.integer(1),
        "machine": machine,
        "strategy": read_made(reader.item("strategy"), Strategy.of, keys=default_settings()),
        "batches": Batches(*(reader.item("batches").item(e.name).integer(1) for e in dataclasses.fields(Batches))),
        "algorithms": {key: algorithms.item(key).text() for key in algorithms.names()},
        "devices": devices,
        "stage_of": stage_of,
        "groups": groups,
        "stages": stages,
    }


# Writing


def _stage_record(stage: Stage, kernels: dict[KernelTime, int]) -> dict[str, Any]:
    return {
        "num_parameters": stage.num_parameters,
        "modules": list(stage.modules),
        **{key: getattr(stage, key) for key in _STAGE_NUMBERS},
        "causal_flops": stage.causal_flops,
        "memory": dataclasses.asdict(stage.memory),
        "activation_changes": {name: [begin, 0 - end] for name, (begin, end) in stage.activation_changes.items()},
        "gathered_changes": {
            name: [[kernels, max(size, 0), max(-size, 0)] for kernels, size in found]
            for name, found in stage.gathered_changes.items()
        },
        **tasks_record(stage.templates, stage.program, kernels),
    }


# Reading

_PAIR = 2  # entries of one


def _software(reader: Reader) -> Software:
    made: Software = read_made(reader, Software)
    pairs: dict[str, Any] = {}
    for key in ("flags", "hosts", "sets"):
        found = getattr(made, key)
        if not isinstance(found, list | tuple) or any(not isinstance(one, list) or len(one) != _PAIR for one in found):
            raise reader.error(f"{key} is {found!r}; it must be a list of pairs")
        pairs[key] = tuple((one[0], one[1]) for one in found)
    return dataclasses.replace(made, **pairs)


def _stage(reader: Reader, index: int, kernels: list[KernelTime]) -> Stage:
    templates, program = read_tasks(reader, kernels)
    memory = reader.item("memory")
    return Stage(
        index=index,
        templates=templates,
        program=program,
        memory=MemoryBytes(**{part: memory.item(part).integer() for part in MEMORY_PARTS if part in memory.names()}),
        activation_changes=_changes(reader),
        gathered_changes=_gathered(reader, templates),
        num_parameters=reader.item("num_parameters").integer(),
        modules=tuple(one.text() for one in reader.item("modules").entries()),
        **{key: reader.item(key).number() for key in _STAGE_NUMBERS},
        causal_flops=_causal_flops(reader),
    )


def _causal_flops(reader: Reader) -> float | None:
    """Return what counts where causal attention is halved; files of plans may be older than that."""
    if "causal_flops" not in reader.names() or reader.item("causal_flops").value is None:
        return None
    return reader.item("causal_flops").number()


def _changes(reader: Reader) -> dict[str, tuple[float, float]]:
    """Return what templates take and give back; files of plans may be older than that."""
    if "activation_changes" not in reader.names():
        return {}
    changes = reader.item("activation_changes")
    found: dict[str, tuple[float, float]] = {}
    for name in changes.names():
        taken, given_back = _numbers(changes.item(name), 2)
        found[name] = taken, 0 - given_back
    return found


def _gathered(reader: Reader, templates: dict[str, tuple[Task, ...]]) -> dict[str, tuple[tuple[int, int], ...]]:
    """Return when templates gather and drop weights; files of plans may be older than that."""
    if "gathered_changes" not in reader.names():
        return {}
    changes = reader.item("gathered_changes")
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for name in changes.names():
        at, rows = changes.item(name), []
        most = sum(len(task.kernels) for task in templates.get(name, ()))
        for entry in at.entries():
            kernels, added, dropped = _numbers(entry, 3)
            if kernels > most:
                raise entry.error(f"names kernel {kernels:g} of a template of {most}")
            rows.append((int(kernels), int(added) - int(dropped)))
        found[name] = tuple(rows)
    return found


def _numbers(reader: Reader, count: int) -> list[float]:
    numbers = [one.number() for one in reader.entries()]
    if len(numbers) != count:
        raise reader.error(f"has {len(numbers)} numbers; it must have {count}")
    return numbers
