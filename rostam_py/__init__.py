"""rostam: how long a PyTorch model trains on a machine, even one that does not exist yet, and why.

Example:
    import rostam
    graph = rostam.trace("gpt_1_3b")
    fabric = rostam.fabric("fat_tree", num_accelerators=64, accelerator_bandwidth="400 Gb/s")
    machine = rostam.Machine(fabric=fabric, accelerator="a100_80gb")
    plan = rostam.place(graph, machine, global_batch=64, strategy=rostam.Strategy(dp=8, tp=8))
    print(rostam.simulate(plan).iteration_time_s)

Importing it loads nothing heavy: each name is imported when it is first used.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "Failure": "rostam_py.plan",
    "Job": "rostam_py.fleet",
    "JobResult": "rostam_py.simulation",
    "LinkBandwidth": "rostam_py.simulation",
    "Machine": "rostam_py.plan",
    "OperatorGraph": "rostam_py.graph",
    "PacketOptions": "rostam_py.plan",
    "Plan": "rostam_py.plan",
    "Program": "rostam_py.programs",
    "ProgramResult": "rostam_py.simulation",
    "Recovery": "rostam_py.plan",
    "Reroute": "rostam_py.simulation",
    "RunResult": "rostam_py.simulation",
    "SimulationOptions": "rostam_py.simulation",
    "Strategy": "rostam_py.plan",
    "SweepResult": "rostam_py.sweep",
    "TaskGraph": "rostam_py.simulation",
    "assign_paths": "rostam_py.simulation",
    "capture": "rostam_py.capturing",
    "check_cabling": "rostam_py.fabrics.cabling",
    "check_dependencies": "rostam_py.fabrics.dependencies",
    "count_disjoint_paths": "rostam_py.fabrics.forwarding",
    "draw_jobs": "rostam_py.fleet",
    "error_bar": "rostam_py.spread",
    "figures": "rostam_py.report.run.figures",
    "optimal_paths": "rostam_py.simulation",
    "outages": "rostam_py.spread",
    "place": "rostam_py.placement",
    "place_mix": "rostam_py.fleet",
    "register_module": "rostam_py.tracing",
    "register_op": "rostam_py.tracing",
    "run_collective": "rostam_py.simulation",
    "run_flows": "rostam_py.simulation",
    "run_sweep": "rostam_py.sweep",
    "saturation_throughput": "rostam_py.fabrics.throughput",
    "search": "rostam_py.searching",
    "sensitivity": "rostam_py.spread",
    "simulate": "rostam_py.simulation",
    "simulate_mix": "rostam_py.fleet",
    "time_to_accuracy": "rostam_py.convergence",
    "trace": "rostam_py.tracing",
    "variability": "rostam_py.spread",
    "write_report": "rostam_py.report.report",
}
_RENAMED = {
    "fabric": ("rostam_py.fabrics", "build_fabric"),
    "machine": ("rostam_py.plan.named", "named_machine"),
    "profile": ("rostam_py.costs.profile", "profile"),
}

__all__ = sorted([*_EXPORTS, *_RENAMED])


def __getattr__(name: str) -> Any:
    module, attribute = _RENAMED.get(name, (_EXPORTS.get(name, ""), name))
    if not module:
        raise AttributeError(f"module 'rostam_py' has no attribute {name!r}")
    found = getattr(importlib.import_module(module), attribute)
    explained = importlib.import_module("rostam_py.keywords").explained
    globals()[name] = explained(found, __name__, name)  # once, so that it can be pickled
    return globals()[name]


def __dir__() -> list[str]:
    return __all__
