"""What stages keep for backward, and what fused backward kernels compute again from it (MODEL B7, D15)."""

from collections.abc import Collection

from rostam_py.costs.precision import is_of_log_softmax, is_of_loss
from rostam_py.graph import WEIGHT_KINDS, Derived, OperatorGraph, derived_tensors
from rostam_py.placement.convolution_norms import convolution_norms
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.megatron.pipeline import StageAssignment
from rostam_py.plan.fusion import APART_NORMS, BLOCKS_AND_LOSS


def derived_in_kernels(
    graph: OperatorGraph, builder: KernelBuilder, stages: StageAssignment, whole: Collection[int]
) -> Derived:
    """Return what backward kernels compute again, on the stage that made it and from what that stage keeps.

    Args: whole: tensors that must be in memory as they are.
    """
    sharding, exchanged = builder.sharding, builder.experts.exchanged
    roots = graph.view_roots
    sent = {roots[t] for t in exchanged}
    apart = {op.id for op in graph.ops if sharding.gathers.get(op.id) or sharding.inner_comms(op.id)}
    apart |= {op.id for op in graph.ops if any(roots[t] in sent for t in op.inputs)}
    found = derived_tensors(graph, {*whole, *sharding.collected, *exchanged}, apart) | builder.epilogues.instead
    if stages.num_stages == 1:
        return found
    where = {root: _backward_stages(graph, stages, root) for root in graph.readers}
    return {t: sources for t, sources in found.items() if _is_at_home(graph, stages, t, sources, where)}


def losses_in_kernels(graph: OperatorGraph, builder: KernelBuilder) -> Derived:
    """Return the log-probabilities that a loss compiled by itself computes again in backward, and the logits, which are
    kept for it.

    Model: of each row the largest logit and the sum of exponentials are kept besides, and not counted. Other fused
        losses keep what is as wide in fp32 (exp_logits of Megatron-Core's core/fusions/fused_cross_entropy.py).
    Source: torch's min-cut partitioner, which saves a compiled loss's input and what is small of each row.
    """
    found: Derived = {}
    if builder.rules.fused_part != BLOCKS_AND_LOSS:
        return found
    for op in graph.ops:
        if op.phase != "forward" or not is_of_log_softmax(op.op_type) or not builder.rules.is_fused(op):
            continue
        made = graph.view_roots[op.outputs[0]]
        readers = [graph.ops[u] for u in graph.readers.get(made, ())]
        if all(is_of_loss(u.op_type) for u in readers):
            found[made] = (op.inputs[0],)
    return found


def norms_in_convolutions(graph: OperatorGraph, builder: KernelBuilder) -> Derived:
    """Return what convolutions apply norms for, and their gradients again, and what the norms read, which is kept.

    Model: statistics, and bits of signs at the ends of units, are not counted.
    """
    if builder.rules.convolution_norms == APART_NORMS:
        return {}
    found = (one for one in convolution_norms(graph) if one.addition is None)
    return {graph.view_roots[one.activation.outputs[0]]: (one.norms[0].inputs[0],) for one in found}


def _backward_stages(graph: OperatorGraph, stages: StageAssignment, root: int) -> set[int]:
    return {stages.op_stages[u] for u in graph.readers[root] if graph.ops[u].phase == "backward"}


def _is_at_home(
    graph: OperatorGraph, stages: StageAssignment, tensor: int, sources: tuple[int, ...], where: dict[int, set[int]]
) -> bool:
    """Tell whether the stage that makes a tensor alone reads it in backward, and keeps what it is computed from."""
    producer, readers = graph.tensors[tensor].producer, where[tensor]
    if producer is None or readers != {stages.op_stages[producer]}:
        return False
    kept = (graph.view_roots[t] for t in sources)
    return all(graph.tensors[t].kind in WEIGHT_KINDS or readers <= where[t] for t in kept)
