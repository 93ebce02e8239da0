"""The order of a stage's backward kernels under sequence parallelism: input gradients before weight gradients.

A weight gradient reads what is gathered again. Where the trace has it before the input gradient of the same product, it
moves behind the reduce-scatter of that gradient: the gather is hidden by the input gradient, the reduce-scatter by the
weight gradient, as in Megatron. Views of what moves move along.
"""

from collections.abc import Sequence

from rostam_py.placement.kernels import Kernel
from rostam_py.placement.sharding import Gather, Sharding


def input_gradients_first(sharding: Sharding, kernels: Sequence[Kernel], order: Sequence[int]) -> list[int]:
    """Return the indices of a stage's backward kernels in the order in which they run.

    Cost: linear in kernels.
    """
    if not sharding.gathers_again:
        return list(order)
    run = [kernels[index] for index in order]
    behind = _scatters(sharding, run)
    moved: dict[int, list[int]] = {}  # position of a kernel -> positions of those that run behind it instead
    made: set[int] = set()  # what they make
    target = -1
    for place, kernel in enumerate(run):
        gathers = _again(sharding, kernel)
        if kernel.is_view and made.intersection(kernel.inputs):
            moved[target].append(place)
        elif gathers and _reads(sharding, kernel) and _moves(sharding, run, place, behind[place]):
            target = behind[place]
            moved.setdefault(target, []).append(place)
        else:
            continue
        made.update(kernel.outputs)
    late = {place for places in moved.values() for place in places}
    result: list[int] = []
    for place, index in enumerate(order):
        result += [] if place in late else [index]
        result += [order[other] for other in moved.get(place, ())]
    return result


def _scatters(sharding: Sharding, run: Sequence[Kernel]) -> list[int]:
    """Return, per kernel, the place of the next one whose result is reduce-scattered, -1 if there is none."""
    found, last = [-1] * len(run), -1
    for place in range(len(run) - 1, -1, -1):
        found[place] = last
        comms = (comm for t in run[place].outputs for comm in sharding.comms.get(t, ()))
        last = place if any(comm.kind == "reduce_scatter" for comm in comms) else last
    return found


def _again(sharding: Sharding, kernel: Kernel) -> set[Gather]:
    return {gather for op in kernel.ops for gather in sharding.gathers_again.get(op, ())}


def _reads(sharding: Sharding, kernel: Kernel) -> bool:
    """Tell whether a kernel reads what is gathered again, and not only differentiates a reader of it."""
    again = _again(sharding, kernel)
    return any(gather in again for op in kernel.ops for gather in sharding.gathers.get(op, ()))


def _moves(sharding: Sharding, run: Sequence[Kernel], place: int, target: int) -> bool:
    """Tell whether the target makes the gradient of what is gathered, and no kernel before it needs the result."""
    if target < 0 or not _again(sharding, run[place]) & _summed(sharding, run[target]):
        return False
    made = set(run[place].outputs)
    for kernel in run[place + 1 : target + 1]:
        if made.intersection(kernel.inputs):
            if not kernel.is_view:
                return False
            made.update(kernel.outputs)
    return True


def _summed(sharding: Sharding, kernel: Kernel) -> set[Gather]:
    """Return the gathers of what a kernel makes the gradient of, alone or as a sum of several ops' results."""
    graph = sharding.graph
    found: set[Gather] = set()
    pending = list(kernel.ops)
    while pending:
        op = graph.ops[pending.pop()]
        found.update(sharding.gathers_again.get(op.id, ()))
        if op.is_accumulation or op.is_metadata:
            makers = (graph.tensors[t].producer for t in op.inputs)
            pending += [maker for maker in makers if maker is not None]
    return found
