"""Which products are one in code with one weight for them: queries, keys and values; a unit's gate and what it gates.

Model: products of a block that read one tensor, whose results reach the same next product and no other, are one product
of all their columns: Megatron-Core's linear_qkv and linear_fc1, forward and backward. So are cross-attention's keys and
values, and a layer of experts' two; a router, or latents that products expand again (DeepSeek's), reach others. In
backward their weights' gradients are one product, and so are their inputs', which adds up inside.
Ignores: that Megatron-Core splits the result by views, and needs as many key heads as members at least.
Source: megatron/core/transformer/attention.py (SelfAttention.linear_qkv, CrossAttention.linear_kv) and mlp.py
(linear_fc1: ffn_hidden_size times 2 of a gated unit) of NVIDIA/Megatron-LM; multi_latent_attention.py has
linear_q_down_proj and linear_kv_down_proj apart.
"""

from collections.abc import Hashable, Mapping, Sequence

from rostam_py.costs.kernel_shapes import makes_weight_gradient
from rostam_py.graph import WEIGHT_KINDS, Op, OperatorGraph, behind_barrier

_OUTSIDE = -1  # in the set of products that a result reaches: ops of other blocks, or none


def joint_forward(graph: OperatorGraph) -> list[tuple[int, ...]]:
    """Return the groups of forward products that are one. Cost: linear in ops, times the products of a block."""
    reached: dict[int, frozenset[int]] = {}
    groups: dict[Hashable, list[int]] = {}
    for op in reversed(graph.ops):
        if op.phase != "forward" or op.is_metadata:
            continue
        reached[op.id] = _reached(graph, op, reached)
        if op.role == "product" and len(reached[op.id]) == 1 and _OUTSIDE not in reached[op.id]:
            roots = (graph.view_roots[t] for t in op.inputs)
            read = frozenset(t for t in roots if graph.tensors[t].kind not in WEIGHT_KINDS)
            groups.setdefault((op.block, op.op_type, read, reached[op.id]), []).append(op.id)
    return [tuple(sorted(group)) for group in groups.values() if len(group) > 1]


def _reached(graph: OperatorGraph, op: Op, reached: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """Return the products with weights that read what an op makes, through others."""
    found: set[int] = set()
    for t in op.outputs:
        for reader in graph.readers.get(t, ()):
            other = graph.ops[reader]
            if other.phase != "forward":
                continue
            if other.block != op.block:
                found.add(_OUTSIDE)
            elif other.role == "product":
                found.add(reader)
            else:
                found |= reached.get(reader, frozenset((_OUTSIDE,)))
    return frozenset(found)


def joint_products(
    graph: OperatorGraph, forward: Sequence[tuple[int, ...]], barriers: frozenset[int], classes: Mapping[int, Hashable]
) -> tuple[tuple[int, ...], ...]:
    """Return the ops of each product that several are one of: products, the sums of their results; ascending.

    Args:
        forward: what ``joint_forward`` returns, or parts of it.
        barriers: tensors that need communication before they are read; views count.
        classes: op -> what only ops of the same may share a kernel.
    Cost: linear in ops.
    """
    number_of = {op: number for number, group in enumerate(forward) for op in group}
    found: dict[tuple[int, bool], list[int]] = {}  # (group, of weights) -> backward products
    for op in graph.ops:
        if op.phase == "backward" and op.role == "product" and not op.is_recomputed and op.forward_op in number_of:
            found.setdefault((number_of[op.forward_op], makes_weight_gradient(op, graph)), []).append(op.id)
    crossing = behind_barrier(graph, barriers)
    joint = [group for group in forward if _are_alike(group, classes)]
    for (number, is_of_weights), products in found.items():
        sums = () if is_of_weights else _sums(graph, products, crossing)
        is_whole = len(products) == len(forward[number]) and sums is not None
        if is_whole and _are_alike((*products, *(sums or ())), classes):
            joint.append(tuple(sorted((*products, *(sums or ())))))
    return tuple(joint)


def _are_alike(ops: Sequence[int], classes: Mapping[int, Hashable]) -> bool:
    return len({classes.get(op) for op in ops}) == 1


def _sums(graph: OperatorGraph, products: Sequence[int], crossing: frozenset[int]) -> tuple[int, ...] | None:
    """Return the sums that make one tensor of what products make, None where nothing does, or not on one device."""
    inside, sums = set(products), list[int]()
    pending = [t for op in products for t in graph.ops[op].outputs]
    while pending:
        for reader in graph.readers.get(pending.pop(), ()):
            op = graph.ops[reader]
            makers = {graph.tensors[graph.view_roots[t]].producer for t in op.inputs}
            if op.is_accumulation and op.role == "sum" and reader not in inside and makers <= inside:
                if not crossing.isdisjoint(op.inputs):
                    return None
                inside.add(reader)
                sums.append(reader)
                pending += op.outputs
    return tuple(sums) if len(sums) == len(products) - 1 else None
