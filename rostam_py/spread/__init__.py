"""Spread: how sure a simulated time is: what it is sensitive to, its error bar, and what varies from step to step.

Example:
    sensitivity(plan).rows[0]           # the input that matters most
    error_bar(simulate(plan)).low_s     # the least that the iteration is likely to take
"""

from rostam_py.spread.bases import compute_by_basis
from rostam_py.spread.error_bars import ErrorBar, NoErrorBar, error_bar
from rostam_py.spread.outages import OutageTimes, outages
from rostam_py.spread.sensitivities import Sensitivities, Sensitivity, sensitivity
from rostam_py.spread.variabilities import StepSample, StepVariability, variability

__all__ = [
    "ErrorBar", "NoErrorBar", "OutageTimes", "Sensitivities", "Sensitivity", "StepSample", "StepVariability",
    "compute_by_basis", "error_bar", "outages", "sensitivity", "variability",
]  # fmt: skip
