"""Errors on measurements that were held out of a calibration, as the shipped constants' own files state them.

Example:
    for name, errors in STATED["collectives"]():
        print(name, errors.absolute)

``make calibrate`` writes them next to what it fits (docs/calibration.md, docs/collectives.md); the measured tables
themselves are not part of an installed rostam.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rostam_py.costs.kernel_table import TABLES, KernelTable
from rostam_py.fabrics.link_classes import LINK_CLASSES, held_out_of


@dataclass(frozen=True, slots=True)
class HeldOutErrors:
    """Errors of times of one family on one device from one table [%]; above 0: predicted slower than measured.

    num_fitted: rows that constants were chosen by. num_judged: rows that were held out of it. absolute, signed: means
    over the judged ones. worst: the largest. is_miss: they break the rule of their table.
    """

    num_fitted: int
    num_judged: int
    absolute: float
    signed: float
    worst: float
    is_miss: bool


def _kernels() -> Iterator[tuple[str, HeldOutErrors]]:
    for path in sorted(TABLES.glob("*.kernels.json")):
        for one in KernelTable.load(path).series:
            found = one.held_out
            if found is None:
                continue
            name = f"{path.name.partition('.')[0]} {one.kind.replace('_', ' ')} {one.numbers}, {one.source}"
            errors = (100 * found.absolute, 100 * found.signed, 100 * found.worst)
            yield name, HeldOutErrors(len(one.seconds) - found.rows, found.rows, *errors, found.is_miss)


def _collectives() -> Iterator[tuple[str, HeldOutErrors]]:
    for name in LINK_CLASSES.names():
        for one in held_out_of(name):
            if one.is_rival:
                continue
            errors = (100 * one.absolute, 100 * one.signed, 100 * one.worst)
            judged = one.num_even + one.num_held_out
            yield (
                f"{one.device} {one.collective}, {one.table}",
                HeldOutErrors(one.num_fitted, judged, *errors, one.is_miss),
            )


# What a table's key "held_out" may name.
STATED: dict[str, Callable[[], Iterator[tuple[str, HeldOutErrors]]]] = {
    "kernels": _kernels, "collectives": _collectives,
}  # fmt: skip
