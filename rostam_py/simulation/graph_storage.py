"""Task graphs as files: versioned JSON; the records that plans have too are those of ``plan.records``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rostam_py.collectives.pieces import MAX_PIPELINED
from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.documents import Reader, array_record, read_document, write_document
from rostam_py.errors import ConfigError, RostamError
from rostam_py.plan.groups import GroupSet
from rostam_py.plan.machine import Machine
from rostam_py.plan.records import (
    check_groups,
    group_records,
    kernel_records,
    machine_record,
    read_devices,
    read_groups,
    read_indices,
    read_kernels,
    read_machine,
    read_stage_of,
    read_tasks,
    tasks_record,
)
from rostam_py.plan.tasks import KernelTime
from rostam_py.simulation.graph_job import GraphJob, StageTasks
from rostam_py.units import MAX_SIMULATED_S

FORMAT, VERSION = "rostam-task-graph", 1
_MOST_RANKS = 2**31 - 1
_HABITS = ("takes_turns", "joins_pairs")  # of a class of devices, where it has them


def save_graph_file(machine: Machine, jobs: Sequence[GraphJob], path: str | Path) -> None:
    """Write a machine and the jobs on it to a file, gzip-compressed if its name ends in .gz."""
    kernels: dict[KernelTime, int] = {}
    records = [_job_record(job, kernels) for job in jobs]
    write_document(
        path,
        {
            "format": FORMAT,
            "version": VERSION,
            "machine": machine_record(machine),
            "kernels": kernel_records(kernels),
            "jobs": records,
        },
    )


def read_graph_file(path: str | Path) -> tuple[Machine, tuple[GraphJob, ...]]:
    """Return what a file holds, checked.

    Raises: ConfigError that names the file, the place in it and the error there.
    """
    reader = read_document(path, FORMAT, (VERSION,), "a task graph")
    machine = read_machine(reader.item("machine"))
    kernels = read_kernels(reader.item("kernels"))
    return machine, tuple(_job(one, machine, kernels) for one in reader.item("jobs").entries())


def _job_record(job: GraphJob, kernels: dict[KernelTime, int]) -> dict[str, Any]:
    return {
        "name": job.name,
        "start_ps": job.start_ps,
        "notes": list(job.notes),
        "devices": array_record(job.devices),
        "stage_of": array_record(job.stage_of),
        "groups": group_records(job.groups),
        "orders": {label: array_record(devices) for label, devices in job.orders.items()},
        "schedules": [_schedule_record(*key, schedule) for key, schedule in job.schedules.items()],
        "stages": [
            tasks_record(stage.templates, stage.program, kernels)
            | {word: True for word in _HABITS if getattr(stage, word)}
            for stage in job.stages
        ],
    }


def _schedule_record(label: str, collective: str, num_bytes: int, schedule: ScheduleKey) -> dict[str, Any]:
    if schedule.parts:
        raise ConfigError(
            f"groups {label!r} have an {collective} of unequal parts, which a task graph's file cannot say; save the"
            " program instead"
        )
    size = schedule.group_size
    return {
        "group": label,
        "collective": collective,
        "num_bytes": num_bytes,
        "algorithm": schedule.algorithm,
        "num_ranks": schedule.num_ranks,
        "group_size": size if isinstance(size, int) else list(size),
        "grid": list(schedule.grid),
        "num_pieces": schedule.num_pieces,
        "protocol": schedule.protocol,
    } | {name: [list(row) for row in rows] for name, rows in _given_rows(schedule) if rows}


def _given_rows(schedule: ScheduleKey) -> list[tuple[str, tuple[tuple[int, ...], ...]]]:
    return [("rings", schedule.rings), ("trees", schedule.trees)]


def _job(reader: Reader, machine: Machine, kernels: list[KernelTime]) -> GraphJob:
    stages = []
    for index, one in enumerate(reader.item("stages").entries()):
        habits = {word: word in one.names() and one.item(word).flag() for word in _HABITS}
        templates, program = read_tasks(one, kernels)
        stages.append(StageTasks(index, templates, program, habits["takes_turns"], habits["joins_pairs"]))
    devices = read_devices(reader.item("devices"), machine)
    groups = read_groups(reader.item("groups"), len(devices))
    for one, stage in zip(reader.item("stages").entries(), stages, strict=True):
        check_groups(one.item("templates"), stage.templates, groups)
    sets = {one.label: one for one in groups}
    schedules = _schedules(reader.item("schedules"), sets)
    _check_schedules(reader.item("stages"), stages, schedules)
    orders = reader.item("orders")
    return GraphJob(
        name=reader.item("name").text(),
        devices=devices,
        stage_of=read_stage_of(reader.item("stage_of"), len(stages), len(devices)),
        stages=tuple(stages),
        groups=groups,
        schedules=schedules,
        orders={label: _order(orders.item(label), label, sets) for label in orders.names()},
        start_ps=reader.item("start_ps").integer(0, int(MAX_SIMULATED_S * 1e12)),
        notes=tuple(one.text() for one in reader.item("notes").entries()),
    )


def _schedules(reader: Reader, sets: dict[str, GroupSet]) -> dict[tuple[str, str, int], ScheduleKey]:
    """Return the schedules of a job, each of which the core can make."""
    found = {}
    for one in reader.entries():
        label, size = one.item("group"), one.item("group_size")
        if label.text() not in sets:
            raise label.error(f"is {label.value!r}; groups are: {', '.join(sorted(sets))}")
        sizes = [each.integer(1, _MOST_RANKS) for each in size.entries()] if isinstance(size.value, list) else []
        sides = tuple(each.integer(0, _MOST_RANKS) for each in one.item("grid").entries())
        schedule = ScheduleKey(
            one.item("collective").text(),
            one.item("algorithm").text(),
            one.item("num_ranks").integer(1, _MOST_RANKS),
            tuple(sizes) if sizes else size.integer(1, _MOST_RANKS),
            sides if any(sides) else (),  # (0, 0) stood for none
            one.item("num_pieces").integer(1, MAX_PIPELINED),
            _rows(one, "rings"),
            _rows(one, "trees"),
            one.item("protocol").text(),
        )
        if schedule.num_ranks != sets[label.text()].num_ranks:
            ranks = sets[label.text()].num_ranks
            raise one.item("num_ranks").error(f"is {schedule.num_ranks}; groups {label.text()!r} have {ranks} ranks")
        try:
            schedule.schedule()
        except RostamError as error:
            raise one.error(f"is refused: {error}") from error
        found[label.text(), schedule.collective, one.item("num_bytes").integer()] = schedule
    return found


def _rows(reader: Reader, name: str) -> tuple[tuple[int, ...], ...]:
    """Return the channels of a ring, or spanning trees, which only a schedule with some says."""
    if name not in reader.names():
        return ()
    return tuple(tuple(one.integer(0, _MOST_RANKS) for one in row.entries()) for row in reader.item(name).entries())


def _check_schedules(reader: Reader, stages: Sequence[StageTasks], schedules: dict[Any, ScheduleKey]) -> None:
    """Check that every collective has a schedule. Args: reader: of the stages."""
    for one, stage in zip(reader.entries(), stages, strict=True):
        for name, tasks in stage.templates.items():
            for k, task in enumerate(tasks):
                if task.kind == "collective" and (task.group, task.collective, task.num_bytes) not in schedules:
                    place = one.item("templates").item(name).item("collective").entry(k)
                    raise place.error(
                        f"is a collective without a schedule: {task.collective} of {task.num_bytes} bytes in groups"
                        f" {task.group!r}"
                    )


def _order(reader: Reader, label: str, sets: dict[str, GroupSet]) -> np.ndarray:
    if label not in sets:
        raise reader.error(f"names no group; groups are: {', '.join(sorted(sets))}")
    members = sets[label].members
    found = read_indices(reader, int(members.max()) + 1, 2)
    if found.shape != members.shape or not np.array_equal(np.sort(found, axis=1), np.sort(members, axis=1)):
        raise reader.error(f"must hold the members of groups {label!r}, row by row")
    return found
