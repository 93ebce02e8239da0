"""The memory that a strategy takes at least, by the number of parameters alone: refused before anything is placed.

Legend: P = trained parameters, m = devices that share them by tp, pp and mp, N = devices of the job.
"""

import dataclasses

from rostam_py.errors import MemoryCapacityError
from rostam_py.graph.model_size import ModelSize
from rostam_py.plan.divisors import divisors
from rostam_py.plan.machine import Machine
from rostam_py.plan.state_sharding import BUFFERS, SHARD_LEVELS, StateSharding
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.strategy_names import PLACERS
from rostam_py.plan.table_groups import REPLICATED
from rostam_py.units import format_size


def check_state_fits(size: ModelSize, strategy: Strategy, machine: Machine) -> None:
    """Refuse a strategy whose weights, gradients and optimizer state alone exceed a device's memory.

    Model: every parameter is split evenly over tp, pp, mp and ep, whether it can be or not, and shared as ZeRO's level
        says; activations count nothing, and nor do embedding tables that are spread by themselves.
    Raises: MemoryCapacityError, naming the least tp x pp of each level that would do; ConfigError for numerics that the
        strategy cannot have.
    """
    capacity = machine.device.memory_bytes
    if not strategy.check_memory or strategy.tables != REPLICATED:
        return
    need = least_state_bytes(size, strategy)
    if need <= capacity:
        return
    raise MemoryCapacityError(
        f"{size.name} needs at least {format_size(round(need))} on each device for weights, gradients and optimizer"
        f" state alone ({size.num_parameters:,} parameters, {strategy.describe()}, strategy.shard={strategy.shard}),"
        f" but {machine.device.name} has {format_size(capacity)}. {_what_would_do(size, strategy, capacity)}"
    )


def least_state_bytes(size: ModelSize, strategy: Strategy) -> float:
    """Return what weights, gradients and optimizer state take at least on the fullest device [bytes]."""
    return _state_bytes(size, strategy, strategy.num_ranks_of_replica // strategy.cp, strategy.state_sharding)


def _state_bytes(size: ModelSize, strategy: Strategy, split: int, state: StateSharding) -> float:
    """Return the state's bytes on a device if ``split`` ones share the parameters evenly, and copies as ``state``."""
    numerics = strategy.numerics(size)
    numerics = dataclasses.replace(numerics, holds_copy=state.level < 3 or strategy.rules.shard_layout == BUFFERS)
    own = size.num_parameters / (split * strategy.ep)
    shared = own / state.degree
    weights, optimizer = (shared if state.level >= least else own for least in (3, 1))
    gradients = shared if state.reduces_every_microbatch else own
    weight_bytes = (
        0 if strategy.rules.narrow_weights else numerics.held_weight_bytes
    )  # products may hold them otherwise
    return weights * weight_bytes + gradients * numerics.gradient_bytes + optimizer * numerics.state_bytes


def _what_would_do(size: ModelSize, strategy: Strategy, capacity: int) -> str:
    """Return the least tp x pp of each level of sharding that fits on as many devices, in words."""
    levels = SHARD_LEVELS if PLACERS.get(strategy.placer).shards_state else (0,)
    axes = " x ".join(axis for axis in strategy.degrees() if axis not in ("dp", "cp"))
    found = []
    for level in levels:
        for split in divisors(strategy.num_ranks // strategy.cp):
            ranks = strategy.num_ranks // split
            state = StateSharding(level=level, degree=ranks) if level else StateSharding()
            if _state_bytes(size, strategy, split, state) <= capacity:
                found.append(f"{axes} = {split} with strategy.shard={level}" if levels != (0,) else f"{axes} = {split}")
                break
    if not found:
        return f"No {axes} fits on {strategy.num_ranks:,} devices: use more devices"
    return f"The smallest degrees that fit: {', '.join(reversed(found))}"
