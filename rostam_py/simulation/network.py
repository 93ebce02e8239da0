"""What simulations share: routers over a fabric, names of links, circuits of one collective."""

from typing import Any

import numpy as np

from rostam_py.collectives.rank_groups import ScheduleKey
from rostam_py.errors import ConfigError
from rostam_py.fabrics.circuits import with_circuits_for
from rostam_py.simulation.engines import walks_packets


def make_router(fabric: Any, routing: str, *, has_events: bool = False, fidelity: str | None = None) -> Any:
    """Return the core's router; links that may change on their own, or that packets take, are not bundled."""
    is_apart = has_events or (fidelity is not None and walks_packets(fidelity))
    return fabric.router(routing, enable_bundling=not is_apart)


def with_circuits_for_collective(fabric: Any, members: np.ndarray, key: ScheduleKey, num_bytes: int, seed: int) -> Any:
    """Return ``fabric`` with circuits for one collective where it needs circuits and has none.

    Args: members: accelerators in the rank order of the schedule ``key``.
    """
    if not fabric.is_circuit_switched or fabric.circuits is not None:
        return fabric
    src, dst, sizes = key.traffic(num_bytes)
    return with_circuits_for(fabric, members[src], members[dst], sizes, seed=seed)


def list_of(key: str, values: Any, count: int, what: str, *, instead: str = "") -> list[Any]:
    """Return a sequence as a list of ``count`` entries.

    Args: what: the entries are for, in the plural. instead: the end of the message: what else is allowed.
    Raises: ConfigError for text, anything except a sequence, and another number of entries than of ``what``.
    """
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise ConfigError(
            f"{key} is {values!r}; it must be a list of {count} entries, one for each of the {what}{instead}"
        )
    entries = list(values)
    if len(entries) != count:
        raise ConfigError(f"{key} has {len(entries)} entries for {count} {what}; give one for each{instead}")
    return entries


def link_name(fabric: Any, links: np.ndarray, link: int) -> str:
    """Return "source -> destination" of a directed link, naming accelerators and switches, and planes that differ."""
    ends = " -> ".join(fabric.vertex_name(int(links[end][link])) for end in ("src", "dst"))
    return f"{ends} (plane {links['plane'][link]})" if len(fabric.plane_classes) > 1 else ends
