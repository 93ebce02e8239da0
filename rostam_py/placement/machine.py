"""Machine: a fabric whose accelerators are all of one type, some of them possibly slow."""

from dataclasses import dataclass, field, replace
from typing import Any

from rostam_py.costs.accelerators import Accelerator, get_accelerator
from rostam_py.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A fabric with accelerators on it.

    fabric: what connects them; it has ``num_accelerators``, ``healthy_accelerators`` and ``name``.
    accelerator: an Accelerator, or the name of a known one.
    slow: accelerator id -> speed factor in (0, 1]; 0.5 computes at half speed (any factor > 0 is legal).
    """

    fabric: Any
    accelerator: Accelerator | str = "a100_80gb"
    slow: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.accelerator, str):
            object.__setattr__(self, "accelerator", get_accelerator(self.accelerator))
        object.__setattr__(self, "slow", {int(k): float(v) for k, v in dict(self.slow).items()})
        for accelerator, factor in self.slow.items():
            if not 0 <= accelerator < self.num_accelerators:
                raise ConfigError(
                    f"machine.slow names accelerator {accelerator}; the fabric has 0 to {self.num_accelerators - 1}"
                )
            if not 0 < factor < float("inf"):
                raise ConfigError(f"machine.slow[{accelerator}] is {factor}; a speed factor must be > 0 and finite")

    @property
    def device(self) -> Accelerator:
        """The accelerator's data sheet."""
        if isinstance(self.accelerator, str):
            return get_accelerator(self.accelerator)
        return self.accelerator

    @property
    def num_accelerators(self) -> int:
        """Accelerators of the fabric, failed ones included."""
        return int(self.fabric.num_accelerators)

    @property
    def healthy_accelerators(self) -> list[int]:
        """Ids of the accelerators that have not failed, ascending."""
        return sorted(int(a) for a in self.fabric.healthy_accelerators)

    def with_slow_accelerators(self, factors: dict[int, float]) -> "Machine":
        """Return this machine with other speed factors for the named accelerators."""
        return replace(self, slow=self.slow | dict(factors))
