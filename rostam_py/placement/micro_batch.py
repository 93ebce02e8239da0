"""The largest micro-batch that fits in memory, where a strategy without a pipeline names none (MODEL D16)."""

from collections.abc import Callable
from dataclasses import replace

from rostam_py.errors import MemoryCapacityError
from rostam_py.plan.divisors import divisors
from rostam_py.plan.plan import Plan
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.tasks import MemoryBytes

NOTE = "micro-batch: "


def is_open(strategy: Strategy) -> bool:
    """Return whether a plan that does not fit may take smaller micro-batches than the whole batch of a replica."""
    return strategy.pp == 1 and strategy.micro_batch is None and strategy.check_memory


def micro_batches_by_memory(memory: MemoryBytes, micro_batch: int, num_microbatches: int, capacity: int) -> list[int]:
    """Return the micro-batches that fit instead of one that does not, the largest first.

    Model: activations go with the samples. Args: memory: of the fullest device.
    """
    room = capacity - (memory.total - memory.activations)
    limit = int(room * micro_batch / max(1, memory.activations))
    smaller = [size for size in divisors(micro_batch * num_microbatches) if size < micro_batch]
    return [size for size in reversed(smaller) if size <= limit]


def with_micro_batch_that_fits(
    place: Callable[[Strategy], Plan], strategy: Strategy, global_batch: int, capacity: int, whole: MemoryCapacityError
) -> Plan:
    """Return the plan of the largest micro-batch that fits, with a note that says so.

    Args: place: raises MemoryCapacityError for what does not fit. whole: of the whole batch of a replica.
    Raises: MemoryCapacityError if one sample does not fit.
    """
    if whole.memory is None:
        raise whole
    refused = whole
    of_replica, num_microbatches = strategy.batches(global_batch)
    for size in micro_batches_by_memory(whole.memory, of_replica, num_microbatches, capacity) or [1]:
        try:
            plan = place(replace(strategy, micro_batch=size))
        except MemoryCapacityError as error:
            refused = error
            continue
        note = f"{NOTE}{size:,} of a replica's {of_replica:,} samples is the largest that fits in memory"
        return replace(plan, notes=(note, *plan.notes))
    raise refused
