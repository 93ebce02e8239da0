"""What measured series say of a question about a kernel, one by one, and their median over origins.

Example:
    found = [reading_of(source, question, ACCELERATORS["h100_80gb"]) for source in sources]
    math.exp(log_median(found, min(one.distance for one in found), tolerance=0.5))      # [s]
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rostam_py.costs.accelerators import Accelerator
from rostam_py.costs.kernel_kinds import kernel_kind
from rostam_py.costs.kernel_shapes import KernelQuestion
from rostam_py.costs.kernel_sources import Source
from rostam_py.costs.kernel_table import KernelSeries

_BYTES = 2.0  # of an element in the precisions that others are taken from


@dataclass(frozen=True, slots=True)
class Reading:
    """What one series says of a question.

    distance: octaves outside its measured sizes. seconds: of one kernel. spread: of its repeats. fixed_share: of the
    time, what neither peak nor bandwidth shortens. weight: how many times FLOPs at the peak count against traffic.
    """

    source: Source
    distance: float
    seconds: float
    spread: float
    fixed_share: float
    weight: float


def reading_of(source: Source, asked: KernelQuestion, device: Accelerator, speed: float = 1.0) -> Reading:
    """Return what a source says of a question on ``device``, whose arithmetic runs at a share of its speed."""
    one = source.series
    columns = one.heard(asked.columns)
    peak = device.peak(asked.precision) * speed if asked.precision else 0.0
    told = one.predicted(columns, np.array([asked.flops]), asked.traffic, peak, device)
    seconds, distance = float(told.seconds[0]), float(one.distances(columns)[0])
    fixed_share = one.fit.fixed_s / float(told.ideal_s[0]) if seconds > told.least_s[0] else 0.0
    return Reading(source, distance, seconds, one.source_spread, fixed_share, float(told.weights[0]))


def on_its_device(series: KernelSeries, asked: KernelQuestion) -> tuple[float, float]:
    """Return what a series says on the device that it measured [s], and how far a shape is outside [octaves]."""
    columns = series.heard(asked.columns)
    return float(series.seconds_of(columns)[0]), float(series.distances(columns)[0])


def log_median(found: Sequence[Reading], nearest: float, tolerance: float) -> float:
    """Return the logarithm of the median time over origins, of those no farther outside their sizes than the nearest.

    Model: give or take up to a tolerance [octaves], all up to it alike: a source that has just not measured a shape
        counts for nearly as much as one that just has, and times go on smoothly where one leaves off.
    """
    edges = sorted({min(one.distance - nearest, tolerance) for one in found} | {tolerance})
    total = 0.0
    for edge, after in itertools.pairwise(edges) if tolerance else ((0.0, 1.0),):
        times = times_of_origins([one for one in found if one.distance - nearest <= edge])
        total += (after - edge) / (tolerance or 1.0) * statistics.median(map(math.log, times))
    return total


def times_of_origins(found: Sequence[Reading]) -> list[float]:
    """Return the time by each origin, the mean over the parts of the die that it measured [s]."""
    logs: dict[tuple[str, str], list[float]] = {}
    for one in found:
        logs.setdefault(one.source.origin, []).append(math.log(one.seconds))
    return [math.exp(statistics.fmean(each)) for each in logs.values()]


def question_beside(asked: KernelQuestion, kind: str) -> KernelQuestion:
    """Return the question for another kind of the same sizes, its work in proportion."""
    kinds = kernel_kind(kind), kernel_kind(asked.kind)
    flops, moved = (
        float(work[0] / all_work[0])
        for work, all_work in (
            [one.flops(asked.columns) for one in kinds], [one.traffic(asked.columns, 1.0) for one in kinds]
        )
    )  # fmt: skip
    return replace(asked, kind=kind, flops=asked.flops * flops, traffic=asked.traffic * moved)


def question_inside(asked: KernelQuestion, precision: str, series: Sequence[KernelSeries]) -> KernelQuestion:
    """Return the question nearest to one among the sizes that series measured, in another precision."""
    kind = kernel_kind(asked.kind)
    sizes = []
    for name, size in zip(kind.fields, asked.sizes, strict=True):
        measured = np.concatenate([one.columns[name] for one in series])
        sizes.append(float(np.clip(size, measured.min(), measured.max())))
    columns = {name: np.array([size]) for name, size in zip(kind.fields, sizes, strict=True)}
    moved = float(kind.traffic(columns, _BYTES)[0])
    return KernelQuestion(
        kind=asked.kind, sizes=tuple(sizes), precision=precision, flops=float(kind.flops(columns)[0]), traffic=moved
    )
