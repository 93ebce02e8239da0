"""``machine=NAME``: a machine by name, written out as the fabric, accelerators and figures that it stands for.

Example:
    written_out("run", ["machine=dgx_h100", "machine.servers=4", "strategy.tp=8"])
    # ["fabric=fat_tree", "fabric.num_accelerators=32", ..., "accelerator=h100_80gb", ..., "strategy.tp=8"]

The configuration of a run holds what was written out, so that it says by itself what was simulated. Keys given with
the machine win, but for those that its size decides.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.machines import MACHINES
from rostam_py.machines.config import Site, make_machine
from rostam_py.sweep.machine_rows import check_machine, figures_of, is_own_key, machine_words

_KEY = "machine"
_SIZE = "num_accelerators"  # the first ones of the servers that hold so many
_AXES = "sweep"  # the command in which machines, or their sizes, may be several


def written_out(command: str, overrides: Sequence[str]) -> list[str]:
    """Return overrides with a machine's name, and its own keys, replaced by what they stand for.

    Raises: UnknownNameError for another name; ConfigError for a key that the machine has not, one that its size
        decides, or several machines where one is meant.
    """
    keys = [one.partition("=")[0].lstrip("+") for one in overrides]
    named = [one.partition("=")[2] for one, key in zip(overrides, keys, strict=True) if key == _KEY]
    if not named:
        _check_unnamed(keys)
        return list(overrides)
    if len(named) > 1:
        raise ConfigError(f"machine is given {len(named)} times: {', '.join(named)}; give it once")
    names = [check_machine(one) for one in values_of(named[0])]
    own_keys = {entry.name for name in names for entry in dataclasses.fields(MACHINES.get(name))}
    own: dict[str, list[Any]] = {}
    rest = []
    for override, key in zip(overrides, keys, strict=True):
        section, _, inner = key.partition(".")
        if key == _KEY:
            continue
        if section == _KEY and (inner in own_keys or inner not in _settings()):
            own[inner] = values_of(override.partition("=")[2])
        else:
            rest.append(override)
    size = [values_of(one.partition("=")[2]) for one in rest if one.partition("=")[0].lstrip("+") == _SIZE]
    choices = [
        (name, _holding(name, dict(zip(own, values, strict=True)), size))
        for name in names
        for values in itertools.product(*own.values())
    ]
    sites = [(name, given, make_machine(name, MACHINES.get(name), given)) for name, given in choices]
    for name, _, config in sites:
        _check_rest(name, config.sizes, rest)
    if len(sites) == 1:
        return _overrides(command, sites[0][2].site(), rest)
    if command != _AXES:
        raise ConfigError(f"machine={named[0]} and its keys give {len(sites)} machines; rostam {command} takes one")
    return [_rows(choices, rest), *rest]


def without_machine(overrides: Sequence[str]) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the machine that overrides name, with its own keys, each with its values, and the other overrides."""
    own: dict[str, list[Any]] = {}
    rest = []
    for one in overrides:
        key, _, text = one.lstrip("+").partition("=")
        if is_own_key(key):
            own[key] = values_of(text)
        else:
            rest.append(one)
    return own, rest


def _holding(name: str, given: dict[str, Any], sizes: list[list[Any]]) -> dict[str, Any]:
    """Return a machine's keys with as many servers as hold num_accelerators, where one number of them is given."""
    numbers = [value for values in sizes for value in values]
    return MACHINES.get(name).holding(given, numbers[0]) if len(numbers) == 1 else given


def _settings() -> list[str]:
    from rostam_py.spec.keys import MachineKeys

    return [entry.name for entry in dataclasses.fields(MachineKeys)]


def _check_unnamed(keys: Sequence[str]) -> None:
    """Refuse keys of machines without a machine."""
    for key in keys:
        inner = key.removeprefix(f"{_KEY}.")
        having = [name for name in MACHINES if inner in (one.name for one in dataclasses.fields(MACHINES.get(name)))]
        if key != inner and having and inner not in _settings():
            raise ConfigError(
                f"{key} needs a machine that has this key, for example machine={having[0]}; those are:"
                f" {', '.join(having)}"
            )


def _check_rest(name: str, sizes: Sequence[str], rest: Sequence[str]) -> None:
    """Refuse what contradicts a machine: another fabric, or its size."""
    for override in rest:
        key = override.partition("=")[0].lstrip("+")
        if key == "fabric":
            raise ConfigError(
                f"machine={name} brings its own fabric, so {override!r} cannot be given; change its keys by fabric.KEY"
            )
        is_part = MACHINES.get(name).takes_part and len(values_of(override.partition("=")[2])) == 1
        if (key == _SIZE and not is_part) or key in (f"fabric.{size}" for size in sizes):
            owns = ", ".join(f"machine.{one.name}" for one in dataclasses.fields(MACHINES.get(name)))
            raise ConfigError(f"{override!r}: the size of machine={name} is given by its own keys: {owns}")


def values_of(text: str) -> list[Any]:
    """Return the values of an override: one, or several that commas divide."""
    import yaml

    try:
        read = yaml.safe_load(f"[{text}]")
    except (yaml.YAMLError, ValueError) as error:  # numbers of more than 4,300 digits
        raise ConfigError(f"{text!r} cannot be read; check its brackets, quotes and commas") from error
    return list(read)


def _overrides(command: str, site: Site, rest: list[str]) -> list[str]:
    """Return the site as overrides, less what is given and what the command does not know, and the rest."""
    from rostam_py.cli.schema import command_schema

    schema: Any = command_schema(command)
    known = {entry.name for entry in dataclasses.fields(schema)}
    given = {one.partition("=")[0].lstrip("+") for one in rest}
    # A bandwidth is given as that of a link or of an accelerator: the one that the user gives goes before ours.
    if given & {"fabric.link_bandwidth", "fabric.accelerator_bandwidth"}:
        given |= {"fabric.link_bandwidth", "fabric.accelerator_bandwidth"}
    made = {f"fabric.{key}": value for key, value in site.parameters.items()} | {
        key: value for key, value in figures_of(site).items() if value is not None
    }
    return [
        f"fabric={site.fabric}",
        *(f"{key}={_text(value)}" for key, value in made.items() if key.partition(".")[0] in known - given - {""}
          and key not in given),
        *rest,
    ]  # fmt: skip


def _rows(choices: Sequence[tuple[str, dict[str, Any]]], rest: Sequence[str]) -> str:
    """Return machines, each a name and its own keys, as the rows of a sweep."""
    if any(one.lstrip("+").startswith("sweep.rows=") for one in rest):
        raise ConfigError("several machines are the rows of a sweep, and sweep.rows gives others; give one of them")
    rows = [
        {"label": machine_words(name, {key: _text(value) for key, value in given.items()}), _KEY: name}
        | {f"{_KEY}.{key}": value for key, value in given.items()}
        for name, given in choices
    ]
    return f"sweep.rows=[{','.join(map(_quoted, rows))}]"


def _quoted(value: Any) -> str:
    """Return a value in Hydra's grammar."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_quoted(one)}" for key, one in value.items()) + "}"
    if isinstance(value, str):
        return f"'{value}'"
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_text, value))}]"
    return "null" if value is None else str(value)
