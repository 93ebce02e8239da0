"""What ranks do with their own tokens where the ranks of a tp group route theirs apart (sequence parallelism).

Model: as Megatron-Core's all-to-all dispatcher (megatron/core/transformer/moe/token_dispatcher.py, v0.12): with
sequence parallelism the router of a tp rank sees its own T/t tokens; their rows go to the ranks of their experts
(all-to-all over ep), are gathered over tp where tp splits every expert, and come back by a reduce-scatter over tp and
an all-to-all over ep. Rows' weights go with them, their gradients back, in messages of their own. Where experts are
whole (--expert-tensor-parallel-size 1) the all-to-alls are all that moves. Without sequence parallelism all tp ranks
hold, route and exchange all tokens.
"""

from rostam_py.errors import ConfigError
from rostam_py.graph import OperatorGraph
from rostam_py.placement.experts.spread import find_experts
from rostam_py.placement.sharding.own_rows import OwnRows, decisions_of


def own_rows(graph: OperatorGraph, are_experts_split: bool) -> OwnRows:
    """Return what works on a member's own tokens and rows.

    Args: are_experts_split: tp splits every expert; else each is whole on one rank, which works on rows that are its
        own, too.
    Raises: ConfigError for whole experts of a model that has none.
    Cost: linear in ops.
    """
    experts = find_experts(graph)
    if not experts.ops:
        if are_experts_split:
            return OwnRows()
        raise ConfigError(
            f"strategy.expert_tp is 1, but {graph.name} has no experts that one rank could hold whole; leave it out"
        )
    decisions = decisions_of(graph)
    exchanged = frozenset(experts.exchanged)
    roots, found = graph.view_roots, set[int]()
    for op in graph.ops:
        if op.id in experts.ops:
            continue
        if any(t in decisions or roots[t] in exchanged for t in (*op.inputs, *op.outputs)):
            found.add(op.id)
    found |= _routers(graph, found, decisions)
    if not are_experts_split:
        found |= experts.ops
    return OwnRows(frozenset(found), exchanged, decisions)


def _routers(graph: OperatorGraph, arranging: set[int], decisions: frozenset[int]) -> set[int]:
    """Return the forward ops between the tokens that are gathered into rows and the decisions about them."""
    found: set[int] = set()
    roots = graph.view_roots
    for op in graph.ops:
        if op.id not in arranging or op.phase != "forward" or op.role != "gather":
            continue
        tables = [roots[t] for t in op.inputs if t not in decisions]
        chosen = [t for t in op.inputs if t in decisions]
        makers = [graph.tensors[t].producer for t in tables]
        if not chosen or None in makers:
            continue
        found |= _between(graph, set(tables), set(chosen), max(m for m in makers if m is not None), op.id)
    return found


def _between(graph: OperatorGraph, start: set[int], end: set[int], first: int, last: int) -> set[int]:
    """Return the ops after ``first`` and before ``last`` that lead from some tensors to others."""
    behind = set(start)
    for op in graph.ops[first:last]:
        if any(t in behind for t in op.inputs):
            behind.update(op.outputs)
    needed, found = set(end), set[int]()
    for op in reversed(graph.ops[first:last]):
        reads = [t for t in op.inputs if t in behind]
        if reads and any(t in needed for t in op.outputs) and not any(t in start for t in op.outputs):
            needed.update(reads)
            found.add(op.id)
    return found
