"""What a case is: a call to measure, the limit on its CPU seconds, and the figures asked of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# By name, so that a case measures the same work whatever the default becomes.
RINGS = {"all_reduce": "ring", "all_gather": "ring", "reduce_scatter": "ring"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One measured call.

    name: unique; the part before ":" is its family. size: what growth is measured against within the
        family, 0 for a case alone. limit: what issue or design asks for, for the reader only, where it is no number
        below. prepare(**arguments) returns the measured call, which returns figures worth a column.
    target_cpu_s, target_bytes: the most that the call may take, 0 for no target. least: figures that the call returns
        and the least that each should be.
    cpu_limit_s: CPU seconds after which the call is ended and reported as "more than".
    """

    name: str
    prepare: Callable[..., Callable[[], dict[str, Any]]]
    arguments: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    limit: str = ""
    target_cpu_s: float = 0.0
    target_bytes: float = 0.0
    least: dict[str, float] = field(default_factory=dict)
    cpu_limit_s: int = 600

    @property
    def family(self) -> str:
        """The cases whose growth with size is compared."""
        return self.name.partition(":")[0]
