"""The order of a stage's backward kernels: input gradients before weight gradients, as in Megatron.

A trace has the weight gradient of a product without a bias first. Where the input gradient of the same product is
all-reduced or reduce-scattered over tp, the weight gradient moves behind the kernel that makes what is reduced, and
hides the collective; under sequence parallelism the input gradient hides the gather of what the weight gradient reads
again. Views of what moves move along. With user buffers, or PyTorch's asynchronous tp, what products of backward read
comes in parts of its rows, which the input gradient is computed from one by one: the weight gradient, a sum over all
rows, comes behind it (transformer_engine/pytorch/module/linear.py of NVIDIA/TransformerEngine, _Linear.backward).
"""

from collections.abc import Sequence

from rostam_py.costs.kernel_shapes import makes_weight_gradient
from rostam_py.placement.kernels import Kernel
from rostam_py.placement.sharding import Gather, Sharding


def input_gradients_first(
    sharding: Sharding, kernels: Sequence[Kernel], order: Sequence[int], *, hides: bool, is_cut: bool
) -> list[int]:
    """Return the indices of a stage's backward kernels in the order in which they run.

    Args:
        hides: weights' gradients hide collectives of inputs' gradients.
        is_cut: products run in parts, overlapped with their gathers.
    Cost: linear in kernels.
    """
    run = [kernels[index] for index in order]
    targets = _behind_cut(sharding, run) if is_cut else {}
    if hides:
        targets |= _behind_scatters(sharding, run) if sharding.gathers_again else _behind_all_reduces(sharding, run)
    if not targets:
        return list(order)
    moved: dict[int, list[int]] = {}  # position of a kernel -> positions of those that run behind it instead
    made: dict[int, int] = {}  # what they make -> that position
    for place, kernel in enumerate(run):
        target = -1
        if kernel.is_view:
            target = max((made[t] for t in kernel.inputs if t in made), default=-1)
        elif place in targets and _is_free(run, place, targets[place]):
            target = targets[place]
        if target >= 0:
            moved.setdefault(target, []).append(place)
            made.update(dict.fromkeys(kernel.outputs, target))
    late = {place for places in moved.values() for place in places}
    result: list[int] = []
    for place, index in enumerate(order):
        result += [] if place in late else [index]
        result += [order[other] for other in moved.get(place, ())]
    return result


def _behind_scatters(sharding: Sharding, run: Sequence[Kernel]) -> dict[int, int]:
    """Return place of a kernel that reads what is gathered again -> that of the reduce-scattered gradient of it."""
    behind = _scatters(sharding, run)
    return {
        place: behind[place]
        for place, kernel in enumerate(run)
        if not kernel.is_view and behind[place] >= 0 and _reads(sharding, kernel)
        and _again(sharding, kernel) & _summed(sharding, run[behind[place]])
    }  # fmt: skip


def _behind_cut(sharding: Sharding, run: Sequence[Kernel]) -> dict[int, int]:
    """Return place of a weight gradient -> that of the input gradient, behind it, of the product both are of."""
    graph, found = sharding.graph, dict[int, int]()
    waiting: dict[int, int] = {}  # product -> place of its weight gradient
    for place, kernel in enumerate(run):
        op = graph.ops[kernel.ops[0]]
        if kernel.is_view or op.role != "product" or op.forward_op is None:
            continue
        if makes_weight_gradient(op, graph):
            waiting[op.forward_op] = place
        elif (before := waiting.pop(op.forward_op, None)) is not None and _shares_gather(sharding, run[before], kernel):
            found[before] = place
    return found


def _shares_gather(sharding: Sharding, one: Kernel, other: Kernel) -> bool:
    return not set(sharding.gathers.get(one.ops[0], ())).isdisjoint(sharding.gathers.get(other.ops[0], ()))


def _behind_all_reduces(sharding: Sharding, run: Sequence[Kernel]) -> dict[int, int]:
    """Return place of a weight gradient -> that of the all-reduced input gradient of the same product, behind it."""
    found: dict[int, int] = {}
    waiting: dict[int, list[int]] = {}  # product -> places of its weight gradients (a bias has one too)
    graph = sharding.graph
    for place, kernel in enumerate(run):
        op = graph.ops[kernel.ops[0]]
        if not kernel.is_view and op.forward_op is not None and graph.gradient_tensors.issuperset(kernel.outputs):
            waiting.setdefault(op.forward_op, []).append(place)
        comms = (comm for t in kernel.outputs for comm in sharding.comms.get(t, ()))
        if waiting and any(comm.kind == "all_reduce" for comm in comms):
            for product in _products(sharding, kernel) & waiting.keys():
                found.update(dict.fromkeys(waiting.pop(product), place))
    return found


def _products(sharding: Sharding, kernel: Kernel) -> set[int]:
    """Return the forward ops whose input's gradient a kernel makes, alone or as a sum of several ops' results."""
    graph = sharding.graph
    found: set[int] = set()
    pending = list(kernel.ops)
    while pending:
        op = graph.ops[pending.pop()]
        if op.is_accumulation or op.is_metadata:
            makers = (graph.tensors[t].producer for t in op.inputs)
            pending += [maker for maker in makers if maker is not None]
        elif op.forward_op is not None:
            found.add(op.forward_op)
    return found


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


def _is_free(run: Sequence[Kernel], place: int, target: int) -> bool:
    """Tell whether no kernel up to the target needs what a kernel makes."""
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
