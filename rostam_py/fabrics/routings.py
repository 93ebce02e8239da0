"""Routings: how paths are chosen; the core registers them.

Example:
    check_routing("spray")
    routings()["hash"]     # what it is, in one line
"""

import difflib

from rostam_py import _core
from rostam_py.errors import UnknownNameError


def routings() -> dict[str, str]:
    """Return what each registered routing is, in one line, by name."""
    return {name: str(_core.routing_summary(name)) for name in _core.routing_names()}


def check_routing(name: object) -> None:
    """Raise UnknownNameError, with the nearest name and all that are registered, for any other."""
    known = routings()
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UnknownNameError(f"unknown routing {name!r}{hint}; registered: {', '.join(known)}")
