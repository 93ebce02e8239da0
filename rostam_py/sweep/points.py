"""Points of a sweep: the product of its axes.

Example:
    axes = [Axis("fabric", [Value("tree", {"name": "fat_tree", "num_accelerators": 64}), ...]),
            Axis("strategy.tp", [Value("1", 1), Value("8", 8)])]
    points = expand_points({"model": "gpt_125m"}, axes)
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.spec.settings import Settings, complete_settings, with_key
from rostam_py.sweep.axes import CASE, Axis, Value, changes_of
from rostam_py.sweep.axis_checks import check_clashes, check_modes, check_sizes
from rostam_py.sweep.identity import point_key

# 100,000 points take 8 s and 1 GB to expand, store and report.
MAX_POINTS = 250_000


@dataclass(frozen=True, slots=True)
class Point:
    """One simulation or search of a sweep. labels: {axis key: label}, "fabric" always among them."""

    index: int
    key: str
    labels: Mapping[str, str]
    settings: Settings = field(repr=False)


def expand_points(
    base: Mapping[str, Any], axes: Sequence[Axis], graph_digest: Callable[[str], str | None] = lambda model: None
) -> list[Point]:
    """Return the product of the axes, the last one fastest, every point's settings complete and checked.

    Model: keys with fewer dots are set before those with more, whatever the order of the axes: a fabric replaces all
        parameters, ``fabric.link_bandwidth`` then changes one of every fabric.
    Args: graph_digest: as of ``point_key``.
    Raises: ConfigError for an axis named twice, a key set in two places, a key that the mode does not read, more than
        MAX_POINTS points, and for bad values; the message names the point's labels.
    """
    keys = [axis.key for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"axis {key} is given twice; give its values in one list")
    num_points = math.prod(len(axis.values) for axis in axes)
    if num_points > MAX_POINTS:
        sizes = ", ".join(f"{axis.key} {len(axis.values):,}" for axis in axes)
        raise ConfigError(f"the axes ({sizes}) make {num_points:,} points; a sweep has at most {MAX_POINTS:,}")
    check_clashes(axes)
    check_modes(base, axes)
    points = []
    for index, values in enumerate(itertools.product(*(axis.values for axis in axes))):
        labels = {axis.key: value.label for axis, value in zip(axes, values, strict=True)}
        try:
            settings = complete_settings(_changed(base, list(zip(axes, values, strict=True))))
        except ConfigError as error:
            where = ", ".join(f"{key}={label}" for key, label in labels.items())
            raise type(error)(f"{error} (at {where})" if where else str(error)) from error
        case = next((value.fabric for axis, value in zip(axes, values, strict=True) if axis.key == CASE), None)
        labels.setdefault("fabric", case or str(base.get("fabric_label") or settings["fabric"]["name"]))
        points.append(Point(index, point_key(settings, graph_digest), labels, settings))
    return points


def _changed(base: Mapping[str, Any], chosen: Sequence[tuple[Axis, Value]]) -> Settings:
    settings = {key: value for key, value in base.items() if key != "fabric_label"}
    changes = {key: change for axis, value in chosen for key, change in changes_of(axis, value).items()}
    for key in sorted(changes, key=lambda key: key.count(".")):
        settings = with_key(settings, key, changes[key].data)
    check_sizes(settings, changes)
    return settings
