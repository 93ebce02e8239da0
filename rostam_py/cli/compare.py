"""``rostam compare A B``: two runs side by side, each a run's folder or a set of overrides that is simulated."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py.cli.compose import compose_config
from rostam_py.cli.head import kind_name
from rostam_py.cli.run import run_document
from rostam_py.errors import ConfigError
from rostam_py.report.run.comparison import Side, comparison, flat_config, load_side
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
    own = {text: _overrides(text, common) for text in sides if not _is_folder(text)}
    for overrides in own.values():
        compose_config("run", [*common, *overrides])  # both sides' errors, before either is simulated
    with Console(stderr=True).status("starting") as status:
        a, b = (_simulated(own[text], common, status.update) if text in own else load_side(text) for text in sides)
    document = comparison(a, b)
    if as_json:
        print(json.dumps(document, indent=2))
    else:
        _print(Console(width=max(110, Console().width)), document)
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


def _simulated(own: list[str], common: list[str], progress: Callable[[str], None]) -> Side:
    result, config, choices = run_document([*common, *own], progress)
    return Side(" ".join(own) or "defaults", result, flat_config(config, choices))


def _print(console: Console, document: dict[str, Any]) -> None:
    about = Table(title="two runs", show_header=True)
    for column in ("", "A", "B"):
        about.add_column(column, overflow="fold")
    for key in document["a"]:
        values = [document[side][key] for side in ("a", "b")]
        if any(value is not None for value in values):
            about.add_row(key.replace("_", " "), *map(_value, values))
    console.print(about)
    if document["configuration"]:
        table = Table(title="differences of the configuration", min_width=60)
        for column in ("key", "A", "B"):
            table.add_column(column, overflow="fold")
        for row in document["configuration"]:
            table.add_row(row["key"], _value(row["a"]), _value(row["b"]))
        console.print(table)
    else:
        console.print("the configurations are the same", highlight=False)
    console.print(_figures("time", document, {"time_s": _TIME, "rates": _RATE}))
    console.print(_figures("where one iteration goes (mean device)", document, {"breakdown_s": _KIND}))
    console.print(_figures("compute by op family (mean device)", document, {"compute_by_family_s": _TIME}))
    parts = {"critical_path_s": _KIND, "critical_tasks_s": _TIME}
    console.print(_figures("critical path, and its largest tasks", document, parts))
    console.print(_figures("bytes sent, memory and price", document, {
        "bytes_sent": _SENT, "memory_bytes": _SIZE, "usd": _USD, "energy_j": _ENERGY,
    }))  # fmt: skip
    console.print("difference: B - A; ratio: B / A", style="dim", highlight=False)


@dataclass(frozen=True, slots=True)
class _Look:
    """How a section's rows are written: their names, their figures, and how far two figures are apart."""

    words: Callable[[str], str]
    shown: Callable[[str, float], str]
    apart: Callable[[str, float], str] | None = None

    def signed(self, name: str, change: float | None) -> str:
        """Return a difference with its sign, nothing for one that is unknown."""
        if change is None:
            return ""
        size = (self.apart or self.shown)(name, abs(change))
        return f"{'+' if change > 0 else '-'}{size}" if change else "0"


_SHARES = {"mfu": "MFU", "mfu_causal": "causal MFU", "hfu": "HFU"}
_TIME = _Look(str, lambda name, value: format_time(value))
_KIND = _Look(kind_name, lambda name, value: format_time(value))
_SENT = _Look(lambda kind: f"sent, {kind}", lambda name, value: format_size(value))
_SIZE = _Look(lambda part: f"memory, {part}", lambda name, value: format_size(value))
_USD = _Look(lambda what: f"price, {what}", lambda name, value: f"{value:,.0f} USD")
_ENERGY = _Look(lambda what: f"energy, {what}", lambda name, value: f"{format_count(value)}J")
_RATE = _Look(
    lambda name: _SHARES.get(name) or name.replace("_per_", "/"),
    lambda name, value: f"{value:.1%}" if name in _SHARES else format_count(value),
    lambda name, value: f"{100 * value:.1f} points" if name in _SHARES else format_count(value),
)


def _figures(title: str, document: dict[str, Any], sections: dict[str, _Look]) -> Table:
    table = Table(title=title)
    for column in ("", "A", "B", "difference", "ratio"):
        table.add_column(column, justify="left" if column == "" else "right", overflow="fold")
    for section, look in sections.items():
        for row in document[section]:
            name, ratio = row["name"], row["ratio"]
            sides = ["-" if row[side] is None else look.shown(name, row[side]) for side in ("a", "b")]
            signed = look.signed(name, row["difference"])
            table.add_row(look.words(name), *sides, signed, "" if ratio is None else f"{ratio:.3f}")
        table.add_section()
    return table


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
