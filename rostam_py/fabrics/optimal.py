"""The most that any routing can carry of a traffic pattern: a linear program over all paths, solved by HiGHS.

Example:
    optimal_share(fabric, src, dst, share)      # saturation_throughput(fabric, pattern, "optimal") asks this
Legend: F = flows, L = links with those between the same two vertices as one, D = destinations.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rostam_py import _core
from rostam_py.errors import ConfigError
from rostam_py.extras import Need, require
from rostam_py.fabrics.fabric import Fabric

OPTIMAL = "optimal"
MAX_VARIABLES = 8_000_000  # of the program as written: some 3 GB with its matrix
MAX_SOLVED = 300_000  # of what symmetry leaves: minutes
_INTERIOR = 10_000  # variables from which the interior point method is the faster one (measured, Slim Fly and trees)
_DIGITS = 12  # to which demands are alike
_ALIKE = 1e-9


@dataclass(frozen=True, slots=True)
class _Network:
    """What the program is about, in shares of an accelerator's bandwidth.

    tail, head: vertices of the links, int arrays (L,). capacity: float array (L,). forwards: bool array (vertices,).
    source, target, demand: of pairs of vertices, sorted by target. bound: what ports alone allow.
    """

    tail: np.ndarray
    head: np.ndarray
    capacity: np.ndarray
    forwards: np.ndarray
    source: np.ndarray
    target: np.ndarray
    demand: np.ndarray
    bound: float


def optimal_share(fabric: Fabric, src: np.ndarray, dst: np.ndarray, share: np.ndarray) -> float:
    """Return the largest x at which flows of x times their shares fit on the links, over whatever paths.

    Model: maximum concurrent flow: for each destination, flows on links are conserved at every other vertex; the sum
        over destinations is at most a link's capacity. Paths need not be shortest, and split at will; accelerators
        forward where the fabric says so. Accelerators on one cable to a switch are merged into it, which changes
        nothing but the size. Then rows and columns that colour refinement cannot tell apart become one, which keeps
        the optimum (Grohe et al.); the classes are checked to be equitable.
    Args:
        fabric: with its failures; circuits set, if it needs any.
        src, dst: accelerators, int arrays (F,).
        share: of an accelerator's bandwidth over all planes, float array (F,).
    Returns: x, at most 1.
    Raises: NoRouteError for a pair without a path; ConfigError for a program too large; MissingPackageError without
        scipy.
    Cost: D x L variables; colour refinement takes about a microsecond for each and round, HiGHS what is left.
    Source: Shahrokhi and Matula, "The Maximum Concurrent Flow Problem", JACM 1990; reduction: Grohe, Kersting,
        Mladenov and Selman, "Dimension Reduction via Colour Refinement", ESA 2014.
    """
    require(Need("routing='optimal'", "optimal"))
    used = (src != dst) & (share > 0)
    src, dst, share = src[used], dst[used], share[used]
    network = _network(fabric, src, dst, share)
    found = min(1.0, network.bound)
    if len(network.demand):
        found = min(found, _solve(network))
    if found <= 0 and len(src):  # a pair is cut apart: its routes say so
        sizes = np.ones(len(src))
        _core.link_loads(fabric.router("up_down"), src.astype(np.int32), dst.astype(np.int32), sizes)
    return found


def check_size(fabric: Fabric, healthy: np.ndarray) -> None:
    """Refuse a pattern in which all accelerators receive, before its pairs are listed.

    Raises: ConfigError for a program too large.
    """
    network = _network(fabric, healthy, np.roll(healthy, 1), np.ones(len(healthy)))
    targets = np.unique(network.target)  # of a ring through all: those with a predecessor elsewhere
    _check_variables(len(targets), len(network.tail))


def _check_variables(num_targets: int, num_links: int) -> None:
    if num_targets * num_links > MAX_VARIABLES:
        raise ConfigError(
            f"routing='optimal' is a program of {num_targets:,} destinations x {num_links:,} links; at most"
            f" {MAX_VARIABLES:,} variables fit: take a smaller fabric"
        )


def _network(fabric: Fabric, src: np.ndarray, dst: np.ndarray, share: np.ndarray) -> _Network:
    links = fabric.links[~fabric.links["is_failed"]]
    num = fabric.num_accelerators
    tail, head = links["src"].astype(np.int64), links["dst"].astype(np.int64)
    num_planes = np.zeros(len(links))
    last = int(max(num - 1, tail.max(initial=0), head.max(initial=0))) + 1  # the last ones may have no link left
    for k, planes in enumerate(fabric.plane_classes):  # planes share their accelerators and nothing else
        own = links["plane"] == planes[0]
        num_planes[own] = len(planes)
        for side in (tail, head):
            side[own & (side >= num)] += k * last
    capacity = links["bandwidth_bytes_per_s"] * num_planes / fabric.injection_bandwidth_bytes_per_s
    num_vertices = last * len(fabric.plane_classes)
    keys, which = np.unique(tail * num_vertices + head, return_inverse=True)
    capacity = np.bincount(which, weights=capacity, minlength=len(keys))
    tail, head = np.divmod(keys, num_vertices)
    forwards = np.ones(num_vertices, dtype=bool)
    forwards[:num] = bool(fabric.core.accelerators_forward)
    switch_of, is_inner = _switches(tail, head, forwards, num)
    sent, received = (np.bincount(side, weights=share, minlength=num) for side in (src, dst))
    bound = np.inf
    for near, load in ((tail, sent), (head, received)):
        ports = ~is_inner & (near < num)
        loads = load[near[ports]]
        bound = min(bound, float((capacity[ports][loads > 0] / loads[loads > 0]).min(initial=np.inf)))
    source, target = switch_of[src], switch_of[dst]
    apart = source != target
    pairs, which = np.unique(target[apart] * num_vertices + source[apart], return_inverse=True)
    demand = np.bincount(which, weights=share[apart], minlength=len(pairs))
    target, source = np.divmod(pairs, num_vertices)
    return _Network(
        tail[is_inner], head[is_inner], capacity[is_inner], forwards, source, target, np.round(demand, _DIGITS), bound
    )


def _switches(tail: np.ndarray, head: np.ndarray, forwards: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what stands for every accelerator, and which links are not between one and what stands for it.

    An accelerator with one neighbour in each direction, the same switch, is merged into it.
    """
    switch_of = np.arange(num)
    ways = [np.bincount(side[side < num], minlength=num) for side in (tail, head)]
    out, into = (np.full(num, -1, np.int64) for _ in range(2))
    out[tail[tail < num]] = head[tail < num]
    into[head[head < num]] = tail[head < num]
    is_merged = (ways[0] == 1) & (ways[1] == 1) & (out == into) & (out >= num) & ~forwards[:num]
    switch_of[is_merged] = out[is_merged]
    merged = np.append(is_merged, np.zeros(len(forwards) - num, dtype=bool))
    return switch_of, ~(merged[tail] | merged[head])


def _solve(network: _Network) -> float:
    """Return the largest factor of the demands that the links carry."""
    from scipy import sparse
    from scipy.optimize import linprog

    equal, limits = _rows(network)
    is_equal = np.arange(equal.shape[0] + limits.shape[0]) < equal.shape[0]
    right = np.concatenate([np.zeros(equal.shape[0]), network.capacity])
    matrix, right, is_equal, last = _reduced(sparse.vstack([equal, limits], format="csr"), right, is_equal)
    count = matrix.shape[1]
    if count > MAX_SOLVED:
        raise ConfigError(
            f"routing='optimal' is a program of {count:,} variables here, which symmetry leaves; at most {MAX_SOLVED:,}"
            " are solved: take a smaller fabric, or failures and patterns that leave more of it alike"
        )
    objective = np.zeros(count)
    objective[last] = -1
    bounds = [(0, 1) if k == last else (0, None) for k in range(count)]
    found = linprog(
        objective, A_eq=matrix[is_equal], b_eq=right[is_equal], A_ub=matrix[~is_equal], b_ub=right[~is_equal],
        bounds=bounds, method="highs-ipm" if count > _INTERIOR else "highs",
    )  # fmt: skip
    if found.status != 0:
        raise ConfigError(f"routing='optimal': HiGHS ends with: {found.message}")
    return float(found.x[last])


def _rows(network: _Network) -> tuple[Any, Any]:
    """Return the rows of conservation and of capacity, sparse (rows, variables), the factor as the last variable."""
    from scipy import sparse

    targets = np.unique(network.target)
    num_links, num_vertices = len(network.tail), len(network.forwards)
    _check_variables(len(targets), num_links)
    place = np.repeat(np.arange(len(targets)), num_links)
    target = targets[place]
    link = np.tile(np.arange(num_links), len(targets))
    tail, head = network.tail[link], network.head[link]
    kept = (tail != target) & (network.forwards[head] | (head == target))
    place, target, link, tail, head = (one[kept] for one in (place, target, link, tail, head))
    count = len(link)
    inner = head != target
    rows = np.concatenate([place * num_vertices + tail, (place * num_vertices + head)[inner]])
    columns = np.concatenate([np.arange(count), np.arange(count)[inner]])
    signs = np.concatenate([np.ones(count), -np.ones(int(inner.sum()))])
    wanted = np.searchsorted(targets, network.target) * num_vertices + network.source
    rows, columns = np.concatenate([rows, wanted]), np.concatenate([columns, np.full(len(wanted), count)])
    signs = np.concatenate([signs, -network.demand])
    numbers, rows = np.unique(rows, return_inverse=True)
    equal = sparse.csr_matrix((signs, (rows, columns)), shape=(len(numbers), count + 1))
    limits = sparse.csr_matrix((np.ones(count), (link, np.arange(count))), shape=(num_links, count + 1))
    return equal, limits


def _reduced(matrix: Any, right: np.ndarray, is_equal: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, int]:
    """Return (matrix, right-hand sides, which are equations, the factor's column) with what is alike merged."""
    from scipy import sparse

    row_class, column_class = _colours(matrix, right, is_equal)
    last = int(column_class[-1])
    row_of, column_of = (np.unique(one, return_index=True)[1] for one in (row_class, column_class))
    by_columns = matrix @ _indicator(column_class)
    by_rows = matrix.T.tocsr() @ _indicator(row_class)
    for sums, first, classes in ((by_columns, row_of, row_class), (by_rows, column_of, column_class)):
        if abs(sums - sums[first[classes]]).max() > _ALIKE:  # classes that only look alike: take all as they are
            return matrix, right, is_equal, matrix.shape[1] - 1
    return sparse.csr_matrix(by_columns[row_of]), right[row_of], is_equal[row_of], last


def _indicator(classes: np.ndarray) -> Any:
    from scipy import sparse

    count = len(classes)
    return sparse.csr_matrix((np.ones(count), (np.arange(count), classes)), shape=(count, int(classes.max()) + 1))


def _colours(matrix: Any, right: np.ndarray, is_equal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return classes of rows and of columns that colour refinement cannot tell apart, numbered from 0.

    Colours are 64-bit hashes: a collision would merge too much, which ``_reduced`` would find.
    """
    by_row, by_column = matrix.tocsr(), matrix.tocsc()
    factor = np.zeros(matrix.shape[1], np.uint64)
    factor[-1] = 1
    rows = _mixed(_number(right) * np.uint64(2) + is_equal.astype(np.uint64))
    columns = _mixed(factor)
    signs = [_mixed(_number(one.data) + np.uint64(7)) for one in (by_row, by_column)]
    num_classes = 0
    while True:
        rows = _step(rows, columns, by_row, signs[0])
        columns = _step(columns, rows, by_column, signs[1])
        classes = [np.unique(one, return_inverse=True)[1] for one in (rows, columns)]
        found = sum(int(one.max()) + 1 for one in classes)
        if found == num_classes:
            return classes[0], classes[1]
        num_classes = found


def _step(own: np.ndarray, others: np.ndarray, matrix: Any, signs: np.ndarray) -> np.ndarray:
    """Return new colours: of the own one, and of the sum over what stands in the row or column."""
    entries = _mixed(others[matrix.indices] ^ signs)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries, dtype=np.uint64)])
    return _mixed(own + _mixed(sums[matrix.indptr[1:]] - sums[matrix.indptr[:-1]]))


def _number(values: np.ndarray) -> np.ndarray:
    """Return equal numbers for values that are equal to many digits."""
    return np.unique(np.round(values, _DIGITS), return_inverse=True)[1].astype(np.uint64)


def _mixed(values: np.ndarray) -> np.ndarray:
    """Return SplitMix64's hash of each number."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
