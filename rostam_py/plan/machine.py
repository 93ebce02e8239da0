"""Machine: a fabric whose accelerators are all of one type, some of them possibly slow."""

from dataclasses import dataclass, field, replace
from typing import Any

from rostam_py.checks import is_integer
from rostam_py.costs.accelerators import Accelerator, get_accelerator
from rostam_py.errors import ConfigError
from rostam_py.html import html_pairs
from rostam_py.units import format_bandwidth, format_count, format_size


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
        for accelerator in self.slow:
            if not is_integer(accelerator) or not 0 <= accelerator < self.num_accelerators:
                raise ConfigError(
                    f"machine.slow names accelerator {accelerator!r}; the fabric has 0 to {self.num_accelerators - 1}"
                )
        object.__setattr__(self, "slow", {int(k): float(v) for k, v in dict(self.slow).items()})
        for accelerator, factor in self.slow.items():
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

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the fabric in a line and the accelerator's data sheet."""
        device, rate = self.device, format_bandwidth(self.fabric.injection_bandwidth_bytes_per_s)
        peaks = ", ".join(f"{kind} {format_count(peak)}FLOP/s" for kind, peak in device.peak_flops_per_s.items())
        pairs = {
            "accelerators": f"{self.num_accelerators:,} x {device.name}, {rate} each",
            "memory": f"{format_size(device.memory_bytes)} at {format_size(device.memory_bandwidth_bytes_per_s)}/s",
            "peak": peaks,
            "fabric": self.fabric.describe(),
            "slow": f"{len(self.slow):,} of them" if self.slow else None,
        }
        return html_pairs("machine", pairs)
