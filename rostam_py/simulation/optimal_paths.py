"""The best single path of each pair: an integer program, solved by HiGHS.

Example:
    best = optimal_paths(fabric, src=src, dst=dst, time_limit="1 min")
    best.largest_load, best.bound, best.gap
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.extras import Need, require
from rostam_py.fabrics.fabric import Fabric
from rostam_py.simulation.path_choice import AssignedPaths, Pairs
from rostam_py.units import parse_time

_ALIKE = 1e-9


def optimal_paths(
    fabric: Fabric, *, src: Sequence[int], dst: Sequence[int], job: Sequence[int] | None = None,
    time_limit: str | float = "10 min",
) -> AssignedPaths:  # fmt: skip
    """Give every pair one of its shortest paths so that the busiest link carries as few as any assignment allows.

    Model: binary x[pair, path], each pair on one; least L with the sum over each link that any pair has a choice about
        at most L. That is the first layer of the objective of Cohen et al., the least share of the worst job; further
        layers are not sought. A set of pairs that leave or enter over the same n links has L >= its size / n, which
        ends the search early.
    Args: as ``assign_paths``. time_limit: of HiGHS [s or text]; the best that is found by then is returned.
    Returns: with the proven bound and so the gap. Where HiGHS finds nothing in time, what greedy_by_sets gives.
    Raises: as ``assign_paths``; ConfigError where links between switches differ in bandwidth; MissingPackageError
        without scipy.
    Cost: seconds for 400 pairs x 32 paths, about a minute for 900.
    Source: Cohen et al., "Routing for Large ML Models", the ILP optimum of its comparables.
    """
    require(Need("optimal_paths", "optimal"))
    limit = parse_time(time_limit, "time_limit")
    pairs = Pairs.of(fabric, src, dst, job)
    links = pairs.core.links(of_anybody=True)
    least = _degree_bound(pairs.core.links())
    greedy = pairs.assigned(pairs.core.assign("greedy_by_sets"))
    _check_alike(fabric, links)
    if greedy.largest_load <= least:
        return replace(greedy, bound=float(least))
    found, bound = _solve(links, least, limit)
    if found is None:
        return replace(greedy, bound=bound)
    return replace(min((pairs.assigned(found), greedy), key=lambda one: one.largest_load), bound=bound)


def _check_alike(fabric: Fabric, links: Sequence[Sequence[Sequence[int]]]) -> None:
    used = sorted({link for paths in links for path in paths for link in path})
    rates = fabric.router("hash", enable_bundling=False).capacities[used]
    if len(rates) and rates.max() > rates.min() * (1 + _ALIKE):
        raise ConfigError(
            f"optimal_paths counts paths on links, and those between switches have {rates.min():g} to {rates.max():g}"
            " bytes/s here; it is for links that are alike"
        )


def _degree_bound(links: Sequence[Sequence[Sequence[int]]]) -> int:
    """Return the least that the busiest link carries, by the pairs that share all of their first or last links."""
    sets: Counter[frozenset[int]] = Counter()
    for paths in links:
        if not any(paths):
            continue
        sets[frozenset(path[0] for path in paths)] += 1
        sets[frozenset(path[-1] for path in paths)] += 1
    return max((math.ceil(count / len(ends)) for ends, count in sets.items()), default=0)


def _solve(links: Sequence[Sequence[Sequence[int]]], least: int, limit_s: float) -> tuple[list[int] | None, float]:
    """Return the path of each pair, None if none was found in time, and the proven bound on the largest load."""
    from scipy import optimize, sparse

    pair = np.repeat(np.arange(len(links)), [len(paths) for paths in links])
    flat = [path for paths in links for path in paths]
    count = len(flat)
    number = {link: row for row, link in enumerate(sorted({link for path in flat for link in path}))}
    rows = [number[link] for path in flat for link in path]
    columns = np.repeat(np.arange(count), [len(path) for path in flat])
    loads = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(number), count))
    on_links = sparse.hstack([loads, -np.ones((len(number), 1))], format="csr")
    once = sparse.csr_array((np.ones(count), (pair, np.arange(count))), shape=(len(links), count + 1))
    highest = np.append(np.ones(count), len(links))
    found = optimize.milp(
        np.append(np.zeros(count), 1),
        integrality=np.ones(count + 1),
        bounds=optimize.Bounds(np.append(np.zeros(count), least), highest),
        constraints=[optimize.LinearConstraint(on_links, ub=0), optimize.LinearConstraint(once, 1, 1)],
        options={"time_limit": limit_s},
    )
    known = getattr(found, "mip_dual_bound", None)
    bound = max(float(least), math.ceil(known - 1e-6) if known is not None and math.isfinite(known) else 0.0)
    return (None, bound) if found.x is None else (_paths(found.x[:count], links), bound)


def _paths(taken: Any, links: Sequence[Sequence[Sequence[int]]]) -> list[int]:
    starts = np.cumsum([0, *(len(paths) for paths in links)])
    return [int(np.argmax(taken[first:last])) for first, last in zip(starts[:-1], starts[1:], strict=True)]
