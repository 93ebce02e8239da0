"""Packages that need a GPU to be imported, replaced by stubs; the kernels that a program launches through them are
recorded by name.
"""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils import _triton

_VERSION = "3.5.0"  # programs compare triton's with what they need
_DECORATORS = ("jit", "autotune", "heuristics")
Launched = Callable[[str, tuple[Any, ...]], None]  # name of a kernel, its arguments


class _Kernel:
    """A kernel of a stubbed package: launching it tells its name and arguments."""

    def __init__(self, function: Any, launched: Launched) -> None:
        self.__name__ = getattr(function, "__name__", "kernel")
        self._launched = launched

    def __getitem__(self, grid: Any) -> "_Kernel":
        return self

    def __call__(self, *arguments: Any, **others: Any) -> None:
        self._launched(self.__name__, (*arguments, *others.values()))


class _Anything:
    """Whatever a program takes from a stubbed package at import."""

    def __init__(self, name: str, launched: Launched) -> None:
        self.__name__ = name
        self._launched = launched

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(f"{self.__name__}.{name}", self._launched)

    def __call__(self, *arguments: Any, **others: Any) -> Any:
        leaf = self.__name__.rpartition(".")[2]
        if leaf in _DECORATORS:
            if arguments and isinstance(arguments[0], _Kernel | types.FunctionType):
                return self._kernel(arguments[0])
            return self._kernel
        if leaf == "cdiv":
            return -(-arguments[0] // arguments[1])
        if leaf == "next_power_of_2":
            return 1 << (arguments[0] - 1).bit_length()
        return _Anything(f"{self.__name__}()", self._launched)

    def _kernel(self, function: Any) -> _Kernel:
        return function if isinstance(function, _Kernel) else _Kernel(function, self._launched)

    def __getitem__(self, key: Any) -> "_Anything":
        return self

    def __or__(self, other: Any) -> "_Anything":
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)


class _Module(types.ModuleType):
    """A module of a stubbed package."""

    __version__ = _VERSION

    def __init__(self, name: str, launched: Launched) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self._launched = launched

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(f"{self.__name__}.{name}", self._launched)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of stubbed packages."""

    def __init__(self, packages: Sequence[str], launched: Launched) -> None:
        self._packages, self._launched = frozenset(packages), launched

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.partition(".")[0] in self._packages:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Module(spec.name, self._launched)

    def exec_module(self, module: Any) -> None:
        """Nothing is to be run."""


def install_stubs(packages: Sequence[str], launched: Launched) -> None:
    """Let packages be imported without being there; torch itself finds no triton.

    Args: packages: top-level names. launched: is told of kernels that are decorated as triton's.
    """
    for name in list(vars(_triton)):
        if name.startswith("has_triton"):
            setattr(_triton, name, lambda *arguments, **others: False)
    sys.meta_path.insert(0, _Finder(packages, launched))
