"""The largest micro-batch that fits in memory, where a strategy without a pipeline names none (MODEL D16)."""

from collections.abc import Callable
from dataclasses import replace

from rostam_py.errors import InternalError, MemoryCapacityError
from rostam_py.plan.divisors import divisors
from rostam_py.plan.plan import Plan
from rostam_py.plan.strategy import Strategy

NOTE = "micro-batch: "


def is_open(strategy: Strategy) -> bool:
    """Return whether a plan that does not fit may take smaller micro-batches than the whole batch of a replica."""
    return strategy.pp == 1 and strategy.micro_batch is None and strategy.check_memory


def micro_batches_by_memory(plan: Plan, capacity: int) -> list[int]:
    """Return the micro-batches that fit instead of a plan's, the largest first, if activations go with the samples."""
    memory = max((stage.memory for stage in plan.stages), key=lambda one: one.total)
    room = capacity - (memory.total - memory.activations)
    limit = int(room * plan.micro_batch / max(1, memory.activations))
    smaller = [size for size in divisors(plan.micro_batch * plan.num_microbatches) if size < plan.micro_batch]
    return [size for size in reversed(smaller) if size <= limit]


def with_micro_batch_that_fits(place: Callable[[Strategy], Plan], strategy: Strategy, capacity: int) -> Plan:
    """Return the plan of the largest micro-batch that fits, with a note that says so.

    Args: place: raises MemoryCapacityError for what does not fit, unless the strategy tells it not to look.
    Raises: MemoryCapacityError if one sample does not fit.
    """
    whole = place(replace(strategy, check_memory=False))
    refused: MemoryCapacityError | None = None
    for size in micro_batches_by_memory(whole, capacity) or [1]:
        try:
            plan = place(replace(strategy, micro_batch=size))
        except MemoryCapacityError as error:
            refused = error
            continue
        note = f"{NOTE}{size:,} of a replica's {whole.micro_batch:,} samples is the largest that fits in memory"
        return replace(plan, notes=(note, *plan.notes))
    raise refused or InternalError(f"no micro-batch of {whole.micro_batch} samples was tried")
