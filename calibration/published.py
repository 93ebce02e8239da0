"""Measurements from the published tables in calibration/measured (README.md there: sources, licences, definitions)."""

import csv
import hashlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from calibration import images
from calibration.measurements import Measurements, collected
from rostam_py.costs.accelerators import get_accelerator
from rostam_py.costs.kernel_kinds import GROUPED_STAGES, LAYOUTS, kernel_kind
from rostam_py.costs.kernel_surface import LAUNCH_S
from rostam_py.costs.kernel_table import MeasuredDevice

MEASURED = Path(__file__).parent / "measured"
Record = dict[str, str]

# Where the part that was measured differs from the accelerator whose table its rows go into: PCIe cards are slower.
_A100_PCIE = {"memory": 1935e9}  # NVIDIA A100 data sheet, 80 GB PCIe column [bytes/s]
_V100_PCIE = {"fp32": 14.0e12}  # NVIDIA V100 data sheet, PCIe column [FLOP/s]
# Device in NeuSight's tables -> accelerator whose table the rows go into, and what differs from it.
_NEUSIGHT: dict[str, tuple[str, dict[str, float]]] = {
    "NVIDIA A100 80GB PCIe": ("a100_80gb", _A100_PCIE),
    "NVIDIA A100-PCIE-40GB": ("a100_40gb", {}),
    "NVIDIA H100 80GB HBM3": ("h100_80gb", {}),
    "Tesla V100-PCIE-32GB": ("v100_32gb", _V100_PCIE),
}
_XLA_DTYPES = {
    "bf16": ("bf16", 2), "f32": ("tf32", 4), "f8e4m3fn": ("fp8", 1), "f8e4m3fnxf8e5m2": ("fp8", 1),
    "f8e5m2xf8e4m3fn": ("fp8", 1),
}  # fmt: skip
_XLA_BYTES = {"bf16": 2, "f32": 4}


_SIMUMAX: dict[str, tuple[str, str, dict[str, float]]] = {
    "a100": ("a100_80gb", "A100 PCIe 80 GB", _A100_PCIE),
    "b200": ("b200_180gb", "B200", {}),
}


def published() -> list[Measurements]:
    """Return all measurements of the published tables."""
    found = [*_xla("gemm_h100_sxm.csv", "h100_80gb", "H100 SXM"), *_xla("gemm_b200.csv", "b200_180gb", "B200")]
    for card, (accelerator, name, differs) in _SIMUMAX.items():
        where = _device(name, accelerator, "bf16", differs)
        found.append(_simumax_products(f"gemm_{card}_simumax.csv", accelerator, where))
        found.append(_simumax_grouped(f"grouped_gemm_{card}_simumax.csv", accelerator, where))
        found += _simumax_attention(f"sdpa_{card}_simumax.csv", accelerator, where)
    found += _flash_attention("attention_h100_flash.csv", "h100_80gb", "H100 80GB SXM5")
    own = images.measured(read(images.FILE))
    return [*found, *_neusight_products(), *_neusight_memory(), *_norms(), *own]


def read(file: str) -> list[Record]:
    """Return the rows of a table, its comment lines skipped."""
    with (MEASURED / file).open() as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def digest(file: str) -> str:
    """Return the SHA-256 of a table."""
    return hashlib.sha256((MEASURED / file).read_bytes()).hexdigest()


def _device(name: str, accelerator: str, precision: str, differs: dict[str, float]) -> MeasuredDevice:
    """Return the part that was measured; precision "": arithmetic does not matter."""
    known = get_accelerator(accelerator)
    peak = differs.get(precision, known.peak(precision)) if precision else 0.0
    return MeasuredDevice(name, peak, differs.get("memory", known.memory_bandwidth_bytes_per_s), known.multiprocessors)


def _xla(file: str, accelerator: str, name: str) -> Iterator[Measurements]:
    """Products by OpenXLA: both runs of a shape count, and fp8 operand pairs as one precision."""
    records = read(file)
    for precision in dict.fromkeys(_XLA_DTYPES[one["dtype_in"]][0] for one in records):
        chosen = [one for one in records if _XLA_DTYPES[one["dtype_in"]][0] == precision]
        yield Measurements(
            accelerator, "product", "matrix products", precision, f"{file} (OpenXLA), dtype_in of {precision}",
            _device(name, accelerator, precision, {}), _XLA_DTYPES[chosen[0]["dtype_in"]][1],
            collected(pair for one in chosen for pair in _xla_times(one)),
        )  # fmt: skip


def _xla_times(one: Record) -> Iterator[tuple[tuple[float, ...], float]]:
    batch, m, n, k = (float(one[key]) for key in ("batch", "m", "n", "k"))
    shape = (batch, m, n, k, LAYOUTS.index("unknown"), _XLA_BYTES[one["dtype_out"]])
    for key in ("flops_per_s", "flops_per_s_prev"):
        if one[key]:
            yield shape, 2 * batch * m * n * k / float(one[key])


def _simumax_products(file: str, accelerator: str, where: MeasuredDevice) -> Measurements:
    """bf16 products by SimuMax; adding into an output moves it twice."""
    pairs = []
    for one in read(file):
        batch, m, n, k = (float(one[key]) for key in ("batch", "m", "n", "k"))
        out_bytes = {"bf16": 2, "fp32": 4}[one["out_dtype"]] * (1 + int(one["accumulate"]))
        seconds = 2 * batch * m * n * k / (float(one["efficiency"]) * float(one["peak_flops"]))
        pairs.append(((batch, m, n, k, LAYOUTS.index(one["layout"]), out_bytes), seconds))
    return Measurements(
        accelerator, "product", "matrix products of LLM layers", "bf16", f"{file} (SimuMax)", where, 2,
        collected(pairs),
    )  # fmt: skip


_STAGES = dict(zip(("fwd", "bwd_grad_act", "bwd_grad_w"), GROUPED_STAGES, strict=True))


def _simumax_grouped(file: str, accelerator: str, where: MeasuredDevice) -> Measurements:
    """Grouped bf16 products by SimuMax; only the weights' gradient is written in main_grad_dtype."""
    pairs = []
    for one in read(file):
        groups, m, n, k = (float(one[key]) for key in ("num_groups", "m", "n", "k"))
        stage = _STAGES[one["stage"]]
        width = {"bf16": 2, "fp32": 4}[one["main_grad_dtype"] if stage == "weight_gradient" else one["out_dtype"]]
        seconds = 2 * groups * m * n * k / (float(one["efficiency"]) * float(one["peak_flops"]))
        shape = (groups, m, n, k, GROUPED_STAGES.index(stage), width * (1 + int(one["accumulate"])))
        pairs.append((shape, seconds))
    return Measurements(
        accelerator, "grouped_product", "grouped products", "bf16", f"{file} (SimuMax)", where, 2,
        collected(pairs),
    )  # fmt: skip


def _simumax_attention(file: str, accelerator: str, where: MeasuredDevice) -> list[Measurements]:
    """Fused causal attention by SimuMax; its times count, its FLOPs are those of the whole score matrix."""
    found = []
    keys = ("batch", "seq_len", "head_num", "kv_head_num", "qk_head_dim", "v_head_dim")
    for short, long in (("fwd", "forward"), ("bwd", "backward")):
        pairs = [
            (tuple(float(one[key]) for key in keys), float(one["time_us"]) * 1e-6)
            for one in read(file)
            if one["pass"] == short
        ]
        found.append(
            Measurements(
                accelerator, f"attention_{long}", f"attention {long}", "bf16", f"{file} (SimuMax), {long}", where, 2,
                collected(pairs),
            )
        )  # fmt: skip
    return found


_FLASH_TOKENS, _FLASH_WIDTH = 16384, 2048  # of all rows; heads = width / head size


def _flash_attention(file: str, accelerator: str, name: str) -> list[Measurements]:
    """Causal attention by three programs, from rates in the FlashAttention-3 paper's figures.

    Model: backward was measured without a mask alone. Under a causal one it takes as many times the forward kernel's
        time as without: causal rate = rate without x (causal forward rate / forward rate without).
    """
    rates: dict[tuple[str, str, str], dict[tuple[float, float], float]] = {}
    for one in read(file):
        key = one["program"], one["pass"], one["causal"]
        rates.setdefault(key, {})[float(one["head_size"]), float(one["sequence"])] = float(one["tflops"]) * 1e12
    found = []
    for program in dict.fromkeys(key[0] for key in rates):
        masked, plain = rates[program, "forward", "1"], rates[program, "forward", "0"]
        backward = {at: rate * masked[at] / plain[at] for at, rate in rates[program, "backward", "0"].items()}
        for short, of_shape in (("forward", masked), ("backward", backward)):
            kind = kernel_kind(f"attention_{short}")
            pairs = []
            for (size, sequence), rate in of_shape.items():
                heads = _FLASH_WIDTH / size
                shape = (_FLASH_TOKENS / sequence, sequence, heads, heads, size, size)
                columns = {key: np.array([value]) for key, value in zip(kind.fields, shape, strict=True)}
                pairs.append((shape, float(kind.flops(columns)[0]) / rate))
            found.append(
                Measurements(
                    accelerator, kind.name, f"attention {short}", "bf16", f"{file} (FlashAttention-3 paper), {program}"
                    f" {short}", _device(name, accelerator, "bf16", {}), 2, collected(pairs), program,
                )
            )  # fmt: skip
    return found


def _neusight_products() -> Iterator[Measurements]:
    """fp32 products by NeuSight: linear layers, and batched products."""
    records = read("gemm_fp32.csv")
    for device, (accelerator, differs) in _NEUSIGHT.items():
        for op, label in (("linear", "matrix products"), ("bmm", "batched products")):
            pairs = [
                (
                    (*(float(one[key]) for key in ("batch", "m", "n", "k")), LAYOUTS.index("unknown"), 4),
                    float(one["latency_ms"]) * 1e-3,
                )
                for one in records
                if one["device"] == device and one["op"] == op
            ]
            yield Measurements(
                accelerator, "product", label, "fp32", f"gemm_fp32.csv (NeuSight), {op}",
                _device(device, accelerator, "fp32", differs), 4, collected(pairs),
            )  # fmt: skip


def _neusight_memory() -> Iterator[Measurements]:
    """Memory-bound fp32 kernels by NeuSight: element-wise ops by their bytes, the median over ops; norms, softmax.

    Model: less what the host takes of what is timed. The script records an event, calls PyTorch, records another and
        waits (neusight/Dataset/collect.py, measure_once): an idle device waits for the host's call in between.
    """
    records = read("memory_bound_fp32.csv")
    rows = {"ln": ("normalization", "layer norm"), "softmax": ("softmax", "softmax")}
    for device, (accelerator, differs) in _NEUSIGHT.items():
        own = [one for one in records if one["device"] == device]
        if not own:
            continue
        where, host_s = _device(device, accelerator, "", differs), _host_s(own)
        pairs = [((float(one["min_bytes"]),), _seconds(one) - host_s) for one in own if one["op"] not in rows]
        yield Measurements(
            accelerator, "elementwise", "element-wise", "", "memory_bound_fp32.csv (NeuSight), element-wise ops", where,
            4, collected(pairs),
        )  # fmt: skip
        for op, (kind, label) in rows.items():
            shapes = [
                ((float(one["rows"]), float(one["cols"])), _seconds(one) - host_s) for one in own if one["op"] == op
            ]
            source, program = f"memory_bound_fp32.csv (NeuSight), {op}", "aten" if op == "ln" else ""
            yield Measurements(accelerator, kind, label, "", source, where, 4, collected(shapes), program)


# Part that was measured -> accelerator whose table the rows go into, and its memory bandwidth (NVIDIA's data sheets).
_NORMS = {
    "NVIDIA A100 80GB PCIe": ("a100_80gb", _A100_PCIE),
    "NVIDIA H100 NVL": ("h100_80gb", {"memory": 3.9e12}),
    "NVIDIA B200": ("b200_180gb", {}),
}  # fmt: skip


def _norms() -> Iterator[Measurements]:
    """Norms by rows, forward: a series for each program and width of numbers."""
    records = [one for one in read("norms.csv") if one["pass"] == "forward"]
    keys = ("device", "program", "op", "element_bytes")
    for device, program, op, element in dict.fromkeys(tuple(one[key] for key in keys) for one in records):
        accelerator, differs = _NORMS[device]
        chosen = [one for one in records if tuple(one[key] for key in keys) == (device, program, op, element)]
        pairs = [((float(one["rows"]), float(one["cols"])), float(one["us"]) * 1e-6) for one in chosen]
        yield Measurements(
            accelerator, "normalization", "norms", "", f"norms.csv ({chosen[0]['source']}), {op} by {program}",
            _device(device, accelerator, "", differs), float(element), collected(pairs), program,
        )  # fmt: skip


_PLAINEST = "add"  # torch.add of two tensors: no module and no number that the host has to turn into a tensor


def _host_s(records: list[Record]) -> float:
    """Return what of every time is the host's [s]: what no bytes would take, less a launch behind another kernel.

    Model: the line over bytes of the op with the least work on the host, through its times by least squares of relative
        errors; to a tenth of a microsecond.
    """
    pairs = [(float(one["min_bytes"]), _seconds(one)) for one in records if one["op"] == _PLAINEST]
    weights = [1 / seconds**2 for _, seconds in pairs]

    def total(of: Callable[[float, float], float]) -> float:
        return math.fsum(weight * of(*pair) for weight, pair in zip(weights, pairs, strict=True))

    ones, xs, squares = total(lambda x, y: 1.0), total(lambda x, y: x), total(lambda x, y: x * x)
    ys, products = total(lambda x, y: y), total(lambda x, y: x * y)
    at_no_bytes = (ys * squares - products * xs) / (ones * squares - xs * xs)
    return round(at_no_bytes - LAUNCH_S, 7)


def _seconds(one: Record) -> float:
    return float(one["latency_ms"]) * 1e-3
