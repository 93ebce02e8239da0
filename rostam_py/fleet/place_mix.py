"""place_mix: jobs of a mix -> one plan each, on accelerators of their own."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from rostam_py.costs import DEFAULT_COST
from rostam_py.errors import ConfigError
from rostam_py.fleet.allocation import allocate
from rostam_py.fleet.job import Job
from rostam_py.graph import OperatorGraph
from rostam_py.placement.place import place
from rostam_py.plan.machine import Machine
from rostam_py.plan.plan import Plan
from rostam_py.plan.ranks import assign_accelerators, filled
from rostam_py.plan.software import IDEAL
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.strategy_names import PLACERS
from rostam_py.software.names import DEFAULT_SOFTWARE
from rostam_py.software.program import Given, Program


def place_mix(
    jobs: Sequence[Job],
    machine: Machine,
    *,
    allocation: str = "linear",
    allocation_options: Mapping[str, Any] | None = None,
    host_size: int = 8,
    seed: int = 0,
    cost: str = DEFAULT_COST,
    cost_config: dict[str, Any] | None = None,
    software: Given = DEFAULT_SOFTWARE,
    placed: MutableMapping[Any, tuple[OperatorGraph, Plan]] | None = None,
) -> list[Plan]:
    """Place every job of a mix on accelerators that no other job uses.

    Model: jobs take whole hosts of ``host_size`` consecutive accelerators, first job first: the lowest-numbered free
        ones ("linear") or seeded random ones ("random"), and fill them in that order; other allocators follow the
        fabric (``ALLOCATORS``), some in boards of its own. A host with a failed accelerator is left out, and so is one
        of which a job names accelerators itself.
    Args: jobs: at least one, names distinct. machine: all jobs share its fabric. allocation: an allocator's name.
        allocation_options: fields of its Config. host_size: accelerators of a host. seed: of "random". cost,
        cost_config, software: as in ``place``; of jobs that software=auto gives different hosts all are ideal.
        placed: plans made before, filled and used: jobs that differ in nothing but name, start and accelerators are
            placed once. Give the same mapping to several calls whose cost tables do not change meanwhile.
    Returns: one plan a job, in order.
    Raises: ConfigError for an unknown allocation, bad sizes or equal names; DegreeError for more accelerators than
        there are, or overlapping ones; what ``place`` raises.
    Cost: one placement a kind of job.
    """
    check_jobs(jobs)
    given = allocate(jobs, machine, allocation=allocation, host_size=host_size, seed=seed, options=allocation_options)
    known = {} if placed is None else placed
    how = {"cost": cost, "cost_config": cost_config, "software": software}
    plans = [_place(job, ids, machine, how, known) for job, ids in zip(jobs, given, strict=True)]
    hosts = [plan.software.hosts for plan in plans]
    if hosts == hosts[:1] * len(hosts) or not all(plan.software.was_chosen for plan in plans):
        return plans
    how["software"] = IDEAL  # hosts of one simulation are alike
    return [_place(job, ids, machine, how, known) for job, ids in zip(jobs, given, strict=True)]


def check_jobs(jobs: Sequence[Job]) -> None:
    """Raise ConfigError for a mix without jobs, or with two jobs of one name."""
    if not jobs:
        raise ConfigError("jobs is empty; a mix needs at least one job")
    names = [job.name for job in jobs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"jobs names {twice!r} more than once; every job needs a name of its own")


def _place(
    job: Job,
    accelerators: tuple[int, ...],
    machine: Machine,
    how: dict[str, Any],
    placed: MutableMapping[Any, tuple[OperatorGraph, Plan]],
) -> Plan:
    """Return the job's plan; what stages do depends on which accelerators they run on only where it reads servers."""
    strategy = _on(job.strategy, accelerators)
    settings = (repr(replace(job.strategy, accelerators=None, mapping="linear")), job.global_batch, repr(how))
    key = (id(job.graph), *settings, repr(machine.device), machine.min_kernel_s)
    placer = PLACERS.get(strategy.placer)
    program = Program.of(how["software"], job.graph, cost=how["cost"])
    run = program.on(filled(strategy, machine), machine)[0]
    fabric_key = placer(run, how["cost"], how["cost_config"]).fabric_key
    reads_servers = not placer.reads_fabric and fabric_key(machine) is not None
    if key not in placed or reads_servers or machine.fabric.is_circuit_switched:  # where circuits are read as well
        plan = place(job.graph, machine, global_batch=job.global_batch, strategy=strategy, **how)
        placed[key] = (job.graph, plan)  # kept with it, so that no other graph gets its id
        return plan
    known = placed[key][1]
    devices = assign_accelerators(strategy, machine).reshape(-1)
    own = {key: strategy.value(key) for key in ("accelerators", "mapping", "mapping_seed")}
    return replace(known, machine=known.software.on(machine), strategy=known.strategy.with_keys(**own), devices=devices)


def _on(strategy: Strategy, accelerators: tuple[int, ...]) -> Strategy:
    """Return the strategy on these accelerators, unless it maps ranks itself."""
    if not isinstance(strategy.mapping, str):
        return strategy
    return replace(strategy, accelerators=list(accelerators))
