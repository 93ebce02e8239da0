"""Rates of matrix products that accelerators hold at their power limits, as ``make calibrate`` ships them.

Model: single kernels are timed cool, for milliseconds; training holds a device at its power limit, where its clock
settles lower. No kernel of a step does more FLOPs per second than the fastest product that was seen to be sustained on
random numbers between kernels that draw less, at bf16 or fp16; of fp8, than the share that bf16 keeps of the fastest
short run, unverified. What a step's mix of kernels makes of that, ``power`` says of the dies that it knows. Of others:
under another power limit that rate follows a power of it, as the B200's does under two (``held_exponent``); the
arithmetic of kernels below it, whose rows an accelerator of equal peaks and a higher limit lends, follows a lesser
power, as short runs do on two cards of one die.
Ignores sustained rates of NVFP4, fp32 and TF32, which are not published, and of accelerators whose peak none has.
"""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

from rostam_py.costs.accelerators import ACCELERATORS, Accelerator

RATES = Path(__file__).parent / "tables" / "sustained_products.json"
CLOCKS = ("sustained", "burst")  # cost.clocks: rates that are held, or as timed kernel by kernel
_MEASURED = {"bf16": "bf16", "fp16": "bf16", "fp8": "fp8", "mxfp8": "fp8"}  # precision -> whose rate it has


@dataclass(frozen=True, slots=True)
class SustainedRates:
    """rates: precision and accelerator to sustained FLOP/s and the watts of its limit.

    held_exponent: of watts in a rate that is held. exponent: of watts in that of a kernel below it.
    """

    rates: dict[str, dict[str, tuple[float, float]]]
    held_exponent: float
    exponent: float

    def rate(self, accelerator: Accelerator, precision: str) -> float | None:
        """Return what an accelerator sustains [FLOP/s], None where neither it nor one of the same peak was measured."""
        measured = _MEASURED.get(precision, "")
        rates, peak = self.rates.get(measured, {}), accelerator.peak(precision)
        same = [name for name in rates if ACCELERATORS[name].peak_flops_per_s.get(measured) == peak]
        if not same:
            return None
        rate, watts = rates[accelerator.name if accelerator.name in same else same[0]]
        return min(rate * _share(accelerator.watts, watts, self.held_exponent), peak)

    def slowed(self, accelerator: Accelerator, lender: Accelerator) -> float:
        """Return the share of its speed that arithmetic keeps under an accelerator's limit, timed under a lender's.

        1 where their peaks differ: another die takes other power, and lends shares of a peak.
        """
        is_same = accelerator.peak_flops_per_s == lender.peak_flops_per_s
        return min(_share(accelerator.watts, lender.watts, self.exponent), 1.0) if is_same else 1.0


def _share(watts: float, than: float, exponent: float) -> float:
    return (watts / than) ** exponent if watts and than else 1.0


@functools.cache
def sustained_rates() -> SustainedRates:
    """Return the shipped rates."""
    document = json.loads(RATES.read_text())
    rates: dict[str, dict[str, tuple[float, float]]] = {}
    for one in document["rates"]:
        rates.setdefault(one["precision"], {})[one["accelerator"]] = (one["flops_per_s"], one["watts"])
    return SustainedRates(rates, document["held_exponent"]["value"], document["power_exponent"]["value"])
