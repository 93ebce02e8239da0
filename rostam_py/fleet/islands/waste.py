"""Wasted GPUs: those that work and are in no complete tensor-parallel group, mean over time.

Example:
    wasted_share(FaultTrace.read("faults.csv"), "k_hop_ring", tp=32)
"""

import math
from collections.abc import Sequence

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError
from rostam_py.fleet.goodput.faults import FaultTrace
from rostam_py.fleet.islands.islands import Islands
from rostam_py.fleet.islands.names import ISLANDS


def wasted_share(
    faults: FaultTrace,
    islands: Islands | str,
    *,
    tp: int,
    gpus_per_server: int = 8,
    order: Sequence[int] | None = None,
) -> float:
    """Return the mean over the window of working GPUs in no complete group / working GPUs.

    Model: at every moment as many groups as fit, whatever was there before: moving groups takes no time. Moments
        without any working GPU waste nothing.
    Args:
        islands: of ISLANDS by name, or one with parameters of its own.
        tp: GPUs of a group; a multiple or a divisor of gpus_per_server.
        order: the server at each place; None takes them as they are numbered. Trace numbers need say nothing of places.
    Raises: ConfigError for a tp that is neither, or an order that is no permutation.
    Cost: faults x servers.
    """
    kind = ISLANDS.get(islands)() if isinstance(islands, str) else islands
    _check(tp, gpus_per_server)
    place_of = _places(faults.num_servers, order)
    works = [True] * faults.num_servers
    changes = sorted(
        [(start, False, server) for start, _, server in faults.times_down]
        + [(end, True, server) for _, end, server in faults.times_down]
    )
    parts, now = [], 0.0
    for at, is_back, server in [*changes, (faults.window_s, True, -1)]:
        if at > now:
            parts.append((at - now) * _share(kind, works, gpus_per_server, tp))
            now = at
        if server >= 0:
            works[place_of[server]] = is_back
    return math.fsum(parts) / faults.window_s


def _share(kind: Islands, works: list[bool], gpus_per_server: int, tp: int) -> float:
    working = sum(works) * gpus_per_server
    return 1 - kind.num_groups(works, gpus_per_server, tp) * tp / working if working else 0.0


def _check(tp: int, gpus_per_server: int) -> None:
    for key, value in (("tp", tp), ("gpus_per_server", gpus_per_server)):
        if not is_integer(value) or value < 1:
            raise ConfigError(f"{key} is {value!r}; it must be an integer >= 1")
    if tp % gpus_per_server and gpus_per_server % tp:
        raise ConfigError(f"tp is {tp}; it must be a multiple or a divisor of gpus_per_server = {gpus_per_server}")


def _places(num_servers: int, order: Sequence[int] | None) -> list[int]:
    chosen = list(range(num_servers)) if order is None else list(order)
    if sorted(chosen) != list(range(num_servers)):
        raise ConfigError(f"order is {chosen!r}; it must list servers 0 to {num_servers - 1} once each")
    place_of = [0] * num_servers
    for place, server in enumerate(chosen):
        place_of[server] = place
    return place_of
