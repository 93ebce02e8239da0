"""``rostam run``: one configuration in; table, run folder and JSON out."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from rostam_py import __version__
from rostam_py.checks import check_folder
from rostam_py.cli.choices import WITH_SCHEMAS
from rostam_py.cli.compose import compose_config, resolved_yaml
from rostam_py.cli.notes import all_notes, write_notes
from rostam_py.cli.schema import RunConfig, name_of
from rostam_py.cli.spread import Spread, spread_of
from rostam_py.cli.tables import print_job, print_result
from rostam_py.convergence import Curve, TimeToAccuracy, goal_of, time_to_accuracy
from rostam_py.convergence.samples import notes_for
from rostam_py.documents import staged
from rostam_py.errors import ConfigError
from rostam_py.extras import require
from rostam_py.placement.memory.least_memory import check_state_fits
from rostam_py.plan import Plan
from rostam_py.programs import PlacedProgram, Program
from rostam_py.report.needs import page_needs, wandb_needs
from rostam_py.report.sinks.wandb_options import WandbOptions
from rostam_py.simulation import JobResult, ProgramResult, RunResult, TaskGraph
from rostam_py.simulation.detail import changes_of_run, run_detail, write_detail
from rostam_py.simulation.pipeline_detail import is_drawable
from rostam_py.spec.build import (
    build_machine,
    build_strategy,
    cost_arguments,
    default_batch,
    place_settings,
    simulation_options,
)
from rostam_py.spec.keys import IterationKeys, SearchKeys, keys_of
from rostam_py.spec.settings import Settings, check_price, complete_settings, goal_of_settings
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
# What only a plan's result has: batches for a curve, stages for a report's figures.
_NEED_A_PLAN = (
    "convergence", "target", "accelerator_usd_per_hour", "report", "save_plan", "save_task_graph", "save_program",
    "plan", "program", "wandb",
)  # fmt: skip
# What a program has of its own, or has not: a model, batches, a strategy, a stack of software.
_NOT_OF_A_PROGRAM = (
    "model", "global_batch", "strategy", "software", "convergence", "target", "extrapolate", "accelerator_usd_per_hour",
    "plan", "save_plan", "save_program", "task_graph", "save_task_graph", "wandb", "trace_cache",
)  # fmt: skip


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
        return _run_task_graph(config, overrides, as_json)
    if config.program is not None:
        return _run_program(config, overrides, as_json)
    folder = Path(config.out) if config.out else _default_folder(config, overrides)
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
        left = _left_over(folder, stage, config)
    _remove(left)
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


def run_document(overrides: list[str], progress: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Return what result.json of a run would hold, its resolved configuration, and the names of what it chose."""
    config: RunConfig = compose_config("run", overrides)
    _check_price(config)
    _check_shrink(config)
    if config.plan is not None:
        _check_planned(overrides, "plan")
    import yaml

    plan, result = _plan_and_result(config, progress)
    spread = _spread(result, plan, config, progress)
    text = _result_json(result, _answer(result, config), spread.documents)
    return json.loads(text), yaml.safe_load(resolved_yaml("run", overrides)), _choices(config)


def _answer(result: RunResult, config: RunConfig) -> TimeToAccuracy | None:
    if config.convergence is None and config.target is None:
        return None
    return time_to_accuracy(
        result, config.convergence, target=config.target, extrapolate=config.extrapolate,
        accelerator_usd_per_hour=config.accelerator_usd_per_hour,
    )  # fmt: skip


def _choices(config: RunConfig) -> dict[str, str]:
    """Return the registered names behind the groups whose keys stand in the configuration without one."""
    return {group: name_of(group, getattr(config, group)) for group in WITH_SCHEMAS}


def send_on(console: Console, folder: Path, *, report: bool, wandb: WandbOptions | None = None) -> None:
    """Write the report of a run's or a sweep's folder, and send a run to Weights & Biases, where asked for."""
    if report:
        from rostam_py.report.report import write_report

        with console.status("writing the report"):
            path = write_report(folder)
        console.print(f"open {path}", highlight=False, markup=False, soft_wrap=True)
    if wandb is not None and wandb.enable:
        from rostam_py.report.sinks.wandb_sink import log_run

        with console.status("writing to Weights & Biases"):
            text = log_run(folder, wandb)
        console.print(text, highlight=False, markup=False, soft_wrap=True)


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
    progress(f"simulating {plan.num_devices:,} accelerators")
    from rostam_py.simulation import simulate

    result = simulate(plan, options=simulation_options(settings), timeline=config.timeline or is_drawable(plan))
    return plan, result


def point_settings(mode: str, config: IterationKeys | SearchKeys) -> Settings:
    """Return what a composed configuration simulates, complete and checked, as a point of a sweep has it."""
    known = [entry for entry in keys_of(mode).values() if hasattr(config, entry.name)]
    given = {entry.name: _plain(getattr(config, entry.name), entry) for entry in known}
    for group in WITH_SCHEMAS:
        given[group] = {"name": name_of(group, getattr(config, group)), **given[group]}
    return complete_settings({"mode": mode, **given})


def _plain(value: Any, entry: Any) -> Any:
    """Return the fields of a section that a point has of it; other values as they are."""
    if not dataclasses.is_dataclass(value):
        return value
    schema = entry.default_factory if dataclasses.is_dataclass(entry.default_factory) else value
    return {inner.name: getattr(value, inner.name) for inner in dataclasses.fields(schema)}


def _loaded(config: RunConfig, progress: Any) -> Plan:
    """Return the saved plan."""
    progress(f"reading {config.plan}")
    plan = Plan.load(str(config.plan))
    goal = goal_of(config.convergence, config.target, plan.graph_name)
    if goal is not None:
        goal.iterations(plan.global_batch, extrapolate=config.extrapolate)
    return plan


def _run_task_graph(config: RunConfig, overrides: list[str], as_json: bool) -> int:
    """Simulate a saved task graph of one job."""
    _check_keys(overrides, _NEED_A_PLAN, "a plan, which a task graph does not hold")

    def load(progress: Any) -> TaskGraph:
        progress(f"reading {config.task_graph}")
        graph = TaskGraph.load(str(config.task_graph))
        if len(graph.jobs) > 1:
            raise ConfigError(f"{config.task_graph} holds {len(graph.jobs)} jobs; `rostam run` simulates one")
        return graph

    return _run_job(config, overrides, as_json, load)


def _run_program(config: RunConfig, overrides: list[str], as_json: bool) -> int:
    """Simulate a program on the configured machine."""
    _check_keys(overrides, _NOT_OF_A_PROGRAM, "a model that rostam places; a program has its own ranks and kernels")
    settings = point_settings("run", config)

    def load(progress: Any) -> PlacedProgram:
        progress(f"reading {config.program}")
        program = Program.load(str(config.program))
        cost = {key: value for key, value in cost_arguments(settings).items() if key != "software"}
        return program.on(build_machine(settings), **cost)

    return _run_job(config, overrides, as_json, load)


def _check_keys(overrides: list[str], keys: Iterable[str], what: str) -> None:
    """Raise ConfigError for overrides of keys that need something else than is simulated."""
    for override in overrides:
        if override.partition("=")[0].lstrip("+").partition(".")[0] in keys:
            raise ConfigError(f"{override!r} needs {what}; leave out {', '.join(keys)}")


def _run_job(config: RunConfig, overrides: list[str], as_json: bool, load: Callable[[Any], Any]) -> int:
    """Simulate a task graph, or a program on a machine, print its result and write it into the run folder.

    Args: load: reads it; takes what is called with a line of text.
    """
    folder = Path(config.out) if config.out else _default_folder(config, overrides)
    check_folder(folder, "out")
    with Console(stderr=True).status("starting") as status:
        source = load(status.update)
        graph = source if isinstance(source, TaskGraph) else TaskGraph.of(source, seed=config.seed)
        if not config.outages.is_none:
            check_parts(config.outages, graph.machine.fabric, graph.jobs[0].devices.tolist())
        status.update(f"simulating {graph.num_devices:,} accelerators")
        from rostam_py.simulation import simulate

        options = simulation_options(point_settings("run", config))
        result: JobResult = simulate(source, options=options, timeline=config.timeline)
        spread = spread_of(result, graph, config, options, status.update)
    text = _json_text(result.to_dict() | spread.documents)
    with staged(folder) as stage:
        write_result(stage, config, result, overrides, text, spread)
        if isinstance(result, ProgramResult):
            _write_detail(stage, result, spread)
        write_notes(stage, all_notes(result, spread.documents))
        left = _left_over(folder, stage, config)
    _remove(left)
    if as_json:
        print(text, end="")
    else:
        print_job(Console(width=max(110, Console().width)), result, str(folder), spread.documents)
    send_on(Console(stderr=as_json), folder, report=config.report)
    return 0


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


# What only some runs write: left over from an earlier run in the same folder it would tell of another one.
_OPTIONAL = (
    "detail.json.gz", "plan.json.gz", "task_graph.json.gz", "program.json", "timeline.json", "timeline_outages.json",
    "report.html",
)  # fmt: skip


def _left_over(folder: Path, stage: Path, config: RunConfig) -> list[Path]:
    """Return what an earlier run has left in a folder and this one neither writes nor reads.

    Nothing in a folder that holds no run: files there are somebody's own. Args: stage: what is about to move there.
    """
    if not (folder / "run.json").exists():
        return []
    read = {Path(path).resolve() for path in (config.plan, config.task_graph, config.program) if path is not None}
    found = [folder / name for name in _OPTIONAL if not (stage / name).exists()]
    return [path for path in found if path.resolve() not in read]


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def write_folder(
    folder: Path, config: RunConfig, result: RunResult, plan: Plan, overrides: list[str], text: str, spread: Spread
) -> None:
    """Write a run's folder: what every result has, detail.json.gz, and the plan and its task graph if asked for.

    Args: plan: as it was placed.
    """
    write_result(folder, config, result, overrides, text, spread)
    answer = json.loads(text).get("time_to_accuracy")
    _write_detail(folder, result, spread, {} if answer is None else {"time_to_accuracy": answer})
    if config.save_plan:
        plan.save(folder / "plan.json.gz")
    if config.save_task_graph:
        TaskGraph.of(plan, seed=config.seed).save(folder / "task_graph.json.gz")
    if config.save_program:
        Program.of(plan).save(folder / "program.json")


def _write_detail(
    folder: Path, result: RunResult | ProgramResult, spread: Spread, answer: Mapping[str, Any] | None = None
) -> None:
    """Write what a report is drawn from. Args: answer: a time to accuracy, by its key."""
    detail = run_detail(result)
    if spread.with_failures is not None:
        detail["changes"] = changes_of_run(spread.with_failures)
    found = dict(spread.documents)
    detail["result"] |= {**(answer or {}), "notes": found.pop("notes", detail["result"]["notes"])}
    write_detail(folder / "detail.json.gz", detail | found)


def write_result(
    folder: Path, config: RunConfig, result: JobResult, overrides: list[str], text: str, spread: Spread
) -> None:
    """Write resolved configuration, version and seed, result.json and the timelines if asked for."""
    (folder / "config.yaml").write_text(resolved_yaml("run", overrides), encoding="utf-8")
    about = {
        "rostam_version": __version__, "seed": config.seed, "overrides": overrides, "choices": _choices(config),
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    (folder / "result.json").write_text(text, encoding="utf-8")
    if config.timeline:
        result.save_timeline(str(folder / "timeline.json"))
        if spread.with_failures is not None:
            spread.with_failures.save_timeline(str(folder / "timeline_outages.json"), whole_run=True)


def _result_json(result: RunResult, answer: TimeToAccuracy | None, spread: dict[str, Any]) -> str:
    accuracy = {} if answer is None else {"time_to_accuracy": answer.to_dict()}
    return _json_text(result.to_dict() | spread | accuracy)


def _json_text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def _default_folder(config: RunConfig, overrides: list[str]) -> Path:
    digest = hashlib.sha256(resolved_yaml("run", overrides).encode()).hexdigest()[:8]
    for kind, path in (("plan", config.plan), ("tasks", config.task_graph), ("program", config.program)):
        if path is not None:
            return Path("runs") / f"{kind}-{Path(path).name.partition('.')[0]}-{digest}"
    model = Path(config.model.split(":")[0]).name.partition(".")[0]
    return Path("runs") / f"{model}-{name_of('fabric', config.fabric)}-{digest}"
