"""``rostam compare A B``: two runs side by side, each a run's folder or a set of overrides that is simulated."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from rostam_py.cli.compare_jobs import compared_jobs, print_jobs
from rostam_py.cli.comparison_tables import Look, print_comparison
from rostam_py.cli.compose import compose_config
from rostam_py.cli.head import kind_name
from rostam_py.cli.run import run_document
from rostam_py.errors import ConfigError
from rostam_py.report.jobs.load import is_jobs_folder
from rostam_py.report.run.comparison import Side, comparison, flat_config, load_side
from rostam_py.report.run.contents import contents_of
from rostam_py.units import format_count, format_size, format_time

# Between two overrides of one text, whose values may hold spaces: "strategy.tp=2 fabric.link_bandwidth=400 Gb/s".
_BETWEEN = re.compile(r"\s+(?=\+{0,2}[A-Za-z_][\w.]*=)")
_OUTPUT = ("out", "timeline", "report", "save_plan", "save_program", "save_task_graph", "task_graph", "wandb")


def compare(arguments: list[str], as_json: bool) -> int:
    """Compare two runs and print what differs. Returns the exit status."""
    if len(arguments) < 2:
        given = ", ".join(map(repr, arguments)) or "none"
        raise ConfigError(
            f"sides given: {given}; give two, each the folder of a run or settings in quotes, then settings for both:"
            " rostam compare strategy.tp=2 'strategy.tp=4 strategy.pp=2' model=gpt_125m"
        )
    sides, common = arguments[:2], arguments[2:]
    if common and all(_is_folder(one) for one in sides):
        raise ConfigError(f"{common[0]!r} changes nothing in two folders of finished runs; leave it out")
    if all(_is_folder(one) and is_jobs_folder(one) for one in sides):
        return _show(compared_jobs(*sides), print_jobs, as_json)
    own = {text: _overrides(text, common) for text in sides if not _is_folder(text)}
    for overrides in own.values():
        compose_config("run", [*common, *overrides])  # both sides' errors, before either is simulated
    has_contents = any(one.startswith(_PROGRAM) for overrides in own.values() for one in (*overrides, *common))
    with Console(stderr=True).status("starting") as status:
        a, b = (
            _simulated(own[text], common, status.update, has_contents=has_contents) if text in own else load_side(text)
            for text in sides
        )
    return _show(comparison(a, b), _print, as_json)


def _show(document: dict[str, Any], show: Callable[[Console, dict[str, Any]], None], as_json: bool) -> int:
    if as_json:
        print(json.dumps(document, indent=2))
    else:
        show(Console(width=max(110, Console().width)), document)
    return 0


def _is_folder(text: str) -> bool:
    return bool(text) and Path(text).is_dir()


def split_overrides(text: str) -> list[str]:
    """Return the overrides of one text, whose values may hold spaces."""
    return [one for one in _BETWEEN.split(text.strip()) if one]


def _overrides(text: str, common: list[str]) -> list[str]:
    """Return the overrides of one side. Raises: ConfigError for text that is not an override, here or in common."""
    own = split_overrides(text)
    for override in (*own, *common):
        if "=" not in override:
            raise ConfigError(f"{override!r} is neither the folder of a run nor settings such as strategy.tp=2")
        if override.lstrip("+").partition("=")[0].partition(".")[0] in _OUTPUT:
            raise ConfigError(f"{override!r} sets the output of a run; compare writes no folder, so leave it out")
    return own


def _simulated(own: list[str], common: list[str], progress: Callable[[str], None], *, has_contents: bool) -> Side:
    """Return a side that is simulated now. Args: has_contents: it says what its ranks run."""
    result, config, choices, plan = run_document([*common, *own], progress)
    contents = contents_of(plan) if has_contents else {}
    return Side(" ".join(own) or "defaults", result, flat_config(config, choices), contents)


_PROGRAM = "program="  # of a side that a plan is compared with: what both run is of interest
_SHARES = {"mfu": "MFU", "mfu_causal": "causal MFU", "hfu": "HFU"}
_TIME = Look(str, lambda name, value: format_time(value))
_KIND = Look(kind_name, lambda name, value: format_time(value))
_SENT = Look(lambda kind: f"sent, {kind}", lambda name, value: format_size(value))
_SIZE = Look(lambda part: f"memory, {part}", lambda name, value: format_size(value))
_USD = Look(lambda what: f"price, {what}", lambda name, value: f"{value:,.0f} USD")
_ENERGY = Look(lambda what: f"energy, {what}", lambda name, value: f"{format_count(value)}J")
_NUMBER = Look(str, lambda name, value: f"{value:,.6g}")
_RATE = Look(
    lambda name: _SHARES.get(name) or name.replace("_per_", "/"),
    lambda name, value: f"{value:.1%}" if name in _SHARES else format_count(value),
    lambda name, value: f"{100 * value:.1f} points" if name in _SHARES else format_count(value),
)
_TABLES = (
    ("time", {"time_s": _TIME, "rates": _RATE}),
    ("where one iteration goes (mean device)", {"breakdown_s": _KIND}),
    ("compute by op family (mean device)", {"compute_by_family_s": _TIME}),
    ("critical path, and its largest tasks", {"critical_path_s": _KIND, "critical_tasks_s": _TIME}),
    ("bytes sent, memory and price",
     {"bytes_sent": _SENT, "memory_bytes": _SIZE, "usd": _USD, "energy_j": _ENERGY}),
)  # fmt: skip
# Of two sides one of which is a program.
_CONTENTS = (
    ("messages of a rank (mean) in an iteration", {"messages": _NUMBER}),
    ("kernels of a rank (mean): how many, by op", {"kernels": _NUMBER}),
    ("kernels of a rank (mean): time, by op", {"kernels_s": _TIME}),
)


def _print(console: Console, document: dict[str, Any]) -> None:
    print_comparison(console, "two runs", document, (*_TABLES, *(_CONTENTS if "messages" in document else ())))
