"""``rostam profile MODEL``: time a model's operators on this machine into a cost table."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py.cli.compose import compose_config
from rostam_py.units import format_time


def profile_model(arguments: list[str], as_json: bool) -> int:
    """Trace, profile, save the table, and print the ops that take the most time. Returns the exit status."""
    overrides = [one if "=" in one else f"model={one}" for one in arguments]
    config = compose_config("profile", overrides)
    from rostam_py.costs.profile import profile
    from rostam_py.tracing import trace

    console = Console(stderr=True)
    with console.status(f"tracing {config.model}"):
        graph = trace(config.model)
    path = config.out or f"{graph.name}.costs.json"
    table = profile(
        graph, config.batches, out=path, device=config.device, threads=config.threads, precision=config.precision,
        optimizer=config.optimizer or graph.default_optimizer, date=config.date,
        command="rostam profile " + " ".join(arguments), show_progress=not as_json,
    )  # fmt: skip
    if as_json:
        print(json.dumps({"table": path, "provenance": table.provenance}, indent=2))
    else:
        _print(Console(), table, config.model, config.batches, path)
    return 0


def _print(console: Console, table: Any, model: str, batches: list[int], path: str) -> None:
    about = table.provenance
    console.print(f"{len(table.entries)} distinct ops of {about.get('model', '')} timed on {about.get('device', '')}")
    batch = max(batches)
    slowest = sorted(table.entries.values(), key=lambda entry: -entry.at(batch)[0])[:10]
    view = Table(title=f"ten slowest ops at batch {batch}")
    view.add_column("op")
    view.add_column("time", justify="right")
    for entry in slowest:
        view.add_row(entry.op_type, format_time(entry.at(batch)[0]))
    console.print(view)
    use = f"rostam run model={model} accelerator={about['accelerator'] or 'NAME'} cost=profiled cost.table={path}"
    console.print(f"written to {path}; use it: {use}", highlight=False, soft_wrap=True)
