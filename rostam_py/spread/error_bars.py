"""ErrorBar: the range that an iteration's true time is likely to lie in, from how well its kernels' times are known.

Example:
    found = rostam.error_bar(simulate(plan))
    found.low_s, found.high_s               # "12.1 s (11.6 to 12.7)"

Model: every kernel's time may be off by its residual: what the cost model's tables miss of rows that they were not
fitted on (signed), and how far sources differ. Errors of one family are taken to be the same for all its kernels
(correlated) and to be independent between families: the time's changes of the families are added as the root of the
sum of their squares, those above and those below the predicted time apart. A family timed by the roofline, by another
kind of kernel or by another accelerator's table has at least the roofline's error. The change that a family makes is
its kernels' time on the critical path (exact for small errors, where that path stays critical), or what a sensitivity
found by simulating again. Communication over links that have a class is a family for each collective and class
(link_errors.py). Hosts, bubbles, memory, placement and the model itself are taken as exact, and so are ideal links.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rostam_py.costs.limits import KernelLimits, Residual
from rostam_py.plan.tasks import KernelTime
from rostam_py.simulation.job_result import JobResult
from rostam_py.spread.changes import kernel_limits
from rostam_py.spread.inputs import EFFICIENCIES
from rostam_py.spread.link_errors import communication_on_path
from rostam_py.spread.sensitivities import STEP, Sensitivities
from rostam_py.units import format_time


@dataclass(frozen=True, slots=True)
class BarPart:
    """What one family of kernels, or of communication, adds to the error bar.

    path_s: its time on the critical path [s]. low, high: by what share its kernels may take less, or more, on average.
    low_s, high_s: by how much the iteration would be shorter, or longer [s]. unverified_s: of path_s, what rests on no
    measurements of its own.
    """

    family: str
    path_s: float
    low: float
    high: float
    low_s: float
    high_s: float
    unverified_s: float


@dataclass(frozen=True)
class ErrorBar:
    """The likely range of an iteration's time [s], and what it comes from, the largest part first."""

    iteration_time_s: float
    low_s: float
    high_s: float
    parts: tuple[BarPart, ...]

    @property
    def covered(self) -> float:
        """The share of the iteration's critical path that has an error of its own; the rest is taken as exact."""
        return min(1.0, sum(part.path_s for part in self.parts) / self.iteration_time_s)

    def describe(self) -> str:
        """Return the range in words, such as "11.6 s to 12.7 s"."""
        return f"{format_time(self.low_s)} to {format_time(self.high_s)}"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready document."""
        return {
            "low_s": self.low_s,
            "high_s": self.high_s,
            "covered": self.covered,
            "parts": [asdict(part) for part in self.parts],
        }


@dataclass(frozen=True, slots=True)
class NoErrorBar:
    """Why an iteration's time has no error bar."""

    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready document."""
        return {"absent": self.reason}


def error_bar(result: JobResult, sensitivities: Sensitivities | None = None) -> ErrorBar | NoErrorBar:
    """Return the range that an iteration's true time is likely to lie in.

    Args: sensitivities: of the same run, where they are known; without them the critical path tells what a family's
        time changes.
    Returns: NoErrorBar where kernels have no residuals: published or a user's own times, and a plan from a file.
    Source: own; tests/spread/test_error_bars.py.
    """
    kernels = result.kernels_on_path()
    if not kernels:
        return NoErrorBar("no kernel is on the critical path")
    known = [(limits, seconds) for kernel, seconds in kernels if (limits := kernel_limits(kernel)) is not None]
    if not known:
        return NoErrorBar(_why_none(kernels))
    judged = [(limits, limits.residual, seconds) for limits, seconds in known if limits.residual is not None]
    if not judged:
        return NoErrorBar(f"times {known[0][0].basis} come without residuals")
    changes = {} if sensitivities is None else {row.key: row for row in sensitivities.rows if row.kind == EFFICIENCIES}
    families: dict[str, list[tuple[KernelLimits, Residual, float]]] = {}
    for one in judged:
        families.setdefault(one[0].family, []).append(one)
    parts = [_part(family, rows, changes) for family, rows in families.items()]
    communication: dict[str, list[tuple[Residual, bool, float]]] = {}
    for name, residual, is_verified, seconds in communication_on_path(result):
        communication.setdefault(name, []).append((residual, is_verified, seconds))
    parts += [_communication(family, rows) for family, rows in communication.items()]
    total_s = result.iteration_time_s
    below, above = (math.hypot(*(getattr(part, side) for part in parts)) for side in ("low_s", "high_s"))
    ordered = sorted(parts, key=lambda part: (-max(part.low_s, part.high_s), part.family))
    return ErrorBar(total_s, max(0.0, total_s - below), total_s + above, tuple(ordered))


def _part(family: str, rows: list[tuple[KernelLimits, Residual, float]], changes: Mapping[str, Any]) -> BarPart:
    """Return what a family adds: its kernels are off together, each by its own residual."""
    path_s = sum(seconds for *_, seconds in rows)
    low = sum(residual.low * seconds for _, residual, seconds in rows) / path_s
    high = sum(residual.high * seconds for _, residual, seconds in rows) / path_s
    low_s, high_s = low * path_s, high * path_s
    if family in changes:  # simulated: 10% worse makes its kernels 10% longer, 10% better 1/11 shorter
        low_s = max(0.0, -changes[family].better_s) * low * (1 + STEP) / STEP
        high_s = max(0.0, changes[family].worse_s) * high / STEP
    unverified_s = sum(seconds for limits, _, seconds in rows if not limits.is_verified)
    return BarPart(family, path_s, low, high, low_s, high_s, unverified_s)


def _communication(family: str, rows: list[tuple[Residual, bool, float]]) -> BarPart:
    """Return what collectives of one kind over one class of links add: they are off together."""
    path_s = sum(seconds for *_, seconds in rows)
    low_s, high_s = (sum(getattr(one, side) * seconds for one, _, seconds in rows) for side in ("low", "high"))
    unverified_s = sum(seconds for _, is_verified, seconds in rows if not is_verified)
    return BarPart(family, path_s, low_s / path_s, high_s / path_s, low_s, high_s, unverified_s)


def _why_none(kernels: list[tuple[KernelTime, float]]) -> str:
    if all(kernel.cost is None for kernel, _ in kernels):
        return "the plan or task graph was read from a file, which holds times but not their basis"
    return "the kernels' times are given (cost=constant), not predicted"
