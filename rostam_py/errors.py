"""Errors that rostam raises; the C++ core's errors map onto these one to one.

A ``ConfigError`` is the user's to mend: its message names the key, the value and the allowed values.
"""

from typing import Any


class RostamWarning(UserWarning):
    """Something suspicious that does not stop the work."""


class RostamError(Exception):
    """Base of every error that rostam raises on purpose."""


class ConfigError(RostamError, ValueError):
    """A setting, argument or file that the user can correct."""


class UnitError(ConfigError):
    """A quantity without a unit, or with an unknown one."""


class UnknownNameError(ConfigError):
    """A name that is not registered; the message lists the names that are."""


class MemoryCapacityError(ConfigError):
    """A plan that needs more memory than an accelerator has.

    memory: what its fullest device needs, as plan.tasks.MemoryBytes; None where only a bound is known.
    """

    def __init__(self, text: str, memory: Any = None) -> None:
        super().__init__(text)
        self.memory = memory


class HostMemoryError(ConfigError, MemoryError):
    """Memory of the computer that simulates ran out; what can be foreseen is a ConfigError before it is taken."""


class DegreeError(ConfigError):
    """Parallelism degrees that do not fit the machine or the batch."""


class TracingError(ConfigError):
    """A module that cannot be traced into an OperatorGraph."""


class MissingPackageError(ConfigError):
    """A command or key whose packages are not installed; the message names the extra of rostam that brings them."""


class NoRouteError(RostamError):
    """Two endpoints that must communicate have no path left between them."""


class DeadlockError(RostamError):
    """Tasks remain but nothing can happen any more."""


class InternalError(RostamError):
    """A broken invariant inside rostam: a bug, never the user's fault."""
