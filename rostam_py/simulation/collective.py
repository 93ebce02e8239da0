"""Run one collective on a fabric, alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.checks import check_integers, check_seed, is_integer
from rostam_py.collectives.closed_forms import closed_form_names, collective_time_ps
from rostam_py.collectives.link_notes import link_note
from rostam_py.collectives.predicted_time import (
    AlgorithmCosts,
    algorithm_costs,
    choose_algorithm,
    default_algorithm,
    schedule_of_ranks,
)
from rostam_py.collectives.rank_groups import ScheduleKey, algorithm_names, check_shapes
from rostam_py.collectives.transport import add_protocol, needs_trees, transport
from rostam_py.errors import ConfigError, InternalError
from rostam_py.fabrics.fabric import check_fabric
from rostam_py.fabrics.optical import refuse_dynamic
from rostam_py.html import html_pairs
from rostam_py.plan.failures import Failure, Recovery
from rostam_py.plan.packets import PacketOptions
from rostam_py.simulation.engines import ANALYTIC, check_fidelity, check_tolerance, tolerance_notes, walks_packets
from rostam_py.simulation.events import (
    LinkBandwidth,
    check_events,
    controller_list,
    expand_links,
    fabric_for_events,
    time_ps,
)
from rostam_py.simulation.failures import naming_failed
from rostam_py.simulation.network import list_of, make_router, with_circuits_for_collective
from rostam_py.simulation.options import takes_options
from rostam_py.simulation.packets import check_packet_run, packet_options
from rostam_py.simulation.picoseconds import seconds_to_ps
from rostam_py.simulation.reconfigurations import (
    Reconfigurations,
    circuit_controllers,
    reconfigurations_of,
)
from rostam_py.simulation.restarts import Restart, restarts_of
from rostam_py.units import format_bandwidth, format_size, format_time, parse_size

# Bus bandwidth = algorithm bandwidth x this factor of p, as nccl-tests define it.
_BUS_FACTORS = {
    "all_reduce": lambda p: 2 * (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "all_gather": lambda p: (p - 1) / p,
    "all_to_all": lambda p: (p - 1) / p,
}


@dataclass(frozen=True, kw_only=True, repr=False)
class CollectiveResult:
    """Time and traffic of one collective.

    time_ps / time_s: until the last rank is done, from time 0. finish_s: per rank, float array (p,).
    algorithm_bandwidth_bytes_per_s: num_bytes / time. bus_bandwidth_bytes_per_s: times 2 (p-1)/p for all_reduce,
    (p-1)/p for reduce_scatter, all_gather, all_to_all, 1 otherwise.
    bytes_sent, bytes_received, num_messages: over all ranks and planes. link_bytes: per directed link of one
    plane, a protocol's own bytes included. protocol: "" where links cost nothing to start. num_channels: rings side by
    side, one for each NIC of a server. num_simulated_ranks: fewer than the ranks where folding applied. checks:
    conservation checks that ran, all passed. restarts: where controllers cut and restarted it; the bytes above are
    those of the last start. notes: what to know of the routing on this fabric. reconfigurations: of circuits
    that are set anew; else None.
    """

    collective: str
    algorithm: str
    num_bytes: int
    num_ranks: int
    time_ps: int
    finish_s: np.ndarray
    num_messages: int
    bytes_sent: int
    bytes_received: int
    link_bytes: np.ndarray
    num_simulated_ranks: int
    protocol: str = ""
    num_channels: int = 1
    checks: tuple[str, ...] = ()
    restarts: tuple[Restart, ...] = ()
    notes: tuple[str, ...] = ()
    reconfigurations: Reconfigurations | None = None

    @property
    def time_s(self) -> float:
        """Time until the last rank is done [s]."""
        return self.time_ps * 1e-12

    @property
    def algorithm_bandwidth_bytes_per_s(self) -> float:
        """num_bytes / time [bytes/s]."""
        return self.num_bytes / self.time_s if self.time_ps else 0.0

    @property
    def bus_bandwidth_bytes_per_s(self) -> float:
        """Algorithm bandwidth times the collective's factor (see the class) [bytes/s]."""
        factor = _BUS_FACTORS.get(self.collective, lambda p: 1.0)
        return self.algorithm_bandwidth_bytes_per_s * factor(self.num_ranks)

    def __repr__(self) -> str:
        what = f"{self.collective} of {format_size(self.num_bytes)}, {self.num_ranks:,} ranks, {self.algorithm}"
        return f"CollectiveResult({what}: {format_time(self.time_s)})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: time, bandwidths and traffic."""
        pairs = {
            "time": format_time(self.time_s),
            "algorithm bandwidth": format_bandwidth(self.algorithm_bandwidth_bytes_per_s),
            "bus bandwidth": format_bandwidth(self.bus_bandwidth_bytes_per_s),
            "messages": f"{self.num_messages:,}, {format_size(self.bytes_sent)} sent" if self.num_messages else None,
        }
        size = f"{format_size(self.num_bytes)}, {self.num_ranks:,} ranks"
        how = " ".join(filter(None, (self.algorithm, self.protocol)))
        return html_pairs(f"{self.collective} ({how}) of {size}", pairs)


@takes_options
def run_collective(
    fabric: Any,
    collective: str,
    *,
    num_bytes: int | str,
    algorithm: str | None = None,
    protocol: str | None = None,
    ranks: Sequence[int] | None = None,
    fidelity: str = "flow",
    routing: str = "spray",
    fold: bool = True,
    shortcuts: bool | None = None,
    seed: int = 0,
    group: int | None = None,
    grid: tuple[int, ...] | None = None,
    start_s: Mapping[int, float] | Sequence[float] | None = None,
    events: Sequence[Any] = (),
    recovery: Recovery | None = None,
    controllers: Sequence[Any] = (),
    park: bool = False,
    tolerance: float = 0.0,
    packets: PacketOptions | None = None,
) -> CollectiveResult:
    """Run one collective over ``ranks`` and return its time and traffic.

    Model: real steps of the algorithm, messages share links max-min (with fidelity="packet" they go packet by packet);
        no launch latency, no reduction cost. A ring
        sends eagerly (its receive slots are taken as deep enough); the other algorithms go step by step: a send
        waits for its receiver to reach the step and holds its sender until it is delivered. Where a server has a NIC
        for each of its accelerators, rings run in channels through those of all ranks, server by server. On links that
        cost something to start (link_classes.py) a protocol adds start-up, hops and bytes on the wire.
    Args: collective, algorithm: see ``rostam list collectives``; "auto" takes the one with the least predicted time,
        or on some links NCCL's tuning model's (``choose_algorithm``), which the result names, and is the default
        except where circuits are set once, which keeps a ring. protocol: "LL", "LL128" or "Simple" on links that cost
        something to start; chosen in the same way by default.
        num_bytes: S of MODEL A4, text with a unit or bytes. ranks: accelerators in rank order, default all
        healthy ones. grid: sides that the ranks stand on, row-major, for algorithms on a torus; by default
        the fabric's own, of which ranks may fill a box in any order. fidelity: an engine, or
        "analytic" for MODEL A5's closed form on an idle fabric, where it holds. group: ranks in a "server" of
        hierarchical, a divisor of the ranks; default by fabric. Other algorithms check grid and group and use
        neither. seed: of hash routing and circuits, 0 to 2^64 - 1.
        start_s: when each rank joins [s]: a sequence of one time per rank, or {rank: time} where the rest starts at 0.
        events: LinkBandwidth changes, and parts that fail (Failure). recovery: response to failures.
        controllers: names, or (name, parameters), of controllers of the network (rostam list controllers).
        shortcuts, park, tolerance, packets: as in ``simulate``. options: SimulationOptions; keywords go first.
    Raises: ConfigError for bad arguments; NoRouteError if two ranks that must talk are cut apart.
    Cost: about a microsecond a message where each is simulated, as with fold=False; p (p-1) messages a ring step
        pair.
    """
    check_fabric(fabric)
    check_fidelity(fidelity, has_closed_forms=True)
    tolerance = check_tolerance(tolerance)
    check_events(events, (LinkBandwidth, Failure), "run_collective")
    seed = check_seed("seed", seed)
    size = parse_size(num_bytes, "num_bytes")
    members = _members(fabric, ranks)
    check_shapes(len(members), grid, group)
    starts_ps = _starts_ps(start_s, len(members))
    given = None if ranks is None else members
    name = algorithm
    if name is None or name == "auto":
        choose = default_algorithm if name is None else choose_algorithm
        known = _with_closed_form(collective) if fidelity == ANALYTIC else None
        if known is None and (walks_packets(fidelity) or (fabric.planes > 1 and (events or controllers))):
            known = _without_trees(collective)
        name = choose(
            fabric, collective, size, given, grid=grid, group=group, routing=routing, allowed=known, protocol=protocol
        )
    placed, key = schedule_of_ranks(
        fabric, collective, name, size, given, grid=grid, group=group, routing=routing, protocol=protocol
    )
    # Ranks are numbered as given, by default on the grid where the algorithm has one.
    numbered = placed if ranks is None and key.grid else members
    order = np.argsort(numbered, kind="stable")[np.searchsorted(np.sort(numbered), placed)]
    members, count = placed, len(placed)
    unread = fabric.config.unread_keys()
    fabric = with_circuits_for_collective(fabric, members, key, size, seed)
    if fidelity == ANALYTIC:
        refuse_dynamic(fabric, "fidelity='analytic'")
        if events or controllers or park or tolerance or start_s is not None or packets is not None:
            raise ConfigError(
                "fidelity='analytic' knows neither events, controllers, park, tolerance, packets nor start_s; use an"
                " engine, fidelity='flow' say"
            )
        return _closed_form(fabric, key, size, members, routing)
    graph = _core.TaskGraph([collective])
    graph.server_size = fabric.config.accelerators_per_server
    schedule = graph.add_schedule(*key.shape)
    how = transport(fabric, key, size)
    start_up, own = seconds_to_ps(how.startup_s), add_protocol(graph, how)
    template = graph.add_template([1], [0], [0], [schedule], [-1], [size], [start_up], [0, 0], [], protocol=[own])
    program = graph.add_program([template], [0])
    slots = np.full((count, 1, 3), -1, np.int32)
    slots[:, 0, 0] = graph.add_group(list(range(count)))
    slots[:, 0, 1] = np.arange(count)
    graph.add_devices(members, np.full(count, program), np.zeros(count), np.ones(count), starts_ps[order], slots)
    graph.freeze()
    idle = link_note(fabric, key, members, routing=routing)
    fabric = fabric_for_events(fabric, events)
    check_packet_run(fidelity, fabric, events)
    router = make_router(fabric, routing, has_events=bool(events or controllers), fidelity=fidelity)
    switching = circuit_controllers(router, fabric, events=events, recovery=recovery, routing=routing)
    with naming_failed(events):
        raw = _core.run_session(
            graph, router, seed=seed, fold=fold, shortcuts=fold if shortcuts is None else shortcuts, park=park,
            tolerance=tolerance, packets=packet_options(packets), fidelity=fidelity,
            controllers=[*controller_list(events, controllers, router, fabric, recovery, members.tolist()), *switching],
        )  # fmt: skip
    moved = (int(raw["sent_bytes"][0]), int(raw["received_bytes"][0]))
    expected = _expected_bytes(key.schedule(), size)
    if moved != expected:
        raise InternalError(f"{collective} sent and received {moved} bytes, its closed form is {expected}")
    return CollectiveResult(
        collective=collective, algorithm=name, num_bytes=size, num_ranks=count,
        time_ps=int(raw["device_end_ps"].max()), finish_s=raw["device_end_ps"][np.argsort(order)] * 1e-12,
        num_messages=int(raw["num_messages"][0]), bytes_sent=int(raw["sent_bytes"][0]),
        bytes_received=int(raw["received_bytes"][0]),
        link_bytes=expand_links(raw["link_bytes"], router, fabric.num_directed_links),
        num_simulated_ranks=raw["num_simulated_devices"], protocol=key.protocol, num_channels=key.num_channels,
        checks=tuple(raw["checks"]),
        restarts=restarts_of(raw["jobs"][0]),
        notes=(*router.notes, *unread, *raw["notes"], *tolerance_notes(tolerance), *filter(None, (idle,))),
        reconfigurations=reconfigurations_of(
            fabric, switching, raw["reports"], raw["forwarded_bytes"], int(raw["device_end_ps"].max())
        ),
    )  # fmt: skip


def collective_names() -> list[tuple[str, str]]:
    """Return all (collective, algorithm) pairs."""
    return [(str(name), str(algorithm)) for name, algorithm in _core.schedule_names()]


def _members(fabric: Any, ranks: Sequence[int] | None) -> np.ndarray:
    healthy = np.asarray(fabric.healthy_accelerators)
    if ranks is None:
        return healthy.astype(np.int32)
    members = check_integers("ranks", ranks)
    bad = members[~np.isin(members, healthy)]
    if bad.size:
        raise ConfigError(f"ranks name accelerator {bad[0]}, which has failed or does not exist")
    if len(members) == 0:
        raise ConfigError("ranks is []; it must name at least one accelerator")
    named, counts = np.unique(members, return_counts=True)
    if twice := named[counts > 1].tolist():
        shown = ", ".join(map(str, twice[:5])) + (", ..." if len(twice) > 5 else "")
        raise ConfigError(f"ranks names {shown} more than once; it must name each accelerator once")
    return members.astype(np.int32)


def _with_closed_form(collective: str) -> list[str]:
    return [form.partition("/")[2] for form in closed_form_names() if form.partition("/")[0] == collective]


def _without_trees(collective: str) -> list[str]:
    """Return the algorithms that run where transfers are no trees: as packets, or over planes that come to differ."""
    return [name for name in algorithm_names(collective) if not needs_trees(collective, name)]


def _starts_ps(start_s: Mapping[int, float] | Sequence[float] | None, count: int) -> np.ndarray:
    starts = np.zeros(count, np.int64)
    if start_s is None:
        return starts
    if isinstance(start_s, Mapping):
        items = list(start_s.items())
    else:
        items = list(enumerate(list_of("start_s", start_s, count, "ranks", instead=", or {rank: time} for some")))
    for rank, value in items:
        if not is_integer(rank) or not 0 <= rank < count:
            raise ConfigError(f"start_s names rank {rank!r}; ranks are 0 to {count - 1}")
        starts[rank] = time_ps(value, "start_s")
    return starts


def _expected_bytes(schedule: Any, size: int) -> tuple[int, int]:
    """Return what all ranks send, and what they receive: the same unless switches add up or copy."""
    chunk = -(-size // max(1, schedule.num_chunks))
    return int(schedule.total_chunks_sent) * chunk, int(schedule.total_chunks_received) * chunk


def _closed_form(fabric: Any, key: ScheduleKey, size: int, members: np.ndarray, routing: str) -> CollectiveResult:
    """Return MODEL A5's time where all messages have one latency and the routed steps the time the form gives them."""
    collective, algorithm, grid = key.collective, key.algorithm, key.grid
    count, num_bytes = len(members), -(-size // fabric.planes)
    if not fabric.config.link_classes.are_ideal:
        raise ConfigError("fidelity='analytic' knows ideal links only; on these use an engine, fidelity='flow' say")
    switches = fabric.config.switch_reduction
    if switches.wire_overhead != 1 or switches.flag_s:
        raise ConfigError(
            "fidelity='analytic' knows neither flits nor flags (fabric.reduction_flit, fabric.reduction_flag); use an"
            " engine, fidelity='flow' say"
        )
    router = make_router(fabric, routing, has_events=False)
    if router.is_adaptive or not router.is_hash_free:
        raise ConfigError(
            f"fidelity='analytic' needs routes that depend on the pair alone; routing {routing} chooses them message "
            "by message: take fidelity='flow', or routing spray"
        )

    if key.num_pieces > 1 and key.num_channels > 1:
        raise ConfigError(
            f"fidelity='analytic' knows {collective} by {algorithm} along one chain; here {key.num_channels} share the"
            " buffer: use an engine, fidelity='flow' say"
        )

    def form_ps(num_bytes: int, latency_s: float, bandwidth: float, num_pieces: int = 1) -> int:
        return collective_time_ps(
            collective, algorithm, num_bytes=num_bytes, num_ranks=count, latency=latency_s, bandwidth=bandwidth,
            grid=grid, num_pieces=num_pieces,
        )  # fmt: skip

    if count > 1 and f"{collective}/{algorithm}" in closed_form_names():
        costs = algorithm_costs(fabric, collective, algorithm, members, grid=grid or None, routing=routing)
        # The interface's bandwidth: what moves the form's bytes in the time that the steps' fullest links need.
        probe = costs.num_chunks * 2**20
        bandwidth = form_ps(probe, 0.0, 1e9) * 1e-3 / costs.serial_s(probe)
        latency_s = _one_latency_s(costs)
        ps = form_ps(num_bytes, latency_s, bandwidth, key.num_pieces)
        # Compared at whole chunks, which is all that routed steps know: halving_doubling folds ranks by S, not chunks.
        whole = costs.num_chunks * -(-num_bytes // costs.num_chunks)
        slack = 2 * sum(step.count for step in costs.steps) + 1e-6 * ps
        if abs(form_ps(whole, latency_s, bandwidth) - costs.whole_s(whole) * 1e12) > slack:
            raise ConfigError(
                f"fidelity='analytic': the closed form of {collective}/{algorithm} does not hold on "
                f"{fabric.describe()}, where messages of a step share links unevenly; use fidelity='flow'"
            )
    else:
        ps = form_ps(num_bytes, 0.0, fabric.plane_bandwidth_bytes_per_s)
    return CollectiveResult(
        collective=collective, algorithm=algorithm, num_bytes=size, num_ranks=count, time_ps=ps,
        finish_s=np.full(count, ps * 1e-12), num_messages=0, bytes_sent=0, bytes_received=0,
        link_bytes=np.zeros(fabric.num_directed_links), num_simulated_ranks=0,
    )  # fmt: skip


def _one_latency_s(costs: AlgorithmCosts) -> float:
    latencies = np.concatenate([step.alpha_s for step in costs.steps])
    low, high = float(latencies.min()), float(latencies.max())
    if low != high:
        raise ConfigError(
            f"fidelity='analytic' needs one latency for all messages; here they range from {low:g} to {high:g} s"
        )
    return low
