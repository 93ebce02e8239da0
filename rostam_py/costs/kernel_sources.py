"""Which measured series answer for a kind of kernel on an accelerator: its own table's, or those that others lend.

Model: accelerators of equal peaks are parts of one die with other memory or another limit of power. Of kernels with
arithmetic what was measured on any of them counts on all: times of one source on two parts differ as those of two
boards do, by more than the parts themselves. A kind that no part has is lent by the nearest accelerator whose table has
it: of the same peak first, then of the same matrix units (the same kinds of peaks), then by the ratio of peak to memory
bandwidth. Kernels without arithmetic have the accelerator's own rows, else its own of a kind alike (casts stream as
element-wise kernels do), else those of a part of its die, of the same matrix units, of the nearest bandwidth, in this
order. Of attention the programs asked for count; where no part has rows of any, those of whatever programs serve. So it
is with norms, but that another accelerator lends rows of those programs first: programs differ by more than devices do
in what share of the bandwidth they reach. A table of the user's own answers alone for what it has.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rostam_py.costs.accelerators import ACCELERATORS, Accelerator
from rostam_py.costs.kernel_kinds import kernel_kind
from rostam_py.costs.kernel_table import KernelSeries, KernelTable, shipped_table
from rostam_py.costs.programs import UNNAMED, Programs, of_programs

# A precision without measurements takes those of one that runs on the same units at the same rate (NVIDIA data sheets).
SAME_UNITS = {"fp16": "bf16", "mxfp8": "fp8"}
_CONVOLUTION = "convolution"  # kinds that begin so were measured in fp16
# Of kinds that begin so, one that no table has in a precision takes the rows of another on the same units, at its peak.
_SLOWER_ON_SAME_UNITS = {("attention", "tf32"): "bf16", (_CONVOLUTION, "tf32"): "fp16"}


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
        programs: of attention and norms, that are asked for.
    """

    def __init__(
        self, accelerator: Accelerator, own: KernelTable | None, programs: Programs, *, is_given: bool = False
    ) -> None:
        self._accelerator, self._own, self._programs, self._is_given = accelerator, own, programs, is_given

    def of(self, kind: str, precision: str) -> list[Source]:
        """Return the sources of a kind, [] where no table has it."""
        for wanted in (precision, same_units(kind, precision), slower(kind, precision)):
            if wanted is None:
                continue
            own = [Source(one) for one in self.own_series(kind, wanted)]
            if self._is_given and (chosen := self._asked_for(own) or ([] if wanted else _unnamed(own))):
                return chosen
            found = own + self._of_one_die(kind, wanted) or self._alike_or_lent(kind, wanted, precision)
            lent = [] if wanted or self._asked_for(found) else self._alike_or_lent(kind, wanted, precision)
            if found:
                return self._asked_for(found) or lent or own or found
        return []

    def _alike_or_lent(self, kind: str, measured: str, precision: str) -> list[Source]:
        """Return own rows of a kind alike, else those that the nearest accelerator lends of the kind or of that one.

        Of kernels without arithmetic those of the programs asked for.
        """
        kinds = list(_kinds_alike(kind))

        def rows(table: KernelTable | None) -> list[KernelSeries]:
            found = (matching(table, each, measured) for each in kinds)
            return next(filter(None, (one if measured else of_programs(one, self._programs) for one in found)), [])

        if own := rows(self._own):
            return [Source(one) for one in own]
        lender = self.nearest([name for name in ACCELERATORS if rows(shipped(name))], measured, precision)
        return [Source(one, lender) for one in rows(shipped(lender))] if lender else []

    def of_all_programs(self, kind: str, precision: str) -> list[Source]:
        """Return the sources of a kind on the accelerator's die, whatever their programs; of a given table its own."""
        for wanted in (precision, SAME_UNITS.get(precision), slower(kind, precision)):
            if wanted is not None:
                own = [Source(one) for one in self.own_series(kind, wanted)]
                if found := own if self._is_given else own + self._of_one_die(kind, wanted):
                    return found
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
        """Return whether another's peak and its kinds of peaks differ, and the logarithm of the ratio of balances.

        Without arithmetic: whether it is another die, its kinds of peaks differ, and that of the ratio of bandwidths.
        """
        other, own = ACCELERATORS[name], self._accelerator
        ratio = other.memory_bandwidth_bytes_per_s / own.memory_bandwidth_bytes_per_s
        if not measured:
            return not is_one_die(own, other), not has_same_units(own, other), abs(math.log(ratio))
        peak, others = own.peak(precision), other.peak(measured)
        return others != peak, not has_same_units(own, other), abs(math.log(ratio * peak / others))


def _unnamed(sources: Sequence[Source]) -> list[Source]:
    """Return those that do not tell their program: a profile's own norms, whichever ran."""
    return [one for one in sources if one.series.program == UNNAMED]


def is_one_die(one: Accelerator, other: Accelerator) -> bool:
    """Say whether two accelerators have equal peaks throughout, as parts of one die with other memory have."""
    return one.peak_flops_per_s == other.peak_flops_per_s


def has_same_units(one: Accelerator, other: Accelerator) -> bool:
    """Say whether two accelerators' matrix units compute on the same numbers, as those of one generation do."""
    return one.peak_flops_per_s.keys() == other.peak_flops_per_s.keys()


def same_units(kind: str, precision: str) -> str | None:
    """Return the precision of the same rate whose rows a kind takes, None for its own."""
    if precision == "bf16" and kind.startswith(_CONVOLUTION):
        return "fp16"
    return SAME_UNITS.get(precision)


def _kinds_alike(kind: str) -> Iterator[str]:
    """Yield a kind, the one that is alike, and so on."""
    while kind:
        yield kind
        kind = kernel_kind(kind).alike


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
