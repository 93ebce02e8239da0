"""place: one graph, one machine, one strategy -> one plan."""

import warnings
from collections.abc import Callable
from typing import Any

from rostam_py.costs import DEFAULT_COST
from rostam_py.errors import ConfigError, MemoryCapacityError, RostamWarning
from rostam_py.garbage import without_collections
from rostam_py.graph import OperatorGraph
from rostam_py.graph.model_size import ModelSize
from rostam_py.placement.memory.least_memory import check_state_fits
from rostam_py.placement.micro_batch import is_open, with_micro_batch_that_fits
from rostam_py.plan.machine import Machine
from rostam_py.plan.plan import Plan
from rostam_py.plan.ranks import filled
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.strategy_names import PLACERS
from rostam_py.software.names import DEFAULT_SOFTWARE
from rostam_py.software.program import Given, Program
from rostam_py.software.ratios import safe_share


def place(
    graph: OperatorGraph,
    machine: Machine,
    *,
    global_batch: int,
    strategy: Strategy,
    cost: str = DEFAULT_COST,
    cost_config: dict[str, Any] | None = None,
    software: Given = DEFAULT_SOFTWARE,
) -> Plan:
    """Place one training iteration of a model on a machine.

    Model: without a pipeline a micro-batch that the strategy leaves open is the whole of a replica's batch, or the
        largest part of it that fits in memory, by the upper bound of what measured jobs held; a note says so.
    Args: global_batch: samples of one iteration. cost: a name in COST_MODELS, by default DEFAULT_COST.
        cost_config: its settings. software: the program that trains, a name of ``rostam list software`` or a mapping
        of name and flags, {"name": "torchtitan", "compile": True}; auto takes what a job of this kind most likely runs,
        ideal is an upper bound.
    Returns: the plan, with every device's tasks, messages and memory.
    Raises: DegreeError if degrees or batch do not fit; MemoryCapacityError if the model does not; ConfigError for
        arguments that are something else.
    """
    if isinstance(graph, str):
        raise ConfigError(f"place() takes a graph, not the name {graph!r}; rostam.trace({graph!r}) gives one")
    if not isinstance(strategy, Strategy):
        raise ConfigError(f"place() takes a rostam.Strategy, not {strategy!r}")
    strategy = filled(strategy, machine)
    program, given = Program.of(software, graph, cost=cost), strategy
    cost_config = program.costs(cost_config, strategy, machine)
    strategy, trains = program.on(strategy, machine)
    machine = trains.on(machine)
    placer = PLACERS.get(strategy.placer)
    shared: dict[Any, Any] = {}
    first = placer(strategy, cost, cost_config, shared)
    first.check(machine)
    check_state_fits(ModelSize.of(graph), strategy, machine)
    for text in first.doubts(graph):
        warnings.warn(text, RostamWarning, 2)

    def placed(one: Strategy) -> Plan:
        with without_collections():  # plans are many objects without cycles
            plan: Plan = placer(one, cost, cost_config, shared).place(graph, machine, global_batch)
        return program.sign(plan, given, trains)

    if placer.fits_memory or not is_open(strategy):
        return placed(strategy)
    share = safe_share(trains, machine.device.name, has_experts=program.has_experts)
    try:
        return _largest(placed, strategy, global_batch, share * machine.device.memory_bytes)
    except MemoryCapacityError:
        if share == 1.0:
            raise
        return _largest(placed, strategy, global_batch, machine.device.memory_bytes)


def _largest(place: Callable[[Strategy], Plan], strategy: Strategy, global_batch: int, capacity: float) -> Plan:
    """Return the plan of the largest micro-batch that takes at most ``capacity`` of memory [bytes].

    Args: place: raises MemoryCapacityError for what does not fit the device. Raises: the same if none does.
    """

    def within(one: Strategy) -> Plan:
        plan = place(one)
        if plan.memory_bytes > capacity:
            raise MemoryCapacityError("its upper bound does not fit", plan.fullest_memory)
        return plan

    try:
        return within(strategy)
    except MemoryCapacityError as error:
        return with_micro_batch_that_fits(within, strategy, global_batch, int(capacity), error)
