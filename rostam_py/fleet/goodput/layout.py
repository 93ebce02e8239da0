"""Layout: which servers of a job fail together, and how many replicas go with them.

Example:
    units_of([[0, 0, 1, 1], [2, 2, 3, 3]])      # two replicas of two servers each: ((0, 1), (2, 3))
    units_of([[0, 1], [0, 1]])                  # each server holds ranks of both replicas: ((0, 1),)
"""

from collections.abc import Sequence

import numpy as np

from rostam_py.plan.plan import Plan
from rostam_py.plan.ranks import accelerators_of_replicas


def servers_of_replicas(plan: Plan, accelerators_per_server: int) -> np.ndarray:
    """Return the server of each rank of each data-parallel replica, (dp, ranks of a replica), numbered from 0 on."""
    at = accelerators_of_replicas(plan.strategy, plan.machine) // accelerators_per_server
    numbers: np.ndarray = np.unique(at, return_inverse=True)[1].reshape(at.shape)
    return numbers


def units_of(servers: Sequence[Sequence[int]] | np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Return the groups of servers whose faults break the same replicas, each in order.

    Model: a server breaks the replicas that have a rank on it, and a broken replica frees its other servers, so that
        replicas which share a server go together. Groups of different sizes are one: a fault then counts as breaking
        all of them, which errs towards less goodput.
    Args: servers: of each rank by replica, (dp, ranks), numbered from 0 on.
    """
    import networkx  # 0.2 s

    at = np.asarray(servers)
    count, dp = int(at.max()) + 1, len(at)
    replica = np.repeat(np.arange(dp), at.shape[1])
    graph = networkx.Graph(zip(at.ravel().tolist(), (count + replica).tolist(), strict=True))
    parts = [sorted(part) for part in networkx.connected_components(graph)]
    units = sorted(tuple(node for node in part if node < count) for part in parts)
    sizes = {(len(part), sum(node >= count for node in part)) for part in parts}
    return tuple(units) if len(sizes) == 1 else (tuple(range(count)),)
