"""Norms that a program writes out op by op: which ops make the statistics of rows, and which divide by them.

Example:
    for norm in written_norms(graph):
        norm.statistics, norm.op          # x -> pow, mean, add, rsqrt; x * rsqrt
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rostam_py.graph import WEIGHT_KINDS, Op, OperatorGraph

WORKING = ("product", "batched_product", "attention", "convolution", "embedding", "softmax")  # roles of no norm's ops


@dataclass(frozen=True, slots=True)
class WrittenNorm:
    """A norm by rows. statistics: forward ops that make what its rows are divided by. op: that divides them."""

    statistics: frozenset[int]
    op: int


def written_norms(graph: OperatorGraph) -> Iterator[WrittenNorm]:
    """Yield the norms by rows that the forward pass writes out.

    Model: an element-wise op of a tensor and of one entry for each of its rows, which is made of that tensor alone.
    """
    for op in graph.ops:
        if op.phase != "forward" or op.is_metadata or not op.is_elementwise or len(op.inputs) != 2:
            continue
        for x, statistic in (op.inputs, op.inputs[::-1]):
            if extent(graph, statistic) == 1 != extent(graph, x):
                behind = _between(graph, statistic, graph.view_roots[x])
                if behind:
                    yield WrittenNorm(frozenset(behind), op.id)


def extent(graph: OperatorGraph, tensor: int) -> float:
    """Return the size of a tensor's last dimension."""
    shape = graph.tensors[tensor].shape
    return shape[-1].at(1) if shape else 1


def maker_of(graph: OperatorGraph, tensor: int) -> Op | None:
    """Return the op that made the memory of a tensor."""
    producer = graph.tensors[graph.view_roots[tensor]].producer
    return None if producer is None else graph.ops[producer]


def is_weight(graph: OperatorGraph, tensor: int) -> bool:
    """Tell whether a tensor is a weight or a view of one."""
    return graph.tensors[graph.view_roots[tensor]].kind in WEIGHT_KINDS


def _between(graph: OperatorGraph, tensor: int, start: int) -> set[int]:
    """Return the ops that make a tensor out of ``start`` and nothing else, none if there is something else."""
    found: set[int] = set()
    pending, is_reached = [tensor], False
    while pending:
        t = pending.pop()
        op = maker_of(graph, t)
        if graph.view_roots[t] == start or is_weight(graph, t):
            is_reached |= graph.view_roots[t] == start
            continue
        if op is None or op.role in WORKING or op.phase != "forward":
            return set()
        if op.id not in found:
            found.add(op.id)
            pending += op.inputs
    return found if is_reached else set()
