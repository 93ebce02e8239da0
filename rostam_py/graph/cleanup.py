"""Clean-up before costing (MODEL B7): metadata ops vanish, ops fuse into kernels, of which the traffic is known.

Example:
    fusion = fuse(graph, barriers)                # barriers: tensors that are communicated
    for kernel, traffic in zip(fusion.kernels, kernel_traffic(graph, fusion)):
        read, written = kernel_bytes(graph, traffic, batch)
"""

from collections.abc import Collection
from dataclasses import dataclass

from rostam_py.graph.derived import Derived
from rostam_py.graph.operator_graph import OperatorGraph
from rostam_py.graph.ops import Op
from rostam_py.graph.vocabulary import DTYPE_BYTES, ROW_PLACES, TABLE_ROLES

_OUTCOMES = ("gradient", "loss")


@dataclass(frozen=True, slots=True)
class Fusion:
    """Kernels as op ids, main op first, in a valid execution order; and what the clean-up did.

    order: of kernels and, as tuples of one, of all views, where it is known.
    """

    kernels: tuple[tuple[int, ...], ...]
    num_metadata_removed: int
    num_fused: int
    order: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class KernelTraffic:
    """What a kernel moves to and from memory, as tensor ids.

    reads, writes: whole tensors; tensors that live only inside the kernel are in neither.
    gathered: (table, ids, result): of the table only the rows or entries that are looked up are read.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    gathered: tuple[tuple[int, int, int], ...] = ()


def fuse(graph: OperatorGraph, barriers: Collection[int] = frozenset(), ops: Collection[int] | None = None) -> Fusion:
    """Return the kernels of ``graph`` where element-wise ops join those that make their inputs, products among them.

    Model: an element-wise op joins the kernel, created last, of those that make its inputs, if phase
        and block are the same and none of its inputs is reached through a barrier. Kernels run in the
        order of their first ops, so all other inputs of the op exist by then.
    Args: barriers: ids of tensors that need communication before they are read; views count.
        ops: ids of the ops to consider, all by default.
    Cost: linear in ops and edges.
    """
    barriers = frozenset(barriers)
    roots = graph.view_roots
    crossing = behind_barrier(graph, barriers)
    kernels: list[list[int]] = []
    made_by: dict[int, int] = {}  # root tensor -> kernel
    num_metadata = num_fused = 0
    for op in graph.ops:
        if ops is not None and op.id not in ops:
            continue
        if op.is_metadata:
            num_metadata += 1
            continue
        place = _host(graph, op, kernels, made_by, roots, crossing) if op.is_elementwise else None
        if place is None:
            place = len(kernels)
            kernels.append([])
        else:
            num_fused += 1
        kernels[place].append(op.id)
        for output in op.outputs:
            made_by[output] = place
    return Fusion(tuple(tuple(k) for k in kernels), num_metadata, num_fused)


def _host(
    graph: OperatorGraph,
    op: Op,
    kernels: list[list[int]],
    made_by: dict[int, int],
    roots: tuple[int, ...],
    crossing: frozenset[int],
) -> int | None:
    """Return the kernel that an element-wise op may join, None if it must start its own."""
    if any(tensor in crossing for tensor in op.inputs):
        return None
    makers = [made_by[roots[tensor]] for tensor in op.inputs if roots[tensor] in made_by]
    if not makers:
        return None
    place = max(makers)
    last = graph.ops[kernels[place][-1]]
    return place if (last.phase, last.block) == (op.phase, op.block) else None


def behind_barrier(graph: OperatorGraph, barriers: frozenset[int]) -> frozenset[int]:
    """Return barriers and all views of them."""
    crossing = set(barriers)
    for op in graph.ops:
        if op.is_metadata and any(tensor in crossing for tensor in op.inputs):
            crossing.update(op.outputs)
    return frozenset(crossing)


def kernel_traffic(
    graph: OperatorGraph, fusion: Fusion, kept: Collection[int] = frozenset(), derived: Derived | None = None,
    *, joins_parts: bool = False,
) -> tuple[KernelTraffic, ...]:  # fmt: skip
    """Return each kernel's traffic, in the order of ``fusion.kernels``.

    Args:
        kept: tensors that must reach memory even if only this kernel reads them (communicated ones).
        derived: tensors that backward kernels compute again, and what they read for it.
        joins_parts: a kernel reads what it reads as a whole and in parts (slices of it) once.
    """
    again = derived or {}
    roots, readers = graph.view_roots, graph.readers
    needed = {roots[t.id] for t in graph.tensors if t.is_saved or t.kind in _OUTCOMES} - again.keys()
    needed |= {roots[t] for t in kept}
    forward = {t: tuple(u for u in readers[t] if graph.ops[u].phase == "forward") for t in again}
    users = {**readers, **forward}
    traffics = []
    for kernel in fusion.kernels:
        made = {output for index in kernel for output in graph.ops[index].outputs}
        outside = {t for t in made if t in needed or t not in users or any(u not in kernel for u in users[t])}
        reads, gathered = _kernel_reads(graph, kernel, made, again)
        reads = _joined(graph, reads) if joins_parts else reads
        traffics.append(KernelTraffic(reads, tuple(sorted(outside)), gathered))
    return tuple(traffics)


def _kernel_reads(
    graph: OperatorGraph, kernel: tuple[int, ...], made: set[int], again: Derived
) -> tuple[tuple[int, ...], tuple[tuple[int, int, int], ...]]:
    """Return the tensors a kernel reads from memory, each region once, and its gathers."""
    roots, regions = graph.view_roots, graph.regions
    reads: dict[int, int] = {}  # region -> the tensor as it is read first
    gathered = []
    for index in kernel:
        op = graph.ops[index]
        inputs = () if () in op.linear_in else op.inputs  # zeros read no values
        if op.role in TABLE_ROLES and len(inputs) > 1:
            gathered.append((inputs[0], inputs[1], op.outputs[0]))
            inputs = inputs[1:]
        elif op.role in ROW_PLACES:
            place = ROW_PLACES[op.role]
            if op.role == "pick" and roots[inputs[place]] not in made:
                gathered.append((inputs[place], inputs[place + 1], op.outputs[0]))
            inputs = inputs[:place] + inputs[place + 1 :]
        for tensor in inputs:
            if roots[tensor] in made:
                continue
            for read in again.get(roots[tensor], (tensor,)) if op.phase == "backward" else (tensor,):
                reads.setdefault(regions[read], read)
    return tuple(reads.values()), tuple(gathered)


def _joined(graph: OperatorGraph, reads: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tensors without parts of others among them; parts that make up more than a whole are that whole."""
    parts: dict[int, list[int]] = {}
    for t in reads:
        parts.setdefault(graph.view_roots[t], []).append(t)
    joined = []
    for root, listed in parts.items():
        if len(listed) == 1:
            joined += listed
            continue
        sizes = [graph.tensors[t].num_bytes(2) for t in listed]
        whole = next(
            (t for t, size in zip(listed, sizes, strict=True) if size >= graph.tensors[root].num_bytes(2)), None
        )
        is_all = sum(sizes) >= graph.tensors[root].num_bytes(2)
        joined += [whole] if whole is not None else [root] if is_all else listed
    return tuple(joined)


def kernel_bytes(graph: OperatorGraph, traffic: KernelTraffic, batch: float) -> tuple[float, float]:
    """Return (bytes read, bytes written) of a kernel at ``batch`` samples, unsplit, in traced dtypes."""
    tensors = graph.tensors
    read = sum(_distinct_bytes(graph, t, batch) for t in traffic.reads)
    read += sum(gathered_bytes(graph, gather, batch) for gather in traffic.gathered)
    return read, sum(tensors[t].num_bytes(batch) for t in traffic.writes)


def gathered_bytes(graph: OperatorGraph, gather: tuple[int, int, int], batch: float) -> float:
    """Return the bytes that a gather (table, ids, result) reads of its table, unsplit, in the result's dtype.

    Model: as many as the result holds; where the rows of several ids are pooled, all those rows; of what a pick adds
        up, an entry for each id.
    """
    table, ids, result = (graph.tensors[t] for t in gather)
    producer = None if result.producer is None else graph.ops[result.producer]
    if producer is not None and producer.role == "pick":
        return ids.num_elements(batch) * DTYPE_BYTES[result.dtype]
    if producer is None or producer.role != "embedding":
        return result.num_bytes(batch)
    width = table.num_elements(batch) / table.shape[0].at(batch)
    return max(result.num_bytes(batch), ids.num_elements(batch) * width * DTYPE_BYTES[result.dtype])


def _distinct_bytes(graph: OperatorGraph, tensor: int, batch: float) -> float:
    """Bytes of a tensor in memory: an expanded view is no larger than what it expands."""
    seen = graph.tensors[tensor].num_bytes(batch)
    producer = graph.tensors[tensor].producer
    while producer is not None and graph.ops[producer].is_metadata:
        source = graph.ops[producer].inputs[0]
        seen = min(seen, graph.tensors[source].num_bytes(batch))
        producer = graph.tensors[source].producer
    return seen
