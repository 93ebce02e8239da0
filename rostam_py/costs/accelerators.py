"""Accelerators: data-sheet peaks and capacities, each figure with where it comes from.

Peaks are dense (no structured sparsity). ``memory_bytes`` is what the driver reports, in bytes, so
that a plan which fits here fits there except for the framework's own context (about 1 GB, not modelled).
"""

import dataclasses
import difflib
from dataclasses import dataclass
from typing import Any

from rostam_py.errors import ConfigError, UnknownNameError

UNVERIFIED = "from memory, unverified"
_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator type.

    name: exact, memory size included (MODEL D15). memory_bandwidth_bytes_per_s: read plus write.
    peak_flops_per_s: dense peak by "fp32" (vector), "tf32", "bf16", "fp16", "fp8", "mxfp8" (8 bits, blocks of 32 with
        a scale), "nvfp4" (matrix units); a type without an entry is not supported by the matrix units.
    multiprocessors: that share a kernel's blocks; 0 where it has none, or none are known.
    cache_bandwidth_bytes_per_s: at which all multiprocessors together load from the level-two cache, as measured; 0
        where it is not known.
    watts: the limit of its power [W]; 0 where it is not known.
    host_bandwidth_bytes_per_s: of copies between it and its host's memory, each way, as measured; 0 where it is not
        known.
    transposes_fp8: its products of 8 bits read both operands along the contraction alone (cuBLAS: TN), so that other
        products of the same tensor read a transposed copy.
    host_slowdown: how many times as long its host takes as one of x86 for what launches kernels, by a measurement.
    short_fp8_sums: its matrix units add up products of 8 bits in fewer than 32, so that programs which need more move
        partial sums out of them as they go.
    sources: field name, or "peak_flops_per_s.<type>", to the source of that figure.
    """

    name: str
    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    peak_flops_per_s: dict[str, float]
    sources: dict[str, str]
    multiprocessors: int = 0
    watts: float = 0.0
    host_bandwidth_bytes_per_s: float = 0.0
    transposes_fp8: bool = False
    short_fp8_sums: bool = False
    cache_bandwidth_bytes_per_s: float = 0.0
    host_slowdown: float = 1.0

    def __post_init__(self) -> None:
        figures = {"memory_bytes": self.memory_bytes, **self.peak_flops_per_s}
        figures["memory_bandwidth_bytes_per_s"] = self.memory_bandwidth_bytes_per_s
        for key, value in figures.items():
            if not value > 0:
                raise ConfigError(f"accelerator {self.name!r}: {key} is {value}; it must be > 0")
        if not self.host_slowdown > 0:
            raise ConfigError(f"accelerator {self.name!r}: host_slowdown is {self.host_slowdown}; it must be > 0")
        if not isinstance(self.watts, (int, float)) or not self.watts >= 0:
            raise ConfigError(
                f"accelerator {self.name!r}: watts is {self.watts!r}; it must be a number >= 0 [W], or 0 if"
                " its power limit is not known"
            )
        if "fp32" not in self.peak_flops_per_s:
            raise ConfigError(f"accelerator {self.name!r}: peak_flops_per_s needs an entry for 'fp32'")

    @property
    def figures(self) -> tuple[Any, ...]:
        """All of it but sources, hashable: what is kept for one accelerator is not another's of the same name."""
        named = (getattr(self, entry.name) for entry in dataclasses.fields(self) if entry.name != "sources")
        return tuple(tuple(sorted(value.items())) if isinstance(value, dict) else value for value in named)

    def peak(self, kind: str) -> float:
        """Return the peak [FLOP/s] for "fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8" or "nvfp4".

        Raises: ConfigError if the accelerator has no such peak.
        """
        if kind not in self.peak_flops_per_s:
            others = [one.name for one in ACCELERATORS.values() if kind in one.peak_flops_per_s]
            raise ConfigError(
                f"accelerator {self.name} has no {kind} peak, which strategy.precision asks for; it has:"
                f" {', '.join(self.peak_flops_per_s)}. Accelerators with one: {', '.join(others) or 'none'}"
            )
        return self.peak_flops_per_s[kind]

    def unverified(self) -> list[str]:
        """Return the figures whose source is memory only."""
        return [key for key, source in self.sources.items() if UNVERIFIED in source]

    def with_overrides(self, name: str, **changes: Any) -> "Accelerator":
        """Return a hypothetical accelerator that differs in the given fields.

        Args: name: of the new one, not that of a known one. changes: fields of Accelerator;
            ``peak_flops_per_s`` is merged entry by entry.
        Raises: ConfigError for an unknown field or a name that is taken.
        """
        if name in ACCELERATORS:
            raise ConfigError(f"accelerator name {name!r} belongs to a real accelerator; choose another")
        allowed = (
            "memory_bytes", "memory_bandwidth_bytes_per_s", "peak_flops_per_s", "watts", "host_bandwidth_bytes_per_s",
        )  # fmt: skip
        for key in changes:
            if key not in allowed:
                raise ConfigError(f"accelerator override {key!r} is unknown; allowed: {', '.join(allowed)}")
        sources = dict(self.sources)
        peaks = dict(changes.pop("peak_flops_per_s", {}))
        for key in list(changes) + [f"peak_flops_per_s.{kind}" for kind in peaks]:
            sources[key] = f"hypothetical, set by the user (based on {self.name})"
        merged = self.peak_flops_per_s | peaks
        return dataclasses.replace(self, name=name, peak_flops_per_s=merged, sources=sources, **changes)


def _accelerator(
    name: str, memory: tuple[int, str], bandwidth: tuple[float, str], *,
    multiprocessors: tuple[int, str] | None = None, watts: tuple[float, str] | None = None,
    host: tuple[float, str] | None = None, transposes_fp8: tuple[bool, str] | None = None,
    short_fp8_sums: tuple[bool, str] | None = None, cache: tuple[float, str] | None = None,
    slow_host: tuple[float, str] | None = None,
    **peaks: tuple[float, str],
) -> Accelerator:  # fmt: skip
    """Build an Accelerator from (figure, source) pairs."""
    sources = {"memory_bytes": memory[1], "memory_bandwidth_bytes_per_s": bandwidth[1]}
    sources |= {f"peak_flops_per_s.{kind}": source for kind, (_, source) in peaks.items()}
    sources |= {} if multiprocessors is None else {"multiprocessors": multiprocessors[1]}
    sources |= {} if watts is None else {"watts": watts[1]}
    sources |= {} if host is None else {"host_bandwidth_bytes_per_s": host[1]}
    sources |= {} if transposes_fp8 is None else {"transposes_fp8": transposes_fp8[1]}
    sources |= {} if short_fp8_sums is None else {"short_fp8_sums": short_fp8_sums[1]}
    sources |= {} if cache is None else {"cache_bandwidth_bytes_per_s": cache[1]}
    sources |= {} if slow_host is None else {"host_slowdown": slow_host[1]}
    rates = {kind: value for kind, (value, _) in peaks.items()}
    return Accelerator(
        name=name, memory_bytes=memory[0], memory_bandwidth_bytes_per_s=bandwidth[0], peak_flops_per_s=rates,
        sources=sources, multiprocessors=multiprocessors[0] if multiprocessors else 0,
        watts=watts[0] if watts else 0.0, host_bandwidth_bytes_per_s=host[0] if host else 0.0,
        transposes_fp8=transposes_fp8[0] if transposes_fp8 else False,
        short_fp8_sums=short_fp8_sums[0] if short_fp8_sums else False,
        cache_bandwidth_bytes_per_s=cache[0] if cache else 0.0, host_slowdown=slow_host[0] if slow_host else 1.0,
    )  # fmt: skip


_V100 = "NVIDIA V100 data sheet, SXM2 column; checked against a public catalogue that quotes it"
_V100_TENSOR = "NVIDIA, Programming Tensor Cores in CUDA 9 (developer.nvidia.com): 125 tensor TFLOPS"
_A100 = "NVIDIA A100 data sheet (SXM4), as quoted by glennklockwood.com/garden/processors/A100"
_H100 = "NVIDIA H100 architecture white paper (SXM5), as quoted by glennklockwood.com/garden/processors/h100"
_TITAN = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md: H100 with 96 GB of HBM2e, 2.4 TB/s, at most 500 W"
_AS_H100 = f"as the H100's of 700 W, {UNVERIFIED} at 500 W"
_A100_CACHE = (4830e9, "measured: NVIDIA developer forum, topic 198560, as quoted by notes on CUTLASS")
_H100_CACHE = (6650e9, "measured: openxla/xla, gpu_dot_fusion_cost_model.cc at ea1955d, CalculateL2Time")
_H200 = "NVIDIA H200 data sheet, as quoted by aiwiki.ai/wiki/nvidia_h200; same GH100 die as H100"
_B200 = "NVIDIA Blackwell data sheet, HGX B200 at 1,000 W, as quoted by glennklockwood.com/garden/processors/B200"
_B200_MEMORY = "180 GB per GPU: server-parts.eu B200 comparison; docs.vultr.com reads 179 GB from the driver"
_AIC = "aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0), systems/{}.yaml"
_AS_B200 = f"as the B200's, {UNVERIFIED} for this device"
_HALF = f"half its bf16, {UNVERIFIED}"
_TPU_V4 = "Jouppi et al., TPU v4, ISCA 2023, table 4; Google Cloud's page on TPU v4"
_PCIE4 = (
    25.13e9,
    "copies of 512 MiB to an A100-SXM4 (NVIDIA/nvbandwidth, issue 42); of 32 GB/s, PCIe 4.0 x16 (NVIDIA A100 data"
    " sheet)",
)
_PCIE5 = (
    55.63e9,
    "copies of 1 GiB to the device (NVIDIA's blog on NVbandwidth, as quoted by dev.smart-guide.co.kr); of 64 GB/s, PCIe"
    " 5.0 x16 (NVIDIA H100 data sheet)",
)
_PCIE5_HOST = (_PCIE5[0], f"as the H100's: its hosts have PCIe 5.0, {UNVERIFIED}, though its own port is of PCIe 6.0")
_C2C = (
    225e9 * 346 / 450,
    "a superchip's two accelerators share NVLink-C2C's 450 GB/s each way (NVIDIA GB200 NVL72 data sheet), of which"
    f" copies to a GH200 reach 346 (NVIDIA/nvbandwidth, issue 23); that a GB200's reach the same share is {UNVERIFIED}",
)
_GRACE = (
    2.75, "NVIDIA/TransformerEngine, issue 2053 (2025-08): torch's Linear forward takes 37.08 us on a GB200's host,"
    " 33.17 on a GH200's and 13.48 on a DGX H100's (Xeon 8480C)"
)  # fmt: skip
_TN = (
    True, "cuBLAS's documentation of cublasLtMatmul: fp8 on compute capability 8.9 and 9.0 in TN format alone; as"
    " Transformer Engine has it (nvte_is_non_tn_fp8_gemm_supported)",
)  # fmt: skip
_SHORT = True, "DeepSeek-V3 (arXiv 2412.19437), section 3.3.2: Hopper's keep about 14 bits of sums of 8-bit products"
_AS_FP8 = "as its fp8: blocks' scales are applied inside the same instruction (PTX ISA, tcgen05.mma kind::mxf8f6f4)"
_DRIVER = "total memory read from the driver of one such device"

ACCELERATORS = {
    a.name: a
    for a in (
        _accelerator(
            "v100_32gb", (32768 * _MIB, f"32 GiB of HBM2; driver figure {UNVERIFIED}"), (900e9, _V100),
            multiprocessors=(80, _V100), watts=(300, _V100),
            fp32=(15.7e12, _V100), fp16=(125e12, _V100_TENSOR),
        ),
        _accelerator(
            "a100_40gb", (40960 * _MIB, f"40 GiB of HBM2; driver figure {UNVERIFIED}"), (1555e9, _A100),
            multiprocessors=(108, _A100), watts=(400, _AIC.format("a100_sxm")), host=_PCIE4, cache=_A100_CACHE,
            fp32=(19.5e12, _A100), tf32=(156e12, _A100), bf16=(312e12, _A100), fp16=(312e12, _A100),
        ),
        _accelerator(
            "a100_80gb", (81920 * _MIB, f"80 GiB of HBM2e; driver figure {UNVERIFIED}"), (2039e9, _A100),
            multiprocessors=(108, _A100), watts=(400, _AIC.format("a100_sxm")), host=_PCIE4, cache=_A100_CACHE,
            fp32=(19.5e12, _A100), tf32=(156e12, _A100), bf16=(312e12, _A100), fp16=(312e12, _A100),
        ),
        _accelerator(
            "h100_80gb", (81559 * _MIB, f"{_DRIVER} (H100 80GB HBM3)"), (3350e9, _H100),
            transposes_fp8=_TN, short_fp8_sums=_SHORT,
            multiprocessors=(132, _H100), watts=(700, _AIC.format("h100_sxm")), host=_PCIE5, cache=_H100_CACHE,
            fp32=(66.9e12, _H100), tf32=(494.7e12, _H100), bf16=(989.4e12, _H100), fp16=(989.4e12, _H100),
            fp8=(1978.9e12, _H100),
        ),
        _accelerator(
            "h100_96gb", (95 * 2**30, f"96 GB of HBM2e as {_TITAN}; driver figure {UNVERIFIED}"), (2400e9, _TITAN),
            transposes_fp8=_TN, short_fp8_sums=_SHORT,
            multiprocessors=(132, _AS_H100), watts=(500, _TITAN), cache=_H100_CACHE,
            fp32=(66.9e12, _AS_H100), tf32=(494.7e12, _AS_H100), bf16=(989.4e12, _AS_H100), fp16=(989.4e12, _AS_H100),
            fp8=(1978.9e12, _AS_H100),
        ),
        _accelerator(
            "h200_141gb", (143771 * _MIB, f"{_DRIVER} (H200)"), (4800e9, _H200),
            transposes_fp8=_TN, short_fp8_sums=_SHORT,
            multiprocessors=(132, _H200), watts=(700, _AIC.format("h200_sxm")), host=_PCIE5, cache=_H100_CACHE,
            fp32=(66.9e12, _H200), tf32=(494.7e12, _H200), bf16=(989.4e12, _H200), fp16=(989.4e12, _H200),
            fp8=(1978.9e12, _H200),
        ),
        _accelerator(
            "b200_180gb", (180_000_000_000, _B200_MEMORY), (8000e9, _B200),
            multiprocessors=(148, f"reported by CUDA, {UNVERIFIED}"), watts=(1000, _B200), host=_PCIE5_HOST,
            fp32=(80e12, _B200), tf32=(1100e12, _B200), bf16=(2250e12, _B200), fp16=(2250e12, _B200),
            fp8=(4500e12, _B200), mxfp8=(4500e12, _AS_FP8), nvfp4=(9000e12, _AIC.format("b200_sxm")),
        ),
        _accelerator(
            "b300_288gb", (275040 * _MIB, _AIC.format("b300_sxm")), (7750e9, _AIC.format("b300_sxm")),
            multiprocessors=(148, _AS_B200), watts=(1100, _AIC.format("b300_sxm")), host=_PCIE5_HOST,
            fp32=(80e12, _AS_B200), tf32=(1100e12, _AS_B200), bf16=(2250e12, _AIC.format("b300_sxm")),
            fp16=(2250e12, _AIC.format("b300_sxm")), fp8=(4500e12, _AIC.format("b300_sxm")),
            mxfp8=(4500e12, _AS_FP8),
            nvfp4=(14000e12, _AIC.format("b300_sxm")),
        ),
        _accelerator(
            "gb200_186gb", (189471 * _MIB, _AIC.format("gb200")), (8000e9, _AIC.format("gb200")),
            multiprocessors=(148, _AS_B200), watts=(1200, _AIC.format("gb200")), host=_C2C, slow_host=_GRACE,
            fp32=(80e12, _AS_B200), tf32=(1250e12, _HALF), bf16=(2500e12, _AIC.format("gb200")),
            fp16=(2500e12, _AIC.format("gb200")), fp8=(5000e12, _AIC.format("gb200")),
            mxfp8=(5000e12, _AS_FP8),
            nvfp4=(10000e12, _AIC.format("gb200")),
        ),
        _accelerator(
            "gb300_288gb", (284208 * _MIB, _AIC.format("gb300")), (8000e9, _AIC.format("gb300")),
            multiprocessors=(148, _AS_B200), watts=(1400, _AIC.format("gb300")), host=_C2C, slow_host=_GRACE,
            fp32=(80e12, _AS_B200), tf32=(1250e12, _HALF), bf16=(2500e12, _AIC.format("gb300")),
            fp16=(2500e12, _AIC.format("gb300")), fp8=(5000e12, _AIC.format("gb300")),
            mxfp8=(5000e12, _AS_FP8),
            nvfp4=(15000e12, _AIC.format("gb300")),
        ),
        _accelerator(
            "tpu_v4_32gb", (32 * 2**30, _TPU_V4), (1200e9, _TPU_V4),
            fp32=(4.3e12, "assumed: two cores of 8 x 128 lanes, two operations per lane and cycle, at 1.05 GHz"),
            bf16=(275e12, _TPU_V4),
        ),
        _accelerator(
            "cpu_local", (16 * 2**30, "assumed; only profiles describe the local machine"),
            (20e9, "assumed: two channels of server DDR4, one socket shared"),
            fp32=(100e9, "assumed: two cores with 512-bit vectors near 3 GHz"),
            tf32=(100e9, "assumed: computed as fp32"), bf16=(100e9, "assumed: computed as fp32"),
            fp16=(100e9, "assumed: computed as fp32"),
        ),
    )
}  # fmt: skip


# A family of several sizes means the part that is in most machines: 80 GB of A100 and H100.
_USUAL = {"a100": "a100_80gb", "h100": "h100_80gb"}
FAMILIES = {name.rpartition("_")[0]: name for name in ACCELERATORS if name != "cpu_local"} | _USUAL


def accelerator_name(name: str) -> str:
    """Return an accelerator's full name for that of its family, "h100" or "H100-80GB"; others unchanged."""
    plain = str(name).strip().lower().replace("-", "_")
    return plain if plain in ACCELERATORS else FAMILIES.get(plain, name)


def get_accelerator(name: str) -> Accelerator:
    """Return the accelerator called ``name``, or that of a family: "h100" is h100_80gb.

    Raises: UnknownNameError, listing the known ones.
    """
    if not isinstance(name, str):
        raise UnknownNameError(f"accelerator is {name!r}; it must be a name, known: {', '.join(ACCELERATORS)}")
    name = accelerator_name(name)
    if name not in ACCELERATORS:
        near = difflib.get_close_matches(name, ACCELERATORS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UnknownNameError(f"unknown accelerator {name!r}{hint}; known: {', '.join(ACCELERATORS)}")
    return ACCELERATORS[name]
