"""Simulate plans: placed training jobs in, times and their reasons out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.checks import check_integers, check_seed
from rostam_py.collectives.link_notes import link_note
from rostam_py.errors import ConfigError, InternalError
from rostam_py.fabrics.config import check_integer
from rostam_py.plan.failures import Failure, Recovery
from rostam_py.plan.host import unused_graphs, unused_slowdown, unused_sync
from rostam_py.plan.machine import Machine
from rostam_py.plan.packets import PacketOptions
from rostam_py.programs.placed import PlacedProgram
from rostam_py.simulation.changes import moves_of
from rostam_py.simulation.compile import GraphNames, compile_graph
from rostam_py.simulation.engines import check_fidelity, check_tolerance, tolerance_notes
from rostam_py.simulation.events import LinkBandwidth, check_events, controller_list, expand_links, fabric_for_events
from rostam_py.simulation.failures import naming_failed
from rostam_py.simulation.graph_job import GraphJob, StageTasks
from rostam_py.simulation.iteration_holds import hold_notes
from rostam_py.simulation.job_result import CollectiveTimes, JobResult
from rostam_py.simulation.link_counters import link_counters, watch_links
from rostam_py.simulation.network import make_router
from rostam_py.simulation.options import takes_options
from rostam_py.simulation.outage_log import failures_behind, outage_log
from rostam_py.simulation.packets import check_packet_run, packet_options
from rostam_py.simulation.path_decisions import decision_notes
from rostam_py.simulation.picoseconds import PS, seconds_to_ps
from rostam_py.simulation.power import held_at_power, power_of
from rostam_py.simulation.program_result import ProgramResult
from rostam_py.simulation.reconfigurations import circuit_controllers, reconfigurations_of
from rostam_py.simulation.restarts import restarts_of
from rostam_py.simulation.result import RunResult
from rostam_py.simulation.task_graph import Placed, TaskGraph
from rostam_py.simulation.utilization import utilization
from rostam_py.simulation.variation import KernelVariation
from rostam_py.units import MAX_SIMULATED_S, format_time

STEADY_TOLERANCE = 1e-3  # MODEL B9: 0.1%
# Forwards and backwards of all stages in one iteration. Each takes about 10 microseconds and 500 bytes, since results
# hold the critical path whole (measured: ResNet-50, 524,288 of them on one stage): 4 million are a minute and 2 GB.
MAX_STEPS = 4_000_000
_UNEXPOSED = ("compute", "launch", "bubble", "host")  # the core's buckets in front of the categories


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What ``simulate`` was asked for, checked."""

    fidelity: str
    routing: str
    seed: int
    fold: bool
    shortcuts: bool
    fuse: bool
    timeline: bool | Sequence[int]
    events: Sequence[Any]
    recovery: Recovery | None
    controllers: Sequence[Any]
    park: bool
    tolerance: float
    packets: PacketOptions | None
    start_times: Sequence[str | float] | None
    max_iterations: int | None
    min_iterations: int
    variation: KernelVariation | None
    watch_stalls: bool


@takes_options
def simulate(
    plan: Placed | Sequence[Placed] | TaskGraph,
    *,
    fidelity: str = "flow",
    routing: str = "spray",
    seed: int = 0,
    fold: bool = True,
    shortcuts: bool | None = None,
    fuse: bool = True,
    timeline: bool | Sequence[int] = False,
    events: Sequence[Any] = (),
    recovery: Recovery | None = None,
    controllers: Sequence[Any] = (),
    park: bool = False,
    tolerance: float = 0.0,
    packets: PacketOptions | None = None,
    start_times: Sequence[str | float] | None = None,
    max_iterations: int | None = None,
    min_iterations: int = 1,
    variation: KernelVariation | None = None,
    watch_stalls: bool = False,
) -> Any:
    """Simulate one plan or program, several that share a fabric, or a task graph, until the iteration time is steady.

    Model: MODEL B; streams, launch latency, overlap, and links that messages share max-min, or packet by packet
        (fidelity="packet", MODEL I25a). Reduction arithmetic costs nothing. Kernels that are known to draw more than
        their accelerator's limit allows on average last as long as they do at it (simulation/power.py). Where hosts
        limit (software.rules.host), a kernel also waits until its host has launched it. While a device takes part in
        collectives its kernels run at 1 - comm_compute_fraction, by default what the multiprocessors of their channels
        leave.
    Args: fidelity: the engine (rostam list fidelities). routing: "spray" or "hash". seed: of the hash and of
        circuits, 0 to 2^64 - 1.
        fold: simulate devices that must behave alike once; shortcuts (by default as fold): compute rings whose links
        nothing else uses meanwhile without their messages (same numbers, see MODEL H24). Both False simulate every
        device and message. options: SimulationOptions; keywords go first. fuse: False
        keeps every kernel a task (same times, slower). timeline: True records one device of every stage, or a list
        of accelerators. events: LinkBandwidth changes, and parts that fail (Failure); nothing is folded with these.
        recovery: response to failures, by default at once and without spares. controllers: names, or (name,
        parameters), of controllers of the network (rostam list controllers). park: messages without a route
        wait until a controller gives them one; nothing is folded then. start_times: of each plan [s or text]; a task
        graph has its own, and its circuits.
        max_iterations: upper bound; default 10 for one plan; with several plans each runs exactly that many,
        default 3. min_iterations: of one plan, whether it is steady before or not.
        tolerance: rates follow starts and ends of messages up to this share of their duration later, together with
        others that start and end meanwhile; 0 is exact. packets: PacketOptions of fidelity="packet".
        variation: of kernels from run to run, drawn in a stream of ``seed``; nothing is folded then, and an iteration's
        figures are those of the last one, a single draw.
        watch_stalls: outage_log says how long iterations waited for messages that nothing carried; always with parts
        that fail.
    Returns: RunResult of a plan, ProgramResult of a program, or a list of them for a list; JobResult for a task graph
        of one job, a list of them for several.
    Raises: ConfigError for bad arguments and for iterations too long to be simulated, NoRouteError for cut fabrics,
        DeadlockError if nothing can go on.
    Cost: kernels and messages in one iteration x iterations, at about a microsecond each; folding divides it.
    """
    check_fidelity(fidelity)
    options = _Options(
        fidelity=fidelity, routing=routing, seed=check_seed("seed", seed), fold=fold,
        shortcuts=fold if shortcuts is None else shortcuts, fuse=fuse, timeline=timeline, events=events,
        recovery=recovery, controllers=controllers, park=park, tolerance=check_tolerance(tolerance), packets=packets,
        start_times=start_times, max_iterations=max_iterations, min_iterations=min_iterations, variation=variation,
        watch_stalls=watch_stalls,
    )  # fmt: skip
    return _simulate(_held(plan, options), options)


def _held(plan: Placed | Sequence[Placed] | TaskGraph, options: _Options) -> Placed | Sequence[Placed] | TaskGraph:
    """Return the plan to simulate, with the kernels that it has at its accelerators' limits of power."""
    # It says how long devices wait at the clocks of short runs.
    short = replace(options, timeline=False, min_iterations=1, variation=None, watch_stalls=False)
    if short.fidelity == "packet":  # waits are found sooner by flows
        short = replace(short, fidelity="flow", packets=None)

    def first() -> list[JobResult]:
        found = _simulate(plan, short)
        return found if isinstance(found, list) else [found]

    if isinstance(plan, TaskGraph):
        return replace(plan, jobs=tuple(held_at_power(plan.jobs, [power_of(plan.machine)] * len(plan.jobs), first)))
    plans: list[Any] = [plan] if isinstance(plan, Placed) else list(plan)
    held = held_at_power(plans, [power_of(one.machine) for one in plans], first)
    return held[0] if isinstance(plan, Placed) else held


def _simulate(plan: Placed | Sequence[Placed] | TaskGraph, options: _Options) -> Any:
    """Simulate kernels as they are given; see ``simulate``."""
    fidelity, routing, events, recovery = options.fidelity, options.routing, options.events, options.recovery
    check_events(events, (LinkBandwidth, Failure), "simulate")
    plans: list[Placed | None]
    if isinstance(plan, TaskGraph):
        if options.start_times is not None:
            raise ConfigError("start_times is given, but a task graph has its own; leave it out")
        graph, plans = plan, [None] * len(plan.jobs)
        for job in graph.jobs:
            _check_steps(job)
    else:
        given = [plan] if isinstance(plan, Placed) else list(plan)
        for one in given:
            _check_size(one)
        graph, plans = TaskGraph.of(given, seed=options.seed, start_times=options.start_times), list(given)
    core, names = compile_graph(graph, fuse=options.fuse, is_varied=options.variation is not None)
    fabric, machine = fabric_for_events(graph.machine.fabric, events), graph.machine
    check_packet_run(fidelity, fabric, events)
    router = make_router(fabric, routing, has_events=bool(events or options.controllers), fidelity=fidelity)
    default = 3 if len(plans) > 1 else 10
    limit = check_integer("max_iterations", default if options.max_iterations is None else options.max_iterations, 1)
    if check_integer("min_iterations", options.min_iterations, 1) > limit:
        raise ConfigError(f"min_iterations is {options.min_iterations}; it must be from 1 to max_iterations = {limit}")
    acting = controller_list(events, options.controllers, router, fabric, recovery, names.accelerators.tolist())
    own = circuit_controllers(router, fabric, events=events, recovery=recovery, routing=routing)
    recorded = _recorded(names, options.timeline)
    watching = [watch_links(router)] if recorded else []
    with naming_failed(events):
        raw = _core.run_session(
            core,
            router,
            launch_latency_ps=seconds_to_ps(machine.launch_latency_s),
            host_launch_ps=seconds_to_ps(machine.host_launch_s),
            min_collective_ps=seconds_to_ps(machine.min_kernel_s),
            comm_compute_fraction=machine.comm_compute_fraction or 0.0,
            min_iterations=options.min_iterations,
            max_iterations=limit,
            steady_tolerance=STEADY_TOLERANCE,
            averages=options.variation is None,
            seed=options.seed,
            fold=options.fold,
            shortcuts=options.shortcuts,
            park=options.park,
            tolerance=options.tolerance,
            packets=packet_options(options.packets),
            watch_stalls=options.watch_stalls or any(isinstance(event, Failure) for event in events),
            fidelity=fidelity,
            controllers=[*acting, *watching, *own],
            timeline_devices=recorded,
            **_variation(options.variation),
        )
    said = tuple({"name": name, **parameters} for name, parameters in acting)
    common: dict[str, Any] = {
        "fidelity": fidelity,
        "routing": routing,
        "seed": options.seed,
        "fabric": fabric,
        "controllers": said,
    }
    common["reconfigurations"] = reconfigurations_of(
        fabric,
        own,
        raw["reports"],
        raw["forwarded_bytes"],
        max(int(one["iteration_ends_ps"][-1]) for one in raw["jobs"]),
    )
    common["moves"] = tuple(
        move
        for (name, parameters), said_of_it in zip(acting, raw["reports"], strict=False)
        if name == "failures"
        for move in moves_of(fabric, router, parameters, said_of_it)
    )
    of_failures = (report for (name, _), report in zip(acting, raw["reports"], strict=False) if name == "failures")
    said_of_failures, behind = next(of_failures, None), failures_behind(raw, events, router, fabric)
    common["link_counters"] = link_counters(fabric, router, raw["reports"][len(acting)]) if watching else ()
    results = [
        _result(
            number,
            names,
            job,
            one,
            raw,
            router,
            common
            | {
                "notes": (
                    *_steady_note(raw["jobs"][number]),
                    *_notes(job, router, machine, routing),
                    *raw["notes"],
                    *tolerance_notes(options.tolerance),
                    *decision_notes(acting, raw["reports"], routing),
                    *hold_notes(acting, raw["reports"], number),
                ),
                "outage_log": outage_log(number, raw, said_of_failures, behind),
            },
        )
        for number, (job, one) in enumerate(zip(graph.jobs, plans, strict=True))
    ]
    is_single = isinstance(plan, Placed) or (isinstance(plan, TaskGraph) and len(results) == 1)
    return results[0] if is_single else results


def _steady_note(job: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what to know of the figures of a job that is not steady. Args: job: of the core's result."""
    if job["num_averaged"] == 1:
        return ()
    times = np.diff(job["iteration_ends_ps"])[-job["num_averaged"] :] * PS
    return (
        f"iterations are not steady after {len(job['iteration_ends_ps']) - 1:,}: an iteration's figures are the mean of"
        f" the last {len(times):,}, which take {format_time(times.min())} to {format_time(times.max())}",
    )


def _notes(job: GraphJob, router: Any, machine: Machine, routing: str) -> tuple[str, ...]:
    """Return the notes of a job, of its routes, and of hosts that wait less than the machine has them wait."""
    tasks = [task for stage in job.stages for template in stage.templates.values() for task in template]
    graphs = machine.host_graphs or ()
    calls = {kernel.calls for task in tasks for kernel in task.kernels} if graphs else set()
    launch_s, has_routed_rows = machine.host_launch_s, any(task.is_routed for task in tasks)
    said = (
        unused_sync(machine.host_sync, launch_s, has_routed_rows=has_routed_rows),
        unused_slowdown(machine.host_slowdown, launch_s),
        unused_graphs(graphs, calls),
    )
    return (*job.notes, *router.notes, *filter(None, said), *_link_notes(job, machine, routing))


def _link_notes(job: GraphJob, machine: Machine, routing: str) -> tuple[str, ...]:
    """Return which collectives of a job leave most direct links between their ranks idle, each once."""
    said: dict[str, None] = {}
    for (label, _, _), key in job.schedules.items():
        members = job.devices[job.ordered(label)[0]]
        note = link_note(machine.fabric, key, members, routing=routing, label=label)
        if note is not None:
            said[note] = None
    return tuple(said)


def _variation(given: KernelVariation | None) -> dict[str, Any]:
    """Return what the core is told of how kernels vary."""
    if given is None:
        return {}
    return {
        "kernel_deviation": given.deviation, "distribution": given.distribution, "kernel_stream": given.stream,
    }  # fmt: skip


def _check_size(plan: Placed) -> None:
    """Raise ConfigError for a plan whose iteration outlasts the simulated clock, or is too long to be walked."""
    if isinstance(plan, PlacedProgram):
        return _check_steps(plan)
    count = f"global_batch {plan.global_batch:,} is {plan.num_microbatches:,} micro-batches of {plan.micro_batch}"
    said = _too_long([StageTasks(one.index, one.templates, one.program) for one in plan.stages])
    if said:
        raise ConfigError(f"{count}; {said}. Lower global_batch, or raise strategy.micro_batch or dp")


def _check_steps(job: GraphJob | PlacedProgram) -> None:
    """Raise ConfigError for a job whose iteration outlasts the simulated clock, or is too long to be walked."""
    said = _too_long([StageTasks(one.index, one.templates, one.program) for one in job.stages])
    if said:
        raise ConfigError(f"an iteration of {job.name!r} is too long: {said}")


def _too_long(stages: Sequence[StageTasks]) -> str:
    """Return in words why an iteration cannot be simulated, "" if it can."""
    steps = sum(len(stage.program) for stage in stages)
    seconds = max(stage.compute_s for stage in stages)
    if seconds >= MAX_SIMULATED_S:
        return f"an iteration computes for at least {seconds:.3g} s; simulated time ends at {MAX_SIMULATED_S:.3g} s"
    if steps > MAX_STEPS:
        return f"{steps:,} forwards and backwards on all stages in an iteration; at most {MAX_STEPS:,} can be simulated"
    return ""


def _recorded(names: GraphNames, timeline: bool | Sequence[int]) -> list[int]:
    """Return device indices whose tasks are recorded."""
    if isinstance(timeline, bool | np.bool_) and not timeline:
        return []
    if isinstance(timeline, bool | np.bool_):
        _, first = np.unique(np.stack([names.job_of, names.stage_of]), axis=1, return_index=True)
        return sorted(int(d) for d in first)
    device_of = {int(a): d for d, a in enumerate(names.accelerators)}
    recorded = check_integers("timeline", timeline).tolist()
    for accelerator in recorded:
        if accelerator not in device_of:
            raise ConfigError(f"timeline names accelerator {accelerator}, which the job does not use")
    return [device_of[a] for a in recorded]


def _result(
    number: int, names: GraphNames, job: GraphJob, plan: Placed | None, raw: dict[str, Any], router: Any,
    common: dict[str, Any],
) -> JobResult:  # fmt: skip
    found = raw["jobs"][number]
    ends = found["iteration_ends_ps"]
    intervals = np.diff(ends)
    own = names.job_of == number
    kinds, by_device = _breakdown(raw["breakdown_ps"][own], names)
    num_averaged = int(found["num_averaged"])
    averaged_ps = int(ends[-1] - ends[-1 - num_averaged])
    _check_sums(raw["breakdown_ps"][own], averaged_ps)
    by_device = by_device / num_averaged
    _check_path(found["critical_path"], int(ends[-1]))
    num_links = len(common["fabric"].links)
    iteration_s = float(averaged_ps) * PS / num_averaged
    fields: dict[str, Any] = dict(
        job=job,
        **common,
        iteration_times_s=tuple(float(t) * PS for t in intervals),
        is_steady=bool(found["is_steady"]),
        num_averaged=num_averaged,
        breakdown=dict(zip(kinds, by_device.mean(axis=0).tolist(), strict=True)),
        breakdown_by_device=by_device,
        devices=names.accelerators[own],
        bytes_sent=_by_kind(raw["sent_bytes"], names.categories, number),
        bytes_received=_by_kind(raw["received_bytes"], names.categories, number),
        num_messages=_by_kind(raw["num_messages"], names.categories, number),
        collective_times=_collective_times(found["collectives"], names.categories),
        link_bytes=expand_links(raw["link_bytes"], router, num_links),
        link_busy_s=_busy(raw["link_busy_s"], router, num_links),
        num_simulated_devices=raw["num_simulated_devices"],
        checks=(
            *raw["checks"],
            "breakdown sums to the iteration",
            "critical path sums to the iteration",
        ),
        restarts=restarts_of(found),
        _path=found["critical_path"],
        _ends_ps=ends,
        _timeline=raw["timeline"],
        _names=names,
        _number=number,
    )
    if plan is None:
        return JobResult(**fields)
    if isinstance(plan, PlacedProgram):
        return ProgramResult(placed=plan, **fields)
    used, notes = utilization(plan, iteration_s)
    fields |= {**used, "notes": (*fields["notes"], *notes)}
    return RunResult(plan=plan, **fields)


def _breakdown(table_ps: np.ndarray, names: GraphNames) -> tuple[list[str], np.ndarray]:
    """Return the kinds of a breakdown and its times by device [s]; waits for hosts only where hosts limit."""
    kinds = [*_UNEXPOSED, *names.categories]
    kept = [k for k, kind in enumerate(kinds) if kind != "host" or names.has_hosts]
    return [kinds[k] for k in kept], table_ps[:, kept] * PS


def _by_kind(values: np.ndarray, kinds: Sequence[str], job: int) -> dict[str, int]:
    mine = values.reshape(-1, len(kinds))[job]
    return {kind: int(v) for kind, v in zip(kinds, mine, strict=True)}


def _collective_times(table: np.ndarray, kinds: Sequence[str]) -> dict[str, tuple[CollectiveTimes, ...]]:
    """Return times by kind and iteration. table: (kinds, iterations, (count, total ps, longest ps, bytes sent))."""
    return {
        kind: tuple(
            CollectiveTimes(
                int(count), total / count * PS if count else 0.0, longest * PS, sent / (total * PS) if total else 0.0
            )
            for count, total, longest, sent in rows.tolist()
        )
        for kind, rows in zip(kinds, table, strict=True)
        if rows[:, 0].any()
    }


def _busy(values: np.ndarray, router: Any, num_links: int) -> np.ndarray:
    of_link = router.of_link
    busy = np.zeros(num_links)
    busy[: len(of_link)] = values[of_link]
    return busy


def _check_sums(breakdown_ps: np.ndarray, interval_ps: int) -> None:
    wrong = np.flatnonzero(breakdown_ps.sum(axis=1) != interval_ps)
    if wrong.size:
        row = int(wrong[0])
        raise InternalError(f"breakdown of device {row} sums to {breakdown_ps[row].sum()} ps, not {interval_ps}")


def _check_path(path: dict[str, np.ndarray], end_ps: int) -> None:
    """Check that tasks of the critical path follow one another up to the end: then their times and gaps sum to it."""
    starts, ends = path["start_ps"], path["end_ps"]
    if len(ends) == 0 or int(ends[-1]) != end_ps:
        raise InternalError(f"the critical path does not reach the iteration's end at {end_ps} ps")
    overlap = np.flatnonzero(starts[1:] < ends[:-1])
    if overlap.size or np.any(ends < starts):
        raise InternalError(f"the critical path overlaps itself at {starts[1:][overlap[:1]]} ps")
