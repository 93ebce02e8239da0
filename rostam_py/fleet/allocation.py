"""Allocation: which accelerators each job of a mix gets; hosts and boards are never shared."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rostam_py.checks import check_seed
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.fleet.allocators import Allocator, Room, check_allocation, make_allocator
from rostam_py.fleet.job import Job
from rostam_py.plan.machine import Machine


def allocate(
    jobs: Sequence[Job],
    machine: Machine,
    *,
    allocation: str,
    host_size: int,
    seed: int,
    options: Mapping[str, Any] | None = None,
) -> list[tuple[int, ...]]:
    """Return the accelerators of every job, disjoint, in rank order.

    Model: host h is accelerators h host_size to (h + 1) host_size - 1. A job takes whole hosts, or boards where the
        allocator hands out those, and of its last one the first accelerators; one with a failed accelerator, or
        one that a job names accelerators of, is left out. Jobs are placed first to last, or the largest first.
    Args: allocation: one of ALLOCATORS. options: fields of the allocator's Config. seed: of "random".
    Raises: ConfigError for unknown names or accelerators; DegreeError where jobs overlap or do not fit.
    """
    check_allocation(allocation)
    if isinstance(host_size, bool) or not isinstance(host_size, int) or not 1 <= host_size <= machine.num_accelerators:
        raise ConfigError(
            f"mix.host_size is {host_size!r}; it must be an integer from 1 to the machine's"
            f" {machine.num_accelerators} accelerators"
        )
    seed = check_seed("mix.seed", seed)
    allocator = make_allocator(allocation, _room(jobs, machine, host_size, seed), options)
    _check_room(jobs, allocator, machine)
    given = [job.fixed_accelerators for job in jobs]
    order = [k for k, fixed in enumerate(given) if fixed is None]
    if allocator.config.largest_first:
        order.sort(key=lambda k: -jobs[k].num_accelerators)
    for k in order:
        given[k] = _take(jobs[k], allocator, machine)
    return [ids for ids in given if ids is not None]


def _take(job: Job, allocator: Allocator, machine: Machine) -> tuple[int, ...]:
    found = allocator.take(job.num_accelerators)
    if found is None:
        raise DegreeError(
            f"job {job.name} asks for {job.num_accelerators} accelerators, for which no {allocator.place_name} is"
            f" left: {allocator.num_free} {allocator.unit_words} of the machine's {machine.num_accelerators} are free,"
            " apart from one another; run fewer or smaller jobs, or set mix.allocation_options.largest_first=true"
        )
    return found.accelerators


def _room(jobs: Sequence[Job], machine: Machine, host_size: int, seed: int) -> Room:
    """Return the machine as allocators see it."""
    is_working = np.zeros(machine.num_accelerators, dtype=bool)
    is_working[machine.healthy_accelerators] = True
    is_taken = np.zeros_like(is_working)
    is_taken[list(_fixed_owners(jobs, machine))] = True
    return Room(machine.fabric.config, is_working, is_taken, host_size, seed)


def _fixed_owners(jobs: Sequence[Job], machine: Machine) -> dict[int, str]:
    """Return the job of every accelerator that a job names."""
    owner: dict[int, str] = {}
    for job in jobs:
        for accelerator in job.fixed_accelerators or ():
            if not 0 <= accelerator < machine.num_accelerators:
                raise ConfigError(
                    f"jobs.{job.name}.accelerators names {accelerator}; the machine has 0 to"
                    f" {machine.num_accelerators - 1}"
                )
            other = owner.setdefault(accelerator, job.name)
            if other != job.name:
                raise DegreeError(
                    f"jobs.{other}.accelerators and jobs.{job.name}.accelerators both name {accelerator}; give each"
                    " job its own"
                )
    return owner


def _check_room(jobs: Sequence[Job], allocator: Allocator, machine: Machine) -> None:
    """Refuse jobs that ask for more than is free, wherever it lies."""
    open_jobs = [job for job in jobs if job.fixed_accelerators is None]
    needed = sum(allocator.num_units(job.num_accelerators) for job in open_jobs)
    if needed > allocator.num_free:
        sizes = ", ".join(f"{job.name}: {job.num_accelerators}" for job in open_jobs)
        what = allocator.unit_words
        raise DegreeError(
            f"jobs ask for {needed} {what} ({sizes}), but {allocator.num_free} whole {what.split()[0]} of the"
            f" machine's {machine.num_accelerators} accelerators are free; run fewer or smaller jobs"
        )
