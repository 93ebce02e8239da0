"""``rostam import FILE``: what each word of a launch configuration becomes here; traces are ``import_trace``'s."""

import json
import shlex
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py.cli.compose import compose_config
from rostam_py.cli.import_trace import import_trace
from rostam_py.cli.launched import as_overrides, read
from rostam_py.errors import ConfigError, RostamError
from rostam_py.software.launches.ledger import LEFT, SET, UNSUPPORTED, Launch
from rostam_py.traces.readers import is_trace

_TITLES = {SET: "set", UNSUPPORTED: "not supported", LEFT: "left out"}


def import_launch(overrides: list[str], as_json: bool) -> int:
    """Print what a launch file becomes, a row for each of its words, and the command that runs it."""
    files = [one for one in overrides if "=" not in one]
    rest = [one for one in overrides if "=" in one]
    if len(files) != 1:
        raise ConfigError(f"rostam import takes one file, not {len(files)}: rostam import FILE [key=value ...]")
    if is_trace(files[0]):
        return import_trace(files[0], rest, as_json)
    launch = read("run", [f"from={files[0]}", *rest])
    own = [one for one in rest if not one.startswith("from.")]
    keys = [*as_overrides(launch, own), *own]
    is_open = not any(one.startswith("model=") for one in keys)
    problem = "the file names no model that is known: add model=NAME" if is_open else _problem(keys)
    if as_json:
        rows = [{"word": row.word, "value": row.value, "verdict": row.verdict, "what": row.what} for row in launch.rows]
        document = {"file": files[0], "software": launch.software, "keys": dict(launch.keys), "rows": rows}
        print(json.dumps(document | ({"problem": problem} if problem else {}), indent=2))
    else:
        _print(Console(width=max(110, Console().width)), files[0], launch, keys, problem)
    return 0


def _problem(keys: list[str]) -> str:
    """Return what is wrong with the keys as those of a run; "" if nothing is."""
    try:
        compose_config("run", keys)
    except RostamError as error:
        return str(error)
    return ""


def _print(console: Console, path: str, launch: Launch, keys: list[str], problem: str) -> None:
    for verdict in (SET, UNSUPPORTED, LEFT):
        rows = launch.of(verdict)
        if not rows:
            continue
        table: Any = Table(title=f"{path} ({launch.software}): {_TITLES[verdict]}", title_justify="left")
        for name in ("word", "value", "becomes" if verdict == SET else "why"):
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(row.word, row.value[:60], row.what)
        console.print(table, markup=False)
    said = ", ".join(f"{len(launch.of(verdict))} {_TITLES[verdict]}" for verdict in (SET, UNSUPPORTED, LEFT))
    console.print(f"{len(launch.rows)} words: {said}", markup=False, highlight=False)
    console.print(f"rostam run {shlex.join(keys)}", markup=False, highlight=False, soft_wrap=True)
    if problem:
        console.print(f"not run yet: {problem}", markup=False, highlight=False, soft_wrap=True)
