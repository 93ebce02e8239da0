"""Jobs over weeks from their settings: the jobs, the cluster's places, its faults, and what these cost."""

import math
from dataclasses import dataclass

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fleet.allocators import ALLOCATORS, Room, make_allocator
from rostam_py.fleet.goodput import FaultTrace
from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.fleet.queueing.fault_feed import FaultFeed
from rostam_py.fleet.queueing.job import QueuedJob
from rostam_py.fleet.queueing.jobs_file import read_jobs
from rostam_py.fleet.queueing.names import PLACES, SOURCES
from rostam_py.fleet.queueing.places.place import Places
from rostam_py.fleet.queueing.places.units import Units
from rostam_py.fleet.queueing.run import Upkeep
from rostam_py.fleet.queueing.sources.source import make_source
from rostam_py.plan.machine import Machine
from rostam_py.spec.fleet_options import FleetOptions
from rostam_py.spec.queue_options import NO_FAULTS
from rostam_py.units import parse_time

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
    room = Room(machine.fabric.config, is_working, np.zeros_like(is_working), size, options.seed)
    try:
        return Units(make_allocator(name, room, options.allocation_options), size)
    except ConfigError as error:  # which names the keys of a mix
        raise ConfigError(str(error).replace(_OF_MIX, "fleet.allocation")) from error


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


def fault_notes(options: FleetOptions, feed: FaultFeed, num_servers: int, end_s: float) -> list[str]:
    """Return what recorded faults do not say of a cluster and a window."""
    if feed.trace is None or options.faults is None:
        return []
    notes = []
    named = {one.server for one in FaultTrace.read(options.faults).faults}
    if beyond := sum(server >= num_servers for server in named):
        notes.append(f"{options.faults}: faults of {beyond} servers beyond the cluster's {num_servers} are left out")
    if len(named) < num_servers and not options.memoryless:
        notes.append(f"{options.faults} names faults of {len(named)} servers; the cluster has {num_servers}")
    if end_s > feed.ends_s:
        notes.append(
            f"{options.faults} ends on day {feed.ends_s / DAY_S:,.1f}, the jobs on day {end_s / DAY_S:,.1f}: no server"
            " fails in between, which flatters"
        )
    return notes
