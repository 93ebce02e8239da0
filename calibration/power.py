"""Distil what kernels draw, and how rates follow power, into the file that ``rostam_py.costs.power`` reads.

Model: of Hopper the energy of a FLOP is what products and attention draw above idle over their rates, held for seconds
    alone at the limit: the geometric mean over rows of both devices. Of Blackwell rates are published that a product
    holds between kernels that set memory to zero and copy an output. What it draws meanwhile follows from the shares of
    time and what streams draw: drawn x (t + t_stream) = idle x (t + t_stream) + above x t + stream x t_stream. How a
    rate follows power above idle is the exponent between two such products, of Hopper the least squares of four, in
    logarithms, from the held ones. What was not measured of Blackwell is in proportion: idle power to the limit, as the
    mean of the two devices that were measured; streams to the power, attention to the products at the limit.
"""

import json
import math
import statistics
from pathlib import Path
from typing import Any

from calibration.published import digest, read
from rostam_py.costs.accelerators import ACCELERATORS
from rostam_py.costs.power import POWER

MIXED, HELD = "power_at_limit.csv", "held_h100_own.csv"
HOPPER, BLACKWELL = "h100_80gb", "b200_180gb"
DIGITS = 4
_KINDS = {"forward": "attention_forward", "backward": "attention_backward"}
_MIB = 2.0**20
_BYTES = 2.0  # of an output's element
_COPY_BYTES = 2.0 * 2**30  # that the copy of 1 GiB reads and writes
Row = dict[str, str]


def document() -> dict[str, Any]:
    """Return the shipped file's content."""
    of_hopper = hopper()
    named = {file: digest(file) for file in (MIXED, HELD)}
    return {"made_by": "make calibrate", "sha256": named, "dies": [of_hopper, blackwell(of_hopper)]}


def idle_w(accelerator: str) -> float:
    """Return what an accelerator draws that runs nothing [W]."""
    rows = {one["accelerator"]: one for one in read(MIXED) if one["use"] == "idle"}
    if accelerator in rows:
        return float(rows[accelerator]["watts"])
    share = statistics.fmean(float(one["watts"]) / float(one["limit_w"]) for one in rows.values())
    return share * ACCELERATORS[accelerator].watts


def above_idle_w(row: Row, idle: float, stream_w: float, stream_share: float) -> float:
    """Return what a product draws above idle while it runs, of a row between kernels that stream [W].

    Args: stream_w: above idle, of these. stream_share: of the memory bandwidth that they reach.
    """
    sizes = [float(row[key]) for key in ("m", "n", "k")]
    busy_s = 2 * math.prod(sizes) / (float(row["tflops"]) * 1e12)
    moved = float(row["zeroed_mib"]) * _MIB + 2 * _BYTES * sizes[0] * sizes[1]
    stream_s = moved / (stream_share * ACCELERATORS[row["accelerator"]].memory_bandwidth_bytes_per_s)
    return ((float(row["watts"]) - idle) * (busy_s + stream_s) - stream_w * stream_s) / busy_s


def hopper() -> dict[str, Any]:
    """Return Hopper's power, by rows held alone; its exponent by those between other kernels."""
    idle, limit = idle_w(HOPPER), ACCELERATORS[HOPPER].watts
    held_w, rows = limit - idle, read(HELD)
    joules = {
        name: _mean(_joules(one, idle) for one in rows if one["kernel"] in kernels)
        for name, kernels in {
            "bf16": ("product",), "fp8": ("product, sums not moved",), "fp8, sums moved": ("product, sums moved",),
        }.items()
    }  # fmt: skip
    programs: dict[str, dict[str, float]] = {}
    for program in ("cudnn", "flash2"):
        programs[program] = {
            kind: _short(_mean(
                _joules(one, idle) for one in rows if one["kernel"] == f"attention {which}, {program}"
            ) / joules["bf16"])
            for which, kind in _KINDS.items()
        }  # fmt: skip
    copies = [one for one in rows if one["kernel"] == "copy"]
    stream_w = statistics.fmean(float(one["watts"]) for one in copies) - idle
    bandwidth = ACCELERATORS[HOPPER].memory_bandwidth_bytes_per_s
    share = statistics.fmean(_COPY_BYTES / (float(one["held_us"]) * 1e-6) for one in copies) / bandwidth
    rate = held_w / joules["bf16"]
    rises = [
        (math.log(above_idle_w(one, idle, stream_w, share) / held_w), math.log(float(one["tflops"]) * 1e12 / rate))
        for one in read(MIXED) if one["use"] == "mix" and one["accelerator"] == "h200_141gb"
    ]  # fmt: skip
    exponent = sum(watts * rise for watts, rise in rises) / sum(watts**2 for watts, _ in rises)
    return _die(HOPPER, idle, held_w, exponent, joules, stream_w, share) | {
        "attention": programs["cudnn"], "attention_of_programs": {"flash2": programs["flash2"]},
    }  # fmt: skip


def blackwell(like: dict[str, Any]) -> dict[str, Any]:
    """Return Blackwell's power: its exponent by products of bf16 under two limits. Args: like: Hopper's."""
    idle, limit = idle_w(BLACKWELL), ACCELERATORS[BLACKWELL].watts
    held_w = limit - idle
    rows = [one for one in read(MIXED) if one["use"] == "mix" and one["accelerator"] == BLACKWELL]

    def drawn_w(row: Row) -> float:  # streams, too, draw less under a lower limit
        scale = (float(row["limit_w"]) - idle) / held_w
        return above_idle_w(row, idle, scale * _stream_w(like, held_w), like["stream_share"])

    high, low = (one for one in rows if one["precision"] == "bf16")
    exponent = math.log(float(high["tflops"]) / float(low["tflops"])) / math.log(drawn_w(high) / drawn_w(low))
    joules = {
        one["precision"]: held_w / (float(one["tflops"]) * 1e12 * (held_w / drawn_w(one)) ** exponent)
        for one in rows if one is not low
    }  # fmt: skip
    share = like["stream_share"]
    return _die(BLACKWELL, idle, held_w, exponent, joules, _stream_w(like, held_w), share) | {
        "attention": like["attention"], "attention_of_programs": {},
    }  # fmt: skip


def _stream_w(like: dict[str, Any], held_w: float) -> float:
    return float(like["stream_w"] / like["held_w"] * held_w)


def _die(
    accelerator: str, idle: float, held_w: float, exponent: float, joules: dict[str, float], stream_w: float,
    stream_share: float,
) -> dict[str, Any]:  # fmt: skip
    return {
        "accelerator": accelerator, "idle_w": _short(idle), "held_w": _short(held_w), "exponent": _short(exponent),
        "joules_per_flop": {name: _short(value) for name, value in joules.items()}, "stream_w": _short(stream_w),
        "stream_share": _short(stream_share),
    }  # fmt: skip


def _joules(row: Row, idle: float) -> float:
    """Return what a held row draws above idle for each FLOP [J]."""
    return (float(row["watts"]) - idle) * float(row["held_us"]) * 1e-6 / held_flops(row)


def held_flops(row: Row) -> float:
    """Return the FLOPs of a held row: products' 2 m n k, attention's by the half that a causal mask leaves."""
    sizes = [float(one) for one in row["shape"].removesuffix(" causal").split("x")]
    if row["kernel"].startswith("product"):
        return 2 * math.prod(sizes)
    batch, heads, tokens, width = sizes
    products = 2 if "forward" in row["kernel"] else 5
    return products * 2 * batch * heads * tokens**2 * width / 2


def _mean(values: Any) -> float:
    return statistics.geometric_mean(values)


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def write(path: Path = POWER) -> Path:
    """Write the file, and return where."""
    path.write_text(json.dumps(document(), indent=1) + "\n")
    return path
