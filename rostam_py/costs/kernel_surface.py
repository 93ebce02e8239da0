"""Interpolation of measured kernels: a smooth surface through scattered points, and how well it holds.

Model: the logarithm of (measured time / ideal time) over log-shape space is kriged: a Gaussian process of Matern 3/2
covariance about the median, with a scale for each coordinate and a share of noise. Inside the measured box it passes
between the points; beyond it a point takes the value at the box's nearest point, so that the nearest efficiency holds.
A fit may count arithmetic by what bounds a block of the kernel: its inner loop, and as long as so many more steps of it
for its start and end (and, of causal attention, the masked half of blocks on the diagonal); and at a share of the peak,
so that memory bounds where it would at the rate that the arithmetic reaches. Both have to be well worth it.
Source: Rasmussen and Williams 2006, equations 2.23 (prediction), 4.17 (Matern 3/2), 5.12 (leave one out).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rostam_py.costs.kernel_kinds import Array

# What a fit chooses from: octaves over which a coordinate's influence fades, noise as a share of the variance, and a
# fixed time in every kernel [s]. Few and far apart, so that rounding in a solver does not decide.
LAUNCH_S = 3e-6  # what a kernel loses behind another one: what fits of products timed in a row find on five devices
SCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
NOISES = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1)
FIXED_TIMES = (1e-6, LAUNCH_S, 10e-6, 30e-6, 80e-6)
# Shares of the peak at which arithmetic may count against memory traffic, half an octave apart, and steps that the
# start and end of a block may take as long as: powers of two from the 64 keys of a block of attention
# (FlashAttention-2, 3.3) to where short sequences are little else. Own choice; a test has the steps that rates tell.
IDEALS = tuple((share, lost) for share in (1.0, 0.7, 0.5) for lost in (0.0, 64.0, 128.0, 256.0, 512.0, 1024.0))
_MAX_POINTS = 200  # that a fit looks at: the cost of one look grows with their cube
_GAIN = 0.99  # a change must lower the error to this share, or it is not worth taking
# Another ideal time must lower it to this one: it has two more numbers, and gains of a few percent, which most series
# of products would take, are none on rows that were not fitted (docs/calibration.md).
_IDEAL_GAIN = 2 / 3


@dataclass(frozen=True, slots=True)
class Fit:
    """How a table is interpolated.

    space: a name in the kind's spaces. scales: one for each coordinate. noise: share of the variance. fixed_s: in every
    kernel [s]. share: of the peak, at which arithmetic counts. lost: additional steps of a block's inner loop.
    """

    space: str
    scales: tuple[float, ...]
    noise: float
    fixed_s: float
    share: float = 1.0
    lost: float = 0.0

    def weights(self, loop: Array) -> Array:
        """Return how many times a kernel's FLOPs at the peak count, (N,), of blocks whose loops take so many steps."""
        return np.asarray((1 + self.lost / loop) / self.share)


class Box:
    """The box that ``points`` (N, D) fill."""

    def __init__(self, points: Array) -> None:
        self._low, self._high = points.min(axis=0), points.max(axis=0)

    def nearest(self, points: Array) -> Array:
        """Return the box's nearest points to ``points`` (Q, D)."""
        return np.clip(points, self._low, self._high)

    def distance(self, points: Array) -> Array:
        """Return how far outside ``points`` (Q, D) lie, summed over coordinates [octaves]."""
        return np.asarray(np.abs(points - self.nearest(points)).sum(axis=1))


class Surface:
    """A surface through ``values`` (N,) at ``points`` (N, D). Cost: O(N^3) once, O(N D) for each question."""

    def __init__(self, points: Array, values: Array, scales: tuple[float, ...], noise: float) -> None:
        self._scales = np.asarray(scales)
        self._points = points / self._scales
        self._centre = float(np.median(values))
        covariance = _covariance(self._points, self._points) + noise * np.eye(len(points))
        self._weights = np.linalg.solve(covariance, values - self._centre)
        self._box = Box(points)

    def at(self, points: Array) -> Array:
        """Return the values at ``points`` (Q, D), those outside the box at its nearest point."""
        inside = self._box.nearest(points) / self._scales
        return np.asarray(self._centre + _covariance(inside, self._points) @ self._weights)


def left_out_error(points: Array, values: Array, scales: tuple[float, ...], noise: float) -> float:
    """Return the mean absolute error of each point predicted from all others."""
    scaled = points / np.asarray(scales)
    inverse = np.linalg.inv(_covariance(scaled, scaled) + noise * np.eye(len(points)))
    centred = values - np.median(values)
    return float(np.mean(np.abs(inverse @ centred / np.diag(inverse))))


def choose_fit(
    spaces: Mapping[str, Array], values: Callable[[Fit], Array], fixed_times: Sequence[float] = FIXED_TIMES,
    least_scale: float = 0.0, ideals: Sequence[tuple[float, float]] = (),
) -> Fit:  # fmt: skip
    """Return the fit whose points, each left out, are predicted best by the others.

    Args:
        spaces: name to points (N, D).
        values: fit to log ratios (N,), by its ideal time.
        fixed_times: that are tried [s].
        least_scale: of all coordinates [octaves].
        ideals: shares and lost steps that are tried, in the space that serves best without.
    Cost: a few hundred inversions of at most _MAX_POINTS points for each space.
    """
    error, fit = _best(spaces, values, fixed_times, least_scale, ())
    if ideals:
        others, other = _best({fit.space: spaces[fit.space]}, values, fixed_times, least_scale, ideals)
        fit = other if others < error * _IDEAL_GAIN else fit
    return fit


def _best(
    spaces: Mapping[str, Array], values: Callable[[Fit], Array], fixed_times: Sequence[float], least_scale: float,
    ideals: Sequence[tuple[float, float]],
) -> tuple[float, Fit]:  # fmt: skip
    """Return the least error over spaces, and its fit."""
    count = len(next(iter(spaces.values())))
    kept = np.arange(count) if count <= _MAX_POINTS else np.arange(_MAX_POINTS) * count // _MAX_POINTS
    found: tuple[float, Fit] | None = None
    for space, points in spaces.items():
        thinned = points[kept]
        scales = [scale for scale in SCALES if scale >= least_scale]
        first = _first(space, thinned, fixed_times, max(SCALES[3], scales[0]))
        error, fit = _descend(thinned, lambda one: values(one)[kept], first, fixed_times, scales, ideals)
        if found is None or error < found[0] * _GAIN:
            found = error, fit
    if found is None:
        raise ValueError("no space to fit in")
    return found


def _first(space: str, points: Array, fixed_times: Sequence[float], scale: float) -> Fit:
    return Fit(space, (scale,) * points.shape[1], NOISES[2], fixed_times[min(1, len(fixed_times) - 1)])


def _descend(
    points: Array, values: Callable[[Fit], Array], fit: Fit, fixed_times: Sequence[float], scales: Sequence[float],
    ideals: Sequence[tuple[float, float]],
) -> tuple[float, Fit]:  # fmt: skip
    """Change one choice at a time while the error falls."""

    def error(one: Fit) -> float:
        return left_out_error(points, values(one), one.scales, one.noise)

    varied = [place for place in range(points.shape[1]) if np.ptp(points[:, place]) > 0]
    best = error(fit)
    for _ in range(3):
        before = best
        tries: list[Callable[[Fit], list[Fit]]] = [
            lambda one: [replace(one, share=share, lost=lost) for share, lost in ideals],
            lambda one: [replace(one, fixed_s=value) for value in fixed_times],
            lambda one: [replace(one, noise=value) for value in NOISES],
        ]
        tries += [lambda one, place=place: _scaled(one, place, scales) for place in varied]  # type: ignore[misc]
        for options in tries:
            for option in options(fit):
                found = error(option)
                if found < best * _GAIN:
                    best, fit = found, option
        if best >= before:
            break
    return best, fit


def _scaled(fit: Fit, place: int, scales: Sequence[float]) -> list[Fit]:
    return [replace(fit, scales=(*fit.scales[:place], scale, *fit.scales[place + 1 :])) for scale in scales]


def _covariance(first: Array, second: Array) -> Array:
    squares = np.zeros((len(first), len(second)))
    for place in range(first.shape[1]):
        squares += (first[:, None, place] - second[None, :, place]) ** 2
    root = np.sqrt(3 * squares)
    return np.asarray((1 + root) * np.exp(-root))
