"""``rostam run``: one configuration in; table, run folder and JSON out."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from rostam_py.checks import check_folder
from rostam_py.cli.compose import compose_config, resolved_yaml
from rostam_py.cli.notes import all_notes, write_notes
from rostam_py.cli.point import chosen_names, point_settings
from rostam_py.cli.run_folder import default_folder, json_text, left_over, remove, send_on, write_folder
from rostam_py.cli.run_job import program_document, run_program, run_task_graph
from rostam_py.cli.schema import RunConfig
from rostam_py.cli.spread import Spread, spread_of
from rostam_py.cli.tables import print_result
from rostam_py.convergence import Curve, TimeToAccuracy, goal_of, time_to_accuracy
from rostam_py.convergence.samples import notes_for
from rostam_py.documents import staged
from rostam_py.errors import ConfigError
from rostam_py.extras import require
from rostam_py.placement.memory.least_memory import check_state_fits
from rostam_py.plan import Plan
from rostam_py.programs import PlacedProgram, Program
from rostam_py.report.needs import page_needs, wandb_needs
from rostam_py.simulation import RunResult
from rostam_py.simulation.pipeline_detail import is_drawable
from rostam_py.spec.build import (
    build_machine,
    build_strategy,
    cost_arguments,
    default_batch,
    place_settings,
    simulation_options,
)
from rostam_py.spec.settings import Settings, check_price, goal_of_settings
from rostam_py.spread.outages import check_parts

# What a saved plan, or task graph, has decided.
_PLANNED = (
    "model",
    "global_batch",
    "fabric",
    "accelerator",
    "machine",
    "strategy",
    "cost",
    "software",
    "failures",
    "experiment",
)


def run(overrides: list[str], as_json: bool) -> int:
    """Simulate what the overrides describe, print it, and fill the run folder. Returns the exit status."""
    config: RunConfig = compose_config("run", overrides)
    _check_installed(config)
    _check_price(config)
    _check_shrink(config)
    if config.plan is not None:
        _check_planned(overrides, "plan")
    if config.task_graph is not None:
        _check_planned(overrides, "task graph")
        return run_task_graph(config, overrides, as_json)
    if config.program is not None:
        return run_program(config, overrides, as_json)
    folder = Path(config.out) if config.out else default_folder(config, overrides)
    check_folder(folder, "out")
    progress = Console(stderr=True)
    with progress.status("starting") as status:
        plan, result = _plan_and_result(config, status.update)
        spread = _spread(result, plan, config, status.update)
    answer = _answer(result, config)
    text = _result_json(result, answer, spread.documents)
    with staged(folder) as stage:
        write_folder(stage, config, result, plan, overrides, text, spread)
        write_notes(stage, all_notes(result, spread.documents, answer))
        left = left_over(folder, stage, config)
    remove(left)
    if as_json:
        print(text, end="")
    else:
        print_result(Console(width=max(110, Console().width)), result, str(folder), answer, spread.documents)
    send_on(Console(stderr=as_json), folder, report=config.report, wandb=config.wandb)
    return 0


def _check_installed(config: RunConfig) -> None:
    """Raise MissingPackageError for a report, or Weights & Biases, whose packages are missing."""
    drawing = page_needs("report=true", otherwise="report=false") if config.report else []
    require(*drawing, *wandb_needs(config.wandb))


def _check_price(config: RunConfig) -> None:
    check_price(config.accelerator_usd_per_hour, has_goal=config.convergence is not None or config.target is not None)


def _check_shrink(config: RunConfig) -> None:
    """Raise ConfigError for a saved plan, task graph or program that should shrink: it takes a model to place anew."""
    saved = next((key for key in ("plan", "task_graph", "program") if getattr(config, key) is not None), None)
    if config.outages.shrink is not None and saved is not None:
        raise ConfigError(
            f"outages.shrink is {config.outages.shrink!r}, which places the model again on the remaining devices; with"
            f" {saved} it must be null: leave out one of them"
        )


def _spread(result: RunResult, plan: Plan, config: RunConfig, progress: Any) -> Spread:
    settings = point_settings("run", config)
    graph = None
    if config.outages.shrink is not None and not config.outages.is_none:
        from rostam_py.tracing import trace

        graph = trace(settings["model"], cache=config.trace_cache)
    return spread_of(
        result, plan, config, simulation_options(settings), progress,
        graph=graph, cost_config=cost_arguments(settings)["cost_config"],
    )  # fmt: skip


def run_document(
    overrides: list[str], progress: Any
) -> tuple[dict[str, Any], dict[str, Any], dict[str, str], Plan | PlacedProgram]:
    """Return what result.json of a run would hold, its resolved configuration, the names of what it chose, its plan."""
    config: RunConfig = compose_config("run", overrides)
    _check_price(config)
    _check_shrink(config)
    if config.plan is not None:
        _check_planned(overrides, "plan")
    import yaml

    plan: Plan | PlacedProgram
    if config.program is not None:
        document, plan = program_document(config, overrides, progress)
        text = json_text(document)
    else:
        plan, result = _plan_and_result(config, progress)
        spread = _spread(result, plan, config, progress)
        text = _result_json(result, _answer(result, config), spread.documents)
    return json.loads(text), yaml.safe_load(resolved_yaml("run", overrides)), chosen_names(config), plan


def _answer(result: RunResult, config: RunConfig) -> TimeToAccuracy | None:
    if config.convergence is None and config.target is None:
        return None
    return time_to_accuracy(
        result, config.convergence, target=config.target, extrapolate=config.extrapolate,
        accelerator_usd_per_hour=config.accelerator_usd_per_hour,
    )  # fmt: skip


def simulate_config(config: RunConfig, progress: Any = lambda text: None) -> RunResult:
    """Trace, place and simulate a composed configuration.

    Args: progress: called with a line of text at each stage.
    """
    return _plan_and_result(config, progress)[1]


def _plan_and_result(config: RunConfig, progress: Any) -> tuple[Plan, RunResult]:
    """Return the plan as it was placed, and its result, whose own plan is as it was held at a limit of power."""
    settings = point_settings("run", config)
    plan = _planned(settings, config.trace_cache, progress) if config.plan is None else _loaded(config, progress)
    if not config.outages.is_none:
        check_parts(config.outages, plan.machine.fabric, plan.devices.tolist())
    if config.save_program:
        Program.of(plan)  # what it cannot say is refused before the simulation
    progress(f"simulating {plan.num_devices:,} accelerators")
    from rostam_py.simulation import simulate

    result = simulate(plan, options=simulation_options(settings), timeline=config.timeline or is_drawable(plan))
    return plan, result


def _loaded(config: RunConfig, progress: Any) -> Plan:
    """Return the saved plan."""
    progress(f"reading {config.plan}")
    plan = Plan.load(str(config.plan))
    goal = goal_of(config.convergence, config.target, plan.graph_name)
    if goal is not None:
        goal.iterations(plan.global_batch, extrapolate=config.extrapolate)
    return plan


def _check_planned(overrides: list[str], what: str) -> None:
    """Raise ConfigError for keys that a saved plan, or task graph, has decided."""
    for override in overrides:
        key = override.partition("=")[0].lstrip("+")
        if key.partition(".")[0] in _PLANNED:
            raise ConfigError(
                f"{override!r} cannot change a saved {what}, which already fixes {', '.join(_PLANNED)}; leave it out"
            )


def _planned(settings: Settings, trace_cache: bool, progress: Any) -> Plan:
    """Return the plan of the configured model, strategy and machine."""
    machine = build_machine(settings)
    strategy = build_strategy(settings, machine)
    progress(f"tracing {settings['model']}")
    from rostam_py.software.program import sharded_by
    from rostam_py.tracing import trace

    sharded = sharded_by(settings["software"], strategy, machine)
    graph = trace(settings["model"], cache=trace_cache, refuse=lambda size: check_state_fits(size, sharded, machine))
    progress(f"placing {graph.name} on {machine.fabric.describe()}")
    goal = goal_of_settings(settings)
    if goal is not None:  # refuse a batch without iterations before simulating it
        if isinstance(goal, Curve):
            notes_for(goal, graph.name)
        goal.iterations(default_batch(settings["global_batch"], strategy), extrapolate=settings["extrapolate"])
    return place_settings(graph, machine, settings)


def _result_json(result: RunResult, answer: TimeToAccuracy | None, spread: dict[str, Any]) -> str:
    accuracy = {} if answer is None else {"time_to_accuracy": answer.to_dict()}
    return json_text(result.to_dict() | spread | accuracy)
