"""KernelLimits: what bounds a kernel's time, so that a study may ask what another machine would make of it.

Example:
    limits = limits_of(cost, call)                       # None for cost models that know times alone
    limits.duration_s(Speeds(arithmetic=1.1))            # on an accelerator of 10% more peak

Invariant: ``limits.duration_s(Speeds())`` is ``cost.duration_s(call)``, but for rounding.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, cast, runtime_checkable

from rostam_py.costs.families import op_family
from rostam_py.costs.model import CostModel, KernelCall

# What a kernel's time may rest on; no measurement of its kind stands behind a basis that ends in the first.
UNVERIFIED = "unverified"
BY_ROOFLINE = f"by roofline, {UNVERIFIED}"


@dataclass(frozen=True, slots=True)
class Speeds:
    """Factors on what kernels go by, 1.1 being 10% better: rates are multiplied, times divided.

    arithmetic: peaks of all precisions. memory: memory bandwidth. fixed: times that neither rate shortens. floor: the
    least duration of a kernel. families: of a family's efficiency; 1 where it is not named.
    """

    arithmetic: float = 1.0
    memory: float = 1.0
    fixed: float = 1.0
    floor: float = 1.0
    families: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Residual:
    """How far predicted times of a kind of kernels are from measured ones, as shares of the measured time.

    signed: mean error, above 0 where predictions are too slow. absolute: mean absolute error. spread: largest over
    smallest time of sources that measured the same, less 1.
    """

    signed: float
    absolute: float
    spread: float = 0.0

    @property
    def deviation(self) -> float:
        """What is left of the errors about their mean, and half of the sources' spread, as independent errors."""
        about_mean = math.sqrt(max(0.0, self.absolute**2 - self.signed**2))
        return math.hypot(about_mean, self.spread / 2)

    @property
    def low(self) -> float:
        """By what share the true time may lie below the predicted one."""
        return min(max(0.0, self.deviation + self.signed), 1.0)

    @property
    def high(self) -> float:
        """By what share the true time may lie above the predicted one."""
        return max(0.0, self.deviation - self.signed)


# Of the roofline against all rows of the shipped kernel tables, the mean over their series; a test computes it anew.
ROOFLINE_RESIDUAL = Residual(signed=-0.20, absolute=0.25)


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """A kernel's time as max(arithmetic + its fixed time, memory + its fixed time, floor), all in seconds.

    family: of ops, as efficiencies are given by. basis: what the time rests on, in words. residual: its error where it
    is known. is_verified: it rests on measurements of this kind of kernel on this accelerator.
    """

    family: str
    arithmetic_s: float
    memory_s: float
    arithmetic_fixed_s: float = 0.0
    memory_fixed_s: float = 0.0
    floor_s: float = 0.0
    basis: str = ""
    residual: Residual | None = None
    is_verified: bool = False

    def duration_s(self, speeds: Speeds) -> float:
        """Return the kernel's duration at other speeds [s]; an efficiency divides all of it except the floor."""
        arithmetic_s = self.arithmetic_s / speeds.arithmetic + self.arithmetic_fixed_s / speeds.fixed
        memory_s = self.memory_s / speeds.memory + self.memory_fixed_s / speeds.fixed
        busy_s = max(arithmetic_s, memory_s) / speeds.families.get(self.family, 1.0)
        return max(busy_s, self.floor_s / speeds.floor)

    def stretched(self, factor: float) -> "KernelLimits":
        """Return the limits of a kernel that takes ``factor`` times as long."""
        return replace(
            self, arithmetic_s=self.arithmetic_s * factor, memory_s=self.memory_s * factor,
            arithmetic_fixed_s=self.arithmetic_fixed_s * factor, memory_fixed_s=self.memory_fixed_s * factor,
            floor_s=self.floor_s * factor,
        )  # fmt: skip


@runtime_checkable
class LimitedCost(Protocol):
    """A cost model that knows what bounds its kernels."""

    def limits(self, call: KernelCall) -> KernelLimits:
        """Return what bounds the kernel's duration."""
        ...


def limits_of(cost: CostModel, call: KernelCall) -> KernelLimits | None:
    """Return what bounds a kernel, None for a cost model that knows times alone."""
    return cast(LimitedCost, cost).limits(call) if _is_limited(type(cost)) else None


@functools.cache
def _is_limited(of: type) -> bool:
    """Say whether a class is a LimitedCost, once: asking a protocol takes as long as timing a kernel."""
    return issubclass(of, LimitedCost)


def family_of(call: KernelCall) -> str:
    """Return the family of a kernel's main op."""
    return op_family(call.ops[0].op_type, call.ops[0].role)
