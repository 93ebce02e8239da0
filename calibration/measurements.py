"""What a source measured: shapes and times of one kind of kernel on one device, before anything is fitted."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from rostam_py.costs.kernel_fit import fitted, judged
from rostam_py.costs.kernel_kinds import Array, kernel_kind
from rostam_py.costs.kernel_surface import Fit
from rostam_py.costs.kernel_table import KernelSeries, MeasuredDevice

Rows = dict[tuple[float, ...], list[float]]


@dataclass(frozen=True)
class Measurements:
    """Distinct shapes in file order, each with the median of its times.

    accelerator: of the product, whose table they go into, "" for one that the product does not know. label: the row of
        the table of errors. source: file and rows. rows: values of the kind's fields -> times [s], repeats included.
    """

    accelerator: str
    kind: str
    label: str
    precision: str
    source: str
    device: MeasuredDevice
    element_bytes: float
    rows: Rows
    program: str = ""  # of attention: whose kernels, where the source tells several apart

    @property
    def shapes(self) -> Array:
        """Distinct shapes (N, fields), in file order."""
        return np.asarray(list(self.rows), dtype=float)

    @property
    def seconds(self) -> Array:
        """Median time of each shape [s], to the four digits that tables hold."""
        return np.asarray([float(f"{np.median(times):.4g}") for times in self.rows.values()])

    @property
    def spread(self) -> float:
        """Median over shapes measured more than once of largest over smallest time, less 1."""
        ratios = [max(times) / min(times) - 1 for times in self.rows.values() if len(times) > 1]
        return float(f"{np.median(ratios):.3f}") if ratios else 0.0

    def unfitted(self) -> KernelSeries:
        """Return these measurements as a series without a fit."""
        columns = {name: self.shapes[:, at] for at, name in enumerate(kernel_kind(self.kind).fields)}
        return KernelSeries(
            kind=self.kind, precision=self.precision, source=self.source, device=self.device,
            element_bytes=self.element_bytes, columns=columns, seconds=self.seconds,
            fit=Fit("", (), 0.0, 0.0), source_spread=self.spread, program=self.program,
        )  # fmt: skip

    def series(self) -> KernelSeries:
        """Return these measurements, fitted and judged."""
        return judged(fitted(self.unfitted()))


def collected(pairs: Iterable[tuple[tuple[float, ...], float]]) -> Rows:
    """Return shapes in the order of their first measurement, each with all of its times."""
    rows: Rows = {}
    for shape, seconds in pairs:
        rows.setdefault(tuple(float(value) for value in shape), []).append(seconds)
    return rows


def thinned(rows: Rows, keep: Callable[[tuple[float, ...]], bool]) -> Rows:
    """Return the rows whose shape ``keep`` accepts."""
    return {shape: times for shape, times in rows.items() if keep(shape)}
