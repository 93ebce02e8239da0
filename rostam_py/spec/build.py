"""Build: complete settings -> the machine, the plan and the options of one simulation.

Example:
    settings = complete_settings({"model": "gpt_125m", "strategy": {"tp": 2}})
    machine = build_machine(settings)
    plan = place_settings(trace("gpt_125m"), machine, settings)
    simulate(plan, options=simulation_options(settings))
"""

import dataclasses
from typing import Any

from rostam_py.fabrics import build_fabric
from rostam_py.fabrics.failures import RandomFailures
from rostam_py.fabrics.optical import check_routing_over
from rostam_py.graph import OperatorGraph
from rostam_py.placement import place
from rostam_py.plan import Machine, Plan, Strategy
from rostam_py.plan.packets import PacketOptions
from rostam_py.plan.ranks import filled
from rostam_py.simulation.options import SimulationOptions
from rostam_py.spec.settings import Settings

_SAMPLES_A_REPLICA = 8


def build_machine(settings: Settings) -> Machine:
    """Return the fabric, with parts failed at random, and accelerators on it.

    Raises: ConfigError for a routing that the fabric's circuits rule out; as ``RandomFailures.applied_to``.
    """
    fabric = build_fabric(settings["fabric"]["name"], **_parameters(settings["fabric"]))
    check_routing_over(fabric, settings["routing"])
    failed = RandomFailures(**settings["failures"]).applied_to(fabric)
    return Machine(fabric=failed, accelerator=settings["accelerator"], **settings["machine"])


def cost_arguments(settings: Settings) -> dict[str, Any]:
    """Return the cost model, its settings and the program that trains, as ``place`` and ``Searcher`` take them."""
    cost = settings["cost"]
    return {"cost": cost["name"], "cost_config": _parameters(cost), "software": settings["software"]}


def place_settings(graph: OperatorGraph, machine: Machine, settings: Settings) -> Plan:
    """Return the plan of a run.

    Raises: DegreeError if tp x pp leaves no room; what ``place`` raises.
    """
    strategy = build_strategy(settings, machine)
    batch = default_batch(settings["global_batch"], strategy)
    plan: Plan = place(graph, machine, global_batch=batch, strategy=strategy, **cost_arguments(settings))
    return plan


def build_strategy(settings: Settings, machine: Machine) -> Strategy:
    """Return the strategy of a run; a dp left open fills the healthy accelerators.

    Raises: DegreeError if tp x pp leaves no room.
    """
    return filled(Strategy(**settings["strategy"]), machine)


def default_batch(global_batch: int | None, strategy: Strategy) -> int:
    """Return the global batch: as given, or 8 micro-batches a replica."""
    return global_batch if global_batch is not None else (strategy.micro_batch or 1) * _SAMPLES_A_REPLICA * strategy.dp


def simulation_options(settings: Settings) -> SimulationOptions:
    """Return what the settings say of how something is simulated."""
    names = [entry.name for entry in dataclasses.fields(SimulationOptions) if entry.name in settings]
    given = {name: settings[name] for name in names}
    if "packets" in given:
        given["packets"] = PacketOptions(**given["packets"])
    return SimulationOptions(**given)


def _parameters(named: Settings) -> dict[str, Any]:
    return {key: value for key, value in named.items() if key != "name"}
