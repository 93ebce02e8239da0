"""``rostam validate``: published measurements, or a user's own, next to rostam's predictions."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from rostam_py.checks import check_folder
from rostam_py.cli.compose import compose_config
from rostam_py.cli.run_folder import send_on
from rostam_py.cli.schema import ValidateConfig
from rostam_py.errors import ConfigError
from rostam_py.extras import require
from rostam_py.report.needs import page_needs
from rostam_py.units import format_share
from rostam_py.validation.document import beyond_bounds, document_of, document_text, write_document
from rostam_py.validation.outcome import Outcome
from rostam_py.validation.predict import validate
from rostam_py.validation.quantities import said
from rostam_py.validation.ratios import ratios_of
from rostam_py.validation.rows import HELD_OUT, Table
from rostam_py.validation.tables import select, user_table

_LISTS = ("tables", "rows")
_HELD_OUT_HEAD = f"{'fitted':>7}{'judged':>7}{'mean':>8}{'signed':>8}{'worst':>8}  {'rule':<7}  what"
_UTILIZATIONS = "{:>6}{:>8}{:>7}"
_HEAD = (
    f"{'row':<36}{'measured':>11}{'predicted':>11}{'error':>8}  {'others':<16}"
    f"{_UTILIZATIONS.format('MFU', 'causal', 'HFU')}  where it goes"
)
_SHOWN = 0.005  # parts of an iteration that are named


def validate_command(overrides: list[str], as_json: bool) -> int:
    """Predict the rows asked for, print each as it is done, and fill the folder. Returns the exit status."""
    config: ValidateConfig = compose_config("validate", [_as_list(one) for one in overrides])
    if config.report:
        require(*page_needs("report=true", otherwise="report=false"))
    tables = _tables(config)
    folder = Path(config.out) if config.out else _default_folder(config)
    check_folder(folder, "out")
    console, progress = Console(width=max(120, Console().width), highlight=False), Console(stderr=True)
    found: list[tuple[Table, Outcome]] = []
    with progress.status("starting") as status:
        for table, outcome in _predicted(config, tables, status.update):
            if not as_json:
                _print_row(console, table, outcome, is_first=not found or found[-1][0] is not table)
            found.append((table, outcome))
            write_document(folder, document_of(found, is_whole=False))  # what a stopped run leaves can be read
    document = document_of(found)
    write_document(folder, document)
    if config.save_ratios is not None:
        ratios_of(found).save(config.save_ratios)
    if as_json:
        print(document_text(document), end="")
    else:
        _print_end(console, document, folder)
    send_on(Console(stderr=as_json), folder, report=config.report)
    beyond = beyond_bounds(document) if config.bounds else []
    for line in beyond:
        progress.print(f"beyond its bounds: {line}", style="red", markup=False, soft_wrap=True)
    failed = [outcome.row.name for _, outcome in found if outcome.failed] if config.file is not None else []
    if failed:
        progress.print(
            f"rows of {config.file} that failed: {', '.join(failed)}",
            style="red",
            markup=False,
            soft_wrap=True,
        )
    return 1 if beyond or failed else 0


def _as_list(override: str) -> str:
    """Return tables=V1,V2 as the list that it means, its names quoted, for patterns hold what Hydra reads otherwise."""
    key, equals, value = override.partition("=")
    if key not in _LISTS or not equals or value[:1] in ("[", "") or value == "null":
        return override
    names = (one.strip().strip("'\"") for one in value.split(","))
    return f"{key}=[{','.join(json.dumps(name) for name in names)}]"


def _tables(config: ValidateConfig) -> list[Table]:
    for key in ("rows", "file", "cost_model"):
        if config.bounds and getattr(config, key) is not None:
            raise ConfigError(
                f"bounds is true and {key} is {getattr(config, key)}; bounds hold only for whole shipped tables at the"
                " default costs; leave one out"
            )
    if config.file is None:
        return select(config.tables, config.rows)
    for key in _LISTS:
        if getattr(config, key) is not None:
            raise ConfigError(f"{key} is {getattr(config, key)}, but file names your own measurements; leave one out")
    return [user_table(config.file)]


def _predicted(config: ValidateConfig, tables: list[Table], progress: Any) -> Iterator[tuple[Table, Outcome]]:
    changes = {} if config.cost_model is None else {"cost": {"name": config.cost_model}}
    return validate(tables, changes=changes, with_alternatives=config.alternatives, progress=progress)


def _default_folder(config: ValidateConfig) -> Path:
    said = json.dumps([config.tables, config.rows, config.file, config.cost_model, config.alternatives])
    return Path("runs") / f"validate-{hashlib.sha256(said.encode()).hexdigest()[:8]}"


def _print_row(console: Console, table: Table, outcome: Outcome, *, is_first: bool) -> None:
    if is_first:
        console.print(f"\n{table.name}: {table.title}", style="bold", markup=False)
        for name, text in (("source", table.source), ("rule", table.rule)):
            if text:
                console.print(f"{name}: {text}", style="dim", markup=False)
        head = _HELD_OUT_HEAD if table.kind == HELD_OUT else _HEAD
        console.print(head, style="bold", markup=False, soft_wrap=True)
    row = outcome.row
    if row.held_out is not None:
        errors = row.held_out
        line = f"{errors.num_fitted:>7}{errors.num_judged:>7}{errors.absolute:>7.1f}%{errors.signed:>+7.1f}%"
        line += f"{errors.worst:>+7.0f}%  {'missed' if errors.is_miss else 'held':<7}  {row.name}"
        console.print(line, markup=False, soft_wrap=True)
        return
    if not outcome.compared:
        reason = f"not modelled: {row.why_not}" if row.why_not else f"failed: {outcome.failed}"
        console.print(f"{row.name:<36} {reason}", style="dim" if row.why_not else "red", markup=False, soft_wrap=True)
        return
    for place, (measures, one) in enumerate(outcome.compared.items()):
        line = (
            f"{row.name if place == 0 else '':<36}{said(measures, one.measured):>11}{said(measures, one.predicted):>11}"
        )
        line += f"{one.error:>+7.1f}%"
        if place == 0 and outcome.iteration_s:
            shares = (format_share(one) for one in (outcome.mfu, outcome.mfu_causal, outcome.hfu))
            used = _UTILIZATIONS.format(*shares) if outcome.families else " " * 21
            line += f"  {_spread(outcome):<16}{used}  {_parts(outcome)}"
        console.print(line, markup=False, soft_wrap=True)


def _spread(outcome: Outcome) -> str:
    if not outcome.spread:
        return ""
    errors = [*outcome.spread.values(), outcome.compared["time"].error]
    return f"{min(errors):+.0f} to {max(errors):+.0f}%"


def _parts(outcome: Outcome) -> str:
    """Return what the iteration consists of, in shares: op families, exposed communication, bubble, host."""
    parts = outcome.families | {f"exposed {kind}": seconds for kind, seconds in outcome.exposed.items()}
    parts |= {"bubble": outcome.bubble, "host": outcome.host}
    if not outcome.families:
        return outcome.chosen
    shares = {name: seconds / outcome.iteration_s for name, seconds in parts.items()}
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items() if share >= _SHOWN)


def _print_end(console: Console, document: dict[str, Any], folder: Path) -> None:
    grid = Grid(title="\nsigned errors [%]: + is predicted slower, or larger, than measured")
    for name in ("table", "is", "of", "rows", "mean absolute", "mean signed", "worst", "not modelled", "failed"):
        grid.add_column(name, justify="left" if name in ("table", "is", "of") else "right")
    for table in document["tables"]:
        left = [str(len(table[key])) for key in ("not_modelled", "failed")]
        if not table["summary"]:
            grid.add_row(table["name"], "", "", "0", "", "", "", *left)
        for place, (measures, one) in enumerate(table["summary"].items()):
            errors = (f"{one['mean_absolute']:.1f}", f"{one['mean_signed']:+.1f}", f"{one['worst']:+.1f}")
            rest = left if place == 0 else ["", ""]
            head = (table["name"], table["is"]) if place == 0 else ("", "")
            grid.add_row(*head, measures, str(one["num_rows"]), *errors, *rest)
    console.print(grid)
    if document["all"]:
        console.print(_all_rows(document["all"]))
    console.print(f"written to {folder}", markup=False)


def _all_rows(judged: dict[str, Any]) -> Grid:
    """Return the errors of iteration times of all rows together: simulated, and expected by ratios of other rows."""
    grid = Grid(title="\niteration times of all rows [%]")
    for name in ("", "rows", "mean absolute", "mean signed", "within 10%", "in their 80% range"):
        grid.add_column(name, justify="right" if name else "left")
    for name, one in judged.items():
        covered = "" if one["coverage"] is None else format_share(one["coverage"])
        errors = (f"{one['mean']:.1f}", f"{one['signed']:+.1f}", format_share(one["near"]))
        grid.add_row(name.replace("_", " "), str(one["num_jobs"]), *errors, covered)
    return grid
