"""Sub-ops: a partitioned graph as kernels, sums and gradients for Algorithm 1, with every byte between them.

Legend: m parts of a source, n parts of a reader. Kernels are fused only over tensors that need no message.
"""

import math
from dataclasses import dataclass, field

from rostam_py.costs.model import CostModel, KernelCall
from rostam_py.costs.numerics import Numerics
from rostam_py.costs.precision import op_precision
from rostam_py.graph import (
    PARTIAL,
    WHOLE,
    Halo,
    KernelTraffic,
    Op,
    OperatorGraph,
    Split,
    Tensor,
    fuse,
    gathered_bytes,
    kernel_bytes,
    kernel_traffic,
)
from rostam_py.placement.kernel_work import NO_WORK, KernelWork, kernel_work
from rostam_py.placement.sip_ml.algorithm1 import Node, Read
from rostam_py.placement.sip_ml.kept import saved_bytes, width_factor
from rostam_py.placement.sip_ml.layouts import ALIGNED, ALL, EXCHANGE, SAME_PART, Layout, Partition, Reading
from rostam_py.placement.sip_ml.residents import ResidentFinder, SubOpResident
from rostam_py.placement.sip_ml.tensor_layouts import gradients_by_root
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.product_inputs import product_width

HALO = "halo"
KERNEL, SUM, GRADIENT = "kernel", "sum", "gradient"


@dataclass(frozen=True, slots=True)
class Flow:
    """What the sub-ops of a node read from an earlier node.

    source: node. key: what is read; parts that a device has received once it does not receive again.
    num_bytes: of the whole, so that a pair moves what ``pair_bytes`` says. is_sum: parts are summands of one tensor;
        each sub-op reads its slice of all of them. before: of a halo, the share that comes from the part before.
    """

    source: int
    key: str
    relation: str
    num_bytes: float
    is_sum: bool = False
    before: float = 0.5

    def pair_bytes(self, part: int, num_parts: int, source_part: int, num_source_parts: int) -> float:
        """Return the bytes that sub-op ``part`` of n reads of part ``source_part`` of m."""
        if self.relation == ALL:
            return self.num_bytes / num_source_parts
        if self.relation == EXCHANGE:
            return self.num_bytes / (num_source_parts * num_parts)
        if self.relation == HALO:
            shares = {part - 1: self.before, part + 1: 1 - self.before}
            return self.num_bytes * shares.get(source_part, 0.0)
        if self.relation == SAME_PART:
            return self.num_bytes
        low = max(part / num_parts, source_part / num_source_parts)
        high = min((part + 1) / num_parts, (source_part + 1) / num_source_parts)
        return self.num_bytes * max(0.0, high - low)


@dataclass(slots=True, kw_only=True)
class SubOps:
    """One op as sub-ops: the node that Algorithm 1 places, and what a template needs of it.

    kind: KERNEL, SUM (adds up what it reads; no compute) or GRADIENT (of the parameter ``name``: slices that
        data parallelism reduces; ``is_replicated`` if every co-located copy then needs all slices).
    is_gradient: what it reads goes into a parameter's gradient, which only the optimizer waits for.
    residents: buffers and kept inputs that it reads. resident_bytes: what memory_bytes has of them; sub-ops of other
        shards on the same device have it again.
    time: of one sub-op. part_bytes: of one part of a gradient. work: what one sub-op runs; the model's of all.
    """

    kind: str
    name: str
    num_parts: int
    flows: tuple[Flow, ...] = ()
    shard: int = -1
    beside: int = -1
    memory_bytes: float = 0.0
    time: KernelTime | None = None
    phase: str = ""
    work: KernelWork = NO_WORK
    part_bytes: int = 0
    is_replicated: bool = False
    is_gradient: bool = False
    residents: tuple[SubOpResident, ...] = ()
    resident_bytes: float = 0.0

    def node(self) -> Node:
        """Return what Algorithm 1 needs."""
        reads = tuple(Read(f.source, f.relation, f.num_bytes) for f in self.flows)
        duration = 0.0 if self.time is None else self.time.duration_s
        return Node(duration, self.num_parts, reads, self.shard, self.beside, self.memory_bytes)


@dataclass(slots=True)
class SubOpGraph:
    """Nodes in a topological order.

    parameters: name -> (parameters of one part, a node co-located with it), of trained ones. frozen: name -> (bytes of
    one part, a node co-located with it), of the others. num_unsplit: ops longer than the quantum that no legal split
    fits.
    """

    nodes: list[SubOps]
    parameters: dict[str, tuple[int, int]] = field(default_factory=dict)
    frozen: dict[str, tuple[int, int]] = field(default_factory=dict)
    num_metadata: int = 0
    num_fused: int = 0
    num_unsplit: int = 0


def build_sub_ops(
    graph: OperatorGraph, parts: Partition, cost: CostModel, batch: float, numerics: Numerics
) -> SubOpGraph:
    """Return the sub-ops of a partitioned graph, timed.

    Args: batch: samples of one group. Cost: linear in ops.
    """
    return _Builder(graph, parts, cost, batch, numerics).build()


class _Builder:
    def __init__(
        self, graph: OperatorGraph, parts: Partition, cost: CostModel, batch: float, numerics: Numerics
    ) -> None:
        self.graph, self.parts, self.cost = graph, parts, cost
        self.batch, self.numerics, self.precision = batch, numerics, numerics.precision
        self.roots = graph.view_roots
        self.parameter_of = {t.id: t for t in graph.weights}
        self.gradients = gradients_by_root(graph, self.roots)
        self.nodes: list[SubOps] = []
        self.node_of: dict[int, int] = {}  # computed tensor -> node that holds it as its op left it
        self.sum_of: dict[int, int] = {}  # tensor -> node that holds its sum
        self.shard_of: dict[str, int] = {}
        self.by_name = {t.name: t for t in graph.weights}
        self.placed_parameters: set[str] = set()
        self.residents = ResidentFinder(graph, parts, self.roots, batch, self.precision)
        self.read_whole_backward: set[tuple[int, int]] = set()
        self.saved = saved_bytes(graph, batch, numerics)
        self.kept_whole: set[tuple[int, int]] = set()

    def build(self) -> SubOpGraph:
        barriers = self._barriers()
        fusion = fuse(self.graph, barriers)
        traffics = kernel_traffic(self.graph, fusion, kept=barriers)
        self._join_shards(fusion.kernels)
        order = sorted(range(len(fusion.kernels)), key=lambda k: fusion.kernels[k][0])
        self.read_whole_backward = self._read_whole_backward(fusion.kernels)
        for k in order:
            self._add_kernel(fusion.kernels[k], traffics[k])
        first = {node.shard: n for n, node in reversed(list(enumerate(self.nodes))) if node.shard >= 0}
        local = {
            t.name: (self._local_count(t), first[self.shard_of[t.name]])
            for t in self.graph.parameters
            if t.name in self.parts.parameters
        }
        frozen = {
            t.name: (self._frozen_bytes(t), first[self.shard_of[t.name]])
            for t in self.graph.weights
            if t.kind != "parameter" and t.name in self.parts.parameters
        }
        counts = fusion.num_metadata_removed, fusion.num_fused, self.parts.num_unsplit
        return SubOpGraph(self.nodes, local, frozen, *counts)

    # Kernels

    def _barriers(self) -> set[int]:
        """Return the tensors no kernel fuses over: summed, or read by an element-wise op from other parts."""
        barriers = set(self.parts.sums)
        for op in self.graph.ops:
            share = self.parts.shares[op.id]
            if share is None:
                continue
            if share.split is not None and (share.split.comm_kind or share.split.exchanged_halos):
                barriers.update(op.outputs)
            for reading in self.parts.readings[op.id]:
                held = self.parts.layouts.get(reading.source)
                if held is None or held.parts != share.parts or reading.relation not in (ALIGNED, SAME_PART):
                    barriers.add(reading.source)
        return barriers

    def _join_shards(self, kernels: tuple[tuple[int, ...], ...]) -> None:
        """Number the parameter shards: parameters that one kernel touches with equal parts share their devices."""
        parent: dict[str, str] = {name: name for name in self.parts.parameters}

        def find(name: str) -> str:
            while parent[name] != name:
                name = parent[name]
            return name

        for kernel in kernels:
            main = self.parts.shares[kernel[0]]
            names = [n for n in self._touched(kernel) if main and self.parts.parameters[n].parts == main.parts]
            for name in names[1:]:
                parent[find(name)] = find(names[0])
        numbers: dict[str, int] = {}
        for name in self.parts.parameters:
            self.shard_of[name] = numbers.setdefault(find(name), len(numbers))

    def _touched(self, kernel: tuple[int, ...]) -> list[str]:
        """Return the parameters that a kernel reads or makes the gradient of."""
        found: dict[str, None] = {}
        for index in kernel:
            op = self.graph.ops[index]
            for t in op.inputs:
                if (p := self.parameter_of.get(self.roots[t])) is not None:
                    found[p.name] = None
            for t in op.outputs:
                found.update((g.name, None) for g in self.gradients.get(t, ()))
        return [n for n in found if n in self.parts.parameters]

    def _add_kernel(self, kernel: tuple[int, ...], traffic: KernelTraffic) -> None:
        ops = [self.graph.ops[i] for i in kernel]
        share = self.parts.share(kernel[0])
        made = {t for op in ops for t in op.outputs}
        touched = [n for n in self._touched(kernel) if self.parts.parameters[n].parts == share.parts]
        shard = self.shard_of[touched[0]] if touched else -1
        flows = self._flows(kernel, made, share.parts)
        node = SubOps(
            kind=KERNEL, name=ops[0].name, num_parts=share.parts, flows=flows, shard=shard, phase=ops[0].phase
        )
        node.time = self._time(kernel, traffic)
        node.work = kernel_work(ops, self.batch, 1, node.time.flops, node.time, self.cost)
        node.residents = self.residents.read_by(kernel)
        node.resident_bytes = self.residents.charge(node.residents, share.parts, shard)
        node.memory_bytes = self._kernel_memory(kernel, touched, shard) + node.resident_bytes
        index = self._append(node)
        home = self._add_inner_sum(kernel, index)
        for t in made:
            self.node_of[t] = home
            if t in self.parts.sums:
                self._add_sum(t, home)
        for t in made:
            for gradient in self.gradients.get(t, ()):
                self._add_gradient(gradient, t)

    def _append(self, node: SubOps) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _flows(self, kernel: tuple[int, ...], made: set[int], num_parts: int) -> tuple[Flow, ...]:
        found: dict[tuple[int, str, str], Flow] = {}
        for index in kernel:
            op, share = self.graph.ops[index], self.parts.shares[index]
            for reading in self.parts.readings[index]:
                if reading.source in made:
                    continue
                flow = self._flow(reading)
                if flow is not None:
                    found.setdefault((flow.source, flow.key, flow.relation), flow)
            for flow in self._parameter_flows(index, num_parts):
                found.setdefault((flow.source, flow.key, flow.relation), flow)
            split = share.split if share is not None else None
            if split is not None and split.exchanged_halos:
                halo = self._halo(op, split, num_parts, list(found.values()))
                if halo is not None:
                    found[halo.source, halo.key, halo.relation] = halo
        return tuple(found.values())

    def _slice_bytes(self, op: Op, split: Split, halo: Halo) -> float:
        tensor = self.graph.tensors[op.inputs[halo.place]]
        extent = tensor.shape[split.input_dims[halo.place]].at(self.batch)  # type: ignore[index]
        return tensor.num_bytes(self.batch) * self._factor(tensor.id) / extent

    def _halo(self, op: Op, split: Split, num_parts: int, flows: list[Flow]) -> Flow | None:
        """Return the flow of what every sub-op reads beyond its slice; None if it has that anyway."""
        key = f"halo {op.name}"
        before = sum(self._slice_bytes(op, split, halo) * halo.before for halo in split.exchanged_halos)
        size = before + sum(self._slice_bytes(op, split, halo) * halo.after for halo in split.exchanged_halos)
        source = next((f.source for f in flows if f.relation == ALIGNED), None)
        if source is not None and self.nodes[source].num_parts == num_parts:
            return Flow(source, key, HALO, size, before=before / size)
        source = next((f.source for f in flows if f.relation == EXCHANGE), source)
        return None if source is None else Flow(source, key, EXCHANGE, size * num_parts)

    def _flow(self, reading: Reading) -> Flow | None:
        source = (self.sum_of if reading.is_summed else self.node_of).get(reading.source)
        if source is None:
            return None
        size = reading.num_bytes * self._factor(reading.source)
        return Flow(source, reading.key, reading.relation, size)

    def _parameter_flows(self, index: int, num_parts: int) -> list[Flow]:
        """Return the flows of parameters that lie in other parts than the op has: fetched from their shard."""
        found = []
        for t in self.graph.ops[index].inputs:
            parameter = self.parameter_of.get(self.roots[t])
            layout = None if parameter is None else self.parts.parameters.get(parameter.name)
            if parameter is None or layout is None or layout.parts == num_parts:
                continue
            shard = self.shard_of[parameter.name]
            owner = next((n for n, node in enumerate(self.nodes) if node.shard == shard), None)
            if owner is not None:
                size = parameter.num_bytes(1) * self._factor(parameter.id)
                found.append(Flow(owner, f"parameter {parameter.name}", ALL, size))
        return found

    def _time(self, kernel: tuple[int, ...], traffic: KernelTraffic) -> KernelTime:
        ops = tuple(self.graph.ops[i] for i in kernel)
        share = self.parts.share(kernel[0])
        parts = share.parts
        flops = sum(op.flops.at(self.batch) for op in ops) / (1 if share.is_partial else parts)  # each adds summands
        read = sum(self._read_bytes(kernel, t) for t in traffic.reads)
        for gather in traffic.gathered:
            read += gathered_bytes(self.graph, gather, self.batch) * self._factor(gather[-1]) / parts
        written = sum(self._part_bytes(t, self.parts.layouts[t]) for t in traffic.writes)
        kind = share.split.kind if share.split is not None else ""
        precision = op_precision(self.precision, (self.graph.tensors[t].dtype for t in ops[0].inputs), ops[0].role)
        call = KernelCall(
            ops=ops,
            flops=flops,
            bytes_read=read,
            bytes_written=written,
            batch=self.batch,
            precision=precision,
            degree=parts,
            split_kind=kind,
        )
        return KernelTime.of(self.cost, call)

    def _read_bytes(self, kernel: tuple[int, ...], tensor: int) -> float:
        full, _ = kernel_bytes(self.graph, KernelTraffic((tensor,), ()), self.batch)
        full *= self._factor(tensor)
        main = self.graph.ops[kernel[0]]
        if main.role == "product" and tensor in main.inputs:
            full *= product_width(self.precision)
        for index in kernel:
            op, share = self.graph.ops[index], self.parts.shares[index]
            if tensor in op.inputs and share is not None and share.split is not None:
                want = share.split.input_dims[op.inputs.index(tensor)]
                return full if want is WHOLE else full / share.parts
        return full

    def _part_bytes(self, tensor: int, layout: Layout) -> float:
        full = self.graph.tensors[tensor].num_bytes(self.batch) * self._factor(tensor)
        return full if layout.dim in (WHOLE, PARTIAL) else full / layout.parts

    def _factor(self, tensor: int) -> float:
        return width_factor(self.graph, tensor, self.numerics)

    # Sums and gradients

    def _add_inner_sum(self, kernel: tuple[int, ...], index: int) -> int:
        """Add what ops all-reduce while they run (softmax or batch statistics); return the node that has the result."""
        size = 0.0
        for op in kernel:
            share = self.parts.shares[op]
            if share is not None and share.split is not None:
                size += max(0.0, share.split.comm_bytes.at(self.batch))
        parts = self.nodes[index].num_parts
        if size == 0 or parts == 1:
            return index
        name = self.nodes[index].name
        parts_in = Flow(index, f"inner {name}", EXCHANGE, size * parts, is_sum=True)
        summed = self._append(
            SubOps(kind=SUM, name=f"sum inside {name}", num_parts=parts, flows=(parts_in,), beside=index)
        )
        flows = (Flow(summed, f"inner sum {name}", ALL, size), Flow(index, f"outputs {name}", SAME_PART, 0.0))
        return self._append(SubOps(kind=SUM, name=f"all-reduced {name}", num_parts=parts, flows=flows, beside=index))

    def _add_sum(self, tensor: int, home: int) -> None:
        parts = self.parts.sums[tensor].parts
        size = self.graph.tensors[tensor].num_bytes(self.batch) * self._factor(tensor)
        flow = Flow(home, f"summands t{tensor}", EXCHANGE, size * parts, is_sum=True)
        name = f"sum of {self.nodes[home].name}"
        node = SubOps(
            kind=SUM, name=name, num_parts=parts, flows=(flow,), beside=home, is_gradient=tensor in self.gradients
        )
        self.sum_of[tensor] = self._append(node)

    def _add_gradient(self, gradient: Tensor, root: int) -> None:
        """Add the slices of a parameter's gradient where the parameter lies."""
        layout = self.parts.parameters.get(gradient.name)
        if layout is None:
            return
        parameter = self.by_name[gradient.name]
        made = self.parts.gradients[gradient.name]
        source = self.sum_of.get(root, self.node_of[root])
        size = parameter.num_elements(1) * self.numerics.gradient_bytes
        relation, moved = self._gradient_relation(made, layout, size)
        is_replicated = layout.dim is WHOLE and layout.parts > 1
        self._append(
            SubOps(
                kind=GRADIENT, name=gradient.name, num_parts=layout.parts,
                flows=(Flow(source, f"gradient {gradient.name}", relation, moved, is_sum=made.dim == PARTIAL),),
                shard=self.shard_of[gradient.name], part_bytes=math.ceil(size / layout.parts),
                is_replicated=is_replicated, is_gradient=True,
            )
        )  # fmt: skip

    @staticmethod
    def _gradient_relation(made: Layout, layout: Layout, size: float) -> tuple[str, float]:
        if made.dim == PARTIAL:
            return EXCHANGE, size * made.parts
        if made.parts == layout.parts and (made.dim == layout.dim or layout.dim is WHOLE):
            return ALIGNED, size
        return (ALL if layout.parts == 1 else EXCHANGE), size

    # Memory

    def _local_count(self, parameter: Tensor) -> int:
        layout = self.parts.parameters[parameter.name]
        count = parameter.num_elements(1)
        return math.ceil(count if layout.dim is WHOLE else count / layout.parts)

    def _frozen_bytes(self, weight: Tensor) -> int:
        """Return the bytes of one part of a weight that is not trained."""
        layout = self.parts.parameters[weight.name]
        full = weight.num_bytes(1) * self._factor(weight.id)
        return math.ceil(full if layout.dim is WHOLE else full / layout.parts)

    def _kernel_memory(self, kernel: tuple[int, ...], touched: list[str], shard: int) -> float:
        """Return the bytes that one sub-op takes: its weights when first touched, and what it saves."""
        each = self.numerics.held_bytes
        total = 0.0
        for name in touched:
            if name not in self.placed_parameters:
                self.placed_parameters.add(name)
                weight = self.by_name[name]
                is_trained = weight.kind == "parameter"
                total += each * self._local_count(weight) if is_trained else self._frozen_bytes(weight)
        for index in kernel:
            for t in self.graph.ops[index].outputs:
                if t in self.saved:
                    layout = self.parts.sums.get(t, self.parts.layouts[t])
                    total += self.saved[t] / (1 if layout.dim in (WHOLE, PARTIAL) else layout.parts)
            total += self._gathered_memory(index, shard)
        return total

    def _gathered_memory(self, index: int, shard: int) -> float:
        """Return the bytes of saved inputs that are gathered in forward and read whole by the same shard's backward."""
        if self.graph.ops[index].phase != "forward" or shard < 0:
            return 0.0
        total = 0.0
        for reading in self.parts.readings[index]:
            key = (reading.source, shard)
            if reading.relation == ALL and key in self.read_whole_backward and key not in self.kept_whole:
                self.kept_whole.add(key)
                total += self.saved.get(reading.source, 0.0)
        return total

    def _read_whole_backward(self, kernels: tuple[tuple[int, ...], ...]) -> set[tuple[int, int]]:
        found = set()
        for kernel in kernels:
            touched = self._touched(kernel)
            if self.graph.ops[kernel[0]].phase == "backward" and touched:
                for index in kernel:
                    found |= {
                        (r.source, self.shard_of[touched[0]]) for r in self.parts.readings[index] if r.relation == ALL
                    }
        return found
