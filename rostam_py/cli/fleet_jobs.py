"""``rostam fleet fleet.jobs=...``: many jobs over weeks, as tables, JSON, CSV and a report."""

import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py import __version__
from rostam_py.cli.jobs_tables import write_jobs_tables
from rostam_py.cli.point import point_settings
from rostam_py.cli.progress_lines import ProgressLines
from rostam_py.cli.run_folder import send_on
from rostam_py.cli.schema import FleetConfig
from rostam_py.cli.weeks_tables import fleet_folder, write_fleet_folder
from rostam_py.convergence.time_to_accuracy import check_usd_per_hour
from rostam_py.extras import require
from rostam_py.fleet.goodput.faults import DAY_S
from rostam_py.fleet.queueing.job import QueuedJob
from rostam_py.fleet.queueing.names import ORDERS
from rostam_py.fleet.queueing.result import HOUR_S, QueueResult
from rostam_py.fleet.queueing.run import CAUSES
from rostam_py.fleet.queueing.simulate import Network, Setting, check_sizes, simulate_queue
from rostam_py.fleet.queueing.timeline import MEANINGS, STATES
from rostam_py.graph import OperatorGraph
from rostam_py.plan.machine import Machine
from rostam_py.report.jobs.load import FORMAT, PLACEMENTS, VERSION
from rostam_py.report.needs import page_needs
from rostam_py.spec.build import build_machine
from rostam_py.spec.build_queue import (
    allocation_of,
    board_grid,
    build_feed,
    build_jobs,
    build_network,
    build_places,
    build_upkeep,
    fault_notes,
    move_s,
    num_servers,
    server_size,
    with_work,
)
from rostam_py.spec.fleet_options import FleetOptions
from rostam_py.units import format_number_of, format_time

# Keys that jobs of a queue do not have, and those that only jobs with a model have.
_ONE_JOBS_KEYS = (
    "model", "global_batch", "target", "convergence", "extrapolate", "fidelity", "fold", "tolerance", "packets",
    "controllers",
)  # fmt: skip
_MODELS_KEYS = ("strategy", "software", "cost", "routing")
_OF_ONE_JOB = "it is of one job; jobs of a queue have columns of their own"
_OF_MODELS = "no job has a model"


@dataclass(frozen=True)
class Fleet:
    """A simulated cluster.

    without: the same jobs without contention; None where no job has a model, or it is off. notes: what to know.
    """

    machine: Machine
    result: QueueResult
    without: QueueResult | None
    allocation: str
    server_size: int
    notes: tuple[str, ...]


def fleet_jobs(config: FleetConfig, overrides: list[str], as_json: bool) -> int:
    """Simulate the jobs that the overrides describe, print what became of them, and fill the folder."""
    console = Console(stderr=True)
    require(*(page_needs("report=true", otherwise="report=false") if config.report else []))
    folder = fleet_folder(config, overrides, str(config.fleet.jobs))
    check_usd_per_hour(config.accelerator_usd_per_hour)
    with ProgressLines(console) as log:
        found = _simulated(config, overrides, log)
    document = _document(found, config)
    text = json.dumps(document, indent=2) + "\n"
    write_fleet_folder(
        folder, overrides, config.seed, text,
        lambda stage: write_jobs_tables(stage, found.result, found.without, (found.machine, found.server_size)),
    )  # fmt: skip
    if as_json:
        print(text, end="")
        send_on(console, folder, report=config.report)
        return 0
    _print(Console(width=max(110, Console().width)), found, document, config)
    for note in (*found.notes, *config.fleet.unread_keys()):
        console.print(f"note: {note}", style="dim", highlight=False, markup=False)
    console.print(f"written to {folder}", style="dim", highlight=False, markup=False)
    send_on(console, folder, report=config.report)
    return 0


def _simulated(config: FleetConfig, overrides: Sequence[str], log: ProgressLines) -> Fleet:
    options = config.fleet
    log.say("building the fabric")
    settings = point_settings("run", replace(config, accelerator_usd_per_hour=None))
    machine = build_machine(settings)
    log.say(f"reading {options.jobs}" if options.is_file() else "drawing jobs")
    given = build_jobs(options, len(machine.healthy_accelerators))
    jobs, notes = list(given.jobs), list(given.notes)
    has_models = any(job.model is not None for job in jobs)
    notes += [
        f"{one} has no effect: {_OF_ONE_JOB if key in _ONE_JOBS_KEYS else _OF_MODELS}"
        for one in overrides
        if (key := one.partition("=")[0].partition(".")[0]) in _ONE_JOBS_KEYS
        or (key in _MODELS_KEYS and not has_models)
    ]
    check_sizes(jobs, build_places(options, machine))
    network = build_network(jobs, machine, settings, _loader(config, log))
    if network is not None:
        log.say("simulating the iterations of each kind of job")
        jobs = with_work(jobs, network, build_places(options, machine))
    result = _once(jobs, machine, options, network if options.contention else None, log)
    without = None
    if network is not None and options.contention:
        without = _once(jobs, machine, options, None, log)
        notes.append(f"{format_number_of(network.num_groups, 'group')} of jobs that share links were simulated")
    end_s, first_s = result.timeline.end_s, min(job.submit_s for job in jobs)
    if result.placements.num_left_out:
        notes.append(
            f"{PLACEMENTS} has where jobs are until day {result.placements.until_s / DAY_S:,.1f}, so that it stays"
            f" small; {result.placements.num_left_out:,} starts are left out"
        )
    notes += fault_notes(options, build_feed(options, num_servers(options, machine)), end_s, first_s)
    return Fleet(machine, result, without, allocation_of(options, machine), server_size(options, machine), tuple(notes))


def _once(
    jobs: Sequence[QueuedJob], machine: Machine, options: FleetOptions, network: Network | None, log: ProgressLines
) -> QueueResult:
    places = build_places(options, machine)
    feed = build_feed(options, places.num_servers)
    setting = Setting(
        upkeep=build_upkeep(options, feed), faults=feed, network=network, progress=log.say,
        move_s=move_s(options),
        window_s=math.inf if options.days is None else options.days * DAY_S,
    )  # fmt: skip
    return simulate_queue(jobs, places, ORDERS.get(options.order)(), setting)


def _loader(config: FleetConfig, log: ProgressLines) -> Callable[[str], OperatorGraph]:
    """Return what traces each model once."""

    @functools.cache
    def load(model: str) -> OperatorGraph:
        from rostam_py.tracing import trace

        log.say(f"tracing {model}")
        graph: OperatorGraph = trace(model, cache=config.trace_cache)
        return graph

    return load


def _document(found: Fleet, config: FleetConfig) -> dict[str, Any]:
    options, result = config.fleet, found.result
    document = {
        "format": FORMAT, "version": VERSION, "rostam_version": __version__,
        "fabric": found.machine.fabric.describe(), "jobs": options.jobs,
        "order": options.order, "allocation": found.allocation, "accelerators_per_server": found.server_size,
        "all_accelerators": found.machine.num_accelerators, "boards": board_grid(found.machine),
        **result.to_dict(),
    }  # fmt: skip
    if found.without is not None:
        document["without_network"] = {
            key: value for key, value in found.without.to_dict().items() if key in ("wait_s", "slowdown", "goodput")
        }
    return document | _costs(found, config)


def _costs(found: Fleet, config: FleetConfig) -> dict[str, Any]:
    """Return the price of all accelerators over the window, and the most energy they take; None where unknown."""
    machine, hours = found.machine, found.result.timeline.end_s / HOUR_S
    price, watts = config.accelerator_usd_per_hour, machine.most_watts
    if watts is None and machine.device.watts:
        watts = machine.num_accelerators * (machine.accelerator_watts or machine.device.watts)
    useful = found.result.spent["useful"] / HOUR_S
    usd = None if price is None else found.result.timeline.total * hours * price
    return {
        "usd": usd, "usd_per_useful_accelerator_hour": usd / useful if usd is not None and useful else None,
        "most_kwh": None if watts is None else watts * hours / 1_000,
    }  # fmt: skip


# Files


# Tables


def _print(console: Console, found: Fleet, document: dict[str, Any], config: FleetConfig) -> None:
    console.print(_summary(found, document, config))
    console.print(_hours("accelerator-hours that jobs asked for", document["job_accelerator_hours"], CAUSES))
    cluster = {name: document["cluster_accelerator_hours"][name] for name in STATES}
    console.print(_hours("accelerator-hours of the cluster", cluster, MEANINGS))


def _summary(found: Fleet, document: dict[str, Any], config: FleetConfig) -> Table:
    result = found.result
    cluster = format_number_of(result.timeline.total, "accelerator")
    table = Table(
        title=f"{format_number_of(len(result.runs), 'job')} for {format_time(result.timeline.end_s)} on {cluster}",
        show_header=False,
    )
    table.add_row("cluster", f"{document['fabric']}, {found.server_size} to a server")
    table.add_row("queue", f"{config.fleet.order}, placed by {found.allocation}")
    if unfinished := len(result.runs) - document["num_ended"]:
        words = f"{format_number_of(unfinished, 'job')}, of which {document['num_not_started']:,} never started"
        table.add_row("not ended", words)
    until = document["utilisation_until_last_submit"]
    said = "" if until is None else f"; {until:.1%} until the last submission"
    table.add_row("utilisation", f"{result.utilisation:.1%}{said}")
    table.add_row("waiting", _spread(document["wait_s"], format_time))
    table.add_row("slow-down", _spread(document["slowdown"], "{:.4g}".format))
    if found.without is not None:
        table.add_row("  without network", _spread(document["without_network"]["slowdown"], "{:.4g}".format))
    table.add_row("fragmentation", f"{result.fragmentation:.1%} of the time of all accelerators")
    parts = document["goodput"]
    table.add_row(
        "goodput",
        f"{parts['whole']:.1%} = scheduling {parts['scheduling']:.1%} x runtime {parts['runtime']:.1%} x program"
        f" {parts['program']:.1%}",
    )
    faults = (
        f"{format_number_of(result.num_faults, 'fault')} of servers cut {format_number_of(document['num_cuts'], 'job')}"
    )
    table.add_row("faults", faults)
    if config.fleet.defragment:
        table.add_row("moves", f"{document['num_moves']:,}, of jobs that made room for the next one")
    if document["usd"] is not None:
        useful = document["usd_per_useful_accelerator_hour"]
        each = "" if useful is None else f", {useful:,.2f} USD for each useful accelerator-hour"
        table.add_row("price", f"{document['usd']:,.0f} USD of all accelerators{each}")
    if document["most_kwh"] is not None:
        table.add_row("energy", f"{document['most_kwh']:,.0f} kWh at most, all accelerators at their limit")
    return table


def _spread(of: dict[str, float | None], form: Any) -> str:
    if of["mean"] is None:
        return "of no job: none has ended"
    return f"mean {form(of['mean'])}, median {form(of['median'])}, p95 {form(of['p95'])}"


def _hours(title: str, hours: dict[str, float], meanings: dict[str, str]) -> Table:
    table = Table(title=title)
    for name in ("cause" if meanings is CAUSES else "state", "hours", "share", "meaning"):
        table.add_column(name, justify="right" if name in ("hours", "share") else "left")
    whole = sum(hours.values())
    for name, value in hours.items():
        table.add_row(name, f"{value:,.1f}", f"{value / whole:.1%}" if whole else "-", meanings[name])
    table.add_section()
    table.add_row("all", f"{whole:,.1f}", "100.0%" if whole else "-", "")
    return table
