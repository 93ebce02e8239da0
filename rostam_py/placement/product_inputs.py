"""What 8-bit matrix products make of the bytes that are kept, and sent, for them.

Model: a product casts its inputs, and keeps the casts for backward. A tensor that only products read in backward is
kept in their width alone, one that other ops read too as it is and in their width.
"""

from rostam_py.costs.precision import get_precision
from rostam_py.graph import OperatorGraph


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
            wide |= set() if op.role == "product" else found
    return frozenset(read - wide)


def product_width(precision: str) -> float:
    """Return the bytes of an element that a product reads over those of an activation."""
    chosen = get_precision(precision)
    return chosen.product_bytes / chosen.tensor_bytes


def kept_widths(graph: OperatorGraph, precision: str) -> dict[int, float]:
    """Return, for tensors kept for backward that products read there, the bytes kept over those of an activation.

    Cost: linear in ops.
    """
    width = product_width(precision)
    if width == 1:
        return {}
    readers: dict[int, set[bool]] = {}  # memory -> whether products, and whether other ops, read it in backward
    memory = [t.storage if t.storage >= 0 else -2 - graph.view_roots[t.id] for t in graph.tensors]
    for op in graph.ops:
        if op.phase == "backward" and not op.is_metadata:
            for t in op.inputs:
                readers.setdefault(memory[t], set()).add(op.role == "product")
    kept = {t.id: readers.get(memory[t.id], set()) for t in graph.tensors if t.is_saved}
    return {t: (width if True in kinds else 0) + (False in kinds) for t, kinds in kept.items() if kinds}
