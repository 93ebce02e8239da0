"""``rostam fleet``: weeks of one job, with faults and the answers to them, as a table, JSON, CSV and a report."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py import __version__
from rostam_py.cli.compose import compose_config
from rostam_py.cli.fleet_jobs import fleet_jobs
from rostam_py.cli.point import point_settings
from rostam_py.cli.progress_lines import ProgressLines
from rostam_py.cli.run_folder import send_on
from rostam_py.cli.schema import FleetConfig
from rostam_py.cli.weeks_tables import fleet_folder, write_fleet_folder, write_tables
from rostam_py.errors import ConfigError
from rostam_py.extras import require
from rostam_py.fleet.goodput import FaultTrace, Goodput, LongJob, replay
from rostam_py.fleet.goodput.bill import Bill
from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.fleet.goodput.paces import EnginePaces
from rostam_py.fleet.goodput.parts import parts_of_plan
from rostam_py.fleet.goodput.result import CAUSES
from rostam_py.fleet.goodput.writing import Writing
from rostam_py.plan.plan import Plan
from rostam_py.report.needs import page_needs
from rostam_py.report.weeks.load import FORMAT, VERSION
from rostam_py.simulation.simulate import simulate
from rostam_py.spec.build import build_machine, cost_arguments, place_settings, simulation_options
from rostam_py.spec.build_break_even import BreakEven, build_break_even
from rostam_py.spec.build_fleet import (
    accelerators_per_server,
    build_bill,
    build_faults,
    build_long_job,
    check_policy,
    units_of_plan,
)
from rostam_py.spec.build_writing import build_writing, with_writing
from rostam_py.spec.settings import goal_of_settings
from rostam_py.units import format_count, format_number_of, format_size, format_time


@dataclass(kw_only=True)
class _Weeks:
    """A job's weeks by policy.

    simulated_s: an iteration of all replicas; the job's own is what measured jobs let expect, where that is known [s].
    iterations: to the target, None without one. bill: what its accelerators and spares cost. refused: policies that its
    layout does not permit, and why. writing: of checkpoints that the job does not stop for.
    """

    plan: Plan
    job: LongJob
    faults: FaultTrace
    simulated_s: float
    iterations: float | None
    bill: Bill
    writing: Writing | None
    num_spares: int
    accelerators_per_server: int
    break_even: BreakEven | None = None
    found: dict[str, Goodput] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def to_target_s(self, policy: str) -> float | None:
        """Return the wall time to the target at the window's mean pace [s]; None without either."""
        return None if self.iterations is None else self.found[policy].time_to_s(self.iterations)


def fleet(overrides: list[str], as_json: bool) -> int:
    """Replay the weeks that the overrides describe, print where they went, and fill the folder. Returns the status."""
    config: FleetConfig = compose_config("fleet", overrides)
    if config.fleet.jobs is not None:
        return fleet_jobs(config, overrides, as_json)
    console = Console(stderr=True)
    require(*(page_needs("report=true", otherwise="report=false") if config.report else []))
    folder = fleet_folder(config, overrides, config.model)
    with ProgressLines(console) as log:
        weeks = _weeks(config, log)
    document = _document(weeks)
    text = json.dumps(document, indent=2) + "\n"
    write_fleet_folder(
        folder, overrides, config.seed, text,
        lambda stage: write_tables(stage, weeks.job, weeks.faults, weeks.found, weeks.break_even),
    )  # fmt: skip
    if as_json:
        print(text, end="")
        send_on(console, folder, report=config.report)
        return 0
    _print(Console(width=max(130 if weeks.iterations is None else 165, Console().width)), weeks)
    reasons: dict[str, list[str]] = {}
    for policy, reason in weeks.refused.items():
        reasons.setdefault(reason, []).append(policy)
    notes = [f"left out: {', '.join(policies)}: {reason}" for reason, policies in reasons.items()]
    if config.fleet.break_even and weeks.break_even is None:
        notes.append(f"no break-even curves: a trace of {len(weeks.faults.faults):,} faults is too long to be replayed")
    for note in (*notes, *config.fleet.unread_keys()):
        console.print(f"note: {note}", style="dim", highlight=False, markup=False)
    console.print(f"written to {folder}", style="dim", highlight=False, markup=False)
    send_on(console, folder, report=config.report)
    return 0


def _weeks(config: FleetConfig, log: ProgressLines) -> _Weeks:
    """Simulate the iteration, and replay the weeks of every policy."""
    settings, options = point_settings("run", config), config.fleet
    goal = goal_of_settings(settings)
    from rostam_py.tracing import trace

    log.say(f"tracing {config.model}")
    graph = trace(config.model, cache=config.trace_cache)
    log.say("placing and simulating the whole job")
    plan = place_settings(graph, build_machine(settings), settings)
    how = simulation_options(settings)
    result = simulate(plan, options=how)
    expected, simulated_s = result.expected_iteration_s, result.iteration_time_s
    iteration_s = simulated_s if expected is None else expected.middle
    paces = EnginePaces(
        graph, plan, batch=options.batch, options=how, cost_config=cost_arguments(settings)["cost_config"],
        scale=iteration_s / simulated_s,
    )  # fmt: skip
    units = units_of_plan(plan, options)
    faults = build_faults(options, sum(map(len, units)))
    job = build_long_job(options, units, iteration_s, faults, paces, parts_of_plan(plan, units))
    writing = build_writing(options, plan, how)
    job = with_writing(job, writing, options, faults)
    iterations = None if goal is None else goal.iterations(plan.global_batch, extrapolate=config.extrapolate)
    weeks = _Weeks(
        plan=plan, job=job, faults=faults, simulated_s=simulated_s, iterations=iterations,
        bill=build_bill(options, plan, config.accelerator_usd_per_hour), num_spares=options.spares, writing=writing,
        accelerators_per_server=accelerators_per_server(plan, options),
    )  # fmt: skip
    for policy in options.policies:
        log.say(f"replaying {faults.window_s / DAY_S:,.1f} days of {len(faults.faults):,} faults, policy {policy}")
        try:
            check_policy(policy, plan)
            weeks.found[policy] = replay(job, faults, policy, spares=options.spares)
        except ConfigError as error:  # a layout that fewer replicas cannot have
            if len(options.policies) == 1:
                raise
            weeks.refused[policy] = str(error)
    if not weeks.found:
        raise ConfigError(f"fleet.policies: none can be taken: {'; '.join(dict.fromkeys(weeks.refused.values()))}")
    weeks.break_even = build_break_even(options, job, faults, weeks.found, log.say)
    return weeks


def _document(weeks: _Weeks) -> dict[str, Any]:
    job, faults, plan = weeks.job, weeks.faults, weeks.plan
    return {
        "format": FORMAT, "version": VERSION, "rostam_version": __version__, "graph": plan.graph_name,
        "fabric": plan.machine.fabric.describe(), "accelerator": plan.machine.device.name,
        "strategy": plan.strategy.describe(), "software": plan.software.settings, "num_servers": job.num_servers,
        "num_spares": weeks.num_spares, "accelerators_per_server": weeks.accelerators_per_server,
        "units": [list(one) for one in job.units],
        "simulated_iteration_s": weeks.simulated_s, "iteration_s": job.whole.iteration_s,
        "writing": None if weeks.writing is None else asdict(weeks.writing),
        "checkpoint_iterations": job.checkpoint_iterations, "checkpoint_s": job.checkpoint,
        "detection_s": job.detection, "restart_s": job.restart, "rejoin_s": job.rejoin,
        "reshard_s": job.reshard, "parts": {str(servers): share for servers, share in job.parts.items()},
        "faults": {
            "num_servers": faults.num_servers, "window_s": faults.window_s, "num_faults": len(faults.faults),
            "per_1000_server_days": faults.per_1000_server_days, "share_of_time_down": faults.share_down,
            "mean_servers_down": faults.mean_down, "most_servers_down": faults.most_down,
            "cv_between_faults": faults.cv_between if len(faults.faults) > 2 else None,
        },
        "global_batch": plan.global_batch, "tokens_per_sample": plan.sequence_length or None,
        "iterations_to_target": weeks.iterations, "num_accelerators": weeks.bill.num_accelerators,
        "accelerator_usd_per_hour": weeks.bill.usd_per_hour, "watts_per_accelerator": weeks.bill.watts,
        "policies": {
            name: one.to_dict() | {
                "time_to_target_s": (to_target_s := weeks.to_target_s(name)),
                "target_reached_s": None if weeks.iterations is None else one.reached_s(weeks.iterations),
                "cost": weeks.bill.over(faults.window_s), "cost_to_target": weeks.bill.over(to_target_s),
            }
            for name, one in weeks.found.items()
        },
        "break_even": None if weeks.break_even is None else weeks.break_even.to_dict(),
        "refused": weeks.refused,
    }  # fmt: skip


def _print(console: Console, weeks: _Weeks) -> None:
    job, faults, plan = weeks.job, weeks.faults, weeks.plan
    days = faults.window_s / DAY_S
    window = f"{days:,.1f} days" if days > 1 else format_time(faults.window_s)
    title = f"{plan.graph_name} for {window} on {format_number_of(job.num_servers, 'server')}"
    table = Table(title=title)
    table.add_column("policy")
    columns = ["goodput", *(cause for cause in CAUSES if cause != "useful"), "cuts", "iterations", "trained"]
    if weeks.iterations is not None:
        columns.append("to the target")
    for name in columns:
        table.add_column(name, justify="right")
    for policy, one in weeks.found.items():
        lost = [f"{one.share(cause):.1%}" for cause in CAUSES if cause != "useful"]
        cells = [policy, f"{one.goodput:.1%}", *lost, f"{one.num_cuts:,}", f"{one.samples:,.0f}", _trained(plan, one)]
        if weeks.iterations is not None:
            cells.append(_to_target(weeks, policy))
        table.add_row(*cells)
    console.print(table)
    for line in _said(weeks):
        console.print(line, highlight=False, markup=False)
    for cause, meaning in CAUSES.items():
        console.print(f"  {cause}: {meaning}", style="dim", highlight=False, markup=False)
    for name, meaning in (
        ("cuts", "faults that cut the job, those while it was down included"),
        ("iterations", "useful ones, as many of the whole global batch as they are worth"),
    ):
        console.print(f"  {name}: {meaning}", style="dim", highlight=False, markup=False)


def _said(weeks: _Weeks) -> list[str]:
    """Return what the replay rests on."""
    job, faults, software = weeks.job, weeks.faults, weeks.plan.software
    own_s = job.whole.iteration_s
    if own_s != weeks.simulated_s:
        what = (
            f"iteration {format_time(own_s)}, as measured jobs let expect ({format_time(weeks.simulated_s)} simulated)"
        )
    else:
        bound = ", an upper bound of speed" if software.is_ideal else ""
        what = f"iteration {format_time(own_s)}, simulated{bound}"
    say = [
        f"{what}; a checkpoint every {format_time(job.checkpoint_iterations * own_s)}"
        f" ({format_number_of(job.checkpoint_iterations, 'iteration')})"
    ]
    has_gaps = len(faults.faults) > 2
    gap = f" (times between them vary {faults.cv_between:.2f} times as much as memoryless ones)" if has_gaps else ""
    say.append(
        f"faults: {len(faults.faults):,} on {format_number_of(faults.num_servers, 'server')},"
        f" {faults.per_1000_server_days:.2f} for 1,000 server-days{gap};"
        f" {faults.share_down:.2%} of their time is lost, {faults.mean_down:.1f} servers are down on average,"
        f" {faults.most_down} at most"
    )
    if (writing := weeks.writing) is not None:
        say.append(
            f"a checkpoint of {format_size(writing.num_bytes)} is written in"
            f" {format_number_of(writing.iterations, 'iteration')}, each {writing.stretch - 1:.1%} longer"
            f" ({writing.basis})"
        )
    dp = weeks.plan.strategy.dp
    if dp > 1 and job.replicas < dp:
        each = "all replicas" if job.replicas == 1 else format_number_of(dp // job.replicas, "replica")
        say.append(f"a fault breaks {each} at once: servers hold ranks of several (strategy.rank_order)")
    return say


def _to_target(weeks: _Weeks, policy: str) -> str:
    """Return when a policy gets there, and what the accelerators of the job and of its spares cost until then."""
    seconds = weeks.to_target_s(policy)
    if seconds is None:
        return "never"
    usd = weeks.bill.over(seconds)["usd"]
    return f"{seconds / DAY_S:,.1f} days" + ("" if usd is None else f", {usd:,.0f} USD")


def _trained(plan: Plan, one: Goodput) -> str:
    samples = one.samples * plan.global_batch
    if plan.sequence_length:
        return f"{format_count(round(samples * plan.sequence_length))} tokens"
    return f"{format_count(round(samples))} samples"
