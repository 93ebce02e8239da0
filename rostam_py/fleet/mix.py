"""simulate_mix: jobs that share a fabric, each compared with itself alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rostam_py.checks import check_seed
from rostam_py.errors import ConfigError, DegreeError
from rostam_py.fleet.job import Job
from rostam_py.fleet.place_mix import check_jobs, place_mix
from rostam_py.fleet.result import JobOutcome, MixResult
from rostam_py.plan.algorithms import algorithm_words
from rostam_py.plan.machine import Machine
from rostam_py.plan.plan import Plan
from rostam_py.simulation.options import takes_options
from rostam_py.simulation.result import RunResult
from rostam_py.simulation.simulate import simulate
from rostam_py.units import parse_time

IDEAL_ROUTING = "spray"


class Baselines:
    """Iteration times of plans alone, each simulated once.

    Runs are shared only where they are the same run: the same stages and settings on the same accelerators of the
    same fabric, with the same routing, seed and number of iterations. A job's start does not matter, since times
    count whole picoseconds from it; spray looks at no seed where there are no circuits to set.
    """

    def __init__(self) -> None:
        self._times: dict[Any, tuple[tuple[float, ...], Any]] = {}

    def iteration_times_s(self, plan: Plan, *, routing: str, seed: int, num_iterations: int) -> tuple[float, ...]:
        """Return the times of exactly ``num_iterations`` iterations of a plan that has its machine to itself [s]."""
        fabric = plan.machine.fabric
        if routing == IDEAL_ROUTING and not fabric.is_circuit_switched:
            seed = 0
        key = (
            id(plan.stages), id(fabric), plan.devices.tobytes(), plan.groups, repr(plan.strategy),
            repr(sorted(plan.machine.slow.items())), repr(plan.machine.physics), routing, seed, num_iterations,
        )  # fmt: skip
        if key not in self._times:
            result = simulate(
                plan, routing=routing, seed=seed, min_iterations=num_iterations, max_iterations=num_iterations
            )
            # What the key names by id is kept, so that nothing else gets that id.
            self._times[key] = (result.iteration_times_s, (plan.stages, fabric))
        return self._times[key][0]


@dataclass(frozen=True)
class _Placed:
    """A job with its plan."""

    name: str
    start_s: float
    plan: Plan


@takes_options
def simulate_mix(
    jobs: Sequence[Job] | Sequence[Plan],
    machine: Machine,
    *,
    plans: Sequence[Plan] | None = None,
    start_times: Sequence[str | float] | None = None,
    routing: str = "hash",
    seed: int = 0,
    num_iterations: int = 3,
    baselines: bool | Baselines = True,
    controllers: Sequence[Any] = (),
    timeline: bool | Sequence[int] = False,
) -> MixResult:
    """Simulate jobs that share a machine's fabric, and each of them alone.

    Model: every job starts at its start time, cold, runs exactly ``num_iterations`` iterations and leaves; links are
        shared max-min, accelerators are not shared. Its slow-down is the mean of its iteration times in the mix over
        the mean of the same iterations (first with first, and so on) alone on the same accelerators with the
        same routing and seed: a message takes the same path in both. So it holds what happened while the job ran: a
        job whose neighbours have left, or have not come, runs as if alone. ``ideal_s`` is alone as well but sprayed.
        Neither slow-down is bounded by 1: a job held up elsewhere may find its links free later (MODEL F20).
        An all-reduce of gradients takes a rank from when it joins to when it is through: ``all_reduce_s`` is the
        longest of a job, ``flow_completion_s`` the mean. With one bucket they are of all of a rank's gradients.
        On a fabric with circuits the mix has those of all its traffic, a job alone those of its own.
    Args: jobs: Jobs, or Plans (named plan_0, plan_1, ...). machine: that they share. plans: of the Jobs, from
        ``place_mix``; None places them with its defaults. start_times: of Plans [s, or text]; Jobs have theirs.
        routing: "hash" (one path a connection, as ECMP) or "spray". seed: of the hash and of circuits.
        num_iterations: >= 1.
        baselines: False leaves alone_s and ideal_s out; a ``Baselines`` keeps and reuses what it holds.
        controllers: as in ``simulate``, of the mix; a job alone is without them. timeline: as in ``simulate``, of the
        mix. options: SimulationOptions; keywords go first.
    Returns: outcome and RunResult of every job, in order.
    Raises: ConfigError for bad arguments or plans of another machine; DegreeError for jobs that overlap or ask for
        too much; what ``simulate`` raises.
    Cost: about a microsecond for each kernel of all jobs' iterations, and for each message on links that another job
        else uses; as much again for the baselines.
    Source: own, tests/fleet.
    """
    if isinstance(num_iterations, bool) or not isinstance(num_iterations, int) or num_iterations < 1:
        raise ConfigError(f"mix.num_iterations is {num_iterations!r}; it must be an integer >= 1")
    seed = check_seed("seed", seed)
    placed = _placed(jobs, machine, plans, start_times)
    results = simulate(
        [one.plan for one in placed], routing=routing, seed=seed, start_times=[one.start_s for one in placed],
        min_iterations=num_iterations, max_iterations=num_iterations, controllers=controllers, timeline=timeline,
    )  # fmt: skip
    known = Baselines() if baselines is True else baselines or None
    outcomes = []
    for one, result in zip(placed, results, strict=True):
        alone, ideal = (None, None)
        if known is not None:
            alone, ideal = _alone(one.plan, result, known, is_only=len(placed) == 1 and not controllers)
        outcomes.append(
            JobOutcome(
                one.name, one.plan.graph_name, one.plan.num_devices, one.start_s,
                result.iteration_times_s, alone, ideal, result.collective_times.get("dp", ()),
                algorithm_words(result.algorithms),
            )
        )  # fmt: skip
    return MixResult(tuple(outcomes), tuple(results), routing, seed, num_iterations)


def _alone(
    plan: Plan, result: RunResult, known: Baselines, *, is_only: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return a job's iteration times alone and with the routing of its result, and alone and sprayed [s]."""
    num_iterations = len(result.iteration_times_s)
    alone = result.iteration_times_s  # the only job of a mix is alone in it
    if not is_only:
        alone = known.iteration_times_s(plan, routing=result.routing, seed=result.seed, num_iterations=num_iterations)
    if result.routing == IDEAL_ROUTING:
        return alone, alone
    return alone, known.iteration_times_s(
        plan, routing=IDEAL_ROUTING, seed=result.seed, num_iterations=num_iterations
    )  # fmt: skip


def _placed(
    jobs: Sequence[Job] | Sequence[Plan],
    machine: Machine,
    plans: Sequence[Plan] | None,
    start_times: Sequence[str | float] | None,
) -> list[_Placed]:
    """Return names, start times and plans of what ``simulate_mix`` was given, checked."""
    given = list(jobs)
    if not given:
        raise ConfigError("jobs is empty; a mix needs at least one job")
    if all(isinstance(one, Job) for one in given):
        if start_times is not None:
            raise ConfigError("start_times is given, but jobs have start times of their own; set Job.start_s")
        placed = _placed_jobs([one for one in given if isinstance(one, Job)], machine, plans)
    elif all(isinstance(one, Plan) for one in given):
        if plans is not None:
            raise ConfigError("plans is given twice, as jobs and as plans; give Jobs, or leave plans out")
        starts = [0.0] * len(given) if start_times is None else [parse_time(t, "start_times") for t in start_times]
        if len(starts) != len(given):
            raise ConfigError(f"start_times has {len(starts)} entries for {len(given)} plans; give one a plan")
        made = [one for one in given if isinstance(one, Plan)]
        placed = [_Placed(f"plan_{k}", start, plan) for k, (start, plan) in enumerate(zip(starts, made, strict=True))]
    else:
        kinds = ", ".join(sorted({type(one).__name__ for one in given}))
        raise ConfigError(f"jobs holds {kinds}; it must hold Jobs only, or Plans only")
    _check_machine(placed, machine)
    return placed


def _placed_jobs(jobs: list[Job], machine: Machine, plans: Sequence[Plan] | None) -> list[_Placed]:
    check_jobs(jobs)
    made = place_mix(jobs, machine) if plans is None else list(plans)
    if len(made) != len(jobs):
        raise ConfigError(f"plans has {len(made)} entries for {len(jobs)} jobs; give one a job")
    return [_Placed(job.name, parse_time(job.start_s), plan) for job, plan in zip(jobs, made, strict=True)]


def _check_machine(placed: Sequence[_Placed], machine: Machine) -> None:
    """Raise unless the plans are on this machine and on different accelerators of it."""
    owner: dict[int, str] = {}
    for one in placed:
        if one.plan.machine.fabric is not machine.fabric:
            raise ConfigError(
                f"the plan of job {one.name!r} is on {one.plan.machine.fabric.describe()}, another fabric than the"
                f" machine's {machine.fabric.describe()}; place it on this machine"
            )
        for accelerator in one.plan.devices.tolist():
            other = owner.setdefault(accelerator, one.name)
            if other != one.name:
                raise DegreeError(
                    f"jobs {other!r} and {one.name!r} both use accelerator {accelerator}; give each its own"
                )
