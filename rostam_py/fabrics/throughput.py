"""Static link loads and saturation throughput of traffic patterns (no time, no engine).

Legend: N = directed links of one plane, F = flows.
"""

from collections.abc import Sequence

import numpy as np

from rostam_py import _core
from rostam_py.checks import check_integers, is_integer
from rostam_py.errors import ConfigError
from rostam_py.fabrics.circuits import with_circuits_for
from rostam_py.fabrics.fabric import Fabric, check_fabric
from rostam_py.fabrics.optical import refuse_dynamic
from rostam_py.fabrics.optimal import OPTIMAL, check_size, optimal_share

PATTERNS = ("all_to_all", "bisection", "neighbour", "shift")
_PAIR_BYTES = {"all_to_all": 120, "bisection": 72}  # at the most, as lists of pairs were measured to take


def link_loads(
    fabric: Fabric,
    src: Sequence[int] | np.ndarray,
    dst: Sequence[int] | np.ndarray,
    num_bytes: Sequence[float] | np.ndarray,
    routing: str = "spray",
) -> np.ndarray:
    """Return the bytes that flows put on every directed link of one plane.

    Model: a flow's bytes stripe over the planes; flow i is hashed with i where the routing hashes.
    Args: src, dst: accelerators, shape (F,). num_bytes: bytes of each flow over all planes, shape (F,).
    Returns: bytes, shape (N,), in the order of ``fabric.links``.
    Raises: NoRouteError for a pair without a path; ConfigError for an unknown accelerator or routing.
    Cost: spray: destinations x links; other routings: flows x path length.
    """
    check_fabric(fabric)
    refuse_dynamic(fabric, "the analytic tier")
    sizes = np.asarray(num_bytes, dtype=float)
    ends = [check_integers(key, side) for key, side in (("src", src), ("dst", dst))]
    if not ends[0].shape == ends[1].shape == sizes.shape or sizes.ndim != 1:
        raise ConfigError(
            f"src, dst and num_bytes have shapes {ends[0].shape}, {ends[1].shape}, {sizes.shape}; "
            "they must be equally long lists"
        )
    if sizes.size and not (np.isfinite(sizes).all() and sizes.min() >= 0):
        raise ConfigError("num_bytes must be finite and >= 0")
    for key, side in zip(("src", "dst"), ends, strict=True):
        unknown = side[(side < 0) | (side >= fabric.num_accelerators)]
        if unknown.size:
            raise ConfigError(f"{key} names accelerator {unknown[0]}; there are 0 to {fabric.num_accelerators - 1}")
    ends = [side.astype(np.int32) for side in ends]
    fabric = with_circuits_for(fabric, ends[0], ends[1], sizes)
    routes = _static_routes(fabric, routing)
    return np.asarray(_core.link_loads(routes, ends[0], ends[1], sizes / fabric.planes))


def _static_routes(fabric: Fabric, routing: str) -> _core.RouteTable:
    routes = fabric.router(routing, enable_bundling=False)
    if routes.is_adaptive:
        raise ConfigError(
            f"routing {routing} divides messages by the current load of their links: there are no loads without "
            "time. Use an engine, for example fidelity='flow', or routing optimal or spray"
        )
    return routes


def saturation_throughput(
    fabric: Fabric,
    pattern: str | Sequence[int] | np.ndarray = "all_to_all",
    routing: str = "spray",
    *,
    shift: int = 1,
) -> float:
    """Return the share of injection bandwidth that every working accelerator can offer at once to a pattern.

    Model: x = min over links of capacity / load, where load is the rate on the link when each sender offers
        all of B (static routes, no congestion control); > 1 is cut to 1, the port itself. An accelerator
        sends nothing to itself: all_to_all gives B / (p-1) to each of p-1 peers, so an ideal fabric reaches
        exactly 1; counted with self-traffic (1/p each), as some authors do, the same fabric would read the
        same x with B (p-1)/p of it on the wire. An optical fabric without circuits sets them for the pattern.
    Args:
        pattern: "all_to_all"; "bisection", where each accelerator of the lower half of ids sends equally to all of
            the upper half, and back; "neighbour", to the next id round a ring; "shift", by ``shift`` ids; or an
            array: entry i is where the i-th working accelerator sends, itself for nothing; or a matrix (accelerators,
            accelerators) of what each working one sends to each, where the one with the most offers all of B.
        routing: a registered one (rostam list routings), or "optimal" for the most that any could carry, over all
            paths, by linear programming (``optimal.py``).
        shift: for "shift", any integer.
    Returns: share in (0, 1].
    Raises: ConfigError for an unknown pattern or routing; NoRouteError where failures cut a pair apart.
    Cost: spray: accelerators x links. optimal: see ``optimal_share``.
    Source: own; tests/analytic/test_throughput.py derives trees and tori by hand.
    """
    port = check_fabric(fabric).plane_bandwidth_bytes_per_s
    refuse_dynamic(fabric, "the analytic tier")
    healthy = fabric.healthy_accelerators
    if isinstance(routing, str) and routing == OPTIMAL:
        if isinstance(pattern, str) and pattern in ("all_to_all", "bisection") and not fabric.is_circuit_switched:
            check_size(fabric, healthy)
        src, dst, share = _flows(healthy, pattern, shift)
        return optimal_share(with_circuits_for(fabric, src, dst, share), src, dst, share)
    if isinstance(pattern, str) and pattern == "all_to_all" and not fabric.is_circuit_switched:
        routes = _static_routes(fabric, routing)
        loads = _core.all_to_all_loads(routes, healthy, port)
    else:
        src, dst, share = _flows(healthy, pattern, shift)
        fabric = with_circuits_for(fabric, src, dst, share)
        routes = _static_routes(fabric, routing)
        loads = _core.link_loads(routes, src.astype(np.int32), dst.astype(np.int32), share * port)
    return min(1.0, float(_core.headroom(routes, loads)))


def _flows(
    healthy: np.ndarray, pattern: str | Sequence[int] | np.ndarray, shift: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (src, dst, share of B) of a pattern's flows."""
    count = len(healthy)
    if not is_integer(shift):
        raise ConfigError(f"shift is {shift!r}; it must be an integer")
    if not isinstance(pattern, str) and np.ndim(pattern) == 2:
        return _flows_of_matrix(healthy, np.asarray(pattern, dtype=float))
    if not isinstance(pattern, str):
        targets = check_integers("pattern", pattern)
        if targets.shape != (count,) or not np.isin(targets, healthy).all():
            raise ConfigError(
                f"pattern is an array of shape {targets.shape}; it needs one working accelerator for each "
                f"of the {count} working ones"
            )
        return healthy, targets, np.ones(count)
    if pattern in ("all_to_all", "bisection"):
        pairs = count * count if pattern == "all_to_all" else 2 * (count // 2) * (count - count // 2)
        _core.require_memory(
            pairs * _PAIR_BYTES[pattern],
            f"the {pairs:,} pairs of pattern {pattern} between {count:,} accelerators",
            "take a smaller fabric, pattern shift, or all_to_all with another routing than optimal",
        )
    if pattern == "all_to_all":
        row, column = np.divmod(np.arange(count * count), max(1, count))
        apart = row != column
        return healthy[row[apart]], healthy[column[apart]], np.full(int(apart.sum()), 1 / max(1, count - 1))
    if pattern in ("neighbour", "shift"):
        return healthy, np.roll(healthy, -1 if pattern == "neighbour" else -shift), np.ones(count)
    if pattern == "bisection":
        lower, upper = healthy[: count // 2], healthy[count // 2 :]
        src = np.concatenate([np.repeat(lower, len(upper)), np.repeat(upper, len(lower))])
        dst = np.concatenate([np.tile(upper, len(lower)), np.tile(lower, len(upper))])
        share = np.where(np.arange(len(src)) < len(lower) * len(upper), 1 / max(1, len(upper)), 1 / max(1, len(lower)))
        return src, dst, share
    raise ConfigError(
        f"unknown pattern {pattern!r}; allowed: {', '.join(PATTERNS)}, an array of destinations, or a matrix"
    )


def _flows_of_matrix(healthy: np.ndarray, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (src, dst, share of B) of what each working accelerator sends to each."""
    count = len(healthy)
    if matrix.shape != (count, count):
        raise ConfigError(
            f"pattern is a matrix of shape {matrix.shape}; it needs a row and a column for each of the {count} working"
            " accelerators"
        )
    if not (np.isfinite(matrix).all() and matrix.min(initial=0) >= 0):
        raise ConfigError("pattern is a matrix with entries that are negative or not finite; they must be >= 0")
    given = matrix * ~np.eye(count, dtype=bool)  # nothing is sent to oneself
    row, column = np.nonzero(given)
    most = given.sum(axis=1).max(initial=0)
    return healthy[row], healthy[column], given[row, column] / (most or 1)
