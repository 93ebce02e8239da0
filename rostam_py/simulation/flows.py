"""Run given flows on a fabric: who sends how much to whom, from when."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.fabrics.circuits import with_circuits_for
from rostam_py.html import html_pairs
from rostam_py.simulation.events import LinkBandwidth, Reroute, check_events, expand_links, link_event_list, time_ps
from rostam_py.simulation.network import check_fidelity, make_router
from rostam_py.units import format_size, format_time, parse_bandwidth, parse_size, parse_time


@dataclass(frozen=True)
class FlowsResult:
    """When flows ended. sent_s, finish_s: last byte left the source, arrived [s], float arrays (num_flows,).

    Both are nan for flows that were cut off; bytes_left is what those had still to send (over all planes), else 0.
    link_bytes: per directed link of one plane, float array.
    """

    sent_s: np.ndarray
    finish_s: np.ndarray
    bytes_left: np.ndarray
    link_bytes: np.ndarray

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how many flows, and when the first, middle and last arrived."""
        done = np.sort(self.finish_s[~np.isnan(self.finish_s)])
        cut = len(self.finish_s) - len(done)
        pairs = {
            "first arrived": format_time(float(done[0])) if len(done) else None,
            "median arrived": format_time(float(np.median(done))) if len(done) else None,
            "last arrived": format_time(float(done[-1])) if len(done) else None,
            "cut off": f"{cut:,} flows, {format_size(float(self.bytes_left.sum()))} left" if cut else None,
        }
        return html_pairs(f"{len(self.finish_s):,} flows", pairs)


def run_flows(
    fabric: Any,
    *,
    src: Sequence[int],
    dst: Sequence[int],
    num_bytes: Sequence[int | str],
    start_s: Sequence[float | str] | None = None,
    stop_s: Sequence[float | str | None] | None = None,
    rate_cap: Sequence[float | str | None] | None = None,
    fidelity: str = "flow",
    routing: str = "hash",
    seed: int = 0,
    events: Sequence[Any] = (),
) -> FlowsResult:
    """Run flows with max-min sharing and return when each was sent and had arrived.

    Args: src, dst: accelerators, one a flow. num_bytes: sizes. start_s: starts [s], default 0. routing: "hash"
        takes one minimal path a flow, drawn from (seed, flow number); "spray" spreads over all of them.
        events: LinkBandwidth and Reroute. stop_s: when a flow that is still sending is cut off [s], None never.
        rate_cap: the fastest a flow may send [bytes/s or text], None as fast as links let it.
    Raises: ConfigError for bad arguments; NoRouteError for a cut pair; DeadlockError for flows left on links
        of bandwidth 0.
    """
    check_fidelity(fidelity, ("flow",))
    check_events(events, (LinkBandwidth, Reroute), "run_flows")
    sizes = [-(-parse_size(value, "num_bytes") // fabric.planes) for value in num_bytes]
    starts = [0.0] * len(sizes) if start_s is None else [parse_time(value, "start_s") for value in start_s]
    if not len(src) == len(dst) == len(sizes) == len(starts):
        lengths = f"{len(src)}, {len(dst)}, {len(sizes)}, {len(starts)}"
        raise ConfigError(f"src, dst, num_bytes, start_s have lengths {lengths}; all must be equal")
    stops = [-1 if value is None else time_ps(value, "stop_s") for value in _per_flow(stop_s, len(sizes), "stop_s")]
    caps = [
        np.inf if value is None else parse_bandwidth(value, "rate_cap") / fabric.planes
        for value in _per_flow(rate_cap, len(sizes), "rate_cap")
    ]
    _check_healthy(fabric, [*src, *dst])
    fabric = with_circuits_for(fabric, src, dst, sizes, seed=seed)
    router = make_router(fabric, routing, has_events=bool(events))
    reroutes = [(time_ps(e.time, "events.time"), e.flow, e.path_hash) for e in events if isinstance(e, Reroute)]
    raw = _core.run_flows(
        router, fabric.num_accelerators, np.asarray(src, np.int32), np.asarray(dst, np.int32),
        np.asarray(sizes, np.int64), np.asarray([round(s * 1e12) for s in starts], np.int64),
        np.asarray(caps, np.float64), np.asarray(stops, np.int64),
        seed=seed, link_events=link_event_list(events, router), reroutes=reroutes,
    )  # fmt: skip
    return FlowsResult(
        _seconds(raw["sent_ps"]),
        _seconds(raw["delivered_ps"]),
        raw["bytes_left"] * fabric.planes,
        expand_links(raw["link_bytes"], router, len(fabric.links)),
    )


def _per_flow(values: Sequence[Any] | None, count: int, key: str) -> Sequence[Any]:
    if values is None:
        return [None] * count
    if len(values) != count:
        raise ConfigError(f"{key} has {len(values)} entries for {count} flows; give one a flow")
    return values


def _seconds(ps: np.ndarray) -> np.ndarray:
    return np.where(ps < 0, np.nan, ps * 1e-12)


def _check_healthy(fabric: Any, accelerators: Sequence[int]) -> None:
    for accelerator in set(accelerators) & set(fabric.failures.accelerators):
        raise ConfigError(f"a flow names accelerator {accelerator}, which has failed")
