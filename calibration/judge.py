"""Judge the interpolation of measured kernels on what it has not seen.

Model: a table's distinct shapes, in file order, are numbered; the odd ones are fitted and the even ones predicted.
Error = predicted / measured time - 1, so that a positive one is too slow.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.measurements import Measurements
from rostam_py.costs.kernel_kinds import Array
from rostam_py.costs.kernel_table import KernelSeries

MAX_ABSOLUTE = 0.08  # mean absolute error allowed for a family on a device
MAX_SIGNED = 0.04  # and mean signed error


@dataclass(frozen=True, slots=True)
class Verdict:
    """Errors on the held-out shapes of one table. num_outside: of them, outside the box of the fitted ones."""

    device: str
    label: str
    precision: str
    source: str
    num_fitted: int
    num_outside: int
    errors: Array

    @property
    def absolute(self) -> float:
        """Mean absolute error."""
        return float(np.abs(self.errors).mean())

    @property
    def signed(self) -> float:
        """Mean signed error."""
        return float(self.errors.mean())

    @property
    def worst(self) -> float:
        """Error of the largest absolute value."""
        return float(self.errors[np.abs(self.errors).argmax()])

    @property
    def is_miss(self) -> bool:
        """Whether it breaks the rule."""
        return self.absolute > MAX_ABSOLUTE or abs(self.signed) > MAX_SIGNED


def judge(measured: Measurements) -> Verdict:
    """Fit the odd shapes, predict the even ones."""
    places = np.arange(len(measured.rows))
    fitted, held_out = places[0::2], places[1::2]
    series = measured.series(fitted)
    predicted, outside = predictions(series, measured, held_out)
    errors = predicted / measured.seconds[held_out] - 1
    return Verdict(
        measured.device.name, measured.label, measured.precision, measured.source, len(fitted), outside, errors
    )


def predictions(series: KernelSeries, measured: Measurements, places: NDArray[np.int_]) -> tuple[Array, int]:
    """Return the predicted times of some of the measured shapes, and how many are outside the fitted box."""
    shapes = measured.shapes[places]
    columns = {name: shapes[:, at] for at, name in enumerate(series.of_kind.fields)}
    points = series.of_kind.spaces[series.fit.space](columns)
    asked = KernelSeries(
        series.kind, series.precision, series.source, series.device, series.element_bytes, columns,
        measured.seconds[places], series.fit,
    )  # fmt: skip
    ratios = np.exp(series.surface.at(points))
    return ratios * asked.ideal_s(series.fit.fixed_s), int((series.surface.distance(points) > 0).sum())


def table(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Yield a Markdown table, misses first, the largest error first."""
    yield "| device | kernels | precision | fitted + judged | mean absolute | mean signed | worst | rule | table |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for one in sorted(verdicts, key=lambda one: (not one.is_miss, -one.absolute)):
        yield (
            f"| {one.device} | {one.label} | {one.precision or 'fp32'} | {one.num_fitted} + {len(one.errors)}"
            f" ({one.num_outside} outside) | {one.absolute:.1%} | {one.signed:+.1%} | {one.worst:+.0%} |"
            f" {'missed' if one.is_miss else 'held'} | {one.source} |"
        )
