"""Roofline: a kernel takes as long as its arithmetic or its memory traffic, whichever is longer.

Model: duration = max(flops / (peak * e_c(family, flops)), bytes / (bandwidth * e_m(family)), min_kernel_time)
with e_c = e_max(family, device) * t / (t + ramp_time), t = flops / peak: small kernels do not fill
the device. Ignores caches, shapes (only their FLOPs and bytes count) and clock changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rostam_py.costs.accelerators import Accelerator
from rostam_py.costs.families import FAMILIES, MATRIX_FAMILIES, op_family
from rostam_py.costs.limits import BY_ROOFLINE, ROOFLINE_RESIDUAL, KernelLimits, family_of
from rostam_py.costs.masks import run_flops
from rostam_py.costs.model import KernelCall
from rostam_py.costs.precision import VECTOR_PEAK, get_precision
from rostam_py.costs.times import cost_time
from rostam_py.errors import ConfigError
from rostam_py.graph import OperatorGraph

UNVERIFIED = "from memory, unverified"


@dataclass(frozen=True, slots=True)
class Efficiency:
    """A share of a peak that large kernels reach, and where the figure comes from."""

    value: float
    source: str


_TABLE = "github.com/mli/transformers-benchmarks, large square matrix products"
_READING = "one 8192^3 bf16 product read on one such device (torch 2.11, CUDA 13, driver 580)"
# Large matrix products on the matrix units, one figure per device, used for every dtype of those units.
MATMUL_EFFICIENCY = {
    "v100_32gb": Efficiency(0.76, f"95 of 125 TFLOP/s fp16: {_TABLE}"),
    "a100_40gb": Efficiency(0.74, f"as a100_80gb, {UNVERIFIED} for this device"),
    "a100_80gb": Efficiency(0.74, f"230 of 312 TFLOP/s fp16, 116 of 156 tf32: {_TABLE}"),
    "h100_80gb": Efficiency(0.80, f"798 of 989 TFLOP/s: {_READING}, rounded down"),
    "h200_141gb": Efficiency(0.80, f"788 of 989 TFLOP/s: {_READING}"),
}
DEFAULT_MATMUL_EFFICIENCY = Efficiency(0.75, f"assumed near the measured devices (0.74 to 0.80), {UNVERIFIED}")
FP32_MATMUL_EFFICIENCY = Efficiency(0.89, f"14 of 15.7 TFLOP/s fp32 on V100, vector units: {_TABLE}")
# Of the same matrix peak, by family; one figure for all devices.
COMPUTE_EFFICIENCY = {
    "convolution": Efficiency(0.60, f"cuDNN implicit GEMM on ResNet-like layers, {UNVERIFIED}"),
    "attention": Efficiency(
        0.60,
        "fused attention: 50-73% of peak on A100 (FlashAttention-2, arXiv 2307.08691, abstract); "
        "617 of 989 TFLOP/s with cuDNN on H100 (FlashAttention-3, arXiv 2407.08608, head size 128)",
    ),
}
VECTOR_EFFICIENCY = Efficiency(0.50, f"instruction mix without fused multiply-adds halves the rate, {UNVERIFIED}")
_COPY = "device-to-device copies read at 3.0 of 3.35 TB/s (H100) and 4.3 of 4.8 TB/s (H200)"
MEMORY_EFFICIENCY = {
    "matmul": Efficiency(0.90, _COPY),
    "convolution": Efficiency(0.90, _COPY),
    "attention": Efficiency(0.90, _COPY),
    "elementwise": Efficiency(0.90, _COPY),
    "optimizer": Efficiency(0.90, _COPY),
    "reduction": Efficiency(0.80, f"one extra dependent pass over rows in cache, {UNVERIFIED}"),
    "normalization": Efficiency(0.80, f"as reductions, {UNVERIFIED}"),
    "embedding": Efficiency(0.50, f"rows gathered at random, {UNVERIFIED}"),
}
RAMP_TIME = "5 us"
RAMP_SOURCE = (
    f"{_TABLE}: 512^3 and 2048^3 against 8192^3 in fp16 give 3.6 and 15 us on a consumer part; "
    f"for data-centre parts {UNVERIFIED}"
)


class RooflineCost:
    """Time kernels from data-sheet peaks and efficiencies by op family and size.

    Source: Williams, Waterman and Patterson 2009 (the roofline); the constants above, each with its own.
    """

    @dataclass(kw_only=True, slots=True)
    class Config:
        """Settings of the roofline.

        min_kernel_time: minimum duration of a kernel; the default is MODEL B7's (SiP-ML 4.2), 0 for HammingMesh.
        ramp_time: duration at the peak rate for which a matrix kernel reaches half of its best efficiency.
        compute_efficiency, memory_efficiency: mapping of kernel families to efficiencies in (0, 1], which replace the
            built-in figures.
        causal_share: share of attention's FLOPs that take time under a causal mask, in (0, 1]: 1 is the whole score
            matrix, as FLOPs are counted; 0.5 is what fused kernels compute.
        """

        # Text, so that a bare number of the command line stays text without a unit, which is refused.
        min_kernel_time: str = field(default="1 us", metadata={"unit": "time"})
        ramp_time: str = field(default=RAMP_TIME, metadata={"unit": "time"})
        compute_efficiency: Any = field(default_factory=dict)
        memory_efficiency: Any = field(default_factory=dict)
        causal_share: float = 1.0

        def __post_init__(self) -> None:
            for key in ("min_kernel_time", "ramp_time"):
                cost_time(getattr(self, key), key)
            for key in ("compute_efficiency", "memory_efficiency"):
                _check_efficiencies(f"cost.{key}", getattr(self, key))
            if not 0 < self.causal_share <= 1:
                raise ConfigError(f"cost.causal_share is {self.causal_share!r}; it must be in (0, 1]")

        def build(self, *, accelerator: Accelerator, graph: OperatorGraph | None = None) -> "RooflineCost":
            """Return the cost model for ``accelerator``; ``graph`` is not needed."""
            return RooflineCost(self, accelerator)

    def __init__(self, config: Config, accelerator: Accelerator) -> None:
        self.config = config
        self.accelerator = accelerator
        self._min_kernel_s = cost_time(config.min_kernel_time, "min_kernel_time")
        self._ramp_s = cost_time(config.ramp_time, "ramp_time")
        self._used: dict[str, str] = {}

    @property
    def causal_share(self) -> float:
        """Share of attention's FLOPs that its kernels run under a causal mask."""
        return self.config.causal_share

    def duration_s(self, call: KernelCall) -> float:
        """Return the kernel's duration [s].

        Raises: ConfigError if the accelerator has no peak for the precision.
        """
        family = op_family(call.ops[0].op_type, call.ops[0].role)
        compute_s = self._compute_s(family, call)
        memory_s = (call.bytes_read + call.bytes_written) / self.memory_rate(family)
        return max(compute_s, memory_s, self._min_kernel_s)

    def limits(self, call: KernelCall) -> KernelLimits:
        """Return what bounds the kernel's duration; the ramp is a fixed time of its arithmetic."""
        family = family_of(call)
        arithmetic_s, fixed_s = self._compute_s(family, call), 0.0
        if arithmetic_s and family in MATRIX_FAMILIES:
            ideal_s = self._flops(call) / self.accelerator.peak(get_precision(call.precision).matrix_peak)
            fixed_s = arithmetic_s * self._ramp_s / (ideal_s + self._ramp_s)
        memory_s = (call.bytes_read + call.bytes_written) / self.memory_rate(family)
        return KernelLimits(
            family, arithmetic_s - fixed_s, memory_s, arithmetic_fixed_s=fixed_s, floor_s=self._min_kernel_s,
            basis=BY_ROOFLINE, residual=ROOFLINE_RESIDUAL,
        )  # fmt: skip

    def memory_rate(self, family: str) -> float:
        """Return the achieved memory bandwidth [bytes/s] of a family."""
        efficiency = self._setting("memory", family, MEMORY_EFFICIENCY[family], self.config.memory_efficiency)
        return self.accelerator.memory_bandwidth_bytes_per_s * efficiency

    def compute_rate(self, family: str, precision: str, flops: float) -> float:
        """Return the achieved arithmetic rate [FLOP/s] of a kernel of ``flops`` operations."""
        if family not in MATRIX_FAMILIES:
            overrides = self.config.compute_efficiency
            best = self._setting("compute", family, VECTOR_EFFICIENCY, overrides)
            return self.accelerator.peak(VECTOR_PEAK) * best
        kind = get_precision(precision).matrix_peak
        peak = self.accelerator.peak(kind)
        best = self._setting("compute", family, self._best(family, kind), self.config.compute_efficiency)
        ideal_s = flops / peak
        return peak * best * ideal_s / (ideal_s + self._ramp_s)

    def notes(self) -> list[str]:
        """Return which figures behind the durations so far are from memory only."""
        unverified = self.accelerator.unverified()
        notes = [f"accelerator {self.accelerator.name}, {UNVERIFIED}: {', '.join(unverified)}"] if unverified else []
        used = [what for what, source in self._used.items() if UNVERIFIED in source]
        return [*notes, f"roofline, {UNVERIFIED}: {', '.join([*sorted(used), 'ramp_time'])}"]

    def _flops(self, call: KernelCall) -> float:
        """Return the FLOPs that take time."""
        return run_flops(call, call.flops, self)

    def _compute_s(self, family: str, call: KernelCall) -> float:
        flops = self._flops(call)
        if flops <= 0:
            return 0.0
        return flops / self.compute_rate(family, call.precision, flops)

    def _best(self, family: str, kind: str) -> Efficiency:
        if family != "matmul":
            return COMPUTE_EFFICIENCY[family]
        if kind == "fp32":
            return FP32_MATMUL_EFFICIENCY
        return MATMUL_EFFICIENCY.get(self.accelerator.name, DEFAULT_MATMUL_EFFICIENCY)

    def _setting(self, limit: str, family: str, default: Efficiency, overrides: dict[str, float]) -> float:
        if family in overrides:
            return overrides[family]
        self._used[f"{limit} efficiency of {family}"] = f"{default.value}, {default.source}"
        return default.value


def _check_efficiencies(key: str, given: Any) -> None:
    """Refuse anything except a mapping of families to shares in (0, 1]."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{key} is {given!r}; it holds a share for each family, for example {key}.matmul=0.8")
    for family, value in given.items():
        if family not in FAMILIES:
            raise ConfigError(f"{key}.{family} is no family of ops; {key} has: {', '.join(FAMILIES)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise ConfigError(f"{key}.{family} is {value!r}; it must be a number in (0, 1]")
