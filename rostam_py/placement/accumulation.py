"""Gradient sums in another order: what one block contributes is summed before it joins the rest.

A tensor that many blocks read (an encoder's output) gets its gradient as ((v2 + k2) + v1) + k1, in the
order autograd finds the parts. Summed as (v2 + k2) + (v1 + k1) a tensor-parallel group all-reduces once a
block, as Megatron does with fused key and value projections, and no more adds are needed.
"""

import itertools
from dataclasses import replace

from rostam_py.graph import Op, OperatorGraph


def regroup_gradient_sums(graph: OperatorGraph) -> OperatorGraph:
    """Return the graph with the sums of gradients regrouped by block; the same graph if nothing changes."""
    changed: dict[int, Op] = {}
    moved_behind: dict[int, list[Op]] = {}
    moved: set[int] = set()
    for chain in _chains(graph):
        for group in _groups(graph, chain):
            first, last = group[0], group[-1]
            accumulated = chain[chain.index(first) - 1].outputs[0]
            partial = _leaf(graph, first)
            for before, op in itertools.pairwise(group):
                changed[op.id] = replace(op, inputs=(partial, _leaf(graph, op)), outputs=before.outputs)
                partial = before.outputs[0]
            joined = replace(
                first, inputs=(accumulated, partial), outputs=last.outputs, block=last.block, module=last.module
            )
            moved.add(first.id)
            moved_behind.setdefault(last.id, []).append(joined)
    if not moved:
        return graph
    order = []
    for op in graph.ops:
        if op.id not in moved:
            order.append(changed.get(op.id, op))
        order += moved_behind.get(op.id, [])
    return _renumbered(graph, order)


def _chains(graph: OperatorGraph) -> list[list[Op]]:
    """Return the maximal runs of accumulations, each adding one part to the one before."""
    chains: list[list[Op]] = []
    chain_of: dict[int, list[Op]] = {}
    for op in graph.ops:
        if not op.is_accumulation or len(op.inputs) != 2:
            continue
        sums = [t for t in op.inputs if t in chain_of and len(graph.consumers[t]) == 1]
        chain = chain_of[sums[0]] if sums else []
        if not sums:
            chains.append(chain)
        chain.append(op)
        chain_of[op.outputs[0]] = chain
    return chains


def _groups(graph: OperatorGraph, chain: list[Op]) -> list[list[Op]]:
    """Return the runs of two or more additions, behind the first, whose parts come from one block."""
    groups: list[list[Op]] = []
    current: list[Op] = []
    block = None
    for op in chain[1:]:
        producer = graph.tensors[_leaf(graph, op)].producer
        new_block = None if producer is None else graph.ops[producer].block
        if current and new_block == block and block != -1:
            current.append(op)
        else:
            current = [op]
            groups.append(current)
        block = new_block
    return [g for g in groups if len(g) > 1]


def _leaf(graph: OperatorGraph, op: Op) -> int:
    """Return the part an addition adds: the operand that is not itself the running sum."""
    left, right = op.inputs
    producer = graph.tensors[left].producer
    is_sum = producer is not None and graph.ops[producer].is_accumulation and len(graph.consumers[left]) == 1
    return right if is_sum else left


def _renumbered(graph: OperatorGraph, order: list[Op]) -> OperatorGraph:
    """Return the graph with its ops in a new order and every reference to them updated."""
    new_id = {op.id: place for place, op in enumerate(order)}
    ops = tuple(
        replace(op, id=place, forward_op=None if op.forward_op is None else new_id[op.forward_op])
        for place, op in enumerate(order)
    )
    producers = {t: op.id for op in ops for t in op.outputs}
    tensors = tuple(replace(t, producer=producers.get(t.id)) for t in graph.tensors)
    return replace(graph, ops=ops, tensors=tensors)
