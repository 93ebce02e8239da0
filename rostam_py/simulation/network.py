"""What simulations share: routers over a fabric, fidelities, names of links, the unit of hierarchical collectives."""

from typing import Any

import numpy as np

from rostam_py.errors import ConfigError

DEFAULT_UNIT = 8  # accelerators of a server where the fabric has neither servers nor leaves


def make_router(fabric: Any, routing: str, *, has_events: bool = False) -> Any:
    """Return the core's router; links that may change on their own are not bundled."""
    return fabric.router(routing, enable_bundling=not has_events)


def check_fidelity(fidelity: str, allowed: tuple[str, ...]) -> None:
    """Raise ConfigError unless ``fidelity`` is allowed here."""
    if fidelity not in allowed:
        raise ConfigError(f"fidelity is {fidelity!r}; it must be one of: {', '.join(allowed)}")


def unit_size(fabric: Any) -> int:
    """Return how many consecutive accelerators are close: a server, a leaf, a torus row, else 8."""
    config = fabric.config
    if hasattr(config, "server_size"):
        return int(config.server_size)
    if hasattr(config, "leaf_ports"):
        return int(config.leaf_ports[0])
    dims = getattr(config, "dims", None)
    return int(dims[-1]) if dims else DEFAULT_UNIT


def group_size(num_ranks: int, unit: int) -> int:
    """Return the group size of a hierarchical collective: the largest divisor of the ranks that is <= unit."""
    return max(size for size in range(1, min(unit, num_ranks) + 1) if num_ranks % size == 0)


def link_name(fabric: Any, links: np.ndarray, link: int) -> str:
    """Return "source -> destination" of a directed link, naming accelerators and switches."""
    count = fabric.num_accelerators
    ends = (int(links["src"][link]), int(links["dst"][link]))
    names = [f"accelerator {v}" if v < count else f"switch {v - count}" for v in ends]
    return " -> ".join(names)
