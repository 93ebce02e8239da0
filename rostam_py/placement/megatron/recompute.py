"""Recomputation: which forward ops are replayed in backward, and when (Korthikanti et al. 2022).

Model: "full" replays the whole forward of a repeated block, collectives included, just before the
block's first backward op; activations are kept at block inputs only. "selective" replays the attention
core: fused attention operators, or everything from the score product to the product with the values.
"""

from collections.abc import Collection, Sequence

from rostam_py.graph import OperatorGraph


def attention_core(graph: OperatorGraph) -> list[set[int]]:
    """Return the forward ops of every attention core."""
    cores = []
    for op in graph.ops:
        if op.phase != "forward":
            continue
        if op.role == "attention":
            cores.append({op.id})
        elif op.role == "softmax":
            core = _walk(graph, op.id, upwards=True) | _walk(graph, op.id, upwards=False)
            if any(graph.ops[i].role == "batched_product" for i in core):
                cores.append(core)
    return cores


def _walk(graph: OperatorGraph, start: int, upwards: bool) -> set[int]:
    """Return the ops between ``start`` and the nearest products above or below, both included."""
    found, pending = set(), [start]
    while pending:
        index = pending.pop()
        op = graph.ops[index]
        if index in found or op.phase != "forward":
            continue
        is_product = op.role == "batched_product"
        if index != start and not (is_product or op.is_metadata or op.is_elementwise):
            continue
        found.add(index)
        if is_product:
            continue
        if upwards:
            pending += [p for t in op.inputs if (p := graph.tensors[t].producer) is not None]
        else:
            pending += [u for t in op.outputs for u in graph.consumers[t]]
    return found


def dropped_by_core(graph: OperatorGraph, cores: list[set[int]]) -> set[int]:
    """Return the tensors selective recomputation need not keep: those used by the core alone."""
    dropped = set()
    for core in cores:
        for index in core:
            for t in graph.ops[index].outputs:
                users = [u for u in graph.consumers[t] if graph.ops[u].phase == "forward"]
                if all(u in core for u in users):
                    dropped.add(t)
    return dropped


def replay_points(
    graph: OperatorGraph, mode: str, op_stages: Sequence[int], weight_ops: Collection[int] = frozenset()
) -> dict[int, list[int]]:
    """Return backward op -> forward ops replayed just before it (blocks that span stages in parts).

    Args: weight_ops: backward ops that run apart, and find what the others have had replayed.
    """
    if mode == "none":
        return {}
    group_of: dict[object, list[int]] = {}
    if mode == "selective":
        for core in attention_core(graph):
            group_of.update(dict.fromkeys(core, sorted(core)))
    else:
        for op in graph.ops:
            if op.phase == "forward" and op.block >= 0:
                group_of.setdefault((op.block, op_stages[op.id]), []).append(op.id)
    points: dict[int, list[int]] = {}
    done: set[int] = set()
    for op in graph.ops:
        if op.phase != "backward" or op.is_metadata or op.is_accumulation or op.id in weight_ops:
            continue
        group = group_of.get(op.forward_op if mode == "selective" else (op.block, op_stages[op.id]))
        if group and group[0] not in done:
            done.add(group[0])
            points[op.id] = group
    return points
