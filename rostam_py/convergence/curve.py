"""Curve: iterations to one target over the global batch, from one source, inside its measured range.

Legend: B = global batch in the curve's own unit, S = iterations (optimizer steps).
Forms: "single" (one measured batch), "log_log" (straight lines between points in log B, log S),
"fit" (S = S_min (1 + B_crit / B), McCandlish et al. 2018, arXiv 1812.06162, by least relative squares).
"""

import bisect
import math
from dataclasses import dataclass

import numpy as np

from rostam_py.errors import ConfigError

BATCH_UNITS = ("samples", "tokens")
SAMPLE_KINDS = ("images", "latent images", "voxel volumes", "sentence pairs", "token sequences", "click records")
FORMS = ("single", "log_log", "fit")
# Where a curve has to be continued beyond a measured batch B0, B_crit is taken as B0, and the band spans this
# factor below and above. Own choice: McCandlish et al. (figure 4) find B_crit over four orders of magnitude between
# tasks, but published batches are tuned to lie near it.
CRITICAL_BATCH_FACTOR = 10.0
LEAST, MOST = 1e-9, 1e18  # iterations to a target: beyond any, and no form overflows between them


@dataclass(frozen=True, slots=True)
class Point:
    """One measured batch. batch: in the curve's unit. low, high: iterations; equal where one figure is published.

    mean: of several published runs, None where only the ends are known.
    """

    batch: int
    low: float
    high: float
    mean: float | None = None

    @property
    def iterations(self) -> float:
        """The mean of the published runs, or else the middle of the published iterations."""
        return (self.low + self.high) / 2 if self.mean is None else self.mean


@dataclass(frozen=True, slots=True)
class Fit:
    """S = min_iterations (1 + critical_batch / B). residual: the worst relative distance to a published figure."""

    min_iterations: float
    critical_batch: float
    residual: float

    def iterations(self, batch: float) -> float:
        """Return S at a batch in the curve's unit."""
        return self.min_iterations * (1 + self.critical_batch / batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Iterations to accuracy over the global batch.

    models: registered models it belongs to. target: the quality reached. optimizer: "" where the source does
        not say. points: ascending batches. form: one of FORMS.
    batch_unit: "samples" or "tokens". tokens_per_sample: tokens of one sample of the model, 1 for samples.
    notes: assumptions in reading the source.
    sample_kind: what ``source`` measured it on, one of SAMPLE_KINDS; "" is left open and fits any model.
    Source: every curve states its own in ``source``; never merged with another (MODEL E17).
    """

    name: str
    models: tuple[str, ...]
    target: str
    source: str
    points: tuple[Point, ...]
    form: str
    optimizer: str = ""
    batch_unit: str = "samples"
    tokens_per_sample: int = 1
    notes: tuple[str, ...] = ()
    sample_kind: str = ""

    def __post_init__(self) -> None:
        batches = [point.batch for point in self.points]
        if not batches or sorted(set(batches)) != batches:
            raise ConfigError(f"curve {self.name!r} has batches {batches}; they must ascend, at least one")
        if self.form not in FORMS or (self.form == "single") != (len(batches) == 1):
            raise ConfigError(f"curve {self.name!r} has {len(batches)} points and form {self.form!r}; known: {FORMS}")
        if self.batch_unit not in BATCH_UNITS or self.tokens_per_sample < 1:
            raise ConfigError(f"curve {self.name!r} has batch_unit {self.batch_unit!r}; allowed: {BATCH_UNITS}")
        if self.sample_kind not in ("", *SAMPLE_KINDS):
            raise ConfigError(f"curve {self.name!r} has sample_kind {self.sample_kind!r}; allowed: {SAMPLE_KINDS}")
        if any(not LEAST <= point.low <= point.high <= MOST for point in self.points) or batches[-1] > MOST:
            raise ConfigError(
                f"curve {self.name!r} has iterations or batches that are none: they must be low <= high, from {LEAST:g}"
                f" to {MOST:g}"
            )

    @property
    def batch_range(self) -> tuple[int, int]:
        """Smallest and largest measured batch, in ``batch_unit``."""
        return self.points[0].batch, self.points[-1].batch

    @property
    def sample_range(self) -> tuple[int, int]:
        """Smallest and largest global batch inside the measured range [samples]."""
        low, high = self.batch_range
        return -(-low // self.tokens_per_sample), high // self.tokens_per_sample

    def is_measured(self, global_batch: int) -> bool:
        """Tell whether a global batch [samples] lies inside the measured range."""
        low, high = self.batch_range
        return low <= self._batch(global_batch) <= high

    def iterations(self, global_batch: int, *, extrapolate: bool = False) -> float:
        """Return the iterations to the target.

        Model: the curve's form inside the measured range. Beyond it a fit goes on; other forms follow
            S_min (1 + B_crit / B) through the nearest point with B_crit equal to its batch.
        Args: global_batch: samples of an iteration, also where the curve's unit is tokens.
        Raises: ConfigError outside the measured range unless ``extrapolate``.
        """
        batch = self._checked(global_batch, extrapolate)
        if self.form == "fit":
            return self.fit.iterations(batch)
        low, high = self.batch_range
        if not low <= batch <= high:
            nearest = self.points[0] if batch < low else self.points[-1]
            return nearest.iterations * _ratio(batch, nearest.batch, nearest.batch)
        return self._between(batch, [point.iterations for point in self.points])

    def band(self, global_batch: int, *, extrapolate: bool = False) -> tuple[float, float]:
        """Return the fewest and most iterations that the source allows.

        Model: the published spread, or a fit's worst residual either way; beyond the measured range
            S_min (1 + B_crit / B) through the nearest point, with B_crit from a tenth of its batch to ten times it
            (a fit's own B_crit included).
        Raises: as ``iterations``.
        """
        batch = self._checked(global_batch, extrapolate)
        low, high = self.batch_range
        if not low <= batch <= high:
            return self._band_beyond(batch, self.points[0] if batch < low else self.points[-1])
        if self.form == "fit":
            middle, residual = self.fit.iterations(batch), self.fit.residual
            return middle * (1 - residual), middle * (1 + residual)
        columns = ([point.low for point in self.points], [point.high for point in self.points])
        return self._between(batch, columns[0]), self._between(batch, columns[1])

    @property
    def fit(self) -> Fit:
        """Least relative squares of S_min (1 + B_crit / B) through the points.

        Raises: ConfigError for a curve of another form.
        """
        if self.form != "fit":
            raise ConfigError(f"curve {self.name!r} has form {self.form!r}, not a fit")
        batches = np.array([point.batch for point in self.points], dtype=float)
        steps = np.array([point.iterations for point in self.points])
        rows = np.stack([1 / steps, 1 / (batches * steps)], axis=1)
        try:
            (floor, slope), *_ = np.linalg.lstsq(rows, np.ones(len(steps)), rcond=None)
        except np.linalg.LinAlgError:
            floor = slope = 0.0
        if not (floor > 0 and slope >= 0):
            raise ConfigError(f"curve {self.name!r}: its points do not follow S_min (1 + B_crit / B)")
        fitted = floor + slope / batches
        ends = np.array([(point.low, point.high) for point in self.points])
        residual = float(np.abs(fitted[:, None] / ends - 1).max())
        return Fit(float(floor), float(slope / floor), residual)

    @property
    def residuals(self) -> list[tuple[int, float]]:
        """(batch, fitted / published - 1) of every point of a fit, against the mean of its runs."""
        return [(point.batch, self.fit.iterations(point.batch) / point.iterations - 1) for point in self.points]

    @property
    def basis(self) -> str:
        """What iterations between the points are: "fitted", "interpolated", or "measured" where there is one point."""
        return {"fit": "fitted", "log_log": "interpolated", "single": "measured"}[self.form]

    def describe(self) -> str:
        """Return one line: the form, its residual if it is a fit, and the measured range."""
        low, high = self.batch_range
        span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        text = {"single": "one point", "log_log": f"{len(self.points)} points, log-log"}.get(self.form, "")
        if self.form == "fit":
            text = (
                f"{len(self.points)} points, S = {self.fit.min_iterations:,.0f} (1 + {self.fit.critical_batch:,.0f}"
                " / B), " + (f"worst residual {self.fit.residual:.1%}" if len(self.points) > 2 else "exact")
            )
        unit = self.sample_kind if self.batch_unit == "samples" and self.sample_kind else self.batch_unit
        return f"{text}, {span} {unit}"

    def _batch(self, global_batch: int) -> int:
        return global_batch * self.tokens_per_sample

    def _checked(self, global_batch: int, extrapolate: bool) -> int:
        if isinstance(global_batch, bool) or not hasattr(global_batch, "__index__") or int(global_batch) < 1:
            raise ConfigError(f"global_batch is {global_batch!r}; it must be an integer >= 1")
        if not extrapolate and not self.is_measured(global_batch):
            low, high = self.sample_range
            allowed = f"{low:,}" if low == high else f"{low:,} to {high:,}"
            raise ConfigError(
                f"global_batch is {global_batch:,}; convergence curve {self.name!r} is measured at {allowed} samples."
                " Take a batch inside, or set extrapolate=true"
            )
        return self._batch(int(global_batch))

    def _band_beyond(self, batch: int, nearest: Point) -> tuple[float, float]:
        criticals = [nearest.batch / CRITICAL_BATCH_FACTOR, nearest.batch * CRITICAL_BATCH_FACTOR]
        ends = [nearest.low, nearest.high]
        if self.form == "fit":
            criticals.append(self.fit.critical_batch)
            fitted, residual = self.fit.iterations(nearest.batch), self.fit.residual
            ends += [fitted * (1 - residual), fitted * (1 + residual)]
        factors = [_ratio(batch, nearest.batch, critical) for critical in criticals]
        return min(ends) * min(factors), max(ends) * max(factors)

    def _between(self, batch: int, values: list[float]) -> float:
        batches = [point.batch for point in self.points]
        right = bisect.bisect_left(batches, batch)
        if batches[right] == batch:
            return values[right]
        share = math.log(batch / batches[right - 1]) / math.log(batches[right] / batches[right - 1])
        return float(values[right - 1] ** (1 - share) * values[right] ** share)


def _ratio(batch: float, known: float, critical: float) -> float:
    """Return S(batch) / S(known) of S_min (1 + critical / B)."""
    return (1 + critical / batch) / (1 + critical / known)


def from_epochs(batch: int, low: float, high: float, dataset_size: float) -> Point:
    """Return the point of a number of epochs. dataset_size: of one epoch, in the unit of the batch."""
    return Point(batch, low * dataset_size / batch, high * dataset_size / batch)
