"""Sweeps: many points over models, fabrics, bandwidths, strategies, failures, seeds and job mixes.

Example:
    result = run_sweep({"model": "resnet50", "fabric": {"name": "torus", "dims": [8, 8]}},
                       grid={"fabric.link_bandwidth": ["100 Gb/s", "400 Gb/s"], "strategy.tp": [1, 2]})
    result.table          # polars, one row per point
"""

from rostam_py.spec.sweep_options import SweepOptions
from rostam_py.sweep.axes import Axis, Value
from rostam_py.sweep.driver import Tally
from rostam_py.sweep.estimate import SweepEstimate
from rostam_py.sweep.points import Point
from rostam_py.sweep.result import SweepResult
from rostam_py.sweep.run_sweep import Sweep, run_sweep

__all__ = ["Axis", "Point", "Sweep", "SweepEstimate", "SweepOptions", "SweepResult", "Tally", "Value", "run_sweep"]
