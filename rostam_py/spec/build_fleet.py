"""Weeks of a job from their settings: the faults, the job as far as faults matter, and what its layout permits."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from rostam_py.errors import ConfigError
from rostam_py.field_words import written
from rostam_py.fleet.goodput import POLICIES, FaultTrace, LongJob
from rostam_py.fleet.goodput.bill import Bill
from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.fleet.goodput.layout import servers_of_replicas, units_of
from rostam_py.fleet.goodput.paces import EnginePaces, PacesOfUnits
from rostam_py.plan.plan import Plan
from rostam_py.spec.fleet_options import FleetOptions
from rostam_py.spec.queue_options import NO_FAULTS
from rostam_py.units import parse_time

_DAYS = 30.0  # of drawn faults


def units_of_plan(plan: Plan, options: FleetOptions) -> tuple[tuple[int, ...], ...]:
    """Return the servers of a job by what fails together (fleet.goodput.layout)."""
    return units_of(servers_of_replicas(plan, accelerators_per_server(plan, options)))


def accelerators_per_server(plan: Plan, options: FleetOptions) -> int:
    """Return how many accelerators a fault of one server takes."""
    given = options.accelerators_per_server
    return plan.machine.fabric.config.accelerators_per_server if given is None else given


def build_bill(options: FleetOptions, plan: Plan, usd_per_hour: float | None) -> Bill:
    """Return what a plan's accelerators and the spares cost. Args: usd_per_hour: of one accelerator."""
    watts, spare = plan.machine.most_watts, options.spares * accelerators_per_server(plan, options)
    return Bill(
        num_accelerators=plan.strategy.num_ranks + spare, usd_per_hour=usd_per_hour,
        watts=None if watts is None else watts / plan.machine.num_accelerators,
    )  # fmt: skip


def build_faults(options: FleetOptions, servers: int) -> FaultTrace:
    """Return recorded faults, or drawn ones. Args: servers: of the job.

    Raises: ConfigError for a cluster that has no room for the job and its spares, and as FaultTrace.
    """
    wanted = servers + options.spares
    if options.servers is not None and options.servers < wanted:
        raise ConfigError(
            f"fleet.servers is {options.servers}, but the job has {servers} and fleet.spares is {options.spares}; it"
            f" must be at least {wanted}"
        )
    window = None if options.days is None else options.days * DAY_S
    if options.faults is None:
        return FaultTrace.drawn(
            num_servers=options.servers or wanted, window=window or _DAYS * DAY_S, mtbf=options.mtbf,
            repair=options.repair, seed=options.seed,
        )  # fmt: skip
    if options.faults == NO_FAULTS:
        return FaultTrace((), options.servers or wanted, window or _DAYS * DAY_S)
    found = FaultTrace.read(options.faults, num_servers=options.servers, window=window, least_servers=wanted)
    return found.memoryless(options.seed) if options.memoryless else found


def build_long_job(
    options: FleetOptions,
    units: tuple[tuple[int, ...], ...],
    iteration_s: float,
    faults: FaultTrace,
    paces: EnginePaces,
    parts: Mapping[int, float] = MappingProxyType({}),
) -> LongJob:
    """Return a job of weeks. Args: units: its servers by what fails together. iteration_s: of all replicas [s].

    parts: of a replica that lost servers (fleet.goodput.parts).
    """
    servers, each = sum(map(len, units)), (len(paces) + 1) // len(units)
    cost_s = parse_time(options.checkpoint, "fleet.checkpoint")
    every_s = between_checkpoints_s(options, servers, faults, cost_s)
    return LongJob(
        num_servers=servers, replicas=len(units), units=units, iteration=iteration_s,
        paces=paces if each == 1 else PacesOfUnits(paces, each),
        checkpoint_iterations=max(round(every_s / iteration_s), 1), checkpoint=options.checkpoint,
        detection=options.detection, restart=options.restart, rejoin=options.rejoin, parts=parts,
        reshard=options.restart if options.reshard is None else options.reshard,
    )  # fmt: skip


def between_checkpoints_s(options: FleetOptions, servers: int, faults: FaultTrace, cost_s: float) -> float:
    """Return the time between checkpoints: as given, or Young's and Daly's, at most the window.

    Args: cost_s: by which one delays the job [s].
    Source: Daly, "A higher order estimate of the optimum checkpoint interval", FGCS 22 (2006): sqrt(2 C M) - C, for
        C < M / 2; at least C here. C below a second counts as one.
    """
    if options.checkpoint_every is not None:
        return parse_time(options.checkpoint_every, "fleet.checkpoint_every")
    of_server_s = parse_time(options.mtbf, "fleet.mtbf") if options.faults is None else faults.mtbf_s
    cost_s = max(cost_s, 1.0)
    best_s = max(math.sqrt(2 * cost_s * of_server_s / servers) - cost_s, cost_s)
    return min(best_s, faults.window_s)


def check_policy(policy: str, plan: Plan) -> None:
    """Raise ConfigError for a policy that a plan's layout does not permit."""
    strategy = plan.strategy
    if strategy.dp == 1:
        return
    for key, whole in POLICIES.get(policy).NEEDS.items():
        if (value := strategy.value(key)) != whole:
            has, must = written(value), written(whole)
            raise ConfigError(
                f"policy {policy} needs every replica to have all of the state; strategy.{key} is {has}, which shares"
                f" it among replicas, so it must be {must}: set that, or leave {policy} out of fleet.policies"
            )
