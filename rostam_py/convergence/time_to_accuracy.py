"""Time to accuracy: iteration time x iterations of a convergence curve, or of an amount of data."""

import sys
from dataclasses import dataclass
from typing import Any

from rostam_py.convergence.curve import Curve
from rostam_py.convergence.curves import default_curve
from rostam_py.convergence.samples import notes_for
from rostam_py.convergence.target import Target, goal_of
from rostam_py.errors import ConfigError
from rostam_py.html import html_pairs
from rostam_py.units import format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeToAccuracy:
    """How long training takes to reach a curve's target, or an amount of data, and what that costs.

    time_s: iteration time x iterations [s]. global_batch: samples. curve: its name; the target itself for an amount of
    data. is_extrapolated: the batch lies outside the measured range. basis: whether the iterations are "measured",
    "interpolated" or "fitted", or follow from a "stated" amount of data. band_s: time with the fewest and the most
    iterations the source allows [s]. usd: of the accelerators, where their price per hour was given. energy_j: at the
    most that the machine draws under its accelerators' limits, where its watts are known [J]. points: (batch, least,
    mean, most iterations) of the source, in batch_unit; fitted: (S_min, B_crit) of a fit through them.
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
    basis: str = ""
    usd: float | None = None
    energy_j: float | None = None
    points: tuple[tuple[int, float, float, float], ...] = ()
    fitted: tuple[float, float] | None = None
    batch_unit: str = ""
    tokens_per_sample: int = 1

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the time, its band, and where the iterations come from."""
        low, high = self.band_s
        pairs = {
            "time to accuracy": format_time(self.time_s) + (" (EXTRAPOLATED)" if self.is_extrapolated else ""),
            "band": f"{format_time(low)} to {format_time(high)}" if high - low > 1e-9 * high else None,
            "iterations": f"{self.iterations:,.0f} of {self.global_batch:,} samples",
            "curve": self.curve if self.curve != self.target else None,
            "price": None if self.usd is None else f"{self.usd:,.0f} USD",
            "energy": None if self.energy_j is None else f"{self.energy_j / 3.6e9:.4g} MWh at most",
            "notes": "; ".join(self.notes) or None,
        }
        return html_pairs(f"to {self.target}", pairs)

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        known = {"usd": self.usd, "energy_j": self.energy_j}
        return {
            "time_s": self.time_s, "iterations": self.iterations, "global_batch": self.global_batch,
            "convergence": self.curve, "target": self.target, "is_extrapolated": self.is_extrapolated,
            "band_iterations": list(self.band), "band_s": list(self.band_s), "notes": list(self.notes),
            "basis": self.basis, **{key: value for key, value in known.items() if value is not None},
            **({"points": [list(one) for one in self.points], "batch_unit": self.batch_unit,
                "tokens_per_sample": self.tokens_per_sample} if self.points else {}),
            **({"fitted": list(self.fitted)} if self.fitted else {}),
        }  # fmt: skip


def check_usd_per_hour(price: Any) -> None:
    """Raise ConfigError for a price of an accelerator-hour that is none; None is one that is not known."""
    if price is not None and (
        isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price <= sys.float_info.max
    ):
        raise ConfigError(f"accelerator_usd_per_hour is {price!r}; it must be a number of dollars >= 0")


def time_to_accuracy(
    result: Any,
    convergence: str | Curve | None = None,
    *,
    target: str | None = None,
    extrapolate: bool = False,
    accelerator_usd_per_hour: float | None = None,
) -> TimeToAccuracy:
    """Return the time, dollars and energy that a run needs to its model's target accuracy, or for an amount of data.

    Model: time = iteration time x iterations(global batch); evaluation, input and restarts cost nothing. Dollars =
        accelerators x hours x price; energy = that of an iteration x iterations.
    Args:
        result: what ``simulate`` returns, or anything with ``iteration_time_s`` and ``plan.global_batch``; its
            ``energy_j``, if it has one, is that of an iteration.
        convergence: a name in CURVES, a CSV file's, or a Curve; None takes the default of ``result.plan.graph_name``.
        target: an amount of data instead: "1 T tokens", "300 M samples", "3 epochs of 1281167 samples".
        extrapolate: allow batches outside the measured range; the answer then carries a wider band.
        accelerator_usd_per_hour: for the dollars; None leaves them out.
    Raises: ConfigError for a batch outside the measured range, a model without a curve, a curve whose samples are not
        the model's, a target that is no amount, a target next to a curve, and a price that is none.
    """
    check_usd_per_hour(accelerator_usd_per_hour)
    name, batch, seconds = result.plan.graph_name, result.plan.global_batch, result.iteration_time_s
    goal = goal_of(convergence, target, name) or default_curve(name)
    notes = goal.notes
    if isinstance(goal, Curve):
        notes = (*notes_for(goal, name), *notes)
    iterations = goal.iterations(batch, extrapolate=extrapolate)
    low, high = goal.band(batch, extrapolate=extrapolate)
    is_extrapolated = not goal.is_measured(batch)
    if is_extrapolated and isinstance(goal, Curve):
        span = " to ".join(f"{b:,}" for b in dict.fromkeys(goal.batch_range))
        notes = (f"extrapolated: {goal.name} is measured at {span} {goal.batch_unit}", *notes)
    time_s = seconds * iterations
    return TimeToAccuracy(
        time_s=time_s, iterations=iterations, global_batch=batch, curve=goal.name, target=goal.target,
        is_extrapolated=is_extrapolated, band=(low, high), band_s=(seconds * low, seconds * high), notes=notes,
        basis=goal.basis, usd=_usd(result, time_s, accelerator_usd_per_hour), energy_j=_energy_j(result, iterations),
        **_drawn(goal),
    )  # fmt: skip


def _usd(result: Any, time_s: float, per_hour: float | None) -> float | None:
    return None if per_hour is None else float(result.plan.num_devices * time_s / 3600 * per_hour)


def _energy_j(result: Any, iterations: float) -> float | None:
    of_one = getattr(result, "energy_j", None)
    return None if of_one is None else float(of_one * iterations)


def _drawn(goal: Curve | Target) -> dict[str, Any]:
    """Return what a drawing of the curve needs; nothing of an amount of data."""
    if not isinstance(goal, Curve):
        return {}
    points = tuple((one.batch, one.low, one.iterations, one.high) for one in goal.points)
    fit = (goal.fit.min_iterations, goal.fit.critical_batch) if goal.form == "fit" else None
    drawn = {"batch_unit": goal.batch_unit, "tokens_per_sample": goal.tokens_per_sample}
    return {"points": points, "fitted": fit, **drawn}
