"""What matrix products of 8 or 4 bits make of the bytes that are kept, and sent, for them, and of their inputs' casts.

Model: a product of a repeated block casts its inputs, and keeps the casts for backward; products outside the blocks are
as wide as other ops where there are blocks. A tensor that only products read in backward is kept in their width alone,
one that other ops read too as it is and in their width. Products that read the same tensor in a phase share what its
cast takes beyond them: a read that finds its largest value and, in forward, a copy by columns for weights' gradients.
"""

from rostam_py.costs.precision import get_precision
from rostam_py.graph import WEIGHT_KINDS, Op, OperatorGraph


def narrow_weights(graph: OperatorGraph) -> frozenset[int]:
    """Return the trained and frozen weights that matrix products alone read, which may lie in their width.

    Cost: linear in ops.
    """
    weights = {t.id for t in graph.weights if t.kind in ("parameter", "frozen")}
    roots, read, wide = graph.view_roots, set[int](), set[int]()
    for op in graph.ops:
        if not op.is_metadata and op.phase in ("forward", "backward"):
            found = weights.intersection(roots[t] for t in op.inputs)
            read |= found
            wide |= set() if is_narrow(graph, op) else found
    return frozenset(read - wide)


def is_narrow(graph: OperatorGraph, op: Op) -> bool:
    """Return whether an op is a product that a precision of narrow products computes in them."""
    return op.role == "product" and (op.block >= 0 or not graph.block_names)


def sent_width(precision: str) -> float:
    """Return the bytes of an element that is sent for products over those of an activation."""
    chosen = get_precision(precision)
    return chosen.sent_bytes / chosen.tensor_bytes


def num_casts(graph: OperatorGraph) -> dict[tuple[str, int], int]:
    """Return, by phase and memory, of what narrow products read and is no weight, copies that a cast makes for others.

    Model: products make their own rows' copies; backward reads of what forward read take the other way, by columns.
        What backward alone reads, gradients of results, is the rows of both products that read it.
    Cost: linear in ops.
    """
    read: dict[tuple[str, int], None] = {}
    for op in graph.ops:
        if is_narrow(graph, op) and not op.is_metadata:
            made = (t for t in op.inputs if graph.tensors[graph.view_roots[t]].kind not in WEIGHT_KINDS)
            for memory in {memory_of(graph, t) for t in made}:
                read[op.phase, memory] = None
    found = {}
    for phase, memory in read:
        if phase == "forward":
            found[phase, memory] = int(("backward", memory) in read)
        elif ("forward", memory) not in read:
            found[phase, memory] = 0
    return found


def memory_of(graph: OperatorGraph, tensor: int) -> int:
    """Return what tells tensors that lie in the same memory."""
    storage = graph.tensors[tensor].storage
    return storage if storage >= 0 else -2 - graph.view_roots[tensor]


def kept_widths(graph: OperatorGraph, precision: str) -> dict[int, float]:
    """Return, for tensors kept for backward that products read there, the bytes kept over those of an activation.

    Cost: linear in ops.
    """
    chosen = get_precision(precision)
    width = chosen.product_bytes / chosen.tensor_bytes
    if width == 1:
        return {}
    readers: dict[int, set[bool]] = {}  # memory -> whether products, and whether other ops, read it in backward
    memory = [memory_of(graph, t.id) for t in graph.tensors]
    for op in graph.ops:
        if op.phase == "backward" and not op.is_metadata:
            for t in op.inputs:
                readers.setdefault(memory[t], set()).add(is_narrow(graph, op))
    kept = {t.id: readers.get(memory[t.id], set()) for t in graph.tensors if t.is_saved}
    return {t: (width if True in kinds else 0) + (False in kinds) for t, kinds in kept.items() if kinds}
