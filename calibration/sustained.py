"""Distil published rates of sustained products into the file that ``rostam_py.costs.sustained`` reads.

Model: rates of bf16 as published. Of fp8 only the best products of short runs are: they keep the share that those of
    bf16 keep, by the same script on the same device, as both are held by its power. How a rate that is held follows the
    power limit: the exponent between the same accelerator's under two limits (``sustained`` and ``limited``). How a
    kernel that takes less follows it: that between two cards of one die (``power``), as the same script found their
    best shapes in short runs.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibration.published import digest, read
from rostam_py.costs.sustained import RATES

FILE = "sustained_products.csv"


def document() -> dict[str, Any]:
    """Return the shipped file's content."""
    rows = read(FILE)
    held = [one for one in rows if one["use"] == "sustained"]
    achieved = {
        (one["accelerator"], one["precision"]): float(one["tflops"]) for one in rows if one["use"] == "achieved"
    }
    rates = [_rate(one, one["precision"], float(one["tflops"]) * 1e12) for one in held]
    for one in held:
        for (name, precision), best in achieved.items():
            if name == one["accelerator"] and precision != one["precision"]:
                share = best / achieved[name, one["precision"]]
                rates.append(_rate(one, precision, float(f"{float(one['tflops']) * 1e12 * share:.4g}")))
    limited = next(one for one in rows if one["use"] == "limited")
    whole = next(one for one in held if one["accelerator"] == limited["accelerator"])
    return {
        "made_by": "make calibrate", "source": FILE, "sha256": digest(FILE), "rates": rates,
        "held_exponent": _exponent(whole, limited),
        "power_exponent": _exponent(*(one for one in rows if one["use"] == "power")),
    }  # fmt: skip


def _exponent(high: Mapping[str, str], low: Mapping[str, str]) -> dict[str, Any]:
    """Return which power of the limit the rate follows between two rows."""
    rates, watts = ([float(one[key]) for one in (high, low)] for key in ("tflops", "watts"))
    value = math.log(rates[1] / rates[0]) / math.log(watts[1] / watts[0])
    of = " and ".join(f"{one['device']} at {one['watts']} W" for one in (low, high))
    return {"value": float(f"{value:.4g}"), "of": of}


def _rate(one: Mapping[str, str], precision: str, flops_per_s: float) -> dict[str, Any]:
    return {
        "accelerator": one["accelerator"], "precision": precision, "flops_per_s": flops_per_s,
        "watts": float(one["watts"]), "device": one["device"],
    }  # fmt: skip


def write(path: Path = RATES) -> Path:
    """Write the file, and return where."""
    path.write_text(json.dumps(document(), indent=1) + "\n")
    return path
