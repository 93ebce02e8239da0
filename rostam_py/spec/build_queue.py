"""Jobs over weeks from their settings: the jobs, the cluster's places, its faults, and what these cost."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import yaml

from rostam_py.errors import ConfigError, RostamError
from rostam_py.fabrics.hammingmesh import HammingMeshConfig
from rostam_py.fleet.allocators import ALLOCATORS, Room, make_allocator
from rostam_py.fleet.goodput import FaultTrace
from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.fleet.job import Job
from rostam_py.fleet.queueing.fault_feed import FaultFeed
from rostam_py.fleet.queueing.job import Kind, QueuedJob, kind_of
from rostam_py.fleet.queueing.jobs_file import STRATEGY, read_jobs
from rostam_py.fleet.queueing.names import PLACES, SOURCES
from rostam_py.fleet.queueing.network import EngineNetwork, How
from rostam_py.fleet.queueing.places.place import Places
from rostam_py.fleet.queueing.places.units import Units
from rostam_py.fleet.queueing.run import Upkeep
from rostam_py.fleet.queueing.sources.source import make_source
from rostam_py.graph import OperatorGraph
from rostam_py.plan import Strategy
from rostam_py.plan.machine import Machine
from rostam_py.spec.build import cost_arguments, default_batch
from rostam_py.spec.fleet_options import FleetOptions
from rostam_py.spec.keys import StrategyKeys
from rostam_py.spec.queue_options import NO_FAULTS
from rostam_py.spec.settings import Settings
from rostam_py.units import format_number_of, format_time, parse_time

_DAYS = 64.0  # of faults that are drawn at first; more are as jobs last
_OF_MIX = "mix.allocation"


@dataclass(frozen=True)
class Jobs:
    """Jobs, and what is to be said of where they are from."""

    jobs: tuple[QueuedJob, ...]
    notes: tuple[str, ...] = ()


def build_jobs(options: FleetOptions, num_accelerators: int) -> Jobs:
    """Return the jobs of a file, or drawn ones.

    Raises: ConfigError as ``read_jobs`` and ``make_source``.
    """
    name = str(options.jobs)
    if not options.is_file():
        return Jobs(tuple(make_source(SOURCES, name, options.draw, num_accelerators, options.seed).draw()))
    found = read_jobs(name)
    unread = f"{name}: nothing reads the columns {', '.join(found.unread)}"
    return Jobs(found.jobs, (unread,) if found.unread else ())


def server_size(options: FleetOptions, machine: Machine) -> int:
    """Return the accelerators that jobs share a server of, and that a fault takes."""
    given = options.accelerators_per_server
    return machine.fabric.config.accelerators_per_server if given is None else given


def allocation_of(options: FleetOptions, machine: Machine) -> str:
    """Return how accelerators are given out: as said, as is made for the fabric, else by servers."""
    if options.allocation is not None:
        return options.allocation
    made = [name for name in ALLOCATORS if ALLOCATORS.get(name).is_made_for(machine.fabric.config)]
    return made[0] if made else "servers"


def build_places(options: FleetOptions, machine: Machine) -> Places:
    """Return the accelerators of a machine, those that have failed left out.

    Raises: ConfigError for an allocator that the fabric is not for, and for bad options of it.
    """
    is_working = np.zeros(machine.num_accelerators, dtype=bool)
    is_working[machine.healthy_accelerators] = True
    name, size = allocation_of(options, machine), server_size(options, machine)
    if name in PLACES:
        places: Places = PLACES.get(name)(is_working, size)
        return places
    if isinstance(options.allocation_options, Mapping) and "largest_first" in options.allocation_options:
        raise ConfigError(
            "fleet.allocation_options.largest_first is for jobs of a mix, which start together; fleet.order says which"
            " job of a queue starts first"
        )
    room = Room(machine.fabric.config, is_working, np.zeros_like(is_working), size, options.seed)
    try:
        return Units(make_allocator(name, room, options.allocation_options), size)
    except ConfigError as error:  # which names the keys of a mix
        raise ConfigError(str(error).replace(_OF_MIX, "fleet.allocation")) from error


def board_grid(machine: Machine) -> dict[str, int] | None:
    """Return the rows and columns of a HammingMesh's boards, and a board's accelerators; None of other fabrics.

    Model: accelerators are numbered board by board, and boards row by row (MODEL C11).
    """
    config = machine.fabric.config
    if not isinstance(config, HammingMeshConfig):
        return None
    columns, rows = config.boards
    return {"rows": rows, "columns": columns, "accelerators": math.prod(config.board)}


def build_feed(options: FleetOptions, num_servers: int) -> FaultFeed:
    """Return no faults, recorded ones of the cluster's servers, or drawn ones for as long as jobs last."""
    if options.faults == NO_FAULTS:
        return FaultFeed(None)

    def draw(window_s: float) -> FaultTrace:
        return FaultTrace.drawn(
            num_servers=num_servers, window=window_s, mtbf=options.mtbf, repair=options.repair, seed=options.seed
        )

    if options.faults is None:
        return FaultFeed.drawn(draw, _DAYS * DAY_S)
    found = FaultTrace.read(options.faults, least_servers=num_servers)
    found = found.memoryless(options.seed) if options.memoryless else found
    own = tuple(one for one in found.faults if one.server < num_servers)
    return FaultFeed(FaultTrace(own, num_servers, found.window_s))


def build_upkeep(options: FleetOptions, feed: FaultFeed) -> Upkeep:
    """Return what faults and checkpoints cost."""
    if feed.trace is None:
        mtbf_s = math.inf
    else:
        mtbf_s = parse_time(options.mtbf, "fleet.mtbf") if options.faults is None else feed.trace.mtbf_s
    every = options.checkpoint_every
    return Upkeep(
        detection_s=parse_time(options.detection, "fleet.detection"),
        restart_s=parse_time(options.restart, "fleet.restart"),
        between_s=None if every is None else parse_time(every, "fleet.checkpoint_every"),
        checkpoint_s=parse_time(options.checkpoint, "fleet.checkpoint"), mtbf_s=mtbf_s,
    )  # fmt: skip


def move_s(options: FleetOptions) -> float | None:
    """Return the pause of a job that moves [s]; None where none does."""
    if not options.defragment:
        return None
    if options.move is not None:
        return parse_time(options.move, "fleet.move")
    return parse_time(options.checkpoint, "fleet.checkpoint") + parse_time(options.restart, "fleet.restart")


def build_network(
    jobs: Sequence[QueuedJob], machine: Machine, settings: Settings, load: Callable[[str], OperatorGraph]
) -> EngineNetwork | None:
    """Return what simulates jobs that have a model, None where none has.

    Args: settings: of a run, whose strategy, program and routing are those of all jobs but for what each says itself.
        load: returns a model's graph.
    Raises: ConfigError for a strategy that there is none of, or that a job's accelerators do not fit.
    """
    templates: dict[Kind, Job] = {}
    for job in jobs:
        kind = kind_of(job)
        if kind is not None and kind not in templates:
            templates[kind] = _template(job, settings, load)
    if not templates:
        return None
    if machine.fabric.is_circuit_switched:
        raise ConfigError(
            f"fleet.jobs has jobs with a model, but {machine.fabric.describe()} sets circuits for the jobs that run;"
            " only jobs with a duration can be queued there"
        )
    return EngineNetwork(
        machine, templates, How(cost=cost_arguments(settings), routing=settings["routing"], seed=settings["seed"])
    )


def _template(job: QueuedJob, settings: Settings, load: Callable[[str], OperatorGraph]) -> Job:
    given = {key.removeprefix(STRATEGY): value for key, value in job.settings.items() if key.startswith(STRATEGY)}
    known = [entry.name for entry in dataclasses.fields(StrategyKeys)]
    for key in given:
        if key not in known:
            raise ConfigError(
                f"fleet.jobs: job {job.name}: there is no strategy.{key}; a strategy has: {', '.join(known)}"
            )
    try:
        values = settings["strategy"] | {key: yaml.safe_load(value) for key, value in given.items()}
        strategy = Strategy(**values)
        replica = strategy.num_ranks_of_replica
        if strategy.dp is None:
            if job.accelerators % replica:
                raise ConfigError(f"{strategy.describe()} has replicas of {replica}, which do not divide it")
            strategy = dataclasses.replace(strategy, dp=job.accelerators // replica)
        if strategy.num_ranks != job.accelerators:
            raise ConfigError(f"{strategy.describe()} has {strategy.num_ranks} ranks")
        batch = default_batch(job.settings.get("global_batch"), strategy)
        return Job(str(job.model), load(str(job.model)), strategy, batch)
    except (RostamError, yaml.YAMLError) as error:
        raise ConfigError(f"fleet.jobs: job {job.name} of {job.accelerators:,} accelerators: {error}") from error


def with_work(jobs: Sequence[QueuedJob], network: EngineNetwork, places: Places) -> list[QueuedJob]:
    """Return jobs of which those with a model and iterations run as long as these take in the empty cluster."""
    made = []
    for job in jobs:
        kind = kind_of(job)
        if kind is not None:
            iteration_s = network.reference(kind, places)
            if job.iterations is not None:
                work_s = job.iterations * iteration_s
                stated_s = job.stated_s or work_s
                job = dataclasses.replace(job, work_s=work_s, stated_s=stated_s)
        made.append(job)
    return made


def num_servers(options: FleetOptions, machine: Machine) -> int:
    """Return the servers of a cluster, those that have failed included."""
    return -(-machine.num_accelerators // server_size(options, machine))


def fault_notes(options: FleetOptions, feed: FaultFeed, end_s: float, first_s: float) -> list[str]:
    """Return what recorded faults do not say of a cluster and a window.

    Args: first_s: when the first job is submitted, by the jobs' clock.
    """
    if feed.trace is None or options.faults is None:
        return []
    notes, count = [], feed.trace.num_servers
    named = {one.server for one in FaultTrace.read(options.faults).faults}
    if beyond := sum(server >= count for server in named):
        servers = format_number_of(beyond, "server")
        notes.append(f"{options.faults}: faults of {servers} beyond the cluster's {count} are left out")
    if len(named) < count and not options.memoryless:
        notes.append(f"{options.faults} names faults of {len(named)} servers; the cluster has {count}")
    if first_s > 0:
        notes.append(
            f"the window begins with the first job, {format_time(first_s)} on the jobs' clock, and so does"
            f" {options.faults}: shift its times where both have one clock"
        )
    if end_s > feed.ends_s:
        notes.append(
            f"{options.faults} ends on day {feed.ends_s / DAY_S:,.1f}, the jobs on day {end_s / DAY_S:,.1f}: no server"
            " fails in between, which flatters"
        )
    return notes
