"""Changes to a running network: what ``events`` of a simulation may hold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from rostam_py.checks import check_seed, is_integer
from rostam_py.errors import ConfigError
from rostam_py.fabrics.optical import refuse_dynamic, refuse_failures
from rostam_py.plan.failures import Failure, Recovery
from rostam_py.simulation.controllers import Controllers, check_controllers
from rostam_py.simulation.failures import (
    check_spares,
    check_unused,
    failures_parameters,
    is_optical,
    planes_of,
)
from rostam_py.units import check_simulated, parse_time


@dataclass(frozen=True, slots=True)
class LinkBandwidth:
    """From ``time`` on the directed link ``link`` (index into ``fabric.links``) has ``scale`` x its bandwidth.

    On an optical fabric links are those of the fabric with circuits set: ``result.fabric.links`` of ``simulate``, or
    ``fabric.with_circuits(traffic).links``.
    time: seconds or text with a unit. scale: >= 0 and finite; 0 stalls the link.
    """

    time: str | float
    link: int
    scale: float

    def __post_init__(self) -> None:
        parse_time(self.time, "events.time")
        if not is_integer(self.link):
            raise ConfigError(f"events.link is {self.link!r}; it must be an integer, an index into fabric.links")
        is_number = isinstance(self.scale, Real) and not isinstance(self.scale, bool)
        if not is_number or not 0 <= self.scale < float("inf"):
            raise ConfigError(f"events.scale of link {self.link} is {self.scale!r}; it must be >= 0 and finite")


@dataclass(frozen=True, slots=True)
class Reroute:
    """From ``time`` on flow number ``flow`` of ``run_flows`` takes the path that ``path_hash`` selects.

    Only hash routing has paths to select from; ``run_flows`` refuses it under another. time: seconds or text with a
    unit. flow: >= 0. path_hash: 0 to 2^64 - 1.
    """

    time: str | float
    flow: int
    path_hash: int

    def __post_init__(self) -> None:
        parse_time(self.time, "events.time")
        if not is_integer(self.flow):
            raise ConfigError(f"events.flow is {self.flow!r}; it must be an integer, the number of a flow")
        check_seed("events.path_hash", self.path_hash)


def time_ps(value: str | float, key: str) -> int:
    """Return a time in whole picoseconds."""
    return round(check_simulated(parse_time(value, key), key) * 1e12)


def fabric_for_events(fabric: Any, events: Iterable[Any]) -> Any:
    """Return the fabric with the planes apart that events strike one at a time, and circuits set around what fails.

    Raises: ConfigError for parts that do not exist.
    """
    failures = [event for event in events if isinstance(event, Failure)]
    if not fabric.is_circuit_switched:
        return fabric.with_planes_apart(planes_of(failures, fabric))
    fails = any(is_optical(one, fabric) for one in failures)
    return fabric.with_circuits_around_failures() if fails else fabric


def controller_list(
    events: Iterable[Any], controllers: Sequence[Any], router: Any, fabric: Any, recovery: Recovery | None = None,
    used: Sequence[int] = (),
) -> Controllers:  # fmt: skip
    """Return the controllers of a run, the events' being the first of them, for routes without bundles.

    Args: fabric: that the router is over, circuits set, as ``fabric_for_events`` returns it. used: accelerators of
        jobs, which are no spares.
    Raises: ConfigError for a part or a controller that does not exist, and a recovery without failures.
    """
    events = list(events)
    wanted = [event for event in events if isinstance(event, LinkBandwidth)]
    others = check_controllers(controllers)
    failures = [event for event in events if isinstance(event, Failure)]
    if recovery is not None:
        check_unused(check_spares(recovery.spares, fabric), used)
    of_network = [one for one in failures if not is_optical(one, fabric)]
    if of_network:
        refuse_failures(fabric, ["events"])
        others = [("failures", failures_parameters(of_network, recovery, router, fabric)), *others]
    elif not failures and recovery is not None:
        raise ConfigError("recovery is given, but events hold no Failure")
    if wanted:
        refuse_dynamic(fabric, "an event that changes links")
    if not wanted:
        return others
    engine_link = {link: index for index, links in enumerate(router.members) for link in links}
    capacities = router.capacities
    changes: dict[str, list[Any]] = {"time_ps": [], "link": [], "bytes_per_s": []}
    for event in wanted:
        if event.link not in engine_link:
            where = "an index into fabric.links of a working link"
            if fabric.is_circuit_switched:
                where = (
                    "a link of the fabric with circuits set, an index into result.fabric.links of simulate or"
                    " fabric.with_circuits(traffic).links"
                )
            raise ConfigError(
                f"events name link {event.link}; it must be {where} (0 to {max(engine_link, default=-1)})"
            )
        index = engine_link[event.link]
        changes["time_ps"].append(time_ps(event.time, "events.time"))
        changes["link"].append(index)
        changes["bytes_per_s"].append(float(capacities[index]) * event.scale)
    return [("link_bandwidth", changes), *others]


def check_events(events: Sequence[Any], allowed: tuple[type, ...], where: str) -> None:
    """Raise ConfigError unless it is a list of events of the allowed types."""
    if not isinstance(events, Sequence) or isinstance(events, str):
        raise ConfigError(f"events is {events!r}; it must be a list, such as [LinkBandwidth(time, link, scale)]")
    for event in events:
        if not isinstance(event, allowed):
            names = ", ".join(kind.__name__ for kind in allowed)
            raise ConfigError(f"{where} got the event {event!r}; allowed are {names}")


def expand_links(values: np.ndarray, router: Any, num_links: int) -> np.ndarray:
    """Spread per-engine-link amounts over the directed links behind them, float array (num_links,)."""
    of_link = router.of_link
    spread = np.zeros(num_links)
    spread[: len(of_link)] = (values / np.bincount(of_link, minlength=len(values)))[of_link]
    return spread
