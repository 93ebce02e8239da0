"""Counters of a timeline: what the busiest links carried over time, as the core's controller link_load read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostam_py.simulation.network import link_name
from rostam_py.simulation.picoseconds import PS

NUM_COUNTERS = 8


@dataclass(frozen=True, eq=False)
class LinkCounter:
    """The rate of a link between readings.

    link: an index of the fabric's links. name: its ends. num_alike: links that carried the same at all times, this one
    included. time_ps: of the readings, int64 (readings,). bytes_per_s: from each to the next, float64 (readings - 1,).
    """

    link: int
    name: str
    num_alike: int
    time_ps: np.ndarray
    bytes_per_s: np.ndarray

    def steps(self, begin_ps: int, end_ps: int) -> list[tuple[int, float]]:
        """Return (time, rate from then on) within [begin_ps, end_ps], where the rate changes; 0 at the end."""
        rates = np.append(self.bytes_per_s, 0.0)
        first = max(int(np.searchsorted(self.time_ps, begin_ps, side="right")) - 1, 0)
        found: list[tuple[int, float]] = []
        for time, rate in zip(self.time_ps[first:].tolist(), rates[first:].tolist(), strict=True):
            if time < end_ps and (not found or found[-1][1] != rate):
                found.append((max(time, begin_ps), rate))
        return [*found, (end_ps, 0.0)] if found and found[-1][1] else found


def watch_links(router: Any) -> tuple[str, dict[str, Any]]:
    """Return the controller that reads the links of a router, as the core takes it."""
    return "link_load", {"bytes_per_s": router.capacities.tolist(), "num_links": [NUM_COUNTERS]}


def link_counters(fabric: Any, router: Any, report: Mapping[str, Any]) -> tuple[LinkCounter, ...]:
    """Return the counters of a run by share of bandwidth, the largest first.

    Model: links that are bundled carry equal parts. Args: report: what that controller said.
    """
    time, links, members = report["time_ps"], fabric.links, router.members
    if len(time) < 2:
        return ()
    loads = report["bytes"].reshape(len(report["link"]), len(time))
    counters = []
    for engine, alike, carried in zip(report["link"].tolist(), report["num_alike"].tolist(), loads, strict=True):
        bundle = list(members[engine])
        counters.append(
            LinkCounter(
                bundle[0], link_name(fabric, links, bundle[0]), alike * len(bundle), time,
                np.diff(carried) / len(bundle) / (np.diff(time) * PS),
            )
        )  # fmt: skip
    return tuple(counters)
