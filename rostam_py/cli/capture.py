"""``rostam capture [options] -- PROGRAM``: a user's training program as a program file of rostam."""

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from rostam_py.capturing.front import DEFAULT_GPU, capture
from rostam_py.cli.capture_options import OPTIONS
from rostam_py.errors import ConfigError
from rostam_py.programs import Program
from rostam_py.units import format_size

_MOST_MESSAGES = 30  # lines of the table


def capture_command(arguments: list[str], as_json: bool) -> int:
    """Capture a program and write it to a file. Returns the exit status."""
    place = arguments.index("--") if "--" in arguments else len(arguments)
    options, program = _options(arguments[:place]), arguments[place + 1 :]
    if not program:
        raise ConfigError("no program is given; it stands behind --: rostam capture --world 64 -- python train.py")
    print(f"rostam: runs {' '.join(program)} on this computer, as it is, with your rights", file=sys.stderr)
    found = capture(
        program, world=_number(options, "--world"), step=_number(options, "--step"),
        ranks=_ranks(options.get("--ranks", "auto")), gpu=options.get("--gpu", DEFAULT_GPU),
        stub=_words(options, "--stub"), splits=options.get("--splits", "balanced"),
        assume_bandwidth=_words(options, "--assume-bandwidth"),
    )  # fmt: skip
    out = options.get("--out", f"{found.name}.json.gz")
    found.save(out)
    if as_json:
        print(json.dumps({"file": out, **_record(found)}, indent=2))
    else:
        _print(found, out)
    return 0


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the values of options. Raises: ConfigError for one without a value, and words that are none."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name not in OPTIONS:
            raise ConfigError(f"{name!r} is no option; options: {', '.join(OPTIONS)}; the program stands behind --")
        if not equals:
            if not rest:
                raise ConfigError(f"{name} has no value; it takes {OPTIONS[name].value}")
            value = rest.pop(0)
        if name in found:
            raise ConfigError(f"{name} is given twice")
        found[name] = value
    return found


def _number(options: dict[str, str], name: str) -> int | None:
    if name not in options:
        return None
    if not options[name].isdecimal():
        raise ConfigError(f"{name} is {options[name]!r}; it must be an integer")
    return int(options[name])


def _ranks(written: str) -> list[int] | None:
    if written == "auto":
        return None
    parts = written.split(",")
    if not all(one.isdecimal() for one in parts):
        raise ConfigError(f"--ranks is {written!r}; it must be auto, or ranks such as 0,8")
    return [int(one) for one in parts]


def _words(options: dict[str, str], name: str) -> list[str]:
    return [word for word in options.get(name, "").split(",") if word]


def _record(program: Program) -> dict[str, Any]:
    return {
        "name": program.name, "num_ranks": program.num_ranks, "description": program.description,
        "roles": {
            name: {"ranks": list(role.ranks or ()), "memory_bytes": role.memory_bytes}
            for name, role in program.roles.items()
        },
        "messages": [
            {**dataclasses.asdict(one), "stages": list(one.stages)} for one in program.messages()
        ],
    }  # fmt: skip


def _print(program: Program, out: str) -> None:
    console = Console(width=max(120, Console().width))
    roles = Table(title=f"{program.name}: {program.num_ranks:,} ranks")
    for column in ("role", "ranks", "steps", "kernels", "peak of memory"):
        roles.add_column(column, justify="left" if column in ("role", "ranks") else "right", overflow="fold")
    for name, role in program.roles.items():
        steps = [step for phase in role.phases.values() for step in phase]
        kernels = sum(len(getattr(step, "kernels", ())) for step in steps)
        ranks = ", ".join(map(str, role.ranks or ("all",)))
        roles.add_row(name, ranks, f"{len(steps):,}", f"{kernels:,}", format_size(role.memory_bytes))
    console.print(roles)
    console.print(_messages(program))
    for note in program.description.split(". "):
        console.print(f"note: {note}", style="dim", markup=False, highlight=False)
    console.print(f"written to {out}: rostam run program={out} times it", highlight=False, markup=False)


def _messages(program: Program) -> Table:
    table = Table(title="what one rank of each role sends in a step")
    for column in ("role", "kind", "groups", "bytes", "count"):
        table.add_column(column, justify="right" if column in ("bytes", "count") else "left", overflow="fold")
    names = list(program.roles)
    counted: Counter[tuple[str, str, str, int]] = Counter()
    for one in program.messages():
        counted[", ".join(names[k] for k in one.stages), one.kind, one.group, one.num_bytes] += one.count
    for (roles, kind, group, size), count in list(counted.items())[:_MOST_MESSAGES]:
        table.add_row(roles, kind, group, f"{size:,}", f"{count:,}")
    if len(counted) > _MOST_MESSAGES:
        table.caption = f"and {len(counted) - _MOST_MESSAGES} more kinds; --json lists all"
    return table
