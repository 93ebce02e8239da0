"""What simulations share: routers over a fabric, names of links, the unit of hierarchical collectives."""

from typing import Any

import numpy as np

from rostam_py.collectives.rank_groups import group_size, unit_size
from rostam_py.errors import ConfigError
from rostam_py.fabrics.circuits import with_circuits_for
from rostam_py.fabrics.traffic import schedule_traffic

__all__ = [
    "group_size", "link_name", "list_of", "make_router", "unit_size", "with_circuits_for_collective",
]  # fmt: skip


def make_router(fabric: Any, routing: str, *, has_events: bool = False) -> Any:
    """Return the core's router; links that may change on their own are not bundled."""
    return fabric.router(routing, enable_bundling=not has_events)


def with_circuits_for_collective(fabric: Any, members: np.ndarray, run: tuple[Any, ...], seed: int) -> Any:
    """Return ``fabric`` with circuits for one collective where it needs circuits and has none.

    Args: members: accelerators in rank order. run: what ``schedule_traffic`` takes.
    """
    if not fabric.is_circuit_switched or fabric.circuits is not None:
        return fabric
    src, dst, num_bytes = schedule_traffic(*run)
    return with_circuits_for(fabric, members[src], members[dst], num_bytes, seed=seed)


def list_of(key: str, values: Any, count: int, what: str, *, instead: str = "") -> list[Any]:
    """Return a sequence as a list of ``count`` entries.

    Args: what: the entries are for, in the plural. instead: the end of the message: what else is allowed.
    Raises: ConfigError for text, for what is no sequence, and for another number of entries than of ``what``.
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
    """Return "source -> destination" of a directed link, naming accelerators and switches."""
    return " -> ".join(fabric.vertex_name(int(links[end][link])) for end in ("src", "dst"))
