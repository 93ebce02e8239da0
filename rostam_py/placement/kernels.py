"""Kernels: fused groups of ops with their local work and duration on one device (MODEL B7, D15)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rostam_py.costs.model import CostModel, KernelCall
from rostam_py.costs.precision import tensor_bytes_factor
from rostam_py.graph import Op, OperatorGraph
from rostam_py.placement.plan import KernelTime
from rostam_py.placement.sharding import Sharding


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: its ops (main op first), what it reads and writes, and its duration.

    flops: local, padding and replicated work included. model_flops: this device's even share of the
    model's own work, so that the devices of a stage sum to the model.
    """

    ops: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    time: KernelTime
    flops: float
    model_flops: float


class KernelBuilder:
    """Build the kernels of a sharded graph at one micro-batch and precision.

    Durations are cached by what a cost model can see, so equal blocks are costed once.
    """

    def __init__(self, graph: OperatorGraph, sharding: Sharding, cost: CostModel, batch: float, precision: str) -> None:
        self.graph, self.sharding, self.cost = graph, sharding, cost
        self.batch, self.precision = batch, precision
        self._durations: dict[tuple, float] = {}

    def tensor_bytes(self, tensor: int, whole: bool = False) -> float:
        """Return one member's bytes of a tensor in the run's precision."""
        t = self.graph.tensors[tensor]
        share = self.sharding.tensor_fraction(self.graph, tensor, self.batch, whole)
        factor = 1.0 if t.kind == "loss" else tensor_bytes_factor(self.precision, t.dtype)
        return t.num_bytes(self.batch) * share * factor

    def build(self, op_ids: Sequence[int]) -> Kernel:
        """Return the kernel that runs ``op_ids`` (execution order, first real op is the main one)."""
        ops = [self.graph.ops[i] for i in op_ids]
        work = [op for op in ops if not op.is_metadata]
        produced = {t for op in ops for t in op.outputs}
        inputs = tuple(dict.fromkeys(t for op in ops for t in op.inputs if t not in produced))
        if not work:
            time = KernelTime(ops[0].name, ops[0].module, ops[0].op_type, 0.0)
            return Kernel(tuple(op_ids), inputs, tuple(sorted(produced)), time, 0.0, 0.0)
        flops = sum(op.flops.at(self.batch) * self.sharding.op_fraction(op, self.batch) for op in work)
        read, written = self._traffic(ops, work)
        main = work[0]
        split = self.sharding.op_splits[main.id]
        degree = 1 if split is None else self.sharding.degree
        key = (tuple((op.op_type, op.flops, op.bytes_read) for op in work), flops, read, written, degree, split)
        if key not in self._durations:
            call = KernelCall(
                tuple(work), flops, read, written, self.batch, self.precision, degree, split.kind if split else ""
            )
            self._durations[key] = self.cost.duration_s(call)
        model_flops = sum(op.flops.at(self.batch) for op in work) / self.sharding.degree
        time = KernelTime(main.name, main.module, main.op_type, self._durations[key], flops)
        return Kernel(tuple(op_ids), inputs, tuple(sorted(produced)), time, flops, model_flops)

    def _traffic(self, ops: list[Op], work: list[Op]) -> tuple[float, float]:
        """Return local (bytes read, bytes written), without tensors that pass between the ops."""
        inside = {t for op in ops for t in op.outputs}
        leaving = {t for op in ops for t in op.outputs if self._is_read_outside(t, {o.id for o in ops})}
        read = written = 0.0
        for op in work:
            passed = sum(self.tensor_bytes(t) for t in dict.fromkeys(op.inputs) if t in inside)
            kept = sum(self.tensor_bytes(t) for t in op.outputs if t not in leaving) if len(work) > 1 else 0.0
            read += max(0.0, self._scaled(op, op.bytes_read.at(self.batch), op.inputs) - passed)
            written += max(0.0, self._scaled(op, op.bytes_written.at(self.batch), op.outputs) - kept)
        return read, written

    def _is_read_outside(self, tensor: int, ops: set[int]) -> bool:
        users = self.graph.consumers[tensor]
        return not users or any(u not in ops for u in users)

    def _scaled(self, op: Op, traced_bytes: float, tensors: tuple[int, ...]) -> float:
        """Scale an op's traced bytes by how its tensors shrink through sharding and precision."""
        unique = tuple(dict.fromkeys(tensors))
        whole = sum(self.graph.tensors[t].num_bytes(self.batch) for t in unique)
        split = self.sharding.op_splits[op.id]
        flags = dict(zip(op.inputs, self.sharding.uses_whole[op.id], strict=False))
        local = 0.0
        for t in unique:
            is_whole = flags.get(t, False) and not (split is not None and self._is_sliced(op, split, t))
            local += self.tensor_bytes(t, is_whole) * self._slice_share(op, split, t)
        return traced_bytes * local / whole if whole else traced_bytes

    def _is_sliced(self, op: Op, split: object, tensor: int) -> bool:
        return self._slice_share(op, split, tensor) < 1.0

    def _slice_share(self, op: Op, split: object, tensor: int) -> float:
        """Return the part of a whole input that a split op reads (1 unless it slices it)."""
        if split is None or tensor not in op.inputs:
            return 1.0
        want = split.input_dims[op.inputs.index(tensor)]
        held = self.sharding.states[tensor]
        if want is None or want < 0 or (held is not None and held >= 0):
            return 1.0
        return 1.0 / self.sharding.degree


def fused_groups(graph: OperatorGraph, barriers: frozenset[int], key: Callable[[Op], object]) -> list[tuple[int, ...]]:
    """Return the ops of every kernel, by the place of its first op; metadata ops stand alone.

    Model: an element-wise op joins the kernel that produced one of its inputs, unless that input is a
        barrier, the two differ in ``key``, or another input is not there yet when that kernel runs.
    """
    kernel_of: dict[int, int] = {}  # tensor -> kernel whose end makes it available
    place: list[int] = []  # kernel -> id of its first op
    groups: list[list[int]] = []
    for op in graph.ops:
        sources = [kernel_of[t] for t in op.inputs if t in kernel_of]
        if op.is_metadata:
            groups.append([op.id])
            place.append(op.id)
            free = not any(t in barriers for t in op.inputs)
            for t in op.outputs:
                kernel_of[t] = max(sources, key=lambda k: place[k], default=-1) if free else len(groups) - 1
                if kernel_of[t] < 0:
                    del kernel_of[t]
            continue
        home = max(sources, key=lambda k: place[k], default=None)
        if op.is_elementwise and home is not None and _can_join(graph, op, groups[home], barriers, key):
            groups[home].append(op.id)
        else:
            home = len(groups)
            groups.append([op.id])
            place.append(op.id)
        for t in op.outputs:
            kernel_of[t] = home
    return [tuple(g) for g in groups]


def _can_join(
    graph: OperatorGraph, op: Op, group: list[int], barriers: frozenset[int], key: Callable[[Op], object]
) -> bool:
    main = graph.ops[group[0]]
    if main.is_metadata or main.phase != op.phase or key(main) != key(op):
        return False
    if any(t in barriers for i in group for t in graph.ops[i].outputs):
        return False
    return not any(t in barriers for t in op.inputs)
