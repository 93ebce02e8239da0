"""Convergence: how many iterations a model needs to reach its target, over the global batch (MODEL E17).

Example:
    curve = get_curve("resnet50_mlperf")
    curve.iterations(32_768)                     # ConfigError outside the measured range
    time_to_accuracy(result, convergence="resnet50_mlperf").time_s
"""

from rostam_py.convergence.curve import Curve, Point
from rostam_py.convergence.curves import CURVES, DEFAULT_CURVES, default_curve, get_curve
from rostam_py.convergence.points_file import is_curve_file, load_curve
from rostam_py.convergence.samples import notes_for
from rostam_py.convergence.target import Target, goal_of, parse_target
from rostam_py.convergence.time_to_accuracy import TimeToAccuracy, time_to_accuracy

__all__ = [
    "CURVES", "DEFAULT_CURVES", "Curve", "Point", "Target", "TimeToAccuracy", "default_curve", "get_curve", "goal_of",
    "is_curve_file", "load_curve",
    "notes_for", "parse_target", "time_to_accuracy",
]  # fmt: skip
