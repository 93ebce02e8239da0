"""Run given flows on a fabric: sender, receiver, bytes and start time of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.checks import check_integers, check_seed
from rostam_py.errors import ConfigError
from rostam_py.fabrics.circuits import with_circuits_for
from rostam_py.fabrics.fabric import check_fabric
from rostam_py.html import html_pairs
from rostam_py.plan.failures import Failure, Recovery
from rostam_py.plan.packets import PacketOptions
from rostam_py.simulation.connections import Connections, read_connections
from rostam_py.simulation.engines import check_fidelity, check_tolerance, tolerance_notes
from rostam_py.simulation.events import (
    LinkBandwidth,
    Reroute,
    check_events,
    controller_list,
    expand_links,
    fabric_for_events,
    time_ps,
)
from rostam_py.simulation.failures import naming_failed
from rostam_py.simulation.network import list_of, make_router
from rostam_py.simulation.options import takes_options
from rostam_py.simulation.packets import check_packet_run, packet_options
from rostam_py.simulation.reconfigurations import (
    Reconfigurations,
    circuit_controllers,
    reconfigurations_of,
)
from rostam_py.units import format_number_of, format_size, format_time, parse_bandwidth, parse_sizes


@dataclass(frozen=True, repr=False)
class FlowsResult:
    """When flows ended. sent_s, finish_s: last byte left the source, arrived [s], float arrays (num_flows,).

    Both are nan for flows that were cut off; bytes_left is what those had still to send (over all planes), else 0.
    link_bytes: per directed link of one plane, float array. checks: conservation checks that ran, all passed. notes:
    what to know of the routing on this fabric. reconfigurations: of circuits that are set anew; else None.
    """

    sent_s: np.ndarray
    finish_s: np.ndarray
    bytes_left: np.ndarray
    link_bytes: np.ndarray
    checks: tuple[str, ...]
    notes: tuple[str, ...] = ()
    reconfigurations: Reconfigurations | None = None

    def __repr__(self) -> str:
        done = self.finish_s[~np.isnan(self.finish_s)]
        last = f", the last arrives at {format_time(float(done.max()))}" if len(done) else ""
        cut = f", {len(self.finish_s) - len(done):,} cut off" if len(done) < len(self.finish_s) else ""
        return f"FlowsResult({format_number_of(len(self.finish_s), 'flow')}{last}{cut})"

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


@takes_options
def run_flows(
    fabric: Any,
    *,
    src: Sequence[int] | None = None,
    dst: Sequence[int] | None = None,
    num_bytes: Sequence[int | str] | None = None,
    start_s: Sequence[float | str] | None = None,
    connections: Connections | str | Path | None = None,
    stop_s: Sequence[float | str | None] | None = None,
    rate_cap: Sequence[float | str | None] | None = None,
    fidelity: str = "flow",
    routing: str = "hash",
    seed: int = 0,
    events: Sequence[Any] = (),
    recovery: Recovery | None = None,
    controllers: Sequence[Any] = (),
    park: bool = False,
    tolerance: float = 0.0,
    packets: PacketOptions | None = None,
) -> FlowsResult:
    """Run flows and return when each was sent and had arrived.

    Model: flows share links max-min, or go packet by packet with fidelity="packet" (MODEL I25a).
    Args: src, dst: accelerators, one a flow. num_bytes: sizes. start_s: starts [s], default 0. connections: all four
        from a file, NAME.cm as htsim reads it or NAME.csv (simulation/connections.py). routing: "hash"
        takes one minimal path a flow, drawn from (seed, flow number); "spray" spreads over all of them.
        seed: of the hash and of circuits, 0 to 2^64 - 1. events: LinkBandwidth, Failure, and Reroute where
        routing is "hash". recovery: response to failures: its detection and reroute.
        stop_s: when a flow that is still sending is cut off [s], None never.
        options: SimulationOptions; keywords go first.
        rate_cap: the fastest a flow may send [bytes/s or text], None as fast as links let it.
    controllers: names, or (name, parameters), of controllers of the network (rostam list controllers).
    park: flows without a route wait until a controller gives them one; one that is cut off by then has all its bytes
        left.
    tolerance: rates follow starts and ends of flows up to this share of their duration later, together with others
        that start and end meanwhile; 0 is exact.
    packets: PacketOptions of fidelity="packet", None its defaults.
    Raises: ConfigError for bad arguments; NoRouteError for a cut pair, or with park for one that still waits at the
        end; DeadlockError for flows left on links of bandwidth 0, or whose packets wait for each other in a circle.
    """
    check_fabric(fabric)
    check_fidelity(fidelity)
    tolerance = check_tolerance(tolerance)
    check_events(events, (LinkBandwidth, Reroute, Failure), "run_flows")
    seed = check_seed("seed", seed)
    src, dst, num_bytes, start_s = _given(src, dst, num_bytes, start_s, connections)
    sources, targets = _ends(fabric, "src", src), _ends(fabric, "dst", dst)
    num_flows = len(sources)
    reroutes = _reroutes(events, routing, num_flows)
    if len(targets) != num_flows:
        raise ConfigError(f"src has {num_flows} entries and dst {len(targets)}; give both for every flow")
    sizes = parse_sizes(list_of("num_bytes", num_bytes, num_flows, "flows"), "num_bytes")
    amounts = np.asarray(sizes, np.int64)
    starts = _per_flow("start_s", start_s, num_flows, time_ps, 0)
    stops = _per_flow("stop_s", stop_s, num_flows, time_ps, -1)
    caps = _per_flow("rate_cap", rate_cap, num_flows, parse_bandwidth, np.inf)
    _check_needless(fabric, sources, targets, amounts)
    unread = fabric.config.unread_keys()
    fabric = with_circuits_for(fabric, sources, targets, sizes, seed=seed)
    fabric = fabric_for_events(fabric, events)
    check_packet_run(fidelity, fabric, events)
    router = make_router(fabric, routing, has_events=bool(events or controllers), fidelity=fidelity)
    known = (starts, sources, targets, amounts)
    own = circuit_controllers(router, fabric, known, events, recovery, routing)
    with naming_failed(events):
        raw = _core.run_flows(
            router, fabric.num_accelerators, sources, targets, amounts, starts, caps, stops,
            seed=seed, park=park, controllers=[*controller_list(events, controllers, router, fabric, recovery), *own],
            reroutes=reroutes, fidelity=fidelity, tolerance=tolerance, packets=packet_options(packets),
        )  # fmt: skip
    ends_ps = np.where(raw["delivered_ps"] >= 0, raw["delivered_ps"], stops)
    return FlowsResult(
        _seconds(raw["sent_ps"]),
        _seconds(raw["delivered_ps"]),
        raw["bytes_left"],
        expand_links(raw["link_bytes"], router, fabric.num_directed_links),
        tuple(raw["checks"]),
        (*router.notes, *unread, *raw["notes"], *tolerance_notes(tolerance)),
        reconfigurations_of(fabric, own, raw["reports"], raw["forwarded_bytes"], int(ends_ps.max(initial=0))),
    )


def _given(
    src: Sequence[int] | None, dst: Sequence[int] | None, num_bytes: Sequence[int | str] | None,
    start_s: Sequence[float | str] | None, connections: Connections | str | Path | None,
) -> tuple[Sequence[int], Sequence[int], Sequence[int | str], Sequence[float | str] | None]:  # fmt: skip
    """Return ends, sizes and starts, as they are given one by one or by connections."""
    listed = {"src": src, "dst": dst, "num_bytes": num_bytes}
    if connections is not None:
        both = [key for key, value in (*listed.items(), ("start_s", start_s)) if value is not None]
        if both:
            raise ConfigError(f"connections and {both[0]} are given; flows come from one of them: leave the other out")
        found = connections if isinstance(connections, Connections) else read_connections(connections)
        return found.src, found.dst, found.num_bytes, found.start_s
    for key, value in listed.items():
        if value is None:
            raise ConfigError(f"{key} is missing; give src, dst and num_bytes, or connections")
    return src, dst, num_bytes, start_s  # type: ignore[return-value]  # none is None: see above


def _check_needless(fabric: Any, src: np.ndarray, dst: np.ndarray, num_bytes: np.ndarray) -> None:
    """Raise ConfigError for a flow without bytes between accelerators for which no circuit would be set."""
    if not fabric.is_circuit_switched or fabric.circuits is not None:
        return
    pairs = src.astype(np.int64) * fabric.num_accelerators + dst
    idle = np.flatnonzero((num_bytes == 0) & ~np.isin(pairs, pairs[num_bytes > 0]) & (src != dst))
    if len(idle):
        flow = int(idle[0])
        raise ConfigError(
            f"flow {flow} from {src[flow]} to {dst[flow]} has 0 bytes, and no other flow of that pair has any: fabric"
            f" {fabric.name!r} sets no circuit for it; leave it out, or set circuits with fabric.with_circuits(traffic)"
        )


def _per_flow(
    key: str, values: Sequence[Any] | None, count: int, parse: Callable[[Any, str], float], absent: float
) -> np.ndarray:
    """Return what a setting is for each flow, array (count,) of the type of ``absent``, which stands for None."""
    found = np.full(count, absent)
    if values is not None:
        found[:] = [absent if value is None else parse(value, key) for value in list_of(key, values, count, "flows")]
    return found


def _seconds(ps: np.ndarray) -> np.ndarray:
    return np.where(ps < 0, np.nan, ps * 1e-12)


def _ends(fabric: Any, key: str, accelerators: Sequence[int]) -> np.ndarray:
    """Return one end of every flow, int32 array, checked."""
    ids = check_integers(key, accelerators)
    unknown = ids[(ids < 0) | (ids >= fabric.num_accelerators)]
    if unknown.size:
        raise ConfigError(f"{key} names accelerator {unknown[0]}; the fabric has 0 to {fabric.num_accelerators - 1}")
    failed = ids[np.isin(ids, fabric.failures.accelerators)]
    if failed.size:
        raise ConfigError(f"{key} names accelerator {failed[0]}, which has failed")
    return ids.astype(np.int32)


def _reroutes(events: Sequence[Any], routing: str, num_flows: int) -> list[tuple[int, int, int]]:
    """Return (time in ps, flow, path hash) of the Reroute events."""
    wanted = [event for event in events if isinstance(event, Reroute)]
    if wanted and routing != "hash":
        raise ConfigError(f"events hold a Reroute, but routing is {routing!r}; only 'hash' has paths to select from")
    for event in wanted:
        if not 0 <= event.flow < num_flows:
            raise ConfigError(f"events hold a Reroute of flow {event.flow}; flows are 0 to {num_flows - 1}")
    return [(time_ps(e.time, "events.time"), int(e.flow), int(e.path_hash)) for e in wanted]
