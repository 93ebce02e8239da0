"""Checks of axes before they are multiplied: every label must be what its points simulate.

check_clashes     two places set one key, so that one of them would be beaten and its label stay
check_modes       an axis or a row sets what the mode of its points does not read
check_sizes       num_accelerators replaces a size that an axis sets
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.fabrics.sizes import resize_parameters
from rostam_py.spec.keys import MODES
from rostam_py.spec.settings import Settings, is_read, is_setting, keys_read
from rostam_py.sweep.axes import CASE, Axis, Value, changes_of

_MODE = "mode"
_SIZE = "num_accelerators"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A key that an axis sets. where: in words. paths: dotted keys that the user wrote a value for, at or below it."""

    key: str
    where: str
    paths: frozenset[str]


def check_clashes(axes: Sequence[Axis], fixed: Sequence[Axis] = ()) -> None:
    """Refuse a key that is set in two places.

    Model: a whole fabric (cost, strategy) and an axis over one of its keys agree, unless the former spells that key
        out. A fixed key below a mapping that an axis sets is lost; below a preset it holds for each.
    Args: fixed: keys with one value that must not be beaten.
    Raises: ConfigError naming the key, the row and both places.
    """
    entries = [_entries(axis) for axis in axes]
    for one, other in itertools.combinations(entries, 2):
        for first, second in itertools.product(one, other):
            _check_pair(first, second)
    for given in fixed:
        for first in (entry for of_axis in entries for entry in of_axis):
            for second in _entries(given, is_axis=False):
                _check_pair(first, second)
                if second.key.startswith(f"{first.key}.") and first.paths != {first.key}:
                    raise _clash(second.key, first, second)


def _check_pair(first: _Entry, second: _Entry) -> None:
    if first.key == second.key:
        raise _clash(first.key, first, second)
    upper, lower = sorted((first, second), key=lambda entry: len(entry.key))
    if not lower.key.startswith(f"{upper.key}."):
        return
    for path in upper.paths - {upper.key}:
        if any(f"{path}.".startswith(f"{own}.") or f"{own}.".startswith(f"{path}.") for own in lower.paths):
            raise _clash(path, first, second)


def _clash(key: str, first: _Entry, second: _Entry) -> ConfigError:
    return ConfigError(
        f"{key} is set by {first.where} and by {second.where}, and a point takes only one of them: drop the other"
    )


def _entries(axis: Axis, is_axis: bool = True) -> list[_Entry]:
    """Return what an axis sets, alike values once."""
    found: dict[Any, _Entry] = {}
    for value in axis.values:
        for key, change in changes_of(axis, value).items():
            if axis.key == CASE:
                where = f"the row {value.label!r} of {axis.source}"
            elif is_axis:
                where = f"the axis {key} of {axis.source}"
            else:
                where = f"{key}={value.label} of {axis.source}"
            paths = frozenset(_paths(key, change))
            found.setdefault((key, paths, where), _Entry(key, where, paths))
    return list(found.values())


def _paths(key: str, value: Value) -> Iterator[str]:
    if value.is_preset:
        yield key
    else:
        yield from _written(key, value.data)


def _written(key: str, data: Any) -> Iterator[str]:
    inner: Mapping[Any, Any] = {}
    if isinstance(data, Mapping):
        inner = data
    elif isinstance(data, list | tuple) and any(isinstance(one, Mapping) for one in data):
        inner = dict(enumerate(data))
    for name, value in inner.items():
        yield from _written(f"{key}.{name}", value)
    if not inner:
        yield key


def check_modes(base: Mapping[str, Any], axes: Sequence[Axis]) -> None:
    """Refuse axes and rows that set what no mode of their points reads: their rows would not differ.

    Raises: ConfigError naming the key, the modes and what they read.
    """
    for axis in axes:
        others = _modes(base, [one for one in axes if one is not axis])
        differ: dict[str, tuple[str, str]] = {}
        for value in axis.values:
            changes = changes_of(axis, value)
            modes = [str(changes[_MODE].data)] if _MODE in changes else others
            if not set(modes) <= set(MODES):
                return  # whoever completes the settings says which there are
            for key, change in changes.items():
                for path in _paths(key, change):
                    if is_setting(path) and not any(is_read(mode, path) for mode in modes):
                        raise _unread(axis, value, path, modes)
            if any(change.is_preset for change in changes.values()):
                whole, read = (_text(changes, used) for used in (None, modes))
                label, other = differ.setdefault(read, (value.label, whole))
                if other != whole:
                    raise ConfigError(
                        f"axis {axis.key}: {label!r} and {value.label!r} differ only in keys that"
                        f" {_in_words(modes)} does not read; {_reads(modes)}"
                    )


def _modes(base: Mapping[str, Any], axes: Sequence[Axis]) -> list[str]:
    """Return the modes that a base and axes give points."""
    own = str(base.get(_MODE, next(iter(MODES))))
    for axis in axes:
        given = [changes_of(axis, value).get(_MODE) for value in axis.values]
        if any(given):
            return list(dict.fromkeys(own if one is None else str(one.data) for one in given))
    return [own]


def _unread(axis: Axis, value: Value, path: str, modes: Sequence[str]) -> ConfigError:
    where = f"the row {value.label!r} of {axis.source} sets" if axis.key == CASE else f"{axis.source} has an axis of"
    return ConfigError(f"{where} {path}, which {_in_words(modes)} does not read; {_reads(modes)}")


def _in_words(modes: Sequence[str]) -> str:
    return " or ".join(f"sweep.mode={mode}" for mode in modes)


def _reads(modes: Sequence[str]) -> str:
    return "; ".join(f"{mode} reads: {', '.join(keys_read(mode))}" for mode in modes)


def _text(changes: Mapping[str, Value], modes: Sequence[str] | None) -> str:
    """Return what changes set, or that part of it which one of the modes reads, as text to compare."""
    found = {}
    for key, change in changes.items():
        for path, data in _leaves(key, change.data):
            if modes is None or any(is_read(mode, path) for mode in modes):
                found[path] = data
    return json.dumps(found, sort_keys=True, default=str)


def _leaves(key: str, data: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(data, Mapping):
        yield key, data
        return
    for name, value in data.items():
        yield from _leaves(f"{key}.{name}", value)


def check_sizes(settings: Settings, changes: Mapping[str, Value]) -> None:
    """Refuse a key of the fabric that an axis sets and that ``num_accelerators`` then replaces.

    Args: settings: of a point, with the changes made.
    """
    size, fabric = settings.get(_SIZE), settings.get("fabric")
    keys = [key.split(".")[1] for key in changes if key.startswith("fabric.")]
    if size is None or not keys or not isinstance(fabric, Mapping) or "name" not in fabric:
        return
    resized = resize_parameters(fabric["name"], fabric, size)
    for key in keys:
        if resized.get(key) != fabric.get(key):
            raise ConfigError(
                f"fabric.{key} is {fabric[key]!r}, but num_accelerators={size} makes it {resized[key]!r};"
                f" drop fabric.{key} or num_accelerators"
            )
