"""Time to accuracy: iteration time x iterations of a convergence curve."""

from dataclasses import dataclass
from typing import Any

from rostam_py.convergence.curve import Curve
from rostam_py.convergence.curves import default_curve, get_curve
from rostam_py.convergence.samples import notes_for
from rostam_py.html import html_pairs
from rostam_py.units import format_time


@dataclass(frozen=True, slots=True)
class TimeToAccuracy:
    """How long training takes to reach a curve's target.

    time_s: iteration time x iterations [s]. global_batch: samples. curve: its name. is_extrapolated: the batch
    lies outside the measured range. band_s: time with the fewest and the most iterations the source allows [s].
    """

    time_s: float
    iterations: float
    global_batch: int
    curve: str
    target: str
    is_extrapolated: bool
    band: tuple[float, float]
    band_s: tuple[float, float]
    notes: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the time, its band, and where the iterations come from."""
        low, high = self.band_s
        pairs = {
            "time to accuracy": format_time(self.time_s) + (" (EXTRAPOLATED)" if self.is_extrapolated else ""),
            "band": f"{format_time(low)} to {format_time(high)}" if high - low > 1e-9 * high else None,
            "iterations": f"{self.iterations:,.0f} of {self.global_batch:,} samples",
            "curve": self.curve,
            "notes": "; ".join(self.notes) or None,
        }
        return html_pairs(f"to {self.target}", pairs)

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return {
            "time_s": self.time_s, "iterations": self.iterations, "global_batch": self.global_batch,
            "convergence": self.curve, "target": self.target, "is_extrapolated": self.is_extrapolated,
            "band_iterations": list(self.band), "band_s": list(self.band_s), "notes": list(self.notes),
        }  # fmt: skip


def time_to_accuracy(
    result: Any, convergence: str | Curve | None = None, *, extrapolate: bool = False
) -> TimeToAccuracy:
    """Return the time a run needs to its model's target accuracy.

    Model: time = iteration time x iterations(global batch); evaluation, input and restarts cost nothing.
    Args: result: what ``simulate`` returns, or anything with ``iteration_time_s`` and ``plan.global_batch``.
        convergence: a name in CURVES or a Curve; None takes the default of ``result.plan.graph_name``.
        extrapolate: allow batches outside the measured range; the answer then carries a wider band.
    Raises: ConfigError for a batch outside the measured range, a model without a curve, or a curve whose samples are
        not the model's.
    """
    curve = default_curve(result.plan.graph_name) if convergence is None else get_curve(convergence)
    notes = (*notes_for(curve, result.plan.graph_name), *curve.notes)
    batch = result.plan.global_batch
    iterations = curve.iterations(batch, extrapolate=extrapolate)
    low, high = curve.band(batch, extrapolate=extrapolate)
    seconds = result.iteration_time_s
    is_extrapolated = not curve.is_measured(batch)
    if is_extrapolated:
        span = " to ".join(f"{b:,}" for b in dict.fromkeys(curve.batch_range))
        notes = (f"extrapolated: {curve.name} is measured at {span} {curve.batch_unit}", *notes)
    return TimeToAccuracy(
        time_s=seconds * iterations, iterations=iterations, global_batch=batch, curve=curve.name, target=curve.target,
        is_extrapolated=is_extrapolated, band=(low, high), band_s=(seconds * low, seconds * high), notes=notes,
    )  # fmt: skip
