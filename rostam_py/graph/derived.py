"""What fused backward kernels compute again instead of reading it (MODEL B7): intermediates of element-wise chains.

Example: of a gated unit, product = silu(gate) * up, its gate, up and product are kept, silu(gate) is not: the kernel of
the unit's backward has gate in a register. Of an RMS norm, x * rstd * weight, x, rstd and the result are kept, x * rstd
is not.
"""

from collections.abc import Collection, Iterable

from rostam_py.graph.operator_graph import OperatorGraph
from rostam_py.graph.ops import Op
from rostam_py.graph.vocabulary import WEIGHT_KINDS

Derived = dict[int, tuple[int, ...]]  # tensor that a computing op made -> the kept tensors it is computed again from


def derived_tensors(
    graph: OperatorGraph, whole: Collection[int] = frozenset(), apart: Collection[int] = frozenset()
) -> Derived:
    """Return what need not be kept for backward, and what its readers there read instead.

    Model: a saved tensor that an element-wise op makes, that element-wise ops alone read in backward, and whose inputs
        are kept anyway, are weights, or are computed again themselves: nothing is kept in its place, so what is kept
        never grows. What anything else reads in backward (a product, attention, a reduction) must be in memory: kept.
        An op with several results (dropout: its mask is drawn once) is not run again.
    Args:
        whole: tensors that must be in memory: communicated, or read on another device than makes them.
        apart: forward ops that cannot run again inside a kernel, as their inputs must be gathered first.
    Source: torch's min-cut partitioner, which recomputes what fuses and keeps what a backward product reads (torch
        ._functorch.partitioners); Megatron-Core's fused gated units (core/fusions/fused_bias_swiglu.py) and Transformer
        Engine's norms save their inputs alone. Here chains are followed greedily and no tensor is kept for another.
    Cost: linear in ops and edges.
    """
    roots = graph.view_roots
    kept = {roots[t.id] for t in graph.tensors if t.is_saved and t.kind not in WEIGHT_KINDS}
    needed = {roots[t] for t in whole} | _read_as_they_are(graph, kept)
    weights = {t.id for t in graph.tensors if t.kind in WEIGHT_KINDS}
    # what a backward kernel can have -> the tensors in memory it needs
    sources: dict[int, tuple[int, ...]] = {t.id: (t.id,) for t in graph.kept_inputs}
    found: Derived = {}
    for op in graph.ops:
        if op.phase != "forward" or op.is_metadata:
            continue
        sources.update((t, (t,)) for t in op.inputs if roots[t] in weights)
        chain = None if op.id in apart or not _may_run_again(op) else _sources(op.inputs, roots, sources)
        for t in op.outputs:
            if chain is not None and t not in needed:
                sources[t] = chain
                if t in kept:
                    found[t] = chain
            elif t in kept:
                sources[t] = (t,)
    return found


def _read_as_they_are(graph: OperatorGraph, tensors: set[int]) -> set[int]:
    """Return those of some tensors that a backward op which is not element-wise reads, or none at all."""
    read = {t: [graph.ops[u] for u in graph.readers.get(t, ()) if graph.ops[u].phase == "backward"] for t in tensors}
    return {t for t, ops in read.items() if not ops or any(not op.is_elementwise for op in ops)}


def _may_run_again(op: Op) -> bool:
    return op.is_elementwise and len(op.outputs) == 1 and bool(op.inputs)


def _sources(
    inputs: Iterable[int], roots: tuple[int, ...], sources: dict[int, tuple[int, ...]]
) -> tuple[int, ...] | None:
    """Return the tensors in memory that some inputs are computed from, None if one cannot be had."""
    found: dict[int, None] = {}
    for t in inputs:
        behind = sources.get(t) or sources.get(roots[t])
        if behind is None:
            return None
        # a kept tensor is read as this op reads it: perhaps a view of a part
        found.update(dict.fromkeys((t,) if behind == (roots[t],) else behind))
    return tuple(found)
