"""Goodput of one job over weeks: faults of servers, a policy that answers them, and where the wall time went.

Example:
    faults = FaultTrace.read("faults.csv")                                  # or FaultTrace.drawn(...)
    job = LongJob(num_servers=376, iteration="6.2 s", checkpoint_iterations=200, checkpoint="20 s", restart="8 min")
    replay(job, faults, policy="spares").goodput
"""

from rostam_py.fleet.goodput.faults import FaultTrace, ServerFault
from rostam_py.fleet.goodput.long_job import LongJob, Pace
from rostam_py.fleet.goodput.names import POLICIES
from rostam_py.fleet.goodput.replay import replay
from rostam_py.fleet.goodput.result import Goodput

__all__ = ["POLICIES", "FaultTrace", "Goodput", "LongJob", "Pace", "ServerFault", "replay"]
