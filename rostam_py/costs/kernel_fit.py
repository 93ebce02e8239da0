"""Fit measured kernels, and judge the fit on rows that it has not seen: what makes a series of a kernel table.

Model: distinct shapes are numbered as they stand; the odd ones are fitted and the even ones predicted. Error =
predicted / measured time - 1, so that a positive one is too slow. The series that is kept is fitted on all rows.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rostam_py.costs.kernel_kinds import BY_LENGTH, Array, is_of_one_size
from rostam_py.costs.kernel_surface import FIXED_TIMES, IDEALS, LAUNCH_S, Fit, choose_fit
from rostam_py.costs.kernel_table import HeldOut, KernelSeries

_LEAST_ROWS = 8  # to be judged: four fitted, four predicted
_BARE_SHARE = 0.1  # of a row's time that its bytes may take at most, for the rest to be what such a kernel loses


def fitted(series: KernelSeries, num_rows: int = 0) -> KernelSeries:
    """Return a series whose fit predicts each of its rows best from the others.

    Model: rows of attention that all have as many tokens of one width are told apart by length and head size alone, and
        have the fixed time of a launch: what short sequences lose would else seem to be a fixed time, which more heads
        repay. So have series of too few rows to be judged. Kernels without arithmetic, of which some rows moved next to
        nothing, have the time of those, and rows of streams reach half of the widest gap between them. Other ideal
        times than the longer of arithmetic and traffic are tried where a kernel has arithmetic and rows are not too
        few.
    Args: num_rows: of the whole series, where these are a part of its rows.
    """
    is_one = is_of_one_size(series.columns)
    spaces = {
        name: space(series.columns, series.device.multiprocessors)
        for name, space in series.of_kind.spaces.items()
        if (name == BY_LENGTH) == is_one
    }
    bare = series.seconds[series.ideal_s(Fit("", (), 0.0, 0.0)) < _BARE_SHARE * series.seconds]
    if len(series.columns) == 1 and len(bare):
        (sizes,) = (np.sort(np.log2(column)) for column in series.columns.values())
        fixed_s, gap = float(f"{np.median(bare):.4g}"), float(np.diff(sizes).max())
        return replace(series, fit=choose_fit(spaces, series.log_ratios, (fixed_s,), gap / 2))
    is_few = max(num_rows, len(series.seconds)) < _LEAST_ROWS
    fixed_times = (LAUNCH_S,) if is_one or is_few else FIXED_TIMES
    if len(bare) and not is_few and not series.precision:
        fixed_times = (float(f"{np.median(bare):.4g}"),)
    ideals = () if is_few or series.of_kind.loop is None else IDEALS
    least_scale = series.of_kind.least_scale
    return replace(series, fit=choose_fit(spaces, series.log_ratios, fixed_times, least_scale, ideals))


def judged(series: KernelSeries) -> KernelSeries:
    """Return a fitted series with the errors of its rows that a fit of the others predicts."""
    errors = held_out_errors(series)[0]
    found = None
    if len(errors) >= _LEAST_ROWS // 2:
        worst = errors[np.abs(errors).argmax()]
        rounded = (float(f"{value:.4f}") for value in (np.abs(errors).mean(), errors.mean(), worst))
        found = HeldOut(len(errors), *rounded)
    return replace(series, held_out=found)


def held_out_errors(series: KernelSeries) -> tuple[Array, int]:
    """Return the errors of the even rows, fitted on the odd ones, and how many are outside the odd ones' sizes."""
    places = np.arange(len(series.seconds))
    known, asked = fitted(_rows(series, places[0::2]), len(places)), _rows(series, places[1::2])
    if not len(asked.seconds):
        return np.zeros(0), 0
    return np.asarray(known.seconds_of(asked.columns) / asked.seconds - 1), int(
        (known.distances(asked.columns) > 0).sum()
    )


def _rows(series: KernelSeries, places: NDArray[np.int_]) -> KernelSeries:
    columns = {name: column[places] for name, column in series.columns.items()}
    return replace(series, columns=columns, seconds=series.seconds[places])
