"""Islands: where tensor-parallel groups fit, and which working GPUs faults leave in no complete group.

Example:
    faults = FaultTrace.read("faults.csv")
    wasted_share(faults, "nvl72", tp=32)                # mean over time
    wasted_share(faults, KHopRing(hops=3), tp=32)
"""

from rostam_py.fleet.islands.names import ISLANDS
from rostam_py.fleet.islands.waste import wasted_share

__all__ = ["ISLANDS", "wasted_share"]
