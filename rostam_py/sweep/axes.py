"""Axes of a sweep: keys that take several values, and rows that set several keys at once.

Example:
    axes = [*grid_axes({"seed": [0, 1]}), row_axis([{"label": "tree", "fabric": "fat_tree", "strategy.tp": 8}])]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rostam_py.errors import ConfigError

CASE = "case"  # the axis of rows that set several keys at once


@dataclass(frozen=True, slots=True)
class Value:
    """One value of an axis.

    label: how tables and plots name it. data: what is set; of a case {key: Value}. fabric: what a case's fabric is
    called. is_preset: data is what a name stands for, so that an axis over one of its keys contradicts nothing.
    """

    label: str
    data: Any
    fabric: str | None = None
    is_preset: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """A key that takes several values; the key ``case`` sets several keys together. source: where it is written."""

    key: str
    values: Sequence[Value]
    source: str = "axes"

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigError(f"axis {self.key} has no values; give at least one")
        labels: set[str] = set()
        for value in self.values:
            if value.label in labels:
                raise ConfigError(f"axis {self.key} has the value {value.label!r} twice; every value may occur once")
            labels.add(value.label)


def grid_axes(grid: Mapping[str, Sequence[Any]], source: str = "sweep.grid") -> list[Axis]:
    """Return axes from {key: values}; a value may be a Value, and a fabric's mapping may hold its "label"."""
    axes = []
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ConfigError(f"axis {key} is {values!r}; it must be a list of values")
        axes.append(Axis(key, [_value(one) for one in values], source))
    return axes


def row_axis(rows: Sequence[Mapping[str, Any]], source: str = "sweep.rows") -> Axis:
    """Return the axis of cases: each row is {"label": ..., key: value, ...}."""
    values = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ConfigError(f"sweep.rows[{number}] is {row!r}; it must be a mapping of keys to values")
        data = {key: _value(value) for key, value in row.items() if key != "label"}
        if not data:
            raise ConfigError(f"sweep.rows[{number}] sets no key")
        label = str(row.get("label") or ", ".join(f"{key}={value.label}" for key, value in data.items()))
        values.append(Value(label, data, data["fabric"].label if "fabric" in data else None))
    return Axis(CASE, values, source)


def changes_of(axis: Axis, value: Value) -> Mapping[str, Value]:
    """Return {key: Value} of what one value of an axis sets."""
    return value.data if axis.key == CASE else {axis.key: value}


def _value(given: Any) -> Value:
    if isinstance(given, Value):
        return given
    if isinstance(given, Mapping):
        data = {key: value for key, value in given.items() if key != "label"}
        return Value(str(given.get("label") or _brief(data)), data)
    if isinstance(given, list) and all(isinstance(one, Mapping) and "name" in one for one in given):
        return Value("; ".join(_brief(one) for one in given) or "none", given)
    return Value("null" if given is None else str(given), given)


def _brief(data: Mapping[str, Any]) -> str:
    """Return a mapping in words: "torus 4x4", "dp 2, tp 4"."""
    parts = [str(data["name"])] if "name" in data else []
    for key, value in data.items():
        if key != "name":
            text = "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            parts.append(f"{key} {text}")
    return ", ".join(parts)
