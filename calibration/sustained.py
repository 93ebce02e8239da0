"""Distil published rates of sustained products into the file that ``rostam_py.costs.sustained`` reads.

Model: rates as published. How a rate follows the power limit: the exponent between two cards of one die (the rows of
    use ``power``), as the same script found their best shapes.
"""

import json
import math
from pathlib import Path
from typing import Any

from calibration.published import digest, read
from rostam_py.costs.sustained import RATES

FILE = "sustained_products.csv"


def document() -> dict[str, Any]:
    """Return the shipped file's content."""
    rows = read(FILE)
    rates = [
        {
            "accelerator": one["accelerator"], "flops_per_s": float(one["tflops"]) * 1e12, "watts": float(one["watts"]),
            "device": one["device"],
        }
        for one in rows if one["use"] == "sustained"
    ]  # fmt: skip
    high, low = (one for one in rows if one["use"] == "power")
    value = math.log(float(low["tflops"]) / float(high["tflops"])) / math.log(
        float(low["watts"]) / float(high["watts"])
    )
    return {
        "made_by": "make calibrate", "source": FILE, "sha256": digest(FILE), "rates": rates,
        "power_exponent": {"value": float(f"{value:.4g}"), "of": f"{low['device']} and {high['device']}"},
    }  # fmt: skip


def write(path: Path = RATES) -> Path:
    """Write the file, and return where."""
    path.write_text(json.dumps(document(), indent=1) + "\n")
    return path
