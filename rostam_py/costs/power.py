"""What kernels draw above an idle device, and the clock at which a device that runs them meets its limit of power.

Model: power is managed over tens of milliseconds, kernels take one or less, so that a limit holds for the mean over a
step. Large products draw more than it while they run, kernels bound by memory, waits and idle time less. The clock
settles where the mean is the limit: no kernel then draws more than some level above idle, the same for all, and each
that would takes ``(its power / level) ** exponent`` times as long. A product that is held alone is at the level of the
limit itself; one that has the device to itself for half the time is slowed less.
What a kernel draws at its tabled time: arithmetic its energy for each FLOP, as held by products and attention at the
limit, and above the level of the limit more, by the exponent, as higher clocks take higher voltages; kernels that
stream what a copy draws, by the share of its bandwidth.
Ignores chips that differ (3% on one server), temperature, power between servers of a rack, and the clock of memory.
Source: own, with the rates of ``calibration/measured/power_at_limit.csv`` and ``held_h100_own.csv``;
docs/calibration.md has what it says of rows that it was not fitted on.
"""

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from rostam_py.costs.accelerators import ACCELERATORS, Accelerator
from rostam_py.costs.model import CostModel, KernelCall
from rostam_py.errors import ConfigError

POWER = Path(__file__).parent / "tables" / "power.json"
_ALIKE = {"fp16": "bf16", "mxfp8": "fp8"}  # whose energy a precision takes
STEPS, PRODUCTS = "steps", "products"  # how times follow a limit: held as a whole, or by rates of products alone
_STEPS = 60  # of bisection: to 2**-60 of the range of levels
_LEAST = 1e-3  # of what the limit leaves above idle: where levels are looked for
# Bytes that memory moves for each that NCCL sends: read, stored and read again (NVIDIA/nccl, issue 1428: "at least 2x",
# with user data 3x).
_MOVED_FOR_SENT = 3.0


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Power of one accelerator.

    limit_w: of all of it; idle_w: drawn by a device that runs nothing [W]. held_w: above idle, of a kernel that is held
    alone where it was measured [W]. exponent: of power above idle in the rate of what is slowed. joules_per_flop: by
    precision. attention: kind of attention kernel to its multiple of that, ``of_programs`` of named programs.
    stream_w: above idle, of a copy [W]. stream_bytes_per_s: that it moves.
    """

    limit_w: float
    idle_w: float
    held_w: float
    exponent: float
    joules_per_flop: dict[str, float]
    attention: dict[str, float]
    of_programs: dict[str, dict[str, float]]
    stream_w: float
    stream_bytes_per_s: float

    @property
    def spare_w(self) -> float:
        """What the limit leaves above idle [W]."""
        return self.limit_w - self.idle_w

    def messages_j(self, num_bytes: float) -> float:
        """Return the energy above idle of sending bytes [J]: as much as streams take for what memory moves for them."""
        return _MOVED_FOR_SENT * num_bytes * self.stream_w / self.stream_bytes_per_s

    def watts(self, kind: str, program: str, precision: str, flops: float, traffic: float, seconds: float) -> float:
        """Return what a kernel draws above idle while it runs [W].

        Args: kind: of the kernel tables; precision: of the peak, "" of kernels without arithmetic. program: whose
            attention it is. seconds: its tabled time.
        """
        streamed_w = self.stream_w * min(1.0, traffic / seconds / self.stream_bytes_per_s)
        joules = self.joules_per_flop.get(_ALIKE.get(precision, precision), 0.0)
        multiple = self.of_programs.get(program, self.attention).get(kind, 1.0)
        held_w = joules * multiple * flops / seconds
        clocked_w = self.held_w * (held_w / self.held_w) ** (1 / self.exponent) if held_w > self.held_w else held_w
        return max(streamed_w, clocked_w)


def level_w(
    model: PowerModel, seconds: np.ndarray, watts: np.ndarray, idle_s: float, other_j: float = 0.0
) -> float | None:
    """Return the most that a kernel of a step draws above idle at the clock that its device settles at [W].

    Model: the highest level L for which sum(min(watts, L) x t) + other_j <= (limit - idle) x (sum(t) + idle_s), where
        t = seconds x max(1, watts / L) ** exponent.
    Args:
        seconds, watts: of the kernels of one iteration, float arrays (kernels,), watts above idle.
        idle_s: of the iteration, when none runs.
        other_j: above idle, of concurrent work.
    Returns: None where the device stays below its limit.
    Raises: ConfigError for a limit that an idle device would be beyond.
    """
    spare_w = model.spare_w

    def excess_j(level: float) -> float:
        drawn = np.minimum(watts, level)
        longer = seconds * np.maximum(1.0, watts / level) ** model.exponent
        return float(np.sum((drawn - spare_w) * longer)) + other_j - spare_w * idle_s

    high = float(watts.max(initial=0.0))
    if not high:
        return None
    if spare_w <= 0:
        raise _too_low(model)
    if excess_j(high) <= 0:
        return None
    low = _LEAST * spare_w
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess_j(middle) <= 0 else (low, middle)
    return low


def check_limit(accelerator: Accelerator) -> None:
    """Raise ConfigError for a limit of power below what an idle accelerator draws, where that is known."""
    model = power_model(accelerator)
    if model is not None and model.spare_w <= 0:
        raise _too_low(model)


def _too_low(model: PowerModel) -> ConfigError:
    return ConfigError(
        f"machine.accelerator_watts, or the accelerator's own limit, is {model.limit_w:g} W; it must be above the"
        f" {model.idle_w:g} W that an idle accelerator draws"
    )


def slowdown(model: PowerModel, watts: float, level: float) -> float:
    """Return how many times as long a kernel takes at a level of power. Args: watts: its own, above idle."""
    return max(1.0, watts / level) ** model.exponent


def power_model(accelerator: Accelerator) -> PowerModel | None:
    """Return the power of an accelerator, None where its limit is not known or no part of its bf16 peak was measured.

    Model: a die's parts share all of it but the limit and the bandwidth of their memory.
    """
    if not accelerator.watts:
        return None
    for name, found in _dies().items():
        peak = ACCELERATORS[name].peak_flops_per_s["bf16"]
        if accelerator.peak_flops_per_s.get("bf16") == peak:
            return PowerModel(
                limit_w=accelerator.watts, idle_w=found["idle_w"], held_w=found["held_w"], exponent=found["exponent"],
                joules_per_flop=found["joules_per_flop"], attention=found["attention"],
                of_programs=found["attention_of_programs"], stream_w=found["stream_w"],
                stream_bytes_per_s=found["stream_share"] * accelerator.memory_bandwidth_bytes_per_s,
            )  # fmt: skip
    return None


@functools.cache
def _dies() -> dict[str, dict[str, Any]]:
    return {one["accelerator"]: one for one in json.loads(POWER.read_text())["dies"]}


@runtime_checkable
class PoweredCost(Protocol):
    """A cost model that knows what its kernels draw."""

    def watts(self, call: KernelCall) -> float:
        """Return what the kernel draws above an idle device while it runs [W], 0 where it is not known."""
        ...

    def follows_limit(self) -> str:
        """Return how times follow the accelerator's limit of power: as STEPS, as PRODUCTS, "" not at all."""
        ...


def watts_of(cost: CostModel, call: KernelCall) -> float:
    """Return what a kernel draws above idle [W], 0 for a cost model that knows times alone."""
    return cast(PoweredCost, cost).watts(call) if _is_powered(type(cost)) else 0.0


def limit_notes(cost: CostModel, accelerator_watts: float | None) -> list[str]:
    """Return what a reader should know of a limit of power that a machine sets [W], None where it sets none."""
    how = cast(PoweredCost, cost).follows_limit() if _is_powered(type(cost)) else ""
    if accelerator_watts is None or how == STEPS:
        return []
    if how == PRODUCTS:
        return [
            f"machine.accelerator_watts is {accelerator_watts:g}: matrix products slow down to the rates that they"
            " sustain alone at this limit; other kernels do not, since their power is not known"
        ]
    return [
        f"machine.accelerator_watts is {accelerator_watts:g}, but times do not follow it, because the power of kernels"
        " is not known here. The energy follows it, and is therefore wrong. cost=calibrated cost.clocks=sustained knows"
        " the power of kernels on Hopper and Blackwell, and in part on A100"
    ]


@functools.cache
def _is_powered(of: type) -> bool:
    """Say whether a class is a PoweredCost, once, as ``limits_of`` does."""
    return issubclass(of, PoweredCost)
