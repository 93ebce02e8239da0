"""``from=FILE``: a launch configuration of a training program, written out as the keys that it comes to.

Example:
    launched("run", ["from=train.sh", "from.NNODES=2", "machine=dgx_h100"])
    # ["software=megatron_core", "strategy.tp=2", ..., "machine=dgx_h100"]

Keys given with the file win; a model, or a program, that is given takes the place of the file's with all keys of it.
"""

import functools
import re
import warnings
from collections.abc import Sequence
from typing import Any

from rostam_py.cli.named_machine import values_of, written_out
from rostam_py.errors import ConfigError, RostamWarning
from rostam_py.software.launches.ledger import UNSUPPORTED, Launch, shown

_KEY = "from"
_SIZES = ("num_accelerators", "fabric.num_accelerators")
_PLAIN = re.compile(r"[\w@./:+-]+")


def launched(command: str, overrides: Sequence[str]) -> list[str]:
    """Return overrides with the keys of the launch file that they name, if they name one.

    Warns of words of the file that are not supported.
    Raises: ConfigError for a file that cannot be read, and for variables without a file.
    """
    path, _, rest = launch_file(overrides)
    if path is None:
        return rest
    launch = read(command, overrides)
    if "model" not in launch.keys and not any(_is_model(one) for one in rest):
        raise ConfigError(f"launch file {path!r} names no model that is known: add model=NAME (rostam list models)")
    if refused := launch.of(UNSUPPORTED):
        words = "; ".join(f"{row.word}={row.value[:40]} ({row.what})" for row in refused)
        _warn(f"{path}: not supported: {words}; rostam import {path} shows all")
    return [*as_overrides(launch, rest), *rest]


@functools.cache  # a command composes its settings several times
def _warn(said: str) -> None:
    warnings.warn(said, RostamWarning, stacklevel=3)


def _is_model(override: str) -> bool:
    return override.partition("=")[0].lstrip("+") in ("model", "experiment")


def launch_file(overrides: Sequence[str]) -> tuple[str | None, dict[str, str], list[str]]:
    """Return the launch file that overrides name, the variables for it, and the other overrides.

    Raises: ConfigError for several files, and for variables without one.
    """
    files, variables, rest = [], dict[str, str](), []
    for one in overrides:
        key, _, value = one.partition("=")
        key = key.lstrip("+")
        if key == _KEY:
            files.append(value.strip("'\""))
        elif key.startswith(f"{_KEY}."):
            variables[key.removeprefix(f"{_KEY}.")] = value.strip("'\"")
        else:
            rest.append(one)
    if len(files) > 1 or files == [""]:
        raise ConfigError(f"from is {', '.join(files)!r}; it must be one launch file")
    if variables and not files:
        raise ConfigError(f"from.{next(iter(variables))} is a variable of a launch file: give from=FILE, too")
    return (files[0] if files else None), variables, rest


def read(command: str, overrides: Sequence[str]) -> Launch:
    """Return the launch file that overrides name as keys. Raises: ConfigError, as ``read_launch``."""
    from rostam_py.software.launches.reader import read_launch

    path, variables, rest = launch_file(overrides)
    return read_launch(str(path), variables, _size(command, rest))


def as_overrides(launch: Launch, given: Sequence[str]) -> list[str]:
    """Return a launch's keys as overrides, without those that are given with it."""
    keys = {one.partition("=")[0].lstrip("+") for one in given}
    sections = {"model": ("model", "model.args.")} if "model" in keys else {}
    if "software" in keys and f"software={launch.keys['software']}" not in given:
        sections["software"] = ("software", "software.")
    is_sized = any(key in _SIZES or re.match(r"machine\.(servers|pods|racks)$", key) for key in keys)
    return [
        f"{key}={_text(value)}"
        for key, value in launch.keys.items()
        if key not in keys
        and not (is_sized and key in _SIZES)
        and not any(key == name or key.startswith(prefix) for name, prefix in sections.values())
    ]


def _size(command: str, rest: list[str]) -> int | None:
    """Return the number of accelerators that overrides give, None where they give none."""
    known: dict[str, Any] = {}
    for one in written_out(command, rest) if any(one.startswith(("machine=", "+machine=")) for one in rest) else rest:
        key, _, value = one.partition("=")
        if key.lstrip("+") in _SIZES:
            found = values_of(value)
            known[key.lstrip("+")] = found[0] if len(found) == 1 else None
    size = known.get(_SIZES[0], known.get(_SIZES[1]))
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def _text(value: Any) -> str:
    """Return a value in Hydra's grammar."""
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    text = shown(value)
    if not isinstance(value, str) or _PLAIN.fullmatch(text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
