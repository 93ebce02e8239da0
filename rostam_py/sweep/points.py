"""Points of a sweep: axes, and their product.

Example:
    axes = [Axis("fabric", [Value("tree", {"name": "fat_tree", "num_accelerators": 64}), ...]),
            Axis("strategy.tp", [Value("1", 1), Value("8", 8)])]
    points = expand_points({"model": "gpt_125m"}, axes)
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.sweep.identity import point_key
from rostam_py.sweep.settings import Settings, complete_settings, with_key

CASE = "case"  # the axis of rows that set several keys at once


@dataclass(frozen=True, slots=True)
class Value:
    """One value of an axis. label: how tables and plots name it. data: what is set; of a case {key: data}."""

    label: str
    data: Any
    fabric: str | None = None  # what a case's fabric is called


@dataclass(frozen=True, slots=True)
class Axis:
    """A key that takes several values; the key ``case`` sets several keys together."""

    key: str
    values: Sequence[Value]

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigError(f"axis {self.key} has no values; give at least one")
        labels = [value.label for value in self.values]
        for label in labels:
            if labels.count(label) > 1:
                raise ConfigError(f"axis {self.key} has the value {label!r} twice; every value may occur once")


@dataclass(frozen=True, slots=True)
class Point:
    """One simulation or search of a sweep. labels: {axis key: label}, "fabric" always among them."""

    index: int
    key: str
    labels: Mapping[str, str]
    settings: Settings = field(repr=False)


def grid_axes(grid: Mapping[str, Sequence[Any]]) -> list[Axis]:
    """Return axes from {key: values}; a value may be a Value, and a fabric's mapping may hold its "label"."""
    axes = []
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ConfigError(f"axis {key} is {values!r}; it must be a list of values")
        axes.append(Axis(key, [_value(one) for one in values]))
    return axes


def row_axis(rows: Sequence[Mapping[str, Any]]) -> Axis:
    """Return the axis of cases: each row is {"label": ..., key: value, ...}."""
    values = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ConfigError(f"sweep.rows[{number}] is {row!r}; it must be a mapping of keys to values")
        data = {key: value for key, value in row.items() if key != "label"}
        if not data:
            raise ConfigError(f"sweep.rows[{number}] sets no key")
        plain = {key: _value(value) for key, value in data.items()}
        label = str(row.get("label") or ", ".join(f"{key}={value.label}" for key, value in plain.items()))
        fabric = plain["fabric"].label if "fabric" in plain else None
        values.append(Value(label, {key: value.data for key, value in plain.items()}, fabric))
    return Axis(CASE, values)


def _value(given: Any) -> Value:
    if isinstance(given, Value):
        return given
    if isinstance(given, Mapping):
        data = {key: value for key, value in given.items() if key != "label"}
        return Value(str(given.get("label") or _brief(data)), data)
    return Value("null" if given is None else str(given), given)


def _brief(data: Mapping[str, Any]) -> str:
    """Return a mapping in words: "torus 4x4", "dp 2, tp 4"."""
    parts = [str(data["name"])] if "name" in data else []
    for key, value in data.items():
        if key != "name":
            text = "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            parts.append(f"{key} {text}")
    return ", ".join(parts)


def expand_points(
    base: Mapping[str, Any], axes: Sequence[Axis], graph_digests: Mapping[str, str] | None = None
) -> list[Point]:
    """Return the product of the axes, the last one fastest, every point's settings complete and checked.

    Model: keys without a dot and whole cases are set before dotted keys, whatever the order of the axes: a fabric
        replaces all parameters, ``fabric.link_bandwidth`` then changes one of every fabric.
    Raises: ConfigError for an axis named twice and for bad values; the message names the point's labels.
    """
    keys = [axis.key for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"axis {key} is given twice; give its values in one list")
    points = []
    for index, values in enumerate(itertools.product(*(axis.values for axis in axes))):
        labels = {axis.key: value.label for axis, value in zip(axes, values, strict=True)}
        try:
            settings = complete_settings(_changed(base, zip(axes, values, strict=True)))
        except ConfigError as error:
            where = ", ".join(f"{key}={label}" for key, label in labels.items())
            raise type(error)(f"{error} (at {where})" if where else str(error)) from error
        case = next((value.fabric for axis, value in zip(axes, values, strict=True) if axis.key == CASE), None)
        labels.setdefault("fabric", case or str(base.get("fabric_label") or settings["fabric"]["name"]))
        points.append(Point(index, point_key(settings, graph_digests), labels, settings))
    return points


def _changed(base: Mapping[str, Any], chosen: Any) -> Settings:
    settings = {key: value for key, value in base.items() if key != "fabric_label"}
    changes: list[tuple[str, Any]] = []
    for axis, value in chosen:
        changes.extend(value.data.items() if axis.key == CASE else [(axis.key, value.data)])
    for key, data in sorted(changes, key=lambda change: "." in change[0]):
        settings = with_key(settings, key, data)
    return settings
