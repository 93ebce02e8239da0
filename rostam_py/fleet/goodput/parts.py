"""Parts: the share of its samples that a replica does with fewer servers than it had.

Example:
    micro_batch_parts(servers=4, micro_batches=32, memory_share=0.6)     # {3: 0.75}: with 2, memory would not suffice
"""

import math

from rostam_py.plan.plan import Plan


def micro_batch_parts(servers: int, micro_batches: int, memory_share: float) -> dict[int, float]:
    """Return number of servers -> share, for those with which a replica can go on.

    Model: k of s servers take s / k times as long for a micro-batch, so that floor(m k / s) of m micro-batches end in
        the time of m. A pipeline of k / s of the stages has a shorter bubble, which is not counted. All of a device's
        memory grows by s / k, parameters as well as activations, which errs towards less goodput. Ignores that layers
        or heads may not divide evenly among k servers, and that gradients are cut anew between replicas of different
        shapes, both of which err towards more.
    Args: memory_share: of the fullest device's memory that is used by the whole replica.
    Source: own; tests/fleet/goodput/test_parts.py derives it from pipelines stepped stage by stage.
    """
    least = max(math.ceil(servers * memory_share - 1e-9), 1)
    shares = {left: micro_batches * left // servers / micro_batches for left in range(least, servers)}
    return {left: share for left, share in shares.items() if share > 0}


def parts_of_plan(plan: Plan, units: tuple[tuple[int, ...], ...]) -> dict[int, float]:
    """Return the parts of a plan's replicas. Args: units: servers of what fails together (layout.py)."""
    each = plan.strategy.dp // len(units)
    share = plan.memory_bytes / plan.machine.device.memory_bytes
    return micro_batch_parts(len(units[0]), plan.num_microbatches * each, share)
