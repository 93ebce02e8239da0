"""How many times the rows of tables products take by recipe, as ``make calibrate`` ships it.

Model: tables have the products of an inference engine, which tries several kernels and keeps the fastest, less casts
that were timed apart. A training step takes its library's first choice: times what the products of a layer take by
Transformer Engine, summed over twelve of them, on all accelerators of the same matrix units as the one that was
measured. Those with a scale for each block of 32 (MXFP8) have no other measurement. Where matrix
units add up products of 8 bits in fewer than 32 bits (Hopper's), programs that need more move partial sums out of them
as they go: Transformer Engine and torchao for gradients, recipes of blocks always; tables time products that do not.
Products in 16 bits that add into an fp32 output, weights' gradients, were measured on two devices by one source; others
time none, and take the multiple of the nearest device, by its balance of peak and memory.
Ignores how all of them change with the shape.
"""

import functools
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from rostam_py.costs.accelerators import ACCELERATORS, Accelerator

MULTIPLES = Path(__file__).parent / "tables" / "products_by_recipe.json"


@dataclass(frozen=True, slots=True)
class RecipeMultiples:
    """of_precision: precision to the accelerator that was measured and its multiple.

    moved_sums: multiple of products whose partial sums are moved; spread: its largest over its smallest, less 1.
    adding: accelerator that was measured to the multiple of products in 16 bits that add into an fp32 output.
    """

    of_precision: dict[str, tuple[str, float]]
    moved_sums: float
    spread: float
    adding: dict[str, float] = field(default_factory=dict)

    def of(self, accelerator: Accelerator, precision: str, *, moves_sums: bool) -> tuple[float, float]:
        """Return the multiple of a product's time by tables' rows, and how far sources differ; (1, 0) for none.

        Args: precision: of the peak. moves_sums: its recipe moves partial sums where matrix units keep too few bits.
        """
        if moves_sums and accelerator.short_fp8_sums:
            return self.moved_sums, self.spread
        measured, multiple = self.of_precision.get(precision, ("", 1.0))
        if measured and ACCELERATORS[measured].peak_flops_per_s.keys() == accelerator.peak_flops_per_s.keys():
            return multiple, abs(multiple - 1)
        return 1.0, 0.0

    def of_adding(self, accelerator: Accelerator, precision: str) -> float:
        """Return the multiple of products that add into an fp32 output; 1 where none was measured in a precision."""
        if precision not in _HALVES or not self.adding:
            return 1.0

        def balance(one: Accelerator) -> float:
            return one.peak("bf16") / one.memory_bandwidth_bytes_per_s

        def distance(name: str) -> tuple[bool, float]:
            return name != accelerator.name, abs(math.log(balance(ACCELERATORS[name]) / balance(accelerator)))

        return self.adding[min(self.adding, key=distance)] if "bf16" in accelerator.peak_flops_per_s else 1.0


_HALVES = ("bf16", "fp16")
AS_TABLED = RecipeMultiples({}, 1.0, 0.0)


@functools.cache
def recipe_multiples() -> RecipeMultiples:
    """Return the shipped multiples."""
    document = json.loads(MULTIPLES.read_text())
    of_precision = {one["precision"]: (one["accelerator"], one["value"]) for one in document["multiples"]}
    adding = {one["accelerator"]: one["value"] for one in document["adding"]}
    return RecipeMultiples(of_precision, document["moved_sums"]["value"], document["moved_sums"]["spread"], adding)
