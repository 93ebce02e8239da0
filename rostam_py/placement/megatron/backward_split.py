"""The backward in two halves: gradients of inputs (B), which other stages wait for, and gradients of weights (W).

Model: an op is W if all that it computes are gradients of parameters, which at most views, sums with other gradients
and element-wise ops finish. All else is B: the chain of input gradients, though it too ends in a weight's, that of the
first layer, and an op that makes both, as a normalisation's or a convolution's backward does. A collective whose result
W ops alone read runs with them.
Source: Qi et al. 2023 (arXiv 2401.10241), section 2.
"""

from collections.abc import Collection

from rostam_py.graph import WEIGHT_KINDS, OperatorGraph


def weight_gradient_ops(graph: OperatorGraph) -> frozenset[int]:
    """Return the backward ops that compute gradients of parameters and nothing else. Cost: linear in ops and edges."""
    found: set[int] = set()
    finishing: set[int] = set()  # those that others of them may feed
    for op in reversed(graph.ops):
        if op.phase != "backward":
            continue
        users = [u for t in op.outputs for u in graph.consumers[t]]
        is_gradient = any(graph.tensors[t].kind == "gradient" for t in op.outputs)
        if (users or is_gradient) and all(u in finishing for u in users):
            found.add(op.id)
            if op.is_metadata or op.is_accumulation or op.is_elementwise:
                finishing.add(op.id)
    return frozenset(found)


def read_from_elsewhere(graph: OperatorGraph, weight_ops: Collection[int]) -> set[int]:
    """Return the tensors that W ops read and forwards or B ops have made, views among them."""
    found = set()
    for index in weight_ops:
        for t in graph.ops[index].inputs:
            producer = graph.tensors[t].producer
            if producer is not None and producer not in weight_ops:
                found.add(t)
    return found


def held_for_weights(
    graph: OperatorGraph, weight_ops: Collection[int], op_stages: list[int], num_stages: int
) -> list[set[int]]:
    """Return what every stage holds from a micro-batch's B to its W: what its W ops read, weights left out."""
    held: list[set[int]] = [set() for _ in range(num_stages)]
    for index in weight_ops:
        op = graph.ops[index]
        if not op.is_metadata:
            outside = (t for t in op.inputs if graph.tensors[t].producer not in weight_ops)
            held[op_stages[index]].update(t for t in outside if graph.tensors[t].kind not in WEIGHT_KINDS)
    return held


def read_by_weights_alone(graph: OperatorGraph, weight_ops: Collection[int], tensors: Collection[int]) -> set[int]:
    """Return those of some tensors that B ops make and W ops alone read."""
    found = set()
    for t in tensors:
        producer, users = graph.tensors[t].producer, graph.consumers[t]
        is_made_in_backward = producer is not None and graph.ops[producer].phase == "backward"
        if is_made_in_backward and producer not in weight_ops and users and all(u in weight_ops for u in users):
            found.add(t)
    return found
