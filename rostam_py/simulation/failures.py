"""Failures in flight for the core: the parts behind each failure, as parameters of the controller ``failures``."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rostam_py.checks import check_integers
from rostam_py.errors import ConfigError
from rostam_py.plan.failures import Failure, Recovery
from rostam_py.units import check_simulated, parse_time

_ACCELERATOR, _LINK, _SWITCH = range(3)  # the core's kinds of parts


def planes_of(failures: Sequence[Failure], fabric: Any) -> list[int]:
    """Return the planes that failures strike one at a time, in which what happens differs from the others."""
    found = set()
    for one in failures:
        if one.kind in ("links", "switches", "planes"):
            found.add(_checked(one, fabric) // max(1, fabric.num_parts(one.kind) // fabric.planes))
    return sorted(found)


def is_optical(failure: Failure, fabric: Any) -> bool:
    """Return whether a part is one that a fabric's circuits go through."""
    return fabric.is_circuit_switched and failure.kind not in ("accelerators", "boards")


def optical_parameters(failures: Sequence[Failure], recovery: Recovery | None, fabric: Any) -> dict[str, Any]:
    """Return what the core's controller of circuits is told of failures of the parts that circuits go through.

    Args: failures: ``is_optical``.
    Raises: ConfigError for parts that do not exist.
    """
    if not failures:
        return {}
    recovery = Recovery() if recovery is None else recovery
    columns: dict[str, list[int]] = {key: [] for key in ("part_kind", "part_id", "part_fail_ps", "part_repair_ps")}
    for one in failures:
        part = fabric.config.optical_part(one.kind, _checked(one, fabric), fabric.failures)
        if part is None:
            continue
        start, end = _span_ps(one)
        for key, value in zip(columns, (*part, start, -1 if end == np.inf else int(end)), strict=True):
            columns[key].append(value)
    return columns | {"reroute_ps": [_ps(recovery.reroute_s, "recovery.reroute")]}


def failures_parameters(
    failures: Sequence[Failure], recovery: Recovery | None, router: Any, fabric: Any
) -> dict[str, Any]:
    """Return the parameters of the core's controller ``failures``.

    Args: router: over ``fabric``, without bundles. fabric: circuits set, planes of ``planes_of`` apart.
    Raises: ConfigError for parts that do not exist.
    """
    recovery = Recovery() if recovery is None else recovery
    columns: dict[str, list[int]] = {key: [] for key in ("kind", "id", "plane_class", "fail_ps", "repair_ps")}
    parts = _Parts(router, fabric)
    for one in _merged(failures, parts):
        for key, value in zip(columns, one, strict=True):
            columns[key].append(value)
    spares = check_integers("recovery.spares", recovery.spares).tolist()
    for spare in spares:
        if spare not in set(fabric.healthy_accelerators.tolist()):
            raise ConfigError(f"recovery.spares names accelerator {spare}, which has failed or does not exist")
    return columns | {
        "reroute_ps": [_ps(recovery.reroute_s, "recovery.reroute")],
        "restart_ps": [_ps(recovery.restart_s, "recovery.restart")],
        "checkpoint_iterations": [int(recovery.checkpoint_iterations)],
        "spares": spares,
    }


def _ps(seconds: float, key: str) -> int:
    return round(check_simulated(seconds, key) * 1e12)


def _checked(failure: Failure, fabric: Any) -> int:
    count = fabric.num_parts(failure.kind)
    if failure.number >= count:
        raise ConfigError(f"failure.number is {failure.number}; this fabric has {count} {failure.kind}, counted from 0")
    return int(failure.number)


class _Parts:
    """The core's parts, (kind, id, class of planes), that one failure takes."""

    def __init__(self, router: Any, fabric: Any) -> None:
        self._fabric = fabric
        self._class_of = {plane: k for k, planes in enumerate(fabric.plane_classes) for plane in planes}
        table = fabric.links
        engine_link = np.zeros(len(table), np.int64)
        for index, links in enumerate(router.members):
            engine_link[list(links)] = index
        in_plane = fabric.num_links // fabric.planes
        local = table["cable"] - table["plane"] * in_plane
        is_cable = (local < in_plane) & ~table["is_failed"]  # those inside servers are none
        self._engine_link, self._plane, self._cable = (
            values[is_cable] for values in (engine_link, table["plane"], table["cable"])
        )

    def of(self, failure: Failure) -> list[tuple[int, int, int]]:
        """Return them."""
        fabric, kind = self._fabric, failure.kind
        if kind == "accelerators":
            return [(_ACCELERATOR, _checked(failure, fabric), 0)]
        if kind == "boards":
            board, size = _checked(failure, fabric), fabric.num_accelerators // max(1, fabric.num_boards)
            return [(_ACCELERATOR, board * size + i, 0) for i in range(size)]
        if kind == "switches":
            in_plane = fabric.num_switches // fabric.planes
            plane, switch = divmod(_checked(failure, fabric), max(1, in_plane))
            return [(_SWITCH, switch, self._class_of[plane])]
        if kind == "planes":
            is_meant = self._plane == _checked(failure, fabric)
        else:  # links; of the others, which this fabric does not have, none passes the check
            is_meant = self._cable == _checked(failure, fabric)
        return [(_LINK, int(link), 0) for link in self._engine_link[is_meant]]


def _span_ps(failure: Failure) -> tuple[int, float]:
    """Return when a part fails and is repaired [ps]; infinite for never."""
    start = _ps(parse_time(failure.time, "failure.time"), "failure.time")
    if failure.repair is None:
        return start, np.inf
    return start, _ps(parse_time(failure.repair, "failure.repair"), "failure.repair")


def _merged(failures: Sequence[Failure], parts: _Parts) -> list[tuple[int, int, int, int, int]]:
    """Return (kind, id, class, failure, repair) [ps] of every part, its own overlapping failures as one; by time."""
    spans: dict[tuple[int, int, int], list[tuple[int, float]]] = {}
    for one in failures:
        start, end = _span_ps(one)
        for part in parts.of(one):
            spans.setdefault(part, []).append((start, end))
    found = []
    for part, own in spans.items():
        joined: list[tuple[int, float]] = []
        for start, end in sorted(own):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        found += [(*part, start, -1 if end == np.inf else int(end)) for start, end in joined]
    return sorted(found, key=lambda one: (one[3], one[:3]))
