"""Replacing names of torch: wherever a module of it has taken them, so that copies of ``from x import y`` follow."""

import sys
from typing import Any


def replace(original: Any, name: str, made: Any, package: str = "torch") -> None:
    """Put ``made`` in place of ``original`` in every loaded module of a package that has it under ``name``."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if getattr(module, "__name__", "").split(".")[0] == package and names.get(name) is original:
            setattr(module, name, made)


def put(owner: Any, **made: Any) -> None:
    """Set attributes of a module or class of torch, whose own types are others."""
    for name, value in made.items():
        setattr(owner, name, value)
