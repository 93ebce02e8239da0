"""Registries of named components, filled with lazy ``"module:attribute"`` strings.

Example:
    FABRICS = Registry("fabric")
    FABRICS.add("torus", "rostam_py.fabrics.torus:Torus")
    FABRICS.get("torus")          # imports the module now
"""

import difflib
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rostam_py.errors import ConfigError, UnknownNameError


class Registry:
    """Map names of one kind of component to the objects that implement them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._targets: dict[str, str] = {}

    def add(self, name: str, target: str) -> None:
        """Register ``name`` for the object at ``target`` ("package.module:attribute").

        Raises: ConfigError if the name is taken by another target.
        """
        if self._targets.get(name, target) != target:
            raise ConfigError(f"{self.kind} {name!r} is already registered as {self._targets[name]}")
        self._targets[name] = target

    def get(self, name: str) -> Any:
        """Import and return the object registered as ``name``.

        Raises: UnknownNameError, listing the registered names and the nearest one.
        """
        if not isinstance(name, str):
            raise UnknownNameError(
                f"{self.kind} is {name!r}; it must be a name, registered: {', '.join(sorted(self._targets))}"
            )
        if name not in self._targets:
            near = difflib.get_close_matches(name, self._targets, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise UnknownNameError(
                f"unknown {self.kind} {name!r}{hint}; registered: {', '.join(sorted(self._targets))}"
            )
        module, _, attribute = self._targets[name].partition(":")
        # A run asks thousands of times: import_module takes 20 times as long as a look at imported modules.
        loaded = sys.modules.get(module) or importlib.import_module(module)
        return getattr(loaded, attribute)

    def name_of(self, is_it: Callable[[Any], bool], module: str) -> str:
        """Return the name of the object that a test accepts.

        Args: module: where the object is from; names registered from there are imported and tried first.
        Raises: ConfigError if there is none.
        """
        for name in sorted(self._targets, key=lambda name: self._targets[name].partition(":")[0] != module):
            if is_it(self.get(name)):
                return name
        raise ConfigError(f"no {self.kind} is registered from {module}")

    def names(self) -> list[str]:
        """Return the registered names, sorted."""
        return sorted(self._targets)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._targets

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())
