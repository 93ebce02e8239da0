"""Routings: how paths are chosen; the core registers them.

Example:
    check_routing("spray")
    routings()["hash"]     # what it is, in one line
    layers_of("layers:8")  # 8
    told_once("layers:08")  # "layers:8"
"""

import difflib

from rostam_py import _core
from rostam_py.errors import UnknownNameError


def routings() -> dict[str, str]:
    """Return what each registered routing is, in one line, by name."""
    return {name: str(_core.routing_summary(name)) for name in _core.routing_names()}


def check_routing(name: object) -> None:
    """Raise UnknownNameError, with the nearest name and all that are registered, for any other.

    Raises: ConfigError for a number that the routing does not take, as in layers:0 or spray:2.
    """
    known = routings()
    if not isinstance(name, str) or name.partition(":")[0] not in known:
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UnknownNameError(f"unknown routing {name!r}{hint}; registered: {', '.join(known)}")
    if ":" in name:
        _core.parse_routing(name)


def base_of(routing: str) -> str:
    """Return the registered name of a routing: layers of layers:8.

    Raises: ConfigError for an unknown one, or a number that it does not take.
    """
    return str(_core.parse_routing(routing)[0])


def layers_of(routing: str) -> int:
    """Return how many layers of forwarding tables a routing has, 0 for one without layers.

    Raises: ConfigError for an unknown one, or a number that it does not take.
    """
    name, number = _core.parse_routing(routing)
    return int(number) if name == "layers" else 0


def told_once(routing: str) -> str:
    """Return the one way to write a registered routing: by its name alone where it has its usual number.

    Raises: ConfigError for a number that it does not take.
    """
    if ":" not in routing:
        return routing
    name, number = _core.parse_routing(routing)
    usual = _core.parse_routing(name)[1]
    return str(name) if number == usual else f"{name}:{number}"
