"""The folder of a run: what is written there, whole or not at all, and what an earlier run has left."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from rostam_py import __version__
from rostam_py.cli.compose import resolved_yaml
from rostam_py.cli.point import chosen_names
from rostam_py.cli.schema import RunConfig, name_of
from rostam_py.cli.spread import Spread
from rostam_py.graph.naming import HUB, ModelName
from rostam_py.plan import Plan
from rostam_py.programs import Program
from rostam_py.report.sinks.wandb_options import WandbOptions
from rostam_py.simulation import JobResult, ProgramResult, RunResult, TaskGraph
from rostam_py.simulation.detail import changes_of_run, run_detail, write_detail

# What only some runs write: left over from an earlier run in the same folder it would tell of another one.
_OPTIONAL = (
    "detail.json.gz", "plan.json.gz", "task_graph.json.gz", "program.json", "timeline.json", "timeline_outages.json",
    "report.html",
)  # fmt: skip


def left_over(folder: Path, stage: Path, config: RunConfig) -> list[Path]:
    """Return what an earlier run has left in a folder and this one neither writes nor reads.

    Nothing in a folder that holds no run: files there are somebody's own. Args: stage: what is about to move there.
    """
    if not (folder / "run.json").exists():
        return []
    read = {Path(path).resolve() for path in (config.plan, config.task_graph, config.program) if path is not None}
    found = [folder / name for name in _OPTIONAL if not (stage / name).exists()]
    return [path for path in found if path.resolve() not in read]


def remove(paths: Iterable[Path]) -> None:
    """Remove files, as ``left_over`` returns them."""
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
    write_run_detail(folder, result, spread, {} if answer is None else {"time_to_accuracy": answer})
    if config.save_plan:
        plan.save(folder / "plan.json.gz")
    if config.save_task_graph:
        TaskGraph.of(plan, seed=config.seed).save(folder / "task_graph.json.gz")
    if config.save_program:
        Program.of(plan).save(folder / "program.json")


def write_run_detail(
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
        "rostam_version": __version__, "seed": config.seed, "overrides": overrides, "choices": chosen_names(config),
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    (folder / "result.json").write_text(text, encoding="utf-8")
    if config.timeline:
        result.save_timeline(str(folder / "timeline.json"))
        if spread.with_failures is not None:
            spread.with_failures.save_timeline(str(folder / "timeline_outages.json"), whole_run=True)


def json_text(document: dict[str, Any]) -> str:
    """Return a document as result.json and --json have it."""
    return json.dumps(document, indent=2) + "\n"


def default_folder(config: RunConfig, overrides: list[str]) -> Path:
    """Return the folder of a run that names none: by what it runs, and the hash of its configuration."""
    digest = hashlib.sha256(resolved_yaml("run", overrides).encode()).hexdigest()[:8]
    for kind, path in (("plan", config.plan), ("tasks", config.task_graph), ("program", config.program)):
        if path is not None:
            return Path("runs") / f"{kind}-{Path(path).name.partition('.')[0]}-{digest}"
    short = ModelName.parse(config.model).short
    model = Path(short.split(":")[-1 if short.startswith(HUB) else 0]).name.partition(".")[0]
    return Path("runs") / f"{model}-{name_of('fabric', config.fabric)}-{digest}"


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
