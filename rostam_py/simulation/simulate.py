"""Simulate plans: placed training jobs in, times and their reasons out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.checks import check_integers, check_seed
from rostam_py.costs.precision import get_precision
from rostam_py.errors import ConfigError, InternalError
from rostam_py.fabrics.config import check_integer
from rostam_py.fabrics.traffic import Traffic
from rostam_py.plan.plan import Plan
from rostam_py.plan.tasks import Stage
from rostam_py.simulation.engines import check_fidelity
from rostam_py.simulation.events import LinkBandwidth, check_events, controller_list, expand_links
from rostam_py.simulation.network import list_of, make_router
from rostam_py.simulation.options import takes_options
from rostam_py.simulation.result import PS, CollectiveTimes, RunResult
from rostam_py.simulation.task_graph import CompiledGraph, compile_plans, seconds_to_ps
from rostam_py.units import MAX_SIMULATED_S, parse_time

STEADY_TOLERANCE = 1e-3  # MODEL B9: 0.1%
# Forwards and backwards of all stages in one iteration. Each takes about a microsecond and a hundred bytes of the
# critical path, which a session keeps whole: 10^8 are minutes and 10 GB.
MAX_STEPS = 10**8
_UNEXPOSED = ("compute", "launch", "bubble")


@takes_options
def simulate(
    plan: Plan | Sequence[Plan],
    *,
    fidelity: str = "flow",
    routing: str = "spray",
    seed: int = 0,
    fold: bool = True,
    shortcuts: bool | None = None,
    fuse: bool = True,
    timeline: bool | Sequence[int] = False,
    events: Sequence[Any] = (),
    controllers: Sequence[Any] = (),
    start_times: Sequence[str | float] | None = None,
    max_iterations: int | None = None,
    min_iterations: int = 1,
) -> Any:
    """Simulate one plan, or several that share a fabric, until the iteration time is steady.

    Model: MODEL B; streams, launch latency, overlap and max-min sharing of links. Reduction arithmetic costs
        nothing. While a device takes part in a collective its kernels run at 1 - comm_compute_fraction (default 0).
    Args: fidelity: the engine (rostam list fidelities). routing: "spray" or "hash". seed: of the hash and of
        circuits, 0 to 2^64 - 1.
        fold: simulate devices that must behave alike once; shortcuts (by default as fold): compute rings whose links
        nothing else uses meanwhile without their messages (same numbers, see MODEL H24). Both False simulate every
        device and message. options: SimulationOptions; keywords go first. fuse: False
        keeps every kernel a task (same times, slower). timeline: True records one device of every stage, or a list
        of accelerators. events: LinkBandwidth changes. controllers: names, or (name, parameters), of what acts on
        the network meanwhile (rostam list controllers). start_times: of each plan [s or text].
        max_iterations: upper bound; default 10 for one plan; with several plans each runs exactly that many,
        default 3. min_iterations: of one plan, whether it is steady before or not.
    Returns: RunResult, or a list of them for a list of plans.
    Raises: ConfigError for bad arguments and for iterations too long to be simulated, NoRouteError for cut fabrics,
        DeadlockError if nothing can go on.
    Cost: kernels and messages in one iteration x iterations, at about a microsecond each; folding divides it.
    """
    check_fidelity(fidelity)
    check_events(events, (LinkBandwidth,), "simulate")
    seed = check_seed("seed", seed)
    plans = [plan] if isinstance(plan, Plan) else list(plan)
    for one in plans:
        _check_size(one)
    starts_ps = _starts(plans, start_times)
    graph = compile_plans(plans, starts_ps=starts_ps, fuse=fuse)
    fabric = fabric_of(plans, seed)
    router = make_router(fabric, routing, has_events=bool(events or controllers))
    is_mix = len(plans) > 1
    default = 3 if is_mix else 10
    limit = check_integer("max_iterations", default if max_iterations is None else max_iterations, 1)
    if check_integer("min_iterations", min_iterations, 1) > limit:
        raise ConfigError(f"min_iterations is {min_iterations}; it must be from 1 to max_iterations = {limit}")
    machine = plans[0].machine
    _check_agreement(plans)
    raw = _core.run_session(
        graph.core,
        router,
        launch_latency_ps=seconds_to_ps(machine.launch_latency_s),
        min_collective_ps=seconds_to_ps(machine.min_kernel_s),
        comm_compute_fraction=machine.comm_compute_fraction,
        min_iterations=min_iterations,
        max_iterations=limit,
        steady_tolerance=STEADY_TOLERANCE,
        seed=seed,
        fold=fold,
        shortcuts=fold if shortcuts is None else shortcuts,
        fidelity=fidelity,
        controllers=controller_list(events, controllers, router, fabric),
        timeline_devices=_recorded(graph, timeline),
    )
    common = {"fidelity": fidelity, "routing": routing, "seed": seed, "fabric": fabric}
    results = [_result(number, graph, one, raw, router, common) for number, one in enumerate(plans)]
    return results[0] if isinstance(plan, Plan) else results


def fabric_of(plans: Sequence[Plan], seed: int) -> Any:
    """Return the fabric that plans run on: with circuits for the traffic of all of them where it needs circuits."""
    if len(plans) == 1:
        return plans[0].fabric_with_circuits(seed)
    fabric = plans[0].machine.fabric
    if not fabric.is_circuit_switched or fabric.circuits is not None:
        return fabric
    return fabric.with_circuits(Traffic.total([plan.traffic for plan in plans]), seed=seed)


def _check_size(plan: Plan) -> None:
    """Raise ConfigError for a plan whose iteration outlasts the simulated clock, or is too long to be walked."""
    count = f"global_batch {plan.global_batch:,} is {plan.num_microbatches:,} micro-batches of {plan.micro_batch}"
    steps = sum(len(stage.program) for stage in plan.stages)
    seconds = max(_compute_s(stage) for stage in plan.stages)
    if seconds >= MAX_SIMULATED_S:
        raise ConfigError(
            f"{count}, and an iteration computes for at least {seconds:.3g} s; simulated time ends at"
            f" {MAX_SIMULATED_S:.3g} s. Lower global_batch, or raise strategy.micro_batch or dp"
        )
    if steps > MAX_STEPS:
        raise ConfigError(
            f"{count}, {steps:,} forwards and backwards on all stages in an iteration; at most {MAX_STEPS:,} can be"
            " simulated. Lower global_batch, or raise strategy.micro_batch or dp"
        )


def _compute_s(stage: Stage) -> float:
    """Return what a stage's kernels take in one iteration [s]."""
    counts = stage.program.counts().items()
    return sum(count * sum(task.duration_s for task in stage.templates[name]) for name, count in counts)


def _check_agreement(plans: Sequence[Plan]) -> None:
    """Raise ConfigError where the machines of one simulation differ in what the session has once."""
    for key, value in plans[0].machine.physics.items():
        values = [plan.machine.physics[key] for plan in plans]
        if any(other != value for other in values):
            raise ConfigError(f"machine.{key} differs between the plans of one simulation: {values}; set one value")


def _starts(plans: Sequence[Plan], start_times: Sequence[str | float] | None) -> list[int]:
    if start_times is None:
        return [0] * len(plans)
    given = list_of("start_times", start_times, len(plans), "plans")
    return [seconds_to_ps(parse_time(value, "start_times")) for value in given]


def _recorded(graph: CompiledGraph, timeline: bool | Sequence[int]) -> list[int]:
    """Return device indices whose tasks are recorded."""
    if isinstance(timeline, bool | np.bool_) and not timeline:
        return []
    if isinstance(timeline, bool | np.bool_):
        _, first = np.unique(np.stack([graph.plan_of, graph.stage_of]), axis=1, return_index=True)
        return sorted(int(d) for d in first)
    device_of = {int(a): d for d, a in enumerate(graph.accelerators)}
    recorded = check_integers("timeline", timeline).tolist()
    for accelerator in recorded:
        if accelerator not in device_of:
            raise ConfigError(f"timeline names accelerator {accelerator}, which the job does not use")
    return [device_of[a] for a in recorded]


def _result(
    number: int, graph: CompiledGraph, plan: Plan, raw: dict[str, Any], router: Any, common: dict[str, Any]
) -> RunResult:
    job = raw["jobs"][number]
    ends = job["iteration_ends_ps"]
    intervals = np.diff(ends)
    own = graph.plan_of == number
    by_device = raw["breakdown_ps"][own] * PS
    _check_sums(raw["breakdown_ps"][own], int(intervals[-1]))
    _check_path(job["critical_path"], int(ends[-1]))
    num_links = len(common["fabric"].links)
    iteration_s = float(intervals[-1]) * PS
    mfu, hfu = _utilization(plan, iteration_s)
    return RunResult(
        plan=plan,
        **common,
        iteration_times_s=tuple(float(t) * PS for t in intervals),
        is_steady=bool(job["is_steady"]),
        breakdown=dict(zip((*_UNEXPOSED, *graph.categories), by_device.mean(axis=0).tolist(), strict=True)),
        breakdown_by_device=by_device,
        devices=graph.accelerators[own],
        bytes_sent=_by_kind(raw["sent_bytes"], graph.categories, number),
        bytes_received=_by_kind(raw["received_bytes"], graph.categories, number),
        num_messages=_by_kind(raw["num_messages"], graph.categories, number),
        collective_times=_collective_times(job["collectives"], graph.categories),
        link_bytes=expand_links(raw["link_bytes"], router, num_links),
        link_busy_s=_busy(raw["link_busy_s"], router, num_links),
        mfu=mfu,
        hfu=hfu,
        num_simulated_devices=raw["num_simulated_devices"],
        checks=(
            *raw["checks"], "breakdown sums to the iteration", "critical path sums to the iteration",
        ),
        notes=plan.notes,
        _path=job["critical_path"],
        _ends_ps=ends,
        _timeline=raw["timeline"],
        _graph=graph,
    )  # fmt: skip


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
    busy = np.zeros(num_links)
    for value, links in zip(values, router.members, strict=True):
        busy[links] = value
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


def _utilization(plan: Plan, iteration_s: float) -> tuple[float, float]:
    """Return MFU and HFU: model and hardware FLOPs over peak x devices x time."""
    peak = plan.machine.device.peak(get_precision(plan.precision).matrix_peak)
    available = peak * plan.num_devices * iteration_s
    alike: dict[int, list[Stage]] = {}  # number of devices -> stages that so many run
    for stage, count in zip(plan.stages, np.bincount(plan.stage_of, minlength=len(plan.stages)).tolist(), strict=True):
        alike.setdefault(count, []).append(stage)
    model = sum(sum(stage.flops for stage in stages) * count for count, stages in alike.items())
    hardware = sum(sum(stage.hardware_flops for stage in stages) * count for count, stages in alike.items())
    return model / available, hardware / available
