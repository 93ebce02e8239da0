"""Run one collective on a fabric, alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.errors import ConfigError, InternalError
from rostam_py.simulation.events import LinkBandwidth, check_events, expand_links, link_event_list, time_ps
from rostam_py.simulation.network import (
    check_fidelity,
    group_size,
    make_router,
    unit_size,
    with_circuits_for_collective,
)
from rostam_py.units import parse_size

# Bus bandwidth = algorithm bandwidth x this factor of p, as nccl-tests define it.
_BUS_FACTORS = {
    "all_reduce": lambda p: 2 * (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "all_gather": lambda p: (p - 1) / p,
    "all_to_all": lambda p: (p - 1) / p,
}
_DEFAULT_ALGORITHMS = {"all_to_all": "direct", "broadcast": "binomial_tree", "send_recv": "direct"}


@dataclass(frozen=True)
class CollectiveResult:
    """Time and traffic of one collective.

    time_ps / time_s: until the last rank is done, from time 0. finish_s: per rank, float array (p,).
    algorithm_bandwidth_bytes_per_s: num_bytes / time. bus_bandwidth_bytes_per_s: times 2 (p-1)/p for all_reduce,
    (p-1)/p for reduce_scatter, all_gather, all_to_all, 1 otherwise.
    bytes_sent, bytes_received, num_messages: over all ranks and planes. link_bytes: per directed link of one
    plane. num_simulated_ranks: fewer than the ranks where folding applied.
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


def run_collective(
    fabric: Any,
    collective: str,
    *,
    num_bytes: int | str,
    algorithm: str | None = None,
    ranks: Sequence[int] | None = None,
    fidelity: str = "flow",
    routing: str = "spray",
    fold: bool = True,
    seed: int = 0,
    group: int | None = None,
    start_s: Mapping[int, float] | Sequence[float] | None = None,
    events: Sequence[Any] = (),
) -> CollectiveResult:
    """Run one collective over ``ranks`` and return its time and traffic.

    Model: real steps of the algorithm, messages share links max-min; no launch latency, no reduction cost. A ring
        sends eagerly (its receive slots are taken as deep enough); the other algorithms go step by step: a send
        waits for its receiver to reach the step and holds its sender until it is delivered.
    Args: collective, algorithm: see ``rostam list collectives``; default ring, direct for all_to_all,
        binomial_tree for broadcast. num_bytes: S of MODEL A4, text with a unit or bytes. ranks: accelerators in
        rank order, default all healthy ones. fidelity: "flow", or "analytic" for MODEL A5's closed form on an
        idle fabric with one latency. group: ranks in a "server" of hierarchical; default by fabric.
        start_s: when each rank joins [s], a sequence or {rank: time}. events: LinkBandwidth changes.
    Raises: ConfigError for bad arguments; NoRouteError if two ranks that must talk are cut apart.
    Cost: about a microsecond a message unfolded; p (p-1) messages a ring step pair.
    """
    check_fidelity(fidelity, ("analytic", "flow"))
    check_events(events, (LinkBandwidth,), "run_collective")
    size = parse_size(num_bytes, "num_bytes")
    members = _members(fabric, ranks)
    name = algorithm if algorithm is not None else _DEFAULT_ALGORITHMS.get(collective, "ring")
    count = len(members)
    unit = group if group is not None else group_size(count, unit_size(fabric))
    fabric = with_circuits_for_collective(fabric, members, (collective, name, count, unit, size), seed)
    if fidelity == "analytic":
        if events or start_s is not None:
            raise ConfigError("fidelity='analytic' knows neither events nor start_s; use fidelity='flow'")
        return _closed_form(fabric, collective, name, size, members)
    graph = _core.TaskGraph([collective])
    schedule = graph.add_schedule(collective, name, count, unit)
    template = graph.add_template([1], [0], [0], [schedule], [-1], [size], [0], [0, 0], [])
    program = graph.add_program([template], [0])
    slots = np.full((count, 1, 3), -1, np.int32)
    slots[:, 0, 0] = graph.add_group(list(range(count)))
    slots[:, 0, 1] = np.arange(count)
    starts = _starts_ps(start_s, count)
    graph.add_devices(members, np.full(count, program), np.zeros(count), np.ones(count), starts, slots)
    graph.freeze()
    router = make_router(fabric, routing, has_events=bool(events))
    raw = _core.run_session(
        graph, router, num_planes=fabric.planes, seed=seed, fold=fold, link_events=link_event_list(events, router)
    )
    expected = _expected_bytes(collective, name, count, unit, size)
    if not raw["sent_bytes"][0] == raw["received_bytes"][0] == expected:
        raise InternalError(f"{collective} sent {raw['sent_bytes'][0]} bytes, its closed form is {expected}")
    return CollectiveResult(
        collective=collective, algorithm=name, num_bytes=size, num_ranks=count,
        time_ps=int(raw["device_end_ps"].max()), finish_s=raw["device_end_ps"] * 1e-12,
        num_messages=int(raw["num_messages"][0]), bytes_sent=int(raw["sent_bytes"][0]),
        bytes_received=int(raw["received_bytes"][0]),
        link_bytes=expand_links(raw["link_bytes"], router, len(fabric.links)),
        num_simulated_ranks=raw["num_simulated_devices"],
    )  # fmt: skip


def collective_names() -> list[tuple[str, str]]:
    """Return all (collective, algorithm) pairs."""
    return [(str(name), str(algorithm)) for name, algorithm in _core.schedule_names()]


def _members(fabric: Any, ranks: Sequence[int] | None) -> np.ndarray:
    healthy = np.asarray(fabric.healthy_accelerators)
    if ranks is None:
        return healthy.astype(np.int32)
    members = np.asarray(list(ranks), dtype=np.int32)
    bad = members[~np.isin(members, healthy)]
    if bad.size:
        raise ConfigError(f"ranks name accelerator {bad[0]}, which has failed or does not exist")
    if len(members) == 0 or len(np.unique(members)) != len(members):
        raise ConfigError("ranks must name at least one accelerator, each once")
    return members


def _starts_ps(start_s: Mapping[int, float] | Sequence[float] | None, count: int) -> np.ndarray:
    starts = np.zeros(count, np.int64)
    if start_s is None:
        return starts
    items = start_s.items() if isinstance(start_s, Mapping) else enumerate(start_s)
    for rank, value in items:
        if not 0 <= rank < count:
            raise ConfigError(f"start_s names rank {rank}; ranks are 0 to {count - 1}")
        starts[rank] = time_ps(value, "start_s")
    return starts


def _expected_bytes(collective: str, algorithm: str, count: int, unit: int, size: int) -> int:
    schedule = _core.Schedule(collective, algorithm, count, unit)
    return int(schedule.total_chunks_sent) * -(-size // max(1, schedule.num_chunks))


def _closed_form(fabric: Any, collective: str, algorithm: str, size: int, members: np.ndarray) -> CollectiveResult:
    """Return MODEL A5's time; every pair that the algorithm may use must have one latency."""
    from rostam_py.fabrics.closed_forms import collective_time_ps

    count = len(members)
    router = make_router(fabric, "spray")
    probe = [(int(members[k]), int(members[(k + 1) % count])) for k in range(count)] if count > 1 else []
    latencies = {router.route(a, b)[2] for a, b in probe if a != b}
    if len(latencies) > 1:
        low, high = min(latencies) * 1e-12, max(latencies) * 1e-12
        raise ConfigError(
            f"fidelity='analytic' needs one latency for all messages; here they range from {low:g} to {high:g} s"
        )
    interfaces = 2 if algorithm == "bidirectional_ring" else 1
    ps = collective_time_ps(
        collective, algorithm, num_bytes=-(-size // fabric.planes), num_ranks=count,
        latency=(latencies.pop() if latencies else 0) * 1e-12,
        bandwidth=fabric.plane_bandwidth_bytes_per_s / interfaces,
    )  # fmt: skip
    return CollectiveResult(
        collective=collective, algorithm=algorithm, num_bytes=size, num_ranks=count, time_ps=ps,
        finish_s=np.full(count, ps * 1e-12), num_messages=0, bytes_sent=0, bytes_received=0,
        link_bytes=np.zeros(len(fabric.links)), num_simulated_ranks=0,
    )  # fmt: skip
