"""Predicted times of collective algorithms from their routed steps, and the choice of the fastest.

Legend: M = messages of one step.

Example:
    choose_algorithm(fabric, "all_reduce", 2**30)      # "dual_hamiltonian_rings" on a large torus
"""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from rostam_py import _core
from rostam_py.errors import ConfigError, NoRouteError
from rostam_py.fabrics.circuits import with_circuits_for
from rostam_py.fabrics.fabric import Fabric
from rostam_py.fabrics.rank_groups import grid_of_ranks, group_size, place_on_grid, unit_size
from rostam_py.fabrics.traffic import schedule_traffic
from rostam_py.units import parse_size

# Beyond it messages are not routed one by one: loads are merged by destination, and latencies sampled.
MAX_ROUTED_MESSAGES = 2**16
NUM_LATENCY_SAMPLES = 2**12


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Distinct costs of one step's messages: alpha [s], beta [s per byte of a chunk], and how many share them.

    count: steps alike. Float arrays, one entry a distinct pair (alpha, beta).
    """

    count: int
    alpha_s: np.ndarray
    beta_s_per_byte: np.ndarray
    num_messages: np.ndarray


@dataclass(frozen=True, slots=True)
class AlgorithmCosts:
    """What an algorithm costs on a fabric at any size.

    num_chunks: pieces of the buffer. is_one_way_ring: ranks run ahead of each other round one ring.
    """

    num_chunks: int
    is_one_way_ring: bool
    steps: tuple[StepCosts, ...]

    def time_s(self, num_bytes: float) -> float:
        """Return the time for ``num_bytes`` in one plane [s]."""
        chunk = float(np.ceil(num_bytes / self.num_chunks)) if self.num_chunks else 0.0
        return sum(step.count * self._step_s(step, chunk) for step in self.steps)

    def serial_s(self, num_bytes: float) -> float:
        """Return what the fullest links of all steps need for their bytes [s]: the time without latency."""
        chunk = float(np.ceil(num_bytes / self.num_chunks)) if self.num_chunks else 0.0
        return sum(step.count * float(step.beta_s_per_byte.max()) * chunk for step in self.steps)

    def _step_s(self, step: StepCosts, chunk_bytes: float) -> float:
        serial = step.beta_s_per_byte * chunk_bytes
        each = step.alpha_s + serial
        if not self.is_one_way_ring:
            return float(each.max())
        # Round an eager ring only the mean hop counts, unless one port is slower than that for itself.
        return max(float(serial.max()), float(np.average(each, weights=step.num_messages)))


_CACHE: "WeakKeyDictionary[Fabric, dict[tuple, AlgorithmCosts]]" = WeakKeyDictionary()


def algorithm_costs(
    fabric: Fabric,
    collective: str,
    algorithm: str,
    ranks: Sequence[int] | np.ndarray | None = None,
    *,
    grid: tuple[int, int] | None = None,
    group: int | None = None,
    routing: str = "spray",
) -> AlgorithmCosts:
    """Route an algorithm's distinct steps and return their costs, remembered for this fabric.

    Args: as ``predict_collective_time``.
    Cost: one route for each message of each distinct step.
    """
    rows_columns = (0, 0)
    members = np.asarray(fabric.healthy_accelerators if ranks is None else ranks, dtype=np.int32)
    if _core.needs_grid(collective, algorithm) and len(members) > 1:
        placed = place_on_grid(fabric, ranks, grid)
        rows_columns, members = placed.shape, placed.reshape(-1).astype(np.int32)
    unit = group if group is not None else group_size(len(members), unit_size(fabric))
    key = (collective, algorithm, members.tobytes(), rows_columns, unit, routing)
    known = _CACHE.setdefault(fabric, {})
    if key not in known:
        schedule = _core.Schedule(collective, algorithm, len(members), unit, rows_columns)
        routed = fabric
        if fabric.is_circuit_switched:
            src, dst, num_bytes = schedule_traffic(collective, algorithm, len(members), unit, 2**20, rows_columns)
            routed = with_circuits_for(fabric, members[src], members[dst], num_bytes)
        steps = tuple(
            _step_costs(routed, routing, count, members[src], members[dst], chunks)
            for count, src, dst, chunks in schedule.distinct_steps()
        )
        known[key] = AlgorithmCosts(schedule.num_chunks, schedule.has_ordered_arrivals, steps)
    return known[key]


def predict_collective_time(
    fabric: Fabric,
    collective: str,
    algorithm: str,
    num_bytes: int | str,
    ranks: Sequence[int] | np.ndarray | None = None,
    *,
    grid: tuple[int, int] | None = None,
    group: int | None = None,
    routing: str = "spray",
) -> float:
    """Predict the time of a collective alone on a fabric, without simulating it.

    Model: sum over steps of the slowest message: alpha of its route + the bytes that the step puts on the route's
        fullest link / its capacity. Round a one-way ring: max(slowest port, mean of alpha + bytes / B), since its
        ranks run ahead. Exact (but for 1 ps a message) where all messages of a step are alike; else it
        ignores that ranks drift apart and that shares grow as messages end.
    Args: num_bytes: S of MODEL A4. ranks: accelerators in rank order, default all working ones, or their
        order on the fabric's grid where the algorithm needs one. grid: (rows, columns) of the ranks; without it
        ranks that fill rows x columns of the fabric's own grid stand there. group: "server" of hierarchical.
    Returns: time [s].
    Raises: ConfigError for unknown names or where a grid is missing; NoRouteError for a cut pair.
    Cost: the first call routes each message of each distinct step; later ones are arithmetic.
    Source: own; MODEL A5, tests/fabrics/test_collective_time.py compares with simulations.
    """
    size = parse_size(num_bytes, "num_bytes")
    costs = algorithm_costs(fabric, collective, algorithm, ranks, grid=grid, group=group, routing=routing)
    return costs.time_s(-(-size // fabric.planes))


def choose_algorithm(
    fabric: Fabric,
    collective: str,
    num_bytes: int | str,
    ranks: Sequence[int] | np.ndarray | None = None,
    *,
    grid: tuple[int, int] | None = None,
    group: int | None = None,
    routing: str = "spray",
) -> str:
    """Return the algorithm with the least predicted time; the first registered one of equals.

    Algorithms that need a grid take part where there is one; they then run on ``place_on_grid(fabric, ranks, grid)``.
    all_to_all is always "direct": it loads each link with the sum of what balanced_shift's steps do, and waits once.

    Args: as ``predict_collective_time``.
    Raises: ConfigError for an unknown collective; NoRouteError if every algorithm needs a pair that is cut.
    """
    names = [algorithm for name, algorithm in _core.schedule_names() if name == collective]
    if not names:
        _core.Schedule(collective, "", 1)  # says which collectives there are
    if collective == "all_to_all":
        return "direct"
    times: dict[str, float] = {}
    refusal: NoRouteError | None = None
    for name in names:
        if not _can_run(fabric, collective, name, ranks, grid):
            continue
        try:
            times[name] = predict_collective_time(
                fabric, collective, name, num_bytes, ranks, grid=grid, group=group, routing=routing
            )
        except NoRouteError as error:
            refusal = error
    if refusal is not None and not times:
        raise refusal
    return min(times, key=lambda name: times[name])


def _can_run(
    fabric: Fabric,
    collective: str,
    algorithm: str,
    ranks: Sequence[int] | np.ndarray | None,
    grid: tuple[int, int] | None,
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


def _step_costs(
    fabric: Fabric, routing: str, count: int, src: np.ndarray, dst: np.ndarray, chunks: np.ndarray
) -> StepCosts:
    router = fabric.router(routing)
    if len(src) <= MAX_ROUTED_MESSAGES:
        latency_ps, seconds = _core.route_costs(router, src, dst, chunks.astype(float))
        pairs = np.stack([latency_ps * 1e-12, seconds])
        (alpha, beta), shared = np.unique(pairs, axis=1, return_counts=True)
        return StepCosts(int(count), alpha, beta, shared)
    loads = _core.link_loads(fabric.core, routing, src, dst, chunks.astype(float))
    few = slice(None, None, len(src) // NUM_LATENCY_SAMPLES)
    latency_ps, _ = _core.route_costs(router, src[few], dst[few], chunks[few].astype(float))
    beta = 1 / _core.headroom(fabric.core, loads)
    return StepCosts(int(count), np.array([latency_ps.max() * 1e-12]), np.array([beta]), np.array([len(src)]))
