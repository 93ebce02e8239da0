"""What collectives cost when many process groups run them at once, and point-to-point messages sent together.

Legend: G = groups, p = ranks of one group, M = messages of one step of one group.

Example:
    costs = group_costs(fabric, "all_reduce", "ring", np.arange(64).reshape(8, 8).T)
    costs.time_s(25e6)                           # eight rings of stride 8, sharing what links they share
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.collectives.pieces import PhaseCosts, PipelineCosts, phase_costs
from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.collectives.switch_costs import SwitchCosts, switch_costs
from rostam_py.collectives.transport import PLAIN, Transport
from rostam_py.collectives.tree_costs import TreeCosts
from rostam_py.fabrics.fabric import Fabric

# Beyond it messages are not routed one by one: the fullest link decides, and latencies are sampled.
MAX_ROUTED_MESSAGES = 2**17
_NUM_SAMPLES = 2**10


@dataclass(frozen=True, slots=True)
class _Step:
    """Messages of a step. count: steps alike.

    alpha_s, beta_s_per_byte, is_inside (of a server), num_chunks: of every message, arrays (distinct groups, M).
    """

    count: int
    alpha_s: np.ndarray
    beta_s_per_byte: np.ndarray
    is_inside: np.ndarray
    num_chunks: np.ndarray


@dataclass(frozen=True, slots=True)
class GroupCosts:
    """An algorithm's cost on groups that run it at once, at any size.

    num_chunks: pieces of the buffer. is_eager: ranks run ahead of each other round one ring. phases, num_pieces: of an
    algorithm that works in several pieces. switches: of one that they serve.
    """

    num_chunks: int
    is_eager: bool
    steps: tuple[_Step, ...]
    planes: int = 1
    phases: PhaseCosts | PipelineCosts | TreeCosts | None = None
    num_pieces: int = 1
    switches: SwitchCosts | None = None

    def time_s(self, num_bytes: float, how: Transport = PLAIN) -> float:
        """Return the time until the slowest group is done [s]. num_bytes: S of MODEL A4. how: its messages go."""
        if self.phases is not None:
            return self.phases.time_s(np.ceil(num_bytes / self.planes), self.num_pieces, how)
        chunk = np.ceil(np.ceil(num_bytes / self.num_chunks) / self.planes)
        if self.switches is not None:
            return how.startup_s + self.switches.time_s(chunk, how.wire_overhead, how.region_rate / self.planes)
        return how.startup_s + float(sum(step.count * self._step_s(step, chunk, how) for step in self.steps))

    def _step_s(self, step: _Step, chunk_bytes: float, how: Transport) -> float:
        capped = step.num_chunks * step.is_inside * (chunk_bytes * self.planes / how.server_rate)
        serial = np.maximum(step.beta_s_per_byte * (chunk_bytes * how.wire_overhead), capped)
        each = step.alpha_s + np.where(step.is_inside, how.server_hop_s, how.network_hop_s) + serial
        if not self.is_eager:
            return float(each.max())
        # Round an eager ring only the mean hop counts, unless one port is slower than that for itself.
        return float(np.maximum(serial.max(axis=1), each.mean(axis=1)).max())


def group_costs(
    fabric: Fabric, collective: str, algorithm: str, groups: np.ndarray, *, routing: str = "spray", **shape: Any
) -> GroupCosts:
    """Return ``schedule_costs`` of an algorithm. Args: shape: group_size, grid, num_pieces of ``ScheduleKey``."""
    key = ScheduleKey(collective, algorithm, groups.shape[1], **shape)
    return schedule_costs(fabric, key, groups, routing=routing)


def schedule_costs(fabric: Fabric, key: ScheduleKey, groups: np.ndarray, *, routing: str = "spray") -> GroupCosts:
    """Route the distinct steps of a schedule on all groups at once.

    Model: a message takes alpha of its route + the bytes that all groups' messages of the step put on the route's
        fullest link / its capacity; a step takes its slowest message, an eager ring as ``GroupCosts`` says. Groups
        that are not in step would share less.
    Args: groups: accelerators in rank order, int array (G, p).
    Raises: ConfigError for unknown names; NoRouteError for a cut pair.
    Cost: one route a message of each distinct step.
    Source: MODEL A3 and A5; tests/collectives/test_group_costs.py compares with closed forms and simulations.
    """
    (num_groups, num_ranks), num_pieces = groups.shape, key.num_pieces
    if num_ranks == 1:
        return GroupCosts(1, False, ())
    phases = phase_costs(fabric, key, groups, routing) if num_pieces > 1 else None
    if phases is not None:
        return GroupCosts(num_ranks * num_pieces, False, (), fabric.planes, phases, num_pieces)
    schedule = key.schedule()
    switches = switch_costs(fabric, key, groups, routing)
    if switches is not None:
        return GroupCosts(int(schedule.num_chunks), False, (), fabric.planes, switches=switches)
    router, per_server = fabric.router(routing), fabric.config.accelerators_per_server
    steps = []
    for count, src, dst, chunks in schedule.distinct_steps():
        if not len(src):
            continue
        sizes = np.broadcast_to(np.asarray(chunks, dtype=float), (num_groups, len(src))).reshape(-1)
        alpha, beta = _message_costs(router, groups[:, src].ravel(), groups[:, dst].ravel(), sizes)
        inside = (groups[:, src] // per_server == groups[:, dst] // per_server).ravel().astype(float)
        columns = np.stack([column.reshape(num_groups, -1) for column in (alpha, beta, inside, sizes)], axis=2)
        order = np.lexsort(tuple(columns[:, :, k] for k in range(4)), axis=1)
        distinct = np.unique(np.take_along_axis(columns, order[:, :, None], axis=1), axis=0)
        alpha, beta, inside, sizes = (distinct[:, :, k] for k in range(4))
        steps.append(_Step(int(count), alpha, beta, inside > 0, sizes))
    return GroupCosts(int(schedule.num_chunks), bool(schedule.has_ordered_arrivals), tuple(steps), fabric.planes)


def link_seconds(fabric: Fabric, key: ScheduleKey, groups: np.ndarray, *, routing: str = "spray") -> np.ndarray:
    """Return how long every directed link is busy for each byte of the buffer, float array (links,) [s per byte].

    Args: groups: accelerators in rank order, int array (G, p); all of them run the whole schedule, in one piece.
    """
    schedule = key._replace(num_pieces=1).schedule()
    busy = np.zeros(fabric.num_directed_links)
    routes = fabric.router(routing, enable_bundling=False)
    if not schedule.loads_as_messages:
        busy = _core.region_costs(routes, schedule, groups.tolist())[1]
    for count, src, dst, chunks in schedule.distinct_steps() if schedule.loads_as_messages else ():
        sizes = np.broadcast_to(np.asarray(chunks, dtype=float), (len(groups), len(src))).reshape(-1)
        starts, ends = (groups[:, side].ravel().astype(np.int32) for side in (src, dst))
        busy += count * _core.link_loads(routes, starts, ends, sizes)
    capacity = fabric.links["bandwidth_bytes_per_s"] * schedule.num_chunks * fabric.planes
    return np.divide(busy, capacity, out=np.zeros_like(busy), where=busy > 0)


def message_costs(fabric: Fabric, src: np.ndarray, dst: np.ndarray, *, routing: str = "spray") -> tuple[float, float]:
    """Return (alpha [s], beta [s per byte]) of the slowest of messages of one size that are sent at once.

    Raises: NoRouteError for a cut pair.
    """
    if len(src) == 0:
        return 0.0, 0.0
    router = fabric.router(routing)
    alpha, beta = _message_costs(router, src, dst, np.full(len(src), 1.0 / fabric.planes))
    return float(alpha.max()), float(beta.max())


def _message_costs(
    router: "_core.RouteTable", src: np.ndarray, dst: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return alpha [s] and seconds of every message; ``sizes`` are in units of what beta is per."""
    src, dst = src.astype(np.int32), dst.astype(np.int32)
    if len(src) <= MAX_ROUTED_MESSAGES:
        latency_ps, seconds = _core.route_costs(router, src, dst, sizes)
        return latency_ps * 1e-12, seconds
    loads = _core.link_loads(router, src, dst, sizes)
    few = slice(None, None, max(1, len(src) // _NUM_SAMPLES))
    latency_ps, _ = _core.route_costs(router, src[few], dst[few], sizes[few])
    slowest = 1 / _core.headroom(router, loads)
    return np.full(len(src), latency_ps.max() * 1e-12), np.full(len(src), slowest)


def pair_costs(
    fabric: Fabric, src: np.ndarray, dst: np.ndarray, num_bytes: np.ndarray, *, routing: str = "spray"
) -> tuple[np.ndarray, np.ndarray]:
    """Return alpha [s] and serialisation [s] of every message when all are sent at once, float arrays (messages,).

    Raises: NoRouteError for a cut pair.
    """
    return _message_costs(fabric.router(routing), src, dst, num_bytes / fabric.planes)
