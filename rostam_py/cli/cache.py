"""``rostam cache list | clear``: the graphs that models were traced to, kept for the next run."""

import json

from rich.console import Console
from rich.table import Table

from rostam_py.cli import kept_composition
from rostam_py.cli.choices import CACHE_ACTIONS
from rostam_py.errors import UnknownNameError
from rostam_py.tracing import CacheEntry, TraceCache
from rostam_py.units import format_size


def cache(arguments: list[str], as_json: bool) -> int:
    """List or clear the trace cache. Returns the exit status."""
    if len(arguments) != 1 or arguments[0] not in CACHE_ACTIONS:
        given = " ".join(arguments) or "missing"
        raise UnknownNameError(f"the action is {given}; rostam cache takes one of: {', '.join(CACHE_ACTIONS)}")
    traces = TraceCache()
    if arguments == ["clear"]:
        count = traces.clear()
        kept_composition.clear()
        print(json.dumps({"folder": str(traces.folder), "deleted": count}) if as_json else f"deleted {count} traces")
        return 0
    entries = list(traces.entries())
    if as_json:
        listed = [
            {"model": one.model, "arguments": one.arguments, "num_bytes": one.num_bytes, "state": one.state,
             "path": str(one.path)}
            for one in entries
        ]  # fmt: skip
        print(json.dumps({"folder": str(traces.folder), "entries": listed}, indent=2))
    else:
        _print(traces, entries)
    return 0


def _print(traces: TraceCache, entries: list[CacheEntry]) -> None:
    table = Table(title=f"traces in {traces.folder}: {format_size(sum(entry.num_bytes for entry in entries))}")
    for column in ("model", "arguments", "size", "state"):
        table.add_column(column, overflow="fold", justify="right" if column == "size" else "left")
    for entry in entries:
        given = {key: value for key, value in entry.arguments.items() if value is not None}
        table.add_row(entry.model, json.dumps(given), format_size(entry.num_bytes), entry.state)
    Console(width=max(120, Console().width)).print(table)
