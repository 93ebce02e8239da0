"""Measurements from the package aiconfigurator-core (Apache-2.0, NVIDIA), the optional extra ``calibration``.

Only what was measured is read: Parquet files under systems/data, latency in ms. The kernels are those of inference
engines; a shape that several of them measured counts with the median, and how far they differ is kept as the spread.
Products count where both operands were random numbers: what a matrix holds changes its product's time by 15%, by the
power that its bits draw (docs/calibration.md).
"""

import hashlib
import importlib.metadata
import importlib.util
import statistics
from collections.abc import Iterator
from pathlib import Path

from calibration.measurements import Measurements, collected
from rostam_py.costs.accelerators import get_accelerator
from rostam_py.costs.kernel_kinds import LAYOUTS
from rostam_py.costs.kernel_table import MeasuredDevice
from rostam_py.costs.programs import UNNAMED

PACKAGE, VERSION = "aiconfigurator-core", "0.12.0"
REQUIREMENT = f"{PACKAGE}=={VERSION}"  # the extra ``calibration`` of pyproject.toml
# Accelerator -> the package's system.
SYSTEMS = {
    "a100_80gb": "a100_sxm", "h100_80gb": "h100_sxm", "h200_141gb": "h200_sxm", "b200_180gb": "b200_sxm",
    "b300_288gb": "b300_sxm", "gb200_186gb": "gb200", "gb300_288gb": "gb300",
}  # fmt: skip
# Name there -> peak, bytes of an element. fp8: one scale for each tensor; nvfp4: one of 8 bits for 16 values.
_PRODUCTS = {"bfloat16": ("bf16", 2), "fp8": ("fp8", 1), "nvfp4": ("nvfp4", 0.5 + 1 / 16)}
# Whose products count, by what their collectors do (ai-dynamo/aiconfigurator, collector/*/collect_gemm.py, vllm at
# 00e9bde, trtllm at 0009590, sglang at 2ec2c27). vLLM's multiplies by weights that nothing has written, whatever memory
# held ("evaluate random weights impact" is left to do there); the others by random numbers. SGLang's fp8 has a scale
# for each row and column, and times the kernel that finds them; training has one for each tensor, as TensorRT-LLM has.
# TensorRT-LLM's layer finds the largest value of the rows' operand and casts it to fp8 inside what is timed, as no
# scale of inputs is given (NVIDIA/TensorRT-LLM at 00bbf71, tensorrt_llm/_torch/modules/linear.py, FP8QDQLinearMethod):
# times of both kernels, which the package has for the same engine, are taken off.
# Both cast the rows' operand to nvfp4 inside what they time, by a scale of the whole that is known.
_ENGINES = {"bfloat16": ("sglang", "trtllm"), "fp8": ("trtllm",), "nvfp4": ("sglang", "trtllm")}
_CASTS = ("computescale_perf", "scale_matrix_perf")  # kernels that find the largest value, and cast
# Casts to fp8 by a scale that is known, read 2 and write 1 bytes. SGLang's finds the scale in the same kernel (the
# package's time of finding it is 0), at a tenth of the others' rate. Smaller ones are timed from caches that the call
# before has warmed, above the memory's rate on H100: kept are those of twice B200's L2 or more. Its driver reports
# 126.50 MB (a device query quoted in pytorch/ao pull request 4002). Whether that MB is 10^6 or 2^20 bytes makes no
# difference: the package's casts move 251.9 MB or less, or 275.3 MB or more, and 252.0 to 265.3 MB lies between.
# Kept are also those of 32,768 elements, which no cache can make faster, as memory moves their 98 kB in 30 ns on the
# slowest device: they say what such a kernel takes behind another one (five of them in a captured graph,
# collector/trtllm/collect_computescale.py at 125efca), 1.7 us on H100 and H200, 2.0 to 2.3 on the others.
_CAST_ENGINES, _CAST_BYTES, _LEAST_CAST_BYTES, _FEW_ELEMENTS = ("trtllm", "vllm"), 3, 2 * 126e6, 2**15
_LEAST_SHARE = 1 / 3  # of what is timed: a product that is less is lost in the noise of what is taken off
# The grid kept, every second point of it like a chessboard: training runs products of many rows.
_ROWS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_SIDES = (256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 51200)
_SEQUENCES = (512, 1024, 2048, 4096, 8192, 16384)
_BATCHES = (1, 2, 4, 8, 16, 32)
_HEADS = (4, 8, 16, 32, 64, 96)
_HEAD_SIZES = (64, 128)
# Whose attention counts, by what their collectors do (collector/*/collect_attn.py: sglang at 347225a, vllm at 5ef50c9,
# trtllm at d2237d7), and the program of each kernel ("kernel_source"); other kernels are those of odd sizes.
# TensorRT-LLM's times have a rotary embedding and the split of fused queries, keys and values in them, kernels of their
# own in a run. All engines write keys and values to a cache inside what they time: on an H100, 32 sequences of 512, 16
# heads, SGLang's calls take 131 us with one key head and 223 with 16, the same FLOPs. So calls with one key head count,
# less what reading and writing that head takes at the memory bandwidth.
_ATTENTION_ENGINES, _KEY_HEADS, _CACHE_BYTES = ("sglang", "vllm"), 1, 2 * 2 * 2  # read, written; keys, values; bf16
_ATTENTION_KERNELS = {
    "fa3": "flash3", "vllm_flash_attn_fa3": "flash3", "flash_attention": UNNAMED, "vllm_flash_attn": UNNAMED,
    "trtllm_mha": UNNAMED, "vllm_flashinfer": UNNAMED, "vllm_flashinfer_trtllmprefill": UNNAMED,
}  # fmt: skip


def data_folder() -> Path | None:
    """Return the folder of the package's measurements, None where the package, or this version of it, is missing."""
    spec = importlib.util.find_spec("aiconfigurator_core")
    if spec is None or spec.origin is None:
        return None
    if importlib.metadata.version(PACKAGE) != VERSION:
        return None
    return Path(spec.origin).parent / "systems" / "data"


def library(data: Path) -> Iterator[tuple[Measurements, list[Path]]]:
    """Yield measurements and the files that they come from."""
    for accelerator, system in SYSTEMS.items():
        for dtype, (precision, element) in _PRODUCTS.items():
            engines = (data / system / "gemm" / engine for engine in _ENGINES[dtype])
            files = [path for engine in engines for path in sorted(engine.rglob("gemm_perf.parquet"))]
            casts = _cast_files(data / system, dtype)
            found = _products(accelerator, files, dtype, precision, element, _cast_seconds(casts))
            if found.rows:
                yield found, files + casts
        files = [
            path for engine in _ATTENTION_ENGINES
            for path in sorted((data / system / "attention" / engine).rglob("context_attention_perf.parquet"))
        ]  # fmt: skip
        yield _attention(accelerator, files), files
        files = [
            path for engine in _CAST_ENGINES
            for path in sorted((data / system / "quantize" / engine).rglob("scale_matrix_perf.parquet"))
        ]  # fmt: skip
        if files:
            yield _casts(accelerator, files), files


COLLECTIVES = "collectives_nccl_tests.csv"
_COLLECTIVES_HEAD = f"""\
# Source: {PACKAGE} {VERSION} (copyright NVIDIA Corporation), systems/data/SYSTEM/comm/nccl/VERSION, NCCL from 2.26 on.
# Licence: Apache-2.0. Numbers only.
# Measured: nccl-tests, half precision, out of place, a thread for each GPU, 40 runs to warm up, then 100 to 1,000 one
# behind the other, their mean (collector/collect_nccl.py of ai-dynamo/aiconfigurator): the host's launches are hidden.
# Units: bytes as nccl-tests counts them (full tensor), time_us microseconds: the median over versions and repeats;
# num_times of them, least_us and most_us the extremes. Rows: from 64 KiB on.
"""


def write_collectives(data: Path, path: Path) -> None:
    """Distil the library's times of collectives into the table that link classes are fitted on."""
    import polars

    lines = []
    for system in SYSTEMS.values():
        found: dict[tuple[str, int, int], list[float]] = {}
        for file in sorted((data / system / "comm" / "nccl").rglob("nccl_perf.parquet")):
            if tuple(map(int, file.parent.name.split(".")[:2])) < (2, 26):
                continue
            table = polars.read_parquet(file).filter(polars.col("nccl_dtype") == "half")
            for op, gpus, elements, ms in table.select("op_name", "num_gpus", "message_size", "latency").rows():
                if 2 * elements >= 2**16:
                    found.setdefault((op, gpus, 2 * elements), []).append(ms * 1e3)
        for (op, gpus, size), times in sorted(found.items()):
            middle, least, most = (f"{one:.5g}" for one in (statistics.median(times), min(times), max(times)))
            lines.append(f"{system},{op},{gpus},{size},{middle},{len(times)},{least},{most}")
    head = "system,collective,num_gpus,bytes,time_us,num_times,least_us,most_us"
    path.write_text(_COLLECTIVES_HEAD + "\n".join([head, *lines]) + "\n")


def digest(files: list[Path]) -> str:
    """Return the SHA-256 over files in order."""
    total = hashlib.sha256()
    for path in files:
        total.update(path.read_bytes())
    return total.hexdigest()


def _device(accelerator: str, precision: str) -> MeasuredDevice:
    known = get_accelerator(accelerator)
    return MeasuredDevice(
        accelerator,
        known.peak_flops_per_s.get(precision, 0.0),
        known.memory_bandwidth_bytes_per_s,
        known.multiprocessors,
    )


def _cast_files(system: Path, dtype: str) -> list[Path]:
    """Return the files of the casts that products of a type have in what is timed, and that are measured."""
    folders = (system / "quantize" / engine for engine in _ENGINES[dtype]) if dtype == "fp8" else ()
    return [path for folder in folders for kernel in _CASTS for path in sorted(folder.rglob(f"{kernel}.parquet"))]


def _cast_seconds(files: list[Path]) -> dict[tuple[int, int], float] | None:
    """Return, by rows and columns, the seconds of all kernels of a cast; None without files."""
    import polars

    if not files:
        return None
    found: dict[tuple[int, int], list[float]] = {}
    for path in files:
        for m, k, milliseconds in polars.read_parquet(path).select("m", "k", "latency").rows():
            found.setdefault((m, k), []).append(milliseconds * 1e-3)
    return {shape: sum(times) for shape, times in found.items() if len(times) == len(_CASTS)}


def _products(
    accelerator: str, files: list[Path], dtype: str, precision: str, element: float,
    casts: dict[tuple[int, int], float] | None = None,
) -> Measurements:  # fmt: skip
    """Return the products of a type. Args: casts: what is no product in their times, by (m, k); None for nothing."""
    import polars

    kept = {name: polars.col(name).is_in(values) for name, values in (("m", _ROWS), ("n", _SIDES), ("k", _SIDES))}
    pairs = []
    for path in files:
        table = polars.read_parquet(path).filter(polars.col("gemm_dtype") == dtype, *kept.values())
        for m, n, k, milliseconds in table.select("m", "n", "k", "latency").sort("m", "n", "k").rows():
            if (_ROWS.index(m) + _SIDES.index(n) + _SIDES.index(k)) % 2 == 0:
                timed = milliseconds * 1e-3
                alone = timed - (0.0 if casts is None else casts[m, k])
                if alone >= _LEAST_SHARE * timed:
                    pairs.append(((1, m, n, k, LAYOUTS.index("TN"), 2), alone))
    without = ", without the cast" if casts else ""
    return Measurements(
        accelerator, "product", "matrix products of inference", precision,
        _source(f"gemm, {dtype}, random operands{without}"),
        _device(accelerator, precision), element, collected(sorted(pairs)),
    )  # fmt: skip


def _casts(accelerator: str, files: list[Path]) -> Measurements:
    """Return casts by the bytes that they move."""
    import polars

    pairs = []
    for path in files:
        table = polars.read_parquet(path).filter(polars.col("quant_dtype") == "fp8")
        for m, k, milliseconds in table.select("m", "k", "latency").rows():
            moved = _CAST_BYTES * m * k
            if moved >= _LEAST_CAST_BYTES or m * k == _FEW_ELEMENTS:
                pairs.append(((moved,), milliseconds * 1e-3))
    return Measurements(
        accelerator, "cast", "casts of inference", "", _source("quantize/scale_matrix, fp8, scale given"),
        _device(accelerator, ""), 2, collected(sorted(pairs)),
    )  # fmt: skip


def _attention(accelerator: str, files: list[Path]) -> Measurements:
    """Return causal attention alone, by calls that write one key head to the cache."""
    import polars

    wanted: dict[str, list[int] | list[str]] = {"attn_dtype": ["bfloat16"], "kv_cache_dtype": ["bfloat16"]}
    wanted |= {"step": [0], "window_size": [0], "isl": list(_SEQUENCES), "batch_size": list(_BATCHES)}
    wanted |= {"num_heads": list(_HEADS), "head_dim": list(_HEAD_SIZES), "num_key_value_heads": [_KEY_HEADS]}
    wanted |= {"kernel_source": list(_ATTENTION_KERNELS)}
    keys = ("batch_size", "isl", "num_heads", "head_dim", "kernel_source", "latency")
    device = _device(accelerator, "bf16")
    pairs, programs = [], set()
    for path in files:
        table = polars.read_parquet(path)
        table = table.filter(*(polars.col(key).is_in(values) for key, values in wanted.items() if key in table.columns))
        for batch, sequence, heads, size, kernel, milliseconds in table.select(*keys).rows():
            cache_s = _CACHE_BYTES * batch * sequence * _KEY_HEADS * size / device.memory_bandwidth_bytes_per_s
            pairs.append(((batch, sequence, heads, _KEY_HEADS, size, size), milliseconds * 1e-3 - cache_s))
            programs.add(_ATTENTION_KERNELS[kernel])
    (program,) = programs
    return Measurements(
        accelerator, "attention_forward", "attention forward of inference", "bf16",
        _source("attention/context, bfloat16, without the cache"), device, 2, collected(sorted(pairs, key=_by_size)),
        program,
    )  # fmt: skip


def _by_size(pair: tuple[tuple[float, ...], float]) -> tuple[float, ...]:
    """Order by head size and work: every second shape, which is judged, then holds all lengths and numbers of heads."""
    shape, seconds = pair
    batch, sequence, heads, *_ = shape
    return (shape[-1], batch * heads * sequence**2, *shape, seconds)


def _source(what: str) -> str:
    return f"{PACKAGE} {VERSION}, {what}"
