"""``rostam fleet``: weeks of one job, with faults and the answers to them, as a table, JSON and a file of days."""

import csv
import hashlib
import json
import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py import __version__
from rostam_py.checks import check_folder
from rostam_py.cli.compose import compose_config, resolved_yaml
from rostam_py.cli.progress_lines import ProgressLines
from rostam_py.cli.run import point_settings
from rostam_py.cli.schema import FleetConfig, name_of
from rostam_py.documents import staged
from rostam_py.errors import ConfigError
from rostam_py.fleet.goodput import POLICIES, FaultTrace, Goodput, LongJob, replay
from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.fleet.goodput.paces import EnginePaces, PacesOfServers
from rostam_py.fleet.goodput.result import CAUSES
from rostam_py.plan.plan import Plan
from rostam_py.simulation.simulate import simulate
from rostam_py.spec.build import build_machine, place_settings, simulation_options
from rostam_py.spec.fleet_options import FleetOptions
from rostam_py.units import format_count, format_time, parse_time

_DAYS = 30.0  # of drawn faults


def fleet(overrides: list[str], as_json: bool) -> int:
    """Replay the weeks that the overrides describe, print where they went, and fill the folder. Returns the status."""
    config: FleetConfig = compose_config("fleet", overrides)
    console = Console(stderr=True)
    folder = Path(config.out) if config.out else _default_folder(config, overrides)
    check_folder(folder, "out")
    settings = point_settings("run", config)
    from rostam_py.tracing import trace

    with ProgressLines(console) as log:
        log.say(f"tracing {config.model}")
        graph = trace(config.model, cache=config.trace_cache)
        log.say("placing and simulating the whole job")
        machine = build_machine(settings)
        plan = place_settings(graph, machine, settings)
        options = simulation_options(settings)
        result = simulate(plan, options=options)
        servers = servers_of(plan, config.fleet)
        faults = faults_of(config.fleet, servers)
        paces = EnginePaces(graph, plan, batch=config.fleet.batch, options=options)
        job = long_job(config.fleet, plan, servers, result.iteration_time_s, faults, paces)
        found = {}
        refused: dict[str, str] = {}
        for policy in config.fleet.policies:
            log.say(f"replaying {faults.window_s / DAY_S:,.0f} days, policy {policy}")
            try:
                check_policy(policy, plan)
                found[policy] = replay(job, faults, policy, spares=config.fleet.spares)
            except ConfigError as error:  # a layout that fewer replicas cannot have
                if len(config.fleet.policies) == 1:
                    raise
                refused[policy] = str(error)
        if not found:
            raise ConfigError(f"fleet.policies: none can be taken: {'; '.join(dict.fromkeys(refused.values()))}")
    document = _document(job, faults, plan, found) | {"refused": refused}
    text = json.dumps(document, indent=2) + "\n"
    _write(folder, config, overrides, text, found)
    if as_json:
        print(text, end="")
    else:
        _print(Console(width=max(130, Console().width)), job, faults, plan, found)
        for policy, reason in refused.items():
            console.print(f"note: policy {policy} is left out: {reason}", style="dim", highlight=False, markup=False)
        console.print(f"written to {folder}", style="dim", highlight=False, markup=False)
    return 0


def check_policy(policy: str, plan: Plan) -> None:
    """Raise ConfigError for a policy that a plan's layout does not permit."""
    if POLICIES.get(policy).NEEDS_WHOLE_REPLICAS and plan.strategy.shard and plan.strategy.dp > 1:
        raise ConfigError(
            f"fleet.policies holds {policy!r}, for which every replica must have all of the state; strategy.shard is"
            f" {plan.strategy.shard}, which shares it among replicas: set strategy.shard=0, or take another policy"
        )


def servers_of(plan: Plan, options: FleetOptions) -> int:
    """Return the servers of a job. Raises: ConfigError unless its replicas are whole servers."""
    size = options.accelerators_per_server or plan.machine.fabric.config.accelerators_per_server
    replica, total = plan.strategy.num_ranks_of_replica, plan.strategy.num_ranks
    if total % size or (plan.strategy.dp > 1 and replica % size and size % replica):
        raise ConfigError(
            f"fleet.accelerators_per_server is {size}, but the job has {plan.strategy.dp} replicas of {replica}"
            " accelerators; servers must hold whole replicas, or replicas whole servers"
        )
    return int(total // size)


def faults_of(options: FleetOptions, servers: int) -> FaultTrace:
    """Return recorded faults, or drawn ones."""
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
    found = FaultTrace.read(options.faults, num_servers=options.servers, window=window)
    if found.num_servers < wanted:
        raise ConfigError(
            f"fleet.faults is {options.faults!r}, faults of {found.num_servers} servers, but the job has {servers} and"
            f" fleet.spares is {options.spares}; set fleet.servers to the size of that cluster, or take a smaller job"
        )
    return found.memoryless(options.seed) if options.memoryless else found


def long_job(
    options: FleetOptions, plan: Plan, servers: int, iteration_s: float, faults: FaultTrace, paces: EnginePaces
) -> LongJob:
    """Return a job of weeks; its checkpoints, where no time between them is given, as far apart as Young and Daly say.

    Source: Daly, FGCS 22 (2006): sqrt(2 C M) - C, with C a checkpoint's time and M the mean time between the job's
        faults.
    """
    dp = plan.strategy.dp
    replicas = dp if servers % dp == 0 else servers  # replicas that share a server fail together
    known = paces if replicas == dp else PacesOfServers(paces, dp // replicas)
    every_s = _between_checkpoints_s(options, servers, faults)
    return LongJob(
        num_servers=servers, replicas=replicas, iteration=iteration_s, paces=known,
        checkpoint_iterations=max(round(every_s / iteration_s), 1), checkpoint=options.checkpoint,
        detection=options.detection, restart=options.restart, rejoin=options.rejoin,
    )  # fmt: skip


def _between_checkpoints_s(options: FleetOptions, servers: int, faults: FaultTrace) -> float:
    if options.checkpoint_every is not None:
        return parse_time(options.checkpoint_every, "fleet.checkpoint_every")
    cost_s = parse_time(options.checkpoint, "fleet.checkpoint")
    if not faults.faults:
        return DAY_S
    mtbf_s = 1_000 * DAY_S / (faults.per_1000_server_days * servers)
    return max(math.sqrt(2 * max(cost_s, 1.0) * mtbf_s) - cost_s, 1.0)


def _document(job: LongJob, faults: FaultTrace, plan: Plan, found: dict[str, Goodput]) -> dict[str, Any]:
    return {
        "rostam_version": __version__, "graph": plan.graph_name, "strategy": plan.strategy.describe(),
        "num_servers": job.num_servers, "replicas": job.replicas, "iteration_s": job.whole.iteration_s,
        "checkpoint_iterations": job.checkpoint_iterations, "checkpoint_s": job.checkpoint,
        "detection_s": job.detection, "restart_s": job.restart, "rejoin_s": job.rejoin,
        "faults": {
            "num_servers": faults.num_servers, "window_s": faults.window_s, "num_faults": len(faults.faults),
            "per_1000_server_days": faults.per_1000_server_days, "share_of_time_down": faults.share_down,
            "mean_servers_down": faults.mean_down, "most_servers_down": faults.most_down,
            "cv_between_faults": faults.cv_between if len(faults.faults) > 2 else None,
        },
        "policies": {name: one.to_dict() for name, one in found.items()},
    }  # fmt: skip


def _write(folder: Path, config: FleetConfig, overrides: list[str], text: str, found: dict[str, Goodput]) -> None:
    about = {"rostam_version": __version__, "seed": config.seed, "overrides": overrides}
    with staged(folder) as stage:
        (stage / "config.yaml").write_text(resolved_yaml("fleet", overrides), encoding="utf-8")
        (stage / "run.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        (stage / "fleet.json").write_text(text, encoding="utf-8")
        with (stage / "days.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(["policy", "day", *(f"{cause}_s" for cause in CAUSES)])
            for policy, one in found.items():
                for day, seconds in enumerate(zip(*(one.days[cause] for cause in CAUSES), strict=True)):
                    rows.writerow([policy, day, *seconds])


def _default_folder(config: FleetConfig, overrides: list[str]) -> Path:
    digest = hashlib.sha256(resolved_yaml("fleet", overrides).encode()).hexdigest()[:8]
    return Path("runs") / f"fleet-{Path(config.model).stem}-{name_of('fabric', config.fabric)}-{digest}"


def _print(console: Console, job: LongJob, faults: FaultTrace, plan: Plan, found: dict[str, Goodput]) -> None:
    days = faults.window_s / DAY_S
    window = f"{days:,.1f} days" if days >= 1 else format_time(faults.window_s)
    table = Table(title=f"{plan.graph_name} for {window} on {job.num_servers:,} servers")
    table.add_column("policy")
    for name in ("goodput", *(cause for cause in CAUSES if cause != "useful"), "cuts", "iterations", "trained"):
        table.add_column(name, justify="right")
    for policy, one in found.items():
        lost = [f"{round(one.share(cause), 4) + 0:.1%}" for cause in CAUSES if cause != "useful"]  # no "-0.0%"
        table.add_row(
            policy, f"{one.goodput:.1%}", *lost, f"{one.num_cuts:,}", f"{one.samples:,.0f}", _trained(plan, one)
        )
    console.print(table)
    has_gaps = len(faults.faults) > 2
    gap = f" (times between them vary {faults.cv_between:.2f} times as much as memoryless ones)" if has_gaps else ""
    say = [
        f"iteration {format_time(job.whole.iteration_s)} simulated; a checkpoint every"
        f" {format_time(job.checkpoint_iterations * job.whole.iteration_s)} ({job.checkpoint_iterations:,} iterations)",
        f"faults: {len(faults.faults):,} on {faults.num_servers:,} servers, {faults.per_1000_server_days:.2f} for"
        f" 1,000 server-days{gap}; {faults.share_down:.2%} of their time is lost,"
        f" {faults.mean_down:.1f} servers are down on average, {faults.most_down} at most",
    ]
    for line in say:
        console.print(line, highlight=False, markup=False)
    for cause, meaning in CAUSES.items():
        console.print(f"  {cause}: {meaning}", style="dim", highlight=False, markup=False)


def _trained(plan: Plan, one: Goodput) -> str:
    samples = one.samples * plan.global_batch
    if plan.sequence_length:
        return f"{format_count(round(samples * plan.sequence_length))} tokens"
    return f"{format_count(round(samples))} samples"
