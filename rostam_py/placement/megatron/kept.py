"""What stages keep for backward, and what fused backward kernels compute again from it (MODEL B7, D15)."""

from collections.abc import Collection

from rostam_py.graph import WEIGHT_KINDS, Derived, OperatorGraph, derived_tensors
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.megatron.pipeline import StageAssignment


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
    found = derived_tensors(graph, {*whole, *sharding.collected, *exchanged}, apart)
    if stages.num_stages == 1:
        return found
    where = {root: _backward_stages(graph, stages, root) for root in graph.readers}
    return {t: sources for t, sources in found.items() if _is_at_home(graph, stages, t, sources, where)}


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
