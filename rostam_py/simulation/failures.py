"""Failures in flight for the core: the parts behind each failure, as parameters of the controller ``failures``."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rostam_py.checks import check_integers
from rostam_py.errors import ConfigError, DeadlockError, NoRouteError
from rostam_py.plan.failures import FAILING_KINDS, Failure, Recovery
from rostam_py.units import check_simulated, format_time, parse_time

_NAMED = 8  # parts in an error
_ACCELERATOR, _LINK, _SWITCH = range(3)  # the core's kinds of parts


def planes_of(failures: Sequence[Failure], fabric: Any) -> list[int]:
    """Return the planes that failures strike one at a time, in which what happens differs from the others."""
    found = set()
    for one in failures:
        if one.kind in ("links", "switches", "planes"):
            found.add(check_number(one, fabric) // max(1, fabric.num_parts(one.kind) // fabric.planes))
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
        part = fabric.config.optical_part(one.kind, check_number(one, fabric), fabric.failures)
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
    for (*part, start, end), _ in _in_turn(failures, _Parts(router, fabric)):
        for key, value in zip(columns, (*part, start, end), strict=True):
            columns[key].append(value)
    spares = check_spares(recovery.spares, fabric)
    return columns | {
        "reroute_ps": [_ps(recovery.reroute_s, "recovery.reroute")],
        "detection_ps": [_ps(recovery.detection_s, "recovery.detection")],
        "restart_ps": [_ps(recovery.restart_s, "recovery.restart")],
        "checkpoint_iterations": [int(recovery.checkpoint_iterations)],
        "spares": spares,
    }


def failures_by_part(failures: Sequence[Failure], router: Any, fabric: Any) -> dict[tuple[int, int, int, int], Failure]:
    """Return the failures of a network behind (kind, id, class of planes, time [ps]) of each part that fails."""
    of_network = [one for one in failures if not is_optical(one, fabric)]
    return {one[:4]: failure for one, failure in _in_turn(of_network, _Parts(router, fabric))}


def check_number(failure: Failure, fabric: Any, where: str = "failure") -> int:
    """Return the number of the part that fails. Args: where: in errors, what has the field.

    Raises: ConfigError if the fabric has no such part.
    """
    count = fabric.num_parts(failure.kind)
    if not count:
        has = [kind for kind in FAILING_KINDS if fabric.num_parts(kind)]
        raise ConfigError(
            f"{where}.kind is {failure.kind!r}; fabric {fabric.name!r} has none that fails alone: its parts are"
            f" {', '.join(has)}"
        )
    if failure.number >= count:
        raise ConfigError(
            f"{where}.number is {failure.number}; fabric {fabric.name!r} has {count:,} {failure.kind}, counted from 0"
        )
    return int(failure.number)


def check_spares(given: Sequence[int], fabric: Any, where: str = "recovery.spares") -> list[int]:
    """Return spares. Raises: ConfigError for an accelerator that has failed or does not exist, or is named twice."""
    spares: list[int] = check_integers(where, given).tolist()
    healthy = set(fabric.healthy_accelerators.tolist())
    for place, spare in enumerate(spares):
        if spare not in healthy:
            raise ConfigError(f"{where} names accelerator {spare}, which has failed or does not exist")
        if spare in spares[:place]:
            raise ConfigError(f"{where} names accelerator {spare} twice; it can take one place")
    return spares


def check_unused(spares: Sequence[int], used: Iterable[int], where: str = "recovery.spares") -> None:
    """Raise ConfigError for a spare that a job uses. Args: used: accelerators of all jobs."""
    taken = sorted(set(spares) & set(used))
    if taken:
        raise ConfigError(f"{where} names accelerator {taken[0]}, which the job uses; spares must be idle until then")


@contextmanager
def naming_failed(events: Iterable[Any]) -> Iterator[None]:
    """Name the parts that stay failed in errors of a run in which messages are left without a way.

    Raises: DeadlockError and NoRouteError with these, as they were raised.
    """
    try:
        yield
    except (DeadlockError, NoRouteError) as error:
        lasting = [one for one in events if isinstance(one, Failure) and one.repair is None]
        if not lasting:
            raise
        parts = [f"{one.kind} {one.number} (at {_time_words(one)})" for one in lasting[:_NAMED]]
        more = f" and {len(lasting) - _NAMED:,} more" if len(lasting) > _NAMED else ""
        first, line, rest = str(error).partition("\n")
        said = f"{first}; failed and never repaired: {', '.join(parts)}{more}"
        raise type(error)(said + line + rest) from None


def _time_words(failure: Failure) -> str:
    return format_time(parse_time(failure.time, "failure.time"))


def _ps(seconds: float, key: str) -> int:
    return round(check_simulated(seconds, key) * 1e12)


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
            return [(_ACCELERATOR, check_number(failure, fabric), 0)]
        if kind == "boards":
            board, size = check_number(failure, fabric), fabric.num_accelerators // max(1, fabric.num_boards)
            return [(_ACCELERATOR, board * size + i, 0) for i in range(size)]
        if kind == "switches":
            in_plane = fabric.num_switches // fabric.planes
            plane, switch = divmod(check_number(failure, fabric), max(1, in_plane))
            return [(_SWITCH, switch, self._class_of[plane])]
        if kind == "planes":
            is_meant = self._plane == check_number(failure, fabric)
        else:  # links; of the others, which this fabric does not have, none passes the check
            is_meant = self._cable == check_number(failure, fabric)
        return [(_LINK, int(link), 0) for link in self._engine_link[is_meant]]


def _span_ps(failure: Failure) -> tuple[int, float]:
    """Return when a part fails and is repaired [ps]; infinite for never."""
    start = _ps(parse_time(failure.time, "failure.time"), "failure.time")
    if failure.repair is None:
        return start, np.inf
    return start, _ps(parse_time(failure.repair, "failure.repair"), "failure.repair")


def _in_turn(failures: Sequence[Failure], parts: _Parts) -> list[tuple[tuple[int, int, int, int, int], Failure]]:
    """Return (kind, id, class, failure, repair) [ps] of every part, and which failure that is; by time.

    Of a part's own failures each begins and ends after the one before: one that is over no later than another that
    began before it, or with it, changes nothing.
    """
    spans: dict[tuple[int, int, int], list[tuple[int, float, int]]] = {}
    for number, one in enumerate(failures):
        start, end = _span_ps(one)
        for part in parts.of(one):
            spans.setdefault(part, []).append((start, end, number))
    found = []
    for part, own in spans.items():
        last = -1.0
        for start, end, number in sorted(own, key=lambda span: (span[0], -span[1], span[2])):
            if end <= last:
                continue
            last = end
            found.append(((*part, start, -1 if end == np.inf else int(end)), failures[number]))
    return sorted(found, key=lambda one: (one[0][3], one[0][:3]))
