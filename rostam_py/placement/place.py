"""place: one graph, one machine, one strategy -> one plan."""

import warnings
from typing import Any

from rostam_py.costs import DEFAULT_COST
from rostam_py.errors import ConfigError, RostamWarning
from rostam_py.garbage import without_collections
from rostam_py.graph import OperatorGraph
from rostam_py.plan.machine import Machine
from rostam_py.plan.plan import Plan
from rostam_py.plan.ranks import filled
from rostam_py.plan.strategy import PLACERS, Strategy


def place(
    graph: OperatorGraph,
    machine: Machine,
    *,
    global_batch: int,
    strategy: Strategy,
    cost: str = DEFAULT_COST,
    cost_config: dict[str, Any] | None = None,
) -> Plan:
    """Place one training iteration of a model on a machine.

    Args: global_batch: samples of one iteration. cost: a name in COST_MODELS, by default DEFAULT_COST.
        cost_config: its settings.
    Returns: the plan, with every device's tasks, messages and memory.
    Raises: DegreeError if degrees or batch do not fit; MemoryCapacityError if the model does not; ConfigError for
        arguments that are something else.
    """
    if isinstance(graph, str):
        raise ConfigError(f"place() takes a graph, not the name {graph!r}; rostam.trace({graph!r}) gives one")
    if not isinstance(strategy, Strategy):
        raise ConfigError(f"place() takes a rostam.Strategy, not {strategy!r}")
    strategy = filled(strategy, machine)
    placer = PLACERS.get(strategy.placer)
    chosen = placer(strategy, cost, cost_config)
    for text in chosen.doubts(graph):
        warnings.warn(text, RostamWarning, 2)
    with without_collections():  # plans are many objects without cycles
        plan: Plan = chosen.place(graph, machine, global_batch)
    return plan
