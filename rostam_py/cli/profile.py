"""``rostam profile MODEL``: time a model's operators on this machine into a cost table."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py.cli.compose import compose_config
from rostam_py.errors import ConfigError
from rostam_py.units import format_time


def profile_model(arguments: list[str], as_json: bool) -> int:
    """Trace, profile, save the table, and print the ops that take the most time. Returns the exit status."""
    overrides = [one if "=" in one else f"model={one}" for one in arguments]
    models = [one.partition("=")[2] for one in overrides if one.lstrip("+").startswith("model=")]
    if len(models) != 1:
        given = f"names {len(models)} models: {', '.join(models)}" if models else "needs MODEL"
        raise ConfigError(f"rostam profile {given}; give one, for example: rostam profile resnet50 batches=[2,8]")
    config = compose_config("profile", overrides)
    from rostam_py.costs.profile import ProfileOptions, check_batches, profile
    from rostam_py.costs.profile_kernels import kernel_table
    from rostam_py.tracing import trace

    check_batches(config.batches)
    options = ProfileOptions(
        device=config.device, threads=config.threads, precision=config.precision, optimizer=config.optimizer or "",
        date=config.date, command="rostam profile " + " ".join(arguments), show_progress=not as_json,
    )  # fmt: skip
    options.check()  # before the trace, which takes a while
    console = Console(stderr=True)
    with console.status(f"tracing {config.model}"):
        graph = trace(config.model, cache=False)  # ops are run: a user's file may define some
    path = config.out or f"{graph.name}.costs.json"
    optimizer = config.optimizer or graph.default_optimizer
    table = profile(graph, config.batches, out=path, options=options, optimizer=optimizer)
    if config.kernels:
        kernel_table(table, graph).save(config.kernels)
    if as_json:
        print(json.dumps({"table": path, "provenance": table.provenance}, indent=2))
    else:
        _print(Console(), table, config.model, config.batches, path)
        if config.kernels:
            use = f"cost=calibrated cost.table={config.kernels} strategy.precision={config.precision}"
            Console().print(f"kernels written to {config.kernels}; use them: {use}", highlight=False, soft_wrap=True)
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
    use = (
        f"rostam run model={model} accelerator={about['accelerator'] or 'NAME'} cost=profiled cost.table={path}"
        f" strategy.precision={about['precision']}"
    )
    console.print(f"written to {path}; use it: {use}", highlight=False, soft_wrap=True)
