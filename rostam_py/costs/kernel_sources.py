"""Which measured series answer for a kind of kernel on an accelerator: its own table's, or those that others lend.

Model: accelerators of equal peaks are parts of one die with other memory or another limit of power. Of kernels with
arithmetic what was measured on any of them counts on all: times of one source on two parts differ as those of two
boards do, by more than the parts themselves. A kind that no part has is lent by the nearest accelerator whose table has
it: of the same peak first, then of the same matrix units (the same kinds of peaks), then by the ratio of peak to memory
bandwidth. Kernels without arithmetic have the accelerator's own rows, else those of the nearest bandwidth. Of attention
the programs asked for count; where no part has rows of any, those of whatever programs serve. A table of the user's own
answers alone for what it has.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rostam_py.costs.accelerators import ACCELERATORS, Accelerator
from rostam_py.costs.attention_programs import of_programs
from rostam_py.costs.kernel_table import KernelSeries, KernelTable, shipped_table

# A precision without measurements takes those of one that runs on the same units at the same rate (NVIDIA data sheets).
SAME_UNITS = {"fp16": "bf16", "mxfp8": "fp8"}
# Of kinds that begin so, one that no table has in a precision takes the rows of another on the same units, at its peak.
_SLOWER_ON_SAME_UNITS = {("attention", "tf32"): "bf16"}


@dataclass(frozen=True, slots=True)
class Source:
    """A series and which accelerator lends it, "" for the own table."""

    series: KernelSeries
    lender: str = ""

    @property
    def origin(self) -> tuple[str, str]:
        """The file or package that it comes from, and whose kernels it has."""
        return self.series.source.split()[0], self.series.program


class KernelSources:
    """The series that answer on one accelerator.

    Args:
        own: its table. is_given: it is one of the user's own.
        programs: of attention, that are asked for.
    """

    def __init__(
        self, accelerator: Accelerator, own: KernelTable | None, programs: tuple[str, ...], *, is_given: bool = False
    ) -> None:
        self._accelerator, self._own, self._programs, self._is_given = accelerator, own, programs, is_given

    def of(self, kind: str, precision: str) -> list[Source]:
        """Return the sources of a kind, [] where no table has it."""
        for wanted in (precision, SAME_UNITS.get(precision), slower(kind, precision)):
            if wanted is None:
                continue
            own = [Source(one) for one in self.own_series(kind, wanted)]
            if self._is_given and (chosen := self._asked_for(own)):
                return chosen
            found = own + self._of_one_die(kind, wanted)
            if not found:
                lender = self.nearest(lenders(kind, wanted), wanted, precision)
                found = [Source(one, lender) for one in matching(shipped(lender), kind, wanted)] if lender else []
            if found:
                return self._asked_for(found) or own or found
        return []

    def own_series(self, kind: str, precision: str) -> list[KernelSeries]:
        """Return the own table's series of a kind."""
        return matching(self._own, kind, precision)

    def nearest(self, names: Sequence[str], measured: str, precision: str) -> str:
        """Return which of some accelerators is nearest, by their peaks where ``measured``; "" for none."""
        return min((self._distance(name, measured, precision), name) for name in names)[1] if names else ""

    def _asked_for(self, sources: Sequence[Source]) -> list[Source]:
        return [one for one in sources if of_programs([one.series], self._programs)]

    def _of_one_die(self, kind: str, precision: str) -> list[Source]:
        """Return the rows of the die's other parts; of kernels without arithmetic none."""
        parts = [
            name for name in (lenders(kind, precision) if precision else ())
            if name != self._accelerator.name and is_one_die(self._accelerator, ACCELERATORS[name])
        ]  # fmt: skip
        return [Source(one, name) for name in parts for one in matching(shipped(name), kind, precision)]

    def _distance(self, name: str, measured: str, precision: str) -> tuple[bool, bool, float]:
        """Return whether another's peak and its kinds of peaks differ, and the logarithm of the ratio of balances."""
        other, own = ACCELERATORS[name], self._accelerator
        ratio = other.memory_bandwidth_bytes_per_s / own.memory_bandwidth_bytes_per_s
        if not measured:
            return False, False, abs(math.log(ratio))
        peak, others = own.peak(precision), other.peak(measured)
        return others != peak, not has_same_units(own, other), abs(math.log(ratio * peak / others))


def is_one_die(one: Accelerator, other: Accelerator) -> bool:
    """Say whether two accelerators have equal peaks throughout, as parts of one die with other memory have."""
    return one.peak_flops_per_s == other.peak_flops_per_s


def has_same_units(one: Accelerator, other: Accelerator) -> bool:
    """Say whether two accelerators' matrix units compute on the same numbers, as those of one generation do."""
    return one.peak_flops_per_s.keys() == other.peak_flops_per_s.keys()


def slower(kind: str, precision: str) -> str | None:
    """Return the precision whose rows a kind takes at the peak of another one, None for its own."""
    return _SLOWER_ON_SAME_UNITS.get((kind.split("_")[0], precision))


def matching(table: KernelTable | None, kind: str, precision: str) -> list[KernelSeries]:
    """Return a table's series of a kind in a precision."""
    if table is None:
        return []
    return [one for one in table.series if one.kind == kind and one.precision == precision]


@functools.cache
def shipped(name: str) -> KernelTable | None:
    """Return the table shipped for an accelerator, None where there is none."""
    path: Path | None = shipped_table(name)
    return None if path is None else KernelTable.load(path)


@functools.cache
def lenders(kind: str, precision: str) -> tuple[str, ...]:
    """Return the accelerators whose shipped tables hold a kind in a precision."""
    return tuple(name for name in ACCELERATORS if matching(shipped(name), kind, precision))
