"""``rostam COMMAND --help``: what a command takes, from its schema."""

import dataclasses
from typing import Any

_LIST_USAGE = """usage: rostam list [KIND ...] [--json]

List what can be named in a configuration. Kinds: models, fabrics, presets, accelerators, costs, collectives,
routings, convergence. Without a kind the kinds are listed.
"""


def print_usage(command: str) -> None:
    """Print a command's keys with their defaults and meaning."""
    if command == "list":
        print(_LIST_USAGE, end="")
        return
    from rostam_py.cli.schema import COMMAND_SCHEMAS

    schema = COMMAND_SCHEMAS[command]
    where = " MODEL" if command == "profile" else ""
    print(f"usage: rostam {command}{where} [--json] [key=value ...]\n\n{_dedent(schema.__doc__ or '')}")
    print("\nkeys and defaults")
    _print_fields(schema, "")
    if command in ("run", "search"):
        _print_groups()


def _print_fields(schema: Any, prefix: str) -> None:
    for entry in dataclasses.fields(schema):
        if entry.default_factory is not dataclasses.MISSING:
            default = entry.default_factory()
            if dataclasses.is_dataclass(default):
                _print_fields(type(default), f"{prefix}{entry.name}.")
                continue
        else:
            default = entry.default
        if prefix == "" and entry.name in ("fabric", "cost"):
            default = {"fabric": "tree_64", "cost": "roofline"}[entry.name]
        print(f"  {prefix}{entry.name}={'null' if default is None else default}")


def _print_groups() -> None:
    from rostam_py.cli.compose import group_choices
    from rostam_py.placement.strategy import Strategy

    print(f"\nstrategy\n{_dedent(Strategy.__doc__ or '')}")
    for group in ("fabric", "cost"):
        print(f"\n{group}= one of: {', '.join(group_choices(group))}")
    print("\nA fabric's own keys: rostam list fabrics.")
    print("Bandwidths, times and sizes carry a unit: '400 Gb/s', '5 us', '25 MB'.")


def _dedent(text: str) -> str:
    import inspect

    return inspect.cleandoc(text)
