"""Controllers: actions on a running network, by registered name and plain parameters.

Example:
    simulate(plan, controllers=[("link_bandwidth", {"time_ps": [10**9], "link": [3], "bytes_per_s": [1e9]})])
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rostam_py import _core
from rostam_py.errors import ConfigError, UnknownNameError

_SHAPES = "a name, (name, parameters) or {name: NAME, PARAMETER: VALUE}"
Controllers = list[tuple[str, dict[str, Any]]]


def controllers() -> dict[str, str]:
    """Return what each registered controller does, in one line, by name."""
    return {name: _core.controller_summary(name) for name in _core.controller_names()}


def check_controllers(given: Sequence[Any]) -> Controllers:
    """Return (name, parameters) of each, lists of numbers or text; a bare name stands for one without parameters.

    Args: given: names, (name, parameters) or {"name": name, parameters}, as configurations write it.

    Raises: ConfigError for another shape, or a name that is not registered. The core checks the parameters.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"controllers is {given!r}; it must be a list, each entry {_SHAPES}")
    found: Controllers = []
    known = controllers()
    for entry in given:
        name, parameters = (entry, {}) if isinstance(entry, str) else _pair(entry)
        if name not in known:
            raise UnknownNameError(f"controllers names {name!r}; registered: {', '.join(known)}")
        found.append((name, {str(key): _plain(name, key, value) for key, value in parameters.items()}))
    return found


def controller_words(given: Sequence[Mapping[str, Any]]) -> str:
    """Return the names of controllers, as configurations write them, in words; "" for none."""
    counts: dict[str, int] = {}
    for one in given:
        counts[one["name"]] = counts.get(one["name"], 0) + 1
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def _pair(entry: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
        return entry["name"], {key: value for key, value in entry.items() if key != "name"}
    is_pair = isinstance(entry, Sequence) and len(entry) == 2
    if not is_pair or not isinstance(entry[0], str) or not isinstance(entry[1], Mapping):
        raise ConfigError(f"controllers holds {entry!r}; each must be {_SHAPES}")
    return entry[0], entry[1]


def _plain(name: str, key: str, value: Any) -> Any:
    """Return text as it is, and numbers as a list."""
    if isinstance(value, str):
        return value
    is_list = isinstance(value, Sequence)
    numbers = list(value) if is_list else [value]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ConfigError(f"controllers: {name}.{key} holds {number!r}; parameters are numbers, lists or text")
    return numbers
