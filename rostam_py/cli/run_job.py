"""Runs without a plan: of a saved task graph, and of a program on the configured machine."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console

from rostam_py.checks import check_folder
from rostam_py.cli.notes import all_notes, write_notes
from rostam_py.cli.point import point_settings
from rostam_py.cli.run_folder import (
    default_folder,
    json_text,
    left_over,
    remove,
    send_on,
    write_result,
    write_run_detail,
)
from rostam_py.cli.schema import RunConfig
from rostam_py.cli.spread import Spread, spread_of
from rostam_py.cli.tables import print_job
from rostam_py.documents import staged
from rostam_py.errors import ConfigError
from rostam_py.programs import PlacedProgram, Program
from rostam_py.simulation import JobResult, ProgramResult, TaskGraph
from rostam_py.spec.build import build_machine, cost_arguments, simulation_options
from rostam_py.spread.outages import check_parts

# What only a plan's result has: batches for a curve, stages for a report's figures.
_NEED_A_PLAN = (
    "convergence", "target", "accelerator_usd_per_hour", "report", "save_plan", "save_task_graph", "save_program",
    "plan", "program", "wandb",
)  # fmt: skip
# What a program has of its own, or has not: a model, batches, a strategy, a stack of software.
_NOT_OF_A_PROGRAM = (
    "model", "global_batch", "strategy", "software", "convergence", "target", "extrapolate", "accelerator_usd_per_hour",
    "plan", "save_plan", "save_program", "task_graph", "save_task_graph", "wandb", "trace_cache", "experiment",
)  # fmt: skip


def run_task_graph(config: RunConfig, overrides: list[str], as_json: bool) -> int:
    """Simulate a saved task graph of one job. Returns the exit status."""
    _check_keys(overrides, _NEED_A_PLAN, "a plan, which a task graph does not hold")

    def load(progress: Any) -> TaskGraph:
        progress(f"reading {config.task_graph}")
        graph = TaskGraph.load(str(config.task_graph))
        if len(graph.jobs) > 1:
            raise ConfigError(f"{config.task_graph} holds {len(graph.jobs)} jobs; `rostam run` simulates one")
        return graph

    return _run_job(config, overrides, as_json, load)


def run_program(config: RunConfig, overrides: list[str], as_json: bool) -> int:
    """Simulate a program on the configured machine. Returns the exit status."""
    _check_program(overrides)
    return _run_job(config, overrides, as_json, lambda progress: _placed(config, progress))


def placed_program(config: RunConfig, overrides: list[str]) -> PlacedProgram:
    """Return a program on the configured machine. Raises: ConfigError for keys that a program does not have."""
    _check_program(overrides)
    return _placed(config, lambda _: None)


def program_document(
    config: RunConfig, overrides: list[str], progress: Callable[[str], None]
) -> tuple[dict[str, Any], PlacedProgram]:
    """Return what result.json of a program's run would hold, and the program on its machine."""
    _check_program(overrides)
    placed = _placed(config, progress)
    result, spread = _simulated(config, placed, progress)
    return result.to_dict() | spread.documents, placed


def _check_program(overrides: list[str]) -> None:
    _check_keys(overrides, _NOT_OF_A_PROGRAM, "a model that rostam places; a program has its own ranks and kernels")


def _placed(config: RunConfig, progress: Callable[[str], None]) -> PlacedProgram:
    progress(f"reading {config.program}")
    settings = point_settings("run", config)
    program = Program.load(str(config.program))
    cost = {key: value for key, value in cost_arguments(settings).items() if key != "software"}
    return program.on(build_machine(settings), **cost)


def _check_keys(overrides: list[str], keys: Iterable[str], what: str) -> None:
    """Raise ConfigError for overrides of keys that need something else than is simulated."""
    for override in overrides:
        if override.partition("=")[0].lstrip("+").partition(".")[0] in keys:
            raise ConfigError(f"{override!r} needs {what}; leave out {', '.join(keys)}")


def _run_job(config: RunConfig, overrides: list[str], as_json: bool, load: Callable[[Any], Any]) -> int:
    """Simulate a task graph, or a program on a machine, print its result and write it into the run folder.

    Args: load: reads it; takes what is called with a line of text.
    """
    folder = Path(config.out) if config.out else default_folder(config, overrides)
    check_folder(folder, "out")
    with Console(stderr=True).status("starting") as status:
        result, spread = _simulated(config, load(status.update), status.update)
    text = json_text(result.to_dict() | spread.documents)
    with staged(folder) as stage:
        write_result(stage, config, result, overrides, text, spread)
        if isinstance(result, ProgramResult):
            write_run_detail(stage, result, spread)
        write_notes(stage, all_notes(result, spread.documents))
        left = left_over(folder, stage, config)
    remove(left)
    if as_json:
        print(text, end="")
    else:
        print_job(Console(width=max(110, Console().width)), result, str(folder), spread.documents)
    send_on(Console(stderr=as_json), folder, report=config.report)
    return 0


def _simulated(
    config: RunConfig, source: TaskGraph | PlacedProgram, progress: Callable[[str], None]
) -> tuple[JobResult, Spread]:
    graph = source if isinstance(source, TaskGraph) else TaskGraph.of(source, seed=config.seed)
    if not config.outages.is_none:
        check_parts(config.outages, graph.machine.fabric, graph.jobs[0].devices.tolist())
    progress(f"simulating {graph.num_devices:,} accelerators")
    from rostam_py.simulation import simulate

    options = simulation_options(point_settings("run", config))
    result: JobResult = simulate(source, options=options, timeline=config.timeline)
    return result, spread_of(result, graph, config, options, progress)
