"""Allocation: which accelerators each job of a mix gets; hosts are never shared."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rostam_py.checks import check_seed
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.fleet.job import Job
from rostam_py.plan.machine import Machine

ALLOCATIONS = ("linear", "random")


def allocate(
    jobs: Sequence[Job], machine: Machine, *, allocation: str, host_size: int, seed: int
) -> list[tuple[int, ...]]:
    """Return the accelerators of every job, disjoint, in rank order.

    Model: host h is accelerators h host_size to (h + 1) host_size - 1. A job takes whole hosts, and of its last one
        the first accelerators; a host with a failed accelerator, or one that a job names accelerators of, is
        left out. "linear" hands hosts out by number, "random" in a seeded random order, jobs first to last.
    Raises: ConfigError for unknown names or accelerators; DegreeError where jobs overlap or do not fit.
    """
    check_allocation(allocation)
    if isinstance(host_size, bool) or not isinstance(host_size, int) or not 1 <= host_size <= machine.num_accelerators:
        raise ConfigError(
            f"mix.host_size is {host_size!r}; it must be an integer from 1 to the machine's"
            f" {machine.num_accelerators} accelerators"
        )
    seed = check_seed("mix.seed", seed)
    taken = _fixed_owners(jobs, machine)
    hosts = _free_hosts(machine, host_size, taken)
    if allocation == "random":
        hosts = [hosts[k] for k in np.random.default_rng(seed).permutation(len(hosts))]
    _check_room(jobs, len(hosts), host_size, machine)
    given: list[tuple[int, ...]] = []
    used = 0
    for job in jobs:
        fixed = job.fixed_accelerators
        if fixed is None:
            count = _num_hosts(job, host_size)
            ids = [h * host_size + k for h in hosts[used : used + count] for k in range(host_size)]
            used += count
            fixed = tuple(ids[: job.num_accelerators])
        given.append(fixed)
    return given


def check_allocation(allocation: Any) -> None:
    """Raise ConfigError unless it is one of ALLOCATIONS."""
    if allocation not in ALLOCATIONS:
        raise ConfigError(f"mix.allocation is {allocation!r}; it must be one of: {', '.join(ALLOCATIONS)}")


def _num_hosts(job: Job, host_size: int) -> int:
    return -(-job.num_accelerators // host_size)


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


def _free_hosts(machine: Machine, host_size: int, taken: dict[int, str]) -> list[int]:
    """Return the hosts whose accelerators all work and that no job has named, ascending."""
    is_free = np.zeros(machine.num_accelerators // host_size * host_size, dtype=bool)
    working = np.array(machine.healthy_accelerators, dtype=np.int64)
    is_free[working[working < is_free.size]] = True
    is_free[[a for a in taken if a < is_free.size]] = False
    return [int(h) for h in np.flatnonzero(is_free.reshape(-1, host_size).all(axis=1))]


def _check_room(jobs: Sequence[Job], num_hosts: int, host_size: int, machine: Machine) -> None:
    open_jobs = [job for job in jobs if job.fixed_accelerators is None]
    needed = sum(_num_hosts(job, host_size) for job in open_jobs)
    if needed > num_hosts:
        sizes = ", ".join(f"{job.name}: {job.num_accelerators}" for job in open_jobs)
        raise DegreeError(
            f"jobs ask for {needed} hosts of mix.host_size = {host_size} accelerators ({sizes}), but {num_hosts} whole"
            f" hosts of the machine's {machine.num_accelerators} accelerators are free; run fewer or smaller jobs"
        )
