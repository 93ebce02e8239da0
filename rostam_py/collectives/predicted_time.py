"""Predicted times of collective algorithms from their routed steps, and the choice of the fastest.

Legend: M = messages of one step.

Example:
    choose_algorithm(fabric, "all_reduce", 2**30)      # "dual_hamiltonian_rings" on a large torus
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack
from weakref import WeakKeyDictionary

import numpy as np

from rostam_py import _core
from rostam_py.collectives.pieces import PhaseCosts, PipelineCosts, phase_costs
from rostam_py.collectives.rank_groups import (
    RankShape,
    ScheduleKey,
    algorithm_names,
    arrange,
    check_shapes,
    grid_of_ranks,
    members_of,
    place_on_grid,
)
from rostam_py.collectives.switch_costs import SwitchCosts, switch_costs
from rostam_py.collectives.transport import (
    PLAIN,
    Transport,
    check_protocol,
    is_tuned,
    nccl_choices,
    needs_trees,
    protocols_for,
    refusal,
    transport,
)
from rostam_py.collectives.tree_costs import TreeCosts
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics.circuits import with_circuits_for
from rostam_py.fabrics.fabric import Fabric
from rostam_py.units import parse_size

# Beyond it messages are not routed one by one: loads are merged by destination, and latencies sampled.
MAX_ROUTED_MESSAGES = 2**16
NUM_LATENCY_SAMPLES = 2**12


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Distinct costs of one step's messages.

    count: steps alike. alpha_s: latency. beta_s_per_byte: for a byte of a chunk. inside: 1 for a message inside a
    server, else 0. num_chunks: of the message. Arrays, one entry for each distinct cost. ring_means: the first three,
    of a mean message of each distinct ring, float array (3, rings), where ranks send eagerly and no rank receives from
    a rank it sends to; else None.
    """

    count: int
    alpha_s: np.ndarray
    beta_s_per_byte: np.ndarray
    inside: np.ndarray
    num_chunks: np.ndarray
    ring_means: np.ndarray | None

    def time_s(self, chunk_bytes: float, how: Transport = PLAIN) -> float:
        """Return the time of one of these steps [s]. how: messages go, its rates those of one plane."""
        on_wire = chunk_bytes * how.wire_overhead
        serial = self.beta_s_per_byte * on_wire
        if how.server_rate != math.inf:
            serial = np.maximum(serial, self.inside * self.num_chunks * (chunk_bytes / how.server_rate))
        if self.ring_means is None:
            return float((self.alpha_s + serial + _hops(self.inside, how)).max())
        # Round an eager ring only the mean hop counts, unless one port alone is slower than that.
        alpha_s, beta_s_per_byte, inside = self.ring_means
        return float(max(serial.max(), (alpha_s + beta_s_per_byte * on_wire + _hops(inside, how)).max()))


@dataclass(frozen=True, slots=True)
class AlgorithmCosts:
    """What an algorithm costs on a fabric at any size.

    num_chunks: of the buffer. steps: of the whole buffer in one piece. phases: of an algorithm that may work in more.
    """

    num_chunks: int
    steps: tuple[StepCosts | SwitchCosts, ...]
    phases: PhaseCosts | PipelineCosts | TreeCosts | None = None

    def time_s(self, num_bytes: float, how: Transport = PLAIN) -> float:
        """Return the time for ``num_bytes`` in one plane [s], in as many pieces as are fastest. how: as StepCosts."""
        pieces = self.num_pieces(num_bytes, how)
        if self.phases is not None and pieces > 1:
            return self.phases.time_s(num_bytes, pieces, how)
        return self.whole_s(num_bytes, how)

    def whole_s(self, num_bytes: float, how: Transport = PLAIN) -> float:
        """Return the same in one piece [s]."""
        chunk = self._chunk_bytes(num_bytes)
        return how.startup_s + sum(step.count * _step_s(step, chunk, how) for step in self.steps)

    def serial_s(self, num_bytes: float) -> float:
        """Return what the fullest links of all steps need for their bytes [s]: the time without latency."""
        chunk = self._chunk_bytes(num_bytes)
        return sum(step.count * float(step.beta_s_per_byte.max()) * chunk for step in self.steps)

    def num_pieces(self, num_bytes: float, how: Transport = PLAIN) -> int:
        """Return in how many pieces the algorithm is fastest; 1 for most algorithms."""
        return 1 if self.phases is None else self.phases.best_pieces(num_bytes, how)

    def _chunk_bytes(self, num_bytes: float) -> float:
        return float(np.ceil(num_bytes / self.num_chunks)) if self.num_chunks else 0.0


def _step_s(step: StepCosts | SwitchCosts, chunk_bytes: float, how: Transport) -> float:
    if isinstance(step, SwitchCosts):
        return step.time_s(chunk_bytes, how.wire_overhead, how.region_rate)
    return step.time_s(chunk_bytes, how)


class RoutedShape(RankShape, total=False):
    """How ranks stand and their messages go. routing: "spray" by default."""

    routing: str


_CACHE: "WeakKeyDictionary[Fabric, dict[tuple, AlgorithmCosts]]" = WeakKeyDictionary()


def algorithm_costs(
    fabric: Fabric,
    collective: str,
    algorithm: str,
    ranks: Sequence[int] | np.ndarray | None = None,
    *,
    routing: str = "spray",
    **shape: Unpack[RankShape],
) -> AlgorithmCosts:
    """Route an algorithm's distinct steps and return their costs, remembered for this fabric.

    Args: as ``predict_collective_time``.
    Cost: one route for each message of each distinct step.
    """
    members, key = arrange(fabric, collective, algorithm, ranks, **shape)
    name = (key, members.tobytes(), routing)
    known = _CACHE.setdefault(fabric, {})
    if name not in known:
        schedule = key.schedule()
        routed = fabric
        if fabric.is_circuit_switched:
            src, dst, num_bytes = key.traffic(2**20)
            routed = with_circuits_for(fabric, members[src], members[dst], num_bytes)
        steps, router = [], routed.router(routing)
        switches = switch_costs(fabric, key, members[None, :], routing)
        for count, src, dst, chunks in schedule.distinct_steps() if switches is None else ():
            if not len(src):
                continue
            costs = _message_costs(router, members[src], members[dst], chunks)
            costs = np.concatenate([costs, _places(fabric, members[src], members[dst], chunks, costs.shape[1])])
            runs_ahead = schedule.num_steps > 1 and not (schedule.is_synchronous or _has_answers(src, dst))
            means = _ring_means(costs[:3], _rings(src, dst, chunks)) if runs_ahead else None
            alpha_s, beta_s_per_byte, inside, num_chunks = _distinct_columns(costs)
            steps.append(StepCosts(count, alpha_s, beta_s_per_byte, inside, num_chunks, means))
        has_phases = _has_pieces(collective, algorithm) and not fabric.is_circuit_switched
        phases = phase_costs(fabric, key, members[None, :], routing) if has_phases else None
        known[name] = AlgorithmCosts(schedule.num_chunks, tuple(steps) if switches is None else (switches,), phases)
    return known[name]


def schedule_of_ranks(
    fabric: Fabric,
    collective: str,
    algorithm: str,
    num_bytes: int,
    ranks: Sequence[int] | np.ndarray | None = None,
    *,
    protocol: str | None = None,
    **how: Unpack[RoutedShape],
) -> tuple[np.ndarray, ScheduleKey]:
    """Return the accelerators in the rank order of an algorithm, and its schedule for so many bytes.

    Model: an algorithm that works in pieces takes the power of two up to 64 of least predicted time, links that cost
        something to start the protocol of least time, or the one that NCCL's tuning model takes.
    Args: as ``predict_collective_time``. protocol: None for the fastest.
    Raises: as ``predict_collective_time``; ConfigError for a protocol that there is not.
    """
    members, key = arrange(fabric, collective, algorithm, ranks, grid=how.get("grid"), group=how.get("group"))
    check_protocol(fabric, collective, algorithm, protocol)
    if len(members) == 1:
        return members, key
    reason = refusal(fabric, collective, algorithm, members)
    if reason is not None:
        raise ConfigError(f"{collective} by {algorithm} cannot run on {fabric.describe()}: {reason}")
    if protocol is None:
        chosen = (by for name, by in nccl_choices(fabric, collective, num_bytes, members) if name == algorithm)
        protocol = next(chosen, None)
    protocols = [protocol] if protocol is not None else protocols_for(fabric, collective, algorithm) or [""]
    if len(protocols) == 1 and not _has_pieces(collective, algorithm):
        return members, key._replace(protocol=protocols[0])
    costs = algorithm_costs(fabric, collective, algorithm, ranks, **how)
    in_plane = -(-num_bytes // fabric.planes)
    ways = {name: transport_in_plane(fabric, key._replace(protocol=name), num_bytes) for name in protocols}
    best = min(ways, key=lambda name: costs.time_s(in_plane, ways[name]))
    return members, key._replace(num_pieces=costs.num_pieces(in_plane, ways[best]), protocol=best)


def _has_pieces(collective: str, algorithm: str) -> bool:
    return bool(_core.works_in_pieces(collective, algorithm) or _core.is_pipelined(collective, algorithm))


def transport_in_plane(fabric: Fabric, key: ScheduleKey, num_bytes: int) -> Transport:
    """Return how a schedule's messages go, rates being those of one plane."""
    how = transport(fabric, key, num_bytes)
    if fabric.planes == 1:
        return how
    return how._replace(server_rate=how.server_rate / fabric.planes, region_rate=how.region_rate / fabric.planes)


def predict_collective_time(
    fabric: Fabric,
    collective: str,
    algorithm: str,
    num_bytes: int | str,
    ranks: Sequence[int] | np.ndarray | None = None,
    *,
    protocol: str | None = None,
    **how: Unpack[RoutedShape],
) -> float:
    """Predict the time of a collective alone on a fabric, without simulating it.

    Model: sum over steps of the slowest message: alpha of its route + the bytes that the step puts on the route's
        fullest link / its capacity. Round one-way rings, whose ranks run ahead: max(slowest port, mean of alpha +
        bytes / B round the slowest ring). Exact, to 1 ps per message, where all messages of a step are alike; else
        it ignores that ranks drift apart and that shares grow as messages end.
    Args: num_bytes: S of MODEL A4. ranks: accelerators in rank order, default all working ones, or their
        order on the fabric's grid where the algorithm needs one. grid: sides that the ranks stand on, row-major;
        without it ranks that fill a box of the fabric's own grid stand there. group: ranks in a "server" of
        hierarchical, a divisor of the ranks. Other algorithms check grid and group and use neither. protocol: on links
        that cost something to start; None takes the fastest, or NCCL's tuning model's (``nccl_choices``).
    Returns: time [s].
    Raises: ConfigError for unknown names or where a grid is missing; NoRouteError for a cut pair.
    Cost: the first call routes each message of each distinct step; later ones are arithmetic.
    Source: own; MODEL A5, tests/collectives/test_predicted_time.py compares with simulations.
    """
    size = parse_size(num_bytes, "num_bytes")
    _, key = schedule_of_ranks(fabric, collective, algorithm, size, ranks, protocol=protocol, **how)
    costs = algorithm_costs(fabric, collective, algorithm, ranks, **how)
    return costs.time_s(-(-size // fabric.planes), transport_in_plane(fabric, key, size))


def choose_algorithm(
    fabric: Fabric,
    collective: str,
    num_bytes: int | str,
    ranks: Sequence[int] | np.ndarray | None = None,
    *,
    allowed: Sequence[str] | None = None,
    protocol: str | None = None,
    **how: Unpack[RoutedShape],
) -> str:
    """Return the algorithm with the least predicted time; the first registered one of equals.

    Algorithms that need a grid take part where there is one; they then run on ``place_on_grid(fabric, ranks, grid)``.
    Of all_to_all "direct" takes part, which loads each link with the sum of what balanced_shift's steps do and waits
    once, and on servers with a NIC for each accelerator what works inside and between them in pieces.

    On links that cost something to start it chooses between the algorithms that NCCL has; inside one server, of classes
    that say so, and in an all_reduce over servers of H100s as NCCL's tuning model does (``nccl_choices``).

    Args: as ``predict_collective_time``. allowed: algorithms to choose from; default all. protocol: those that have it.
    Raises: ConfigError for an unknown collective; NoRouteError if every algorithm needs a pair that is cut, or
        ConfigError if every one needs more circuits than there are.
    Source: MODEL 6a.
    """
    names = [name for name in algorithm_names(collective) if allowed is None or name in allowed]
    if not algorithm_names(collective):
        _core.Schedule(collective, "", 1)  # says which collectives there are
    grid = how.get("grid")
    members = members_of(fabric, ranks)
    check_shapes(len(members), grid, how.get("group"))
    names = [name for name in names if is_tuned(fabric, collective, name, members)]
    names = _with_routing(fabric, collective, names, how.get("routing", "spray"))
    names = _taken_by_nccl(fabric, collective, num_bytes, members, names, protocol)
    if collective == "all_to_all":
        has_rails = fabric.config.nics_per_server > 1
        names = names[:1] + [name for name in names[1:] if has_rails and _core.works_in_pieces(collective, name)]
        if len(names) == 1:
            return names[0]
    times: dict[str, float] = {}
    refused: NoRouteError | ConfigError | None = None
    for name in names:
        if not _can_run(fabric, collective, name, ranks, grid):
            continue
        try:
            if protocol is None or protocol in protocols_for(fabric, collective, name):
                times[name] = predict_collective_time(
                    fabric, collective, name, num_bytes, ranks, protocol=protocol, **how
                )
        except NoRouteError as error:
            refused = error
        except ConfigError as error:  # more peers than a fabric without circuits can hold circuits to
            if not fabric.is_circuit_switched:
                raise
            refused = error
    if refused is not None and not times:
        raise refused
    if not times:
        check_protocol(fabric, collective, names[0], protocol)
    return min(times, key=lambda name: times[name])


def _with_routing(fabric: Fabric, collective: str, names: list[str], routing: str) -> list[str]:
    """Return those of these algorithms that run with a routing: one that divides messages by itself knows no trees,
    and neither do planes that differ."""
    if not any(needs_trees(collective, name) for name in names) or fabric.router(routing).knows_trees:
        return names
    return [name for name in names if not needs_trees(collective, name)]


def _taken_by_nccl(
    fabric: Fabric, collective: str, num_bytes: int | str, members: np.ndarray, names: list[str], protocol: str | None
) -> list[str]:
    """Return the one of these algorithms that NCCL's tuning model takes; all where it does not choose."""
    if protocol is not None:
        return names
    size = parse_size(num_bytes, "num_bytes")
    taken = [name for name, _ in nccl_choices(fabric, collective, size, members) if name in names]
    return taken[:1] or names


def default_algorithm(
    fabric: Fabric,
    collective: str,
    num_bytes: int | str,
    ranks: Sequence[int] | np.ndarray | None = None,
    *,
    has_few_peers: bool = False,
    allowed: Sequence[str] | None = None,
    protocol: str | None = None,
    **how: Unpack[RoutedShape],
) -> str:
    """Return what runs where no algorithm is asked for: the one with the least predicted time.

    Model: a fabric whose circuits are set once keeps the first registered algorithm, a ring where there is one, since
        any other needs circuits to more peers and all collectives of a job share what circuits there are.
    Args: as ``choose_algorithm``; has_few_peers: the job may need as few circuits as on such a fabric.
    Raises: as ``choose_algorithm``.
    Source: MODEL 6a.
    """
    names = algorithm_names(collective)
    if (fabric.is_circuit_switched or has_few_peers) and names:
        return names[0]
    return choose_algorithm(fabric, collective, num_bytes, ranks, allowed=allowed, protocol=protocol, **how)


def _can_run(
    fabric: Fabric,
    collective: str,
    algorithm: str,
    ranks: Sequence[int] | np.ndarray | None,
    grid: tuple[int, ...] | None,
) -> bool:
    """Return whether there is the grid that the algorithm needs, and of a shape it takes."""
    if not _core.needs_grid(collective, algorithm):
        return True
    if grid is None:
        placed = fabric.grid() if ranks is None else grid_of_ranks(fabric, ranks)
        if placed is None:
            return False
    else:
        placed = place_on_grid(fabric, ranks, grid)
    try:
        _core.Schedule(collective, algorithm, placed.size, 1, placed.shape)
    except ConfigError:
        return False
    return True


def _has_answers(src: np.ndarray, dst: np.ndarray) -> bool:
    """Return whether any two ranks send to each other in the step."""
    width = np.int64(max(src.max(), dst.max())) + 1
    return bool(np.isin(src * width + dst, dst * width + src).any())


def _rings(src: np.ndarray, dst: np.ndarray, chunks: np.ndarray) -> np.ndarray:
    """Return the ring of every message of a step, int array (M,).

    Model: the k-th messages of all ranks, where every rank sends and receives one, go round rings: the cycles of that
        permutation, such as the rows of a grid, and apart from them its columns. Elsewhere messages of one size count
        as one ring.
    """
    order = np.argsort(src, kind="stable")
    first = np.searchsorted(src[order], src[order])
    turn = np.empty(len(src), np.int64)
    turn[order] = np.arange(len(src)) - first  # which of its sender's messages it is
    rings = np.empty(len(src), np.int64)
    num_rings = 0
    for k in range(int(turn.max()) + 1):
        (own,) = np.nonzero(turn == k)
        at = np.argsort(src[own])
        if not np.array_equal(src[own][at], np.sort(dst[own])):
            return np.unique(chunks, return_inverse=True)[1]
        following = own[at][np.searchsorted(src[own][at], dst[own])]  # of each message, the one its receiver sends
        next_of = dict(zip(own.tolist(), following.tolist(), strict=True))
        while next_of:
            message = next(iter(next_of))
            while message in next_of:
                rings[message] = num_rings
                message = next_of.pop(message)
            num_rings += 1
    return rings


def _ring_means(costs: np.ndarray, rings: np.ndarray) -> np.ndarray:
    """Return the mean of each row over the messages of every distinct ring, float array (rows, rings)."""
    if costs.shape[1] != len(rings):  # messages too many to be told apart
        return costs
    _, first, num_messages = np.unique(rings, return_index=True, return_counts=True)
    base = costs[:, first]  # so that the mean of equal costs is that cost to the last digit
    extra = [np.bincount(rings, weights=row) / num_messages for row in costs - base[:, rings]]
    return np.unique(base + np.stack(extra), axis=1)


def _places(fabric: Fabric, src: np.ndarray, dst: np.ndarray, chunks: np.ndarray, width: int) -> np.ndarray:
    """Return whether messages are inside a server and their chunks, float array (2, M); (2, 1) of those of width 1."""
    per_server = fabric.config.accelerators_per_server
    places = np.stack([src // per_server == dst // per_server, np.broadcast_to(chunks, src.shape)]).astype(float)
    return places if width == len(src) else np.array([[places[0].min()], [places[1].max()]])


def _hops(inside: np.ndarray, how: Transport) -> np.ndarray:
    """Return what each message takes besides latency and bytes [s]. inside: share of its messages inside a server."""
    return np.asarray(how.network_hop_s + inside * (how.server_hop_s - how.network_hop_s))


def _distinct_columns(values: np.ndarray) -> np.ndarray:
    """Return the distinct columns in order; runs of equal ones, which most are, go before they are sorted."""
    is_new = np.ones(values.shape[1], bool)
    is_new[1:] = (values[:, 1:] != values[:, :-1]).any(axis=0)
    return np.unique(values[:, is_new], axis=1)


def _message_costs(router: Any, src: np.ndarray, dst: np.ndarray, chunks: np.ndarray) -> np.ndarray:
    """Return latency and seconds per byte of a chunk of messages sent at once, float array (2, M) or (2, 1)."""
    sizes = chunks.astype(float)
    if len(src) <= MAX_ROUTED_MESSAGES:
        latency_ps, seconds = _core.route_costs(router, src, dst, sizes)
        return np.stack([latency_ps * 1e-12, seconds])
    loads = _core.link_loads(router, src, dst, sizes)
    few = slice(None, None, len(src) // NUM_LATENCY_SAMPLES)
    latency_ps, _ = _core.route_costs(router, src[few], dst[few], sizes[few])
    return np.array([[latency_ps.max() * 1e-12], [1 / _core.headroom(router, loads)]])
