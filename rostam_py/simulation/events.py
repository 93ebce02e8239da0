"""Changes to a running network: what ``events`` of a simulation may hold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.units import parse_time


@dataclass(frozen=True, slots=True)
class LinkBandwidth:
    """From ``time`` on the directed link ``link`` (index into ``fabric.links``) has ``scale`` x its bandwidth.

    time: seconds or text with a unit. scale: >= 0; 0 stalls the link.
    """

    time: str | float
    link: int
    scale: float

    def __post_init__(self) -> None:
        parse_time(self.time, "events.time")
        if not self.scale >= 0:
            raise ConfigError(f"events.scale of link {self.link} is {self.scale}; it must be >= 0")


@dataclass(frozen=True, slots=True)
class Reroute:
    """From ``time`` on flow number ``flow`` of ``run_flows`` takes the path that ``path_hash`` selects.

    Only hash routing has paths to select from.
    """

    time: str | float
    flow: int
    path_hash: int


def time_ps(value: str | float, key: str) -> int:
    """Return a time in whole picoseconds."""
    return round(parse_time(value, key) * 1e12)


def link_event_list(events: Iterable[Any], router: Any) -> list[tuple[int, int, float]]:
    """Return (time in ps, engine link, bytes/s) of the LinkBandwidth events, for a router without bundles.

    Raises: ConfigError for a link that does not exist.
    """
    wanted = [event for event in events if isinstance(event, LinkBandwidth)]
    if not wanted:
        return []
    engine_link = {link: index for index, links in enumerate(router.members) for link in links}
    capacities = router.capacities
    rows = []
    for event in wanted:
        if event.link not in engine_link:
            raise ConfigError(
                f"events name link {event.link}; it must be an index into fabric.links of a working link"
                f" (0 to {max(engine_link, default=-1)})"
            )
        index = engine_link[event.link]
        rows.append((time_ps(event.time, "events.time"), index, float(capacities[index]) * event.scale))
    return rows


def check_events(events: Sequence[Any], allowed: tuple[type, ...], where: str) -> None:
    """Raise ConfigError unless every event is of an allowed type."""
    for event in events:
        if not isinstance(event, allowed):
            names = ", ".join(kind.__name__ for kind in allowed)
            raise ConfigError(f"{where} got the event {event!r}; allowed are {names}")


def expand_links(values: np.ndarray, router: Any, num_links: int) -> np.ndarray:
    """Spread per-engine-link amounts over the directed links behind them, float array (num_links,)."""
    spread = np.zeros(num_links)
    for value, links in zip(values, router.members, strict=True):
        spread[links] = value / len(links)
    return spread
