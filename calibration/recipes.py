"""Distil how long products of 8 bits take by recipe into the file that ``rostam_py.costs.recipes`` reads.

Model: products that the program which trains was timed with for whole layers, not shape by shape, take as many times
    those of the accelerator's table as the sum over the layer does, at the rates that are held: they ran one behind the
    other for a tenth of a second. Of partial sums moved out of the matrix units the source has the least and the most:
    their geometric mean, and their ratio as its spread.
"""

import json
import math
from pathlib import Path
from typing import Any

from calibration.published import digest, read
from rostam_py.costs.accelerators import Accelerator, get_accelerator
from rostam_py.costs.calibrated import CalibratedCost
from rostam_py.costs.kernel_kinds import LAYOUTS
from rostam_py.costs.kernel_shapes import LAYOUT_OF, KernelQuestion
from rostam_py.costs.recipes import AS_TABLED, MULTIPLES
from rostam_py.graph import OperatorGraph

FILE = "products_by_recipe.csv"
TOKENS, SIDES = 15872, ((4096, 12288), (4096, 4096), (4096, 16384), (16384, 4096))  # of each product: k and n
_TABLES = {"fp8": ("fp8", 1), "mxfp8": ("fp8", 1)}  # precision -> whose rows it takes, and bytes of an element
_OUT_BYTES = 2.0


def shapes(stage: str) -> list[tuple[int, int, int]]:
    """Return (m, n, k) of the products of the layer at a stage, as the source lists them."""
    of_stage = {"forward": lambda k, n: (TOKENS, n, k), "input_gradient": lambda k, n: (TOKENS, k, n)}
    return [of_stage.get(stage, lambda k, n: (k, n, TOKENS))(k, n) for k, n in SIDES]


def document() -> dict[str, Any]:
    """Return the shipped file's content."""
    rows = read(FILE)
    multiples = []
    for name, precision in dict.fromkeys(
        (one["accelerator"], one["precision"]) for one in rows if one["use"] == "layer"
    ):
        measured = {
            one["stage"]: float(one["ms"]) * 1e-3 for one in rows
            if (one["use"], one["accelerator"], one["precision"]) == ("layer", name, precision)
        }  # fmt: skip
        tabled = sum(_tabled_s(get_accelerator(name), precision, stage) for stage in measured)
        multiples.append({
            "accelerator": name, "precision": precision, "of": _TABLES[precision][0],
            "value": float(f"{sum(measured.values()) / tabled:.4g}"), "shapes": len(SIDES) * len(measured),
        })  # fmt: skip
    least, most = (float(one["ms"]) for one in rows if one["use"] == "sums")
    sums = {"value": float(f"{math.sqrt(least * most):.4g}"), "spread": float(f"{most / least - 1:.3g}")}
    return {
        "made_by": "make calibrate", "source": FILE, "sha256": digest(FILE), "multiples": multiples, "moved_sums": sums,
        "adding": [_adding(name, card) for name, card in _ADDING.items()],
    }  # fmt: skip


_ADDING = {"a100_80gb": "gemm_a100_simumax.csv", "b200_180gb": "gemm_b200_simumax.csv"}
_LEAST_FLOPS = 0.2e12  # of a product: smaller ones have the host's launches in them


def _adding(accelerator: str, file: str) -> dict[str, Any]:
    """Return how many times forward products those that add into fp32 take, of the same three sizes, summed."""
    times: dict[tuple[int, ...], dict[tuple[str, ...], float]] = {}
    for one in read(file):
        sizes = [int(one[key]) for key in ("m", "n", "k")]
        flops = 2.0 * int(one["batch"]) * math.prod(sizes)
        if flops > _LEAST_FLOPS:
            what = tuple(one[key] for key in ("layout", "out_dtype", "accumulate"))
            seconds = flops / (float(one["efficiency"]) * float(one["peak_flops"]))
            times.setdefault((int(one["batch"]), *sorted(sizes)), {}).setdefault(what, seconds)
    forward, added = ("TN", "bf16", "0"), ("NT", "fp32", "1")
    pairs = [(one[forward], one[added]) for one in times.values() if forward in one and added in one]
    value = sum(pair[1] for pair in pairs) / sum(pair[0] for pair in pairs)
    return {"accelerator": accelerator, "source": file, "sha256": digest(file), "value": float(f"{value:.4g}"),
            "pairs": len(pairs)}  # fmt: skip


def _tabled_s(device: Accelerator, precision: str, stage: str) -> float:
    """Return how long the layer's products take by the rows that a precision takes [s]."""
    rows, element = _TABLES[precision]
    cost = CalibratedCost(CalibratedCost.Config(), device, OperatorGraph("", (), ()), AS_TABLED)
    layout = float(LAYOUTS.index(LAYOUT_OF[stage]))
    asked = [
        KernelQuestion(
            kind="product", sizes=(1.0, float(m), float(n), float(k), layout, _OUT_BYTES), precision=rows,
            flops=2.0 * m * n * k, traffic=element * (m * k + k * n) + _OUT_BYTES * m * n,
        ) for m, n, k in shapes(stage)
    ]  # fmt: skip
    return sum(cost.seconds(one) for one in asked)


def write(path: Path = MULTIPLES) -> Path:
    """Write the file, and return where."""
    path.write_text(json.dumps(document(), indent=1) + "\n")
    return path
