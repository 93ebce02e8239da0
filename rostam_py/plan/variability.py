"""Variability: how much alike parts of a machine differ, and a kernel from run to run."""

from dataclasses import dataclass, field
from typing import Any

from rostam_py.checks import is_integer
from rostam_py.errors import ConfigError
from rostam_py.units import parse_time

MAX_DEVIATION = 0.5  # a factor of mean 1 that varies by more is a failing part, not a slow one
_VARIED = ("devices", "links", "kernels")


@dataclass(kw_only=True)
class Variability:
    """How much alike parts of a machine differ; 0, the default, is not at all.

    devices: relative standard deviation of the accelerators' compute times, each the same in all of a sample (a number,
        or text such as "5%"). links: of the time that a byte takes on each cable, likewise. kernels: of the time of
        each run of each kernel. distribution: of all factors, whose mean is 1.
    samples: fleets that are drawn, each simulated for a step. max_cpu: refuse what is predicted to take longer.
    """

    devices: Any = 0.0
    links: Any = 0.0
    kernels: Any = 0.0
    distribution: str = "lognormal"
    samples: int = 20
    max_cpu: Any = field(default="10 min", metadata={"unit": "time"})

    def __post_init__(self) -> None:
        for key in _VARIED:
            setattr(self, key, _deviation(f"variability.{key}", getattr(self, key)))
        if not is_integer(self.samples) or not 1 <= self.samples <= 100_000:
            raise ConfigError(f"variability.samples is {self.samples!r}; it must be an integer from 1 to 100,000")
        self.samples = int(self.samples)
        if parse_time(self.max_cpu, "variability.max_cpu") <= 0:
            raise ConfigError(f"variability.max_cpu is {self.max_cpu!r}; it must be a time > 0")

    @property
    def is_none(self) -> bool:
        """Whether nothing varies."""
        return not any(getattr(self, key) for key in _VARIED)

    @property
    def max_cpu_s(self) -> float:
        """``max_cpu`` [s]."""
        return parse_time(self.max_cpu, "variability.max_cpu")


def _deviation(key: str, value: Any) -> float:
    """Return a relative standard deviation: a number, or text in percent."""
    allowed = f"it must be a number from 0 to {MAX_DEVIATION}, or a percentage up to {MAX_DEVIATION:.0%}"
    number = value
    if isinstance(value, str):
        text = value.strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError as error:
            raise ConfigError(f"{key} is {value!r}; {allowed}") from error
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= MAX_DEVIATION:
        raise ConfigError(f"{key} is {value!r}; {allowed}")
    return float(number)
