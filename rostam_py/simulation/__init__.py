"""Simulation: plans, collectives and flows on a fabric, run by the C++ core."""

from rostam_py.simulation.collective import CollectiveResult, collective_names, run_collective
from rostam_py.simulation.controllers import controllers
from rostam_py.simulation.critical_path import CriticalPath, Segment
from rostam_py.simulation.engines import engines, fidelities
from rostam_py.simulation.events import LinkBandwidth, Reroute
from rostam_py.simulation.flows import FlowsResult, run_flows
from rostam_py.simulation.job_result import JobResult, LinkLoad
from rostam_py.simulation.optimal_paths import optimal_paths
from rostam_py.simulation.options import SimulationOptions
from rostam_py.simulation.path_choice import AssignedPaths, assign_paths, assigners
from rostam_py.simulation.program_result import ProgramResult
from rostam_py.simulation.result import RunResult
from rostam_py.simulation.simulate import simulate
from rostam_py.simulation.task_graph import TaskGraph

__all__ = [
    "AssignedPaths", "CollectiveResult", "CriticalPath", "FlowsResult", "JobResult", "LinkBandwidth", "LinkLoad",
    "ProgramResult", "Reroute", "RunResult", "Segment", "SimulationOptions", "TaskGraph",
    "assign_paths", "assigners", "collective_names", "controllers", "engines", "fidelities", "optimal_paths",
    "run_collective", "run_flows", "simulate",
]  # fmt: skip
