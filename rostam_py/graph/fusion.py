"""Which ops share a kernel (MODEL B7): element-wise chains, a norm or softmax with its element-wise neighbours.

Example:
    fusion = fuse_neighbours(graph, FusedKinds(kinds), barriers=communicated)
    for kernel, traffic in zip(fusion.kernels, kernel_traffic(graph, fusion)): ...

Legend: a kernel's domain is the number of elements of its largest tensor; its rows are what a norm, a softmax or a sum
reduces, one after another: such a result is at hand in the same kernel. What is summed over rows (gradients of weights)
is complete only when the kernel ends, so that nothing of the same kernel reads it.
"""

import heapq
import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rostam_py.errors import InternalError
from rostam_py.graph.cleanup import Fusion, behind_barrier
from rostam_py.graph.operator_graph import OperatorGraph
from rostam_py.graph.ops import Op
from rostam_py.graph.vocabulary import WEIGHT_KINDS

# How an op takes part: element by element; as a norm or softmax of rows; as one of something else (batch norm); as a
# sum, mean or maximum along some dimensions; not at all.
POINTWISE, ROWS, WHOLE_NORM, REDUCTION, APART = "pointwise", "rows", "whole_norm", "reduction", ""
_HOSTS = ("product", "batched_product", "convolution")  # take in a bias
_SAMPLES = 2.0  # batch at which sizes are compared


def fuse_neighbours(
    graph: OperatorGraph, kinds: Sequence[str], barriers: Collection[int] = frozenset(),
    classes: Mapping[int, Hashable] | None = None, *, has_epilogues: bool = False,
) -> Fusion:  # fmt: skip
    """Return the kernels of ``graph`` in an execution order.

    Model: an op joins the kernels that make its inputs, all of them where it can, else the latest that reads an input
        of its own size; of one phase, block and class, if no other kernel runs in between. Products, convolutions,
        attention and all that is APART take in nothing but a bias, and with ``has_epilogues`` an activation behind it.
    Args:
        kinds: of every op, by id. barriers: tensors that need communication before they are read; views count.
        classes: op -> what only ops of the same may share a kernel; None for all.
    Cost: linear in ops, times the kernels of a block.
    """
    return _Fuser(graph, kinds, frozenset(barriers), classes or {}, has_epilogues).fuse()


def in_order(graph: OperatorGraph, kernels: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return kernels and, as tuples of one, all views in an execution order: that of the trace as far as it goes."""
    nodes = [*kernels, *((op.id,) for op in graph.ops if op.is_metadata)]
    node_of = {op: n for n, node in enumerate(nodes) for op in node}
    behind: list[set[int]] = [set() for _ in nodes]
    num_awaited = [0] * len(nodes)
    for n, node in enumerate(nodes):
        made = {t for op in node for t in graph.ops[op].outputs}
        read = (t for op in node for t in graph.ops[op].inputs if graph.view_roots[t] not in made)  # not its own views
        makers = {graph.tensors[t].producer for t in read}
        for maker in {node_of[m] for m in makers if m is not None and m in node_of}:
            behind[maker].add(n)
            num_awaited[n] += 1
    ready = [(node[0], n) for n, node in enumerate(nodes) if not num_awaited[n]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, n = heapq.heappop(ready)
        order.append(nodes[n])
        for other in behind[n]:
            num_awaited[other] -= 1
            if not num_awaited[other]:
                heapq.heappush(ready, (nodes[other][0], other))
    if len(order) < len(nodes):
        raise InternalError(f"{len(nodes) - len(order)} kernels of graph {graph.name!r} wait for one another")
    return order


@dataclass(slots=True)
class _Kernel:
    """ops: ascending. is_open: takes in others. domain: see above. rows: what it reduces, None for nothing yet."""

    ops: list[int]
    is_open: bool
    domain: float
    rows: Hashable = None
    makers: set[int] = field(default_factory=set)  # kernels it reads from, by a number that may have been merged away


class _Fuser:
    def __init__(
        self, graph: OperatorGraph, kinds: Sequence[str], barriers: frozenset[int], classes: Mapping[int, Hashable],
        has_epilogues: bool,
    ) -> None:  # fmt: skip
        self.graph, self.kinds, self.classes, self.has_epilogues = graph, kinds, classes, has_epilogues
        self.roots = graph.view_roots
        self.crossing = behind_barrier(graph, barriers)
        self.incomplete: set[int] = set()  # tensors that no op of the kernel that makes them may read
        self.kernels: list[_Kernel] = []
        self.merged: list[int] = []  # kernel -> that which it is part of, itself if it is whole
        self.made_by: dict[int, int] = {}  # root tensor -> kernel
        self.read_by: dict[int, int] = {}  # root tensor -> the last open kernel that reads it
        self.num_elements = [math.prod(dim.at(_SAMPLES) for dim in t.shape) for t in graph.tensors]

    def fuse(self) -> Fusion:
        num_metadata = 0
        for op in self.graph.ops:
            if op.is_metadata:
                num_metadata += 1
            else:
                self._add(op)
        whole = [tuple(one.ops) for n, one in enumerate(self.kernels) if self.merged[n] == n]
        computing = dict.fromkeys(whole)
        ordered = tuple(ops for ops in in_order(self.graph, whole) if ops in computing)
        return Fusion(ordered, num_metadata, len(self.graph.ops) - num_metadata - len(whole))

    def _add(self, op: Op) -> None:
        """Make a kernel of the op, and merge it with its neighbours."""
        number = len(self.kernels)
        kernel = self._alone(op)
        self.kernels.append(kernel)
        self.merged.append(number)
        sources = list(dict.fromkeys(self.roots[t] for t in op.inputs))
        makers = sorted({self._find(self.made_by[t]) for t in sources if t in self.made_by}, reverse=True)
        kernel.makers.update(makers)
        self.made_by.update(dict.fromkeys(op.outputs, number))
        if self.kinds[op.id] == APART:
            return
        if self._hides(op, makers):
            self._merge(makers[0], number)
            return
        has_joined = False
        for maker in makers:
            if self._find(maker) != self._find(number) and self._may_merge(self._find(maker), self._find(number)):
                self._merge(self._find(maker), self._find(number))
                has_joined = True
        if not has_joined:
            shared = (self.read_by[t] for t in sources if t in self.read_by and self._is_own_size(t, kernel))
            for reader in sorted({self._find(one) for one in shared}, reverse=True):
                if self._may_merge(reader, number):
                    self._merge(reader, number)
                    break
        self.read_by.update(dict.fromkeys(sources, self._find(number)))

    def _is_own_size(self, tensor: int, kernel: _Kernel) -> bool:
        return self.num_elements[tensor] == kernel.domain

    def _alone(self, op: Op) -> _Kernel:
        """Return the kernel of one op."""
        kind = self.kinds[op.id]
        sizes = [self.num_elements[t] for t in (*op.inputs, *op.outputs)]
        kernel = _Kernel([op.id], kind != APART, max(sizes, default=0.0))
        if kind == ROWS:
            kernel.rows = self._num_rows(op.outputs[0])
        elif kind == WHOLE_NORM:
            kernel.rows = op.id
        elif kind == REDUCTION:
            kernel.rows = self._reduced_rows(op)
            if kernel.rows is None:
                self.incomplete.update(op.outputs)
        return kernel

    def _num_rows(self, tensor: int) -> float:
        shape = self.graph.tensors[tensor].shape
        return self.num_elements[tensor] / shape[-1].at(_SAMPLES) if shape else 1.0

    def _reduced_rows(self, op: Op) -> float | None:
        """Return how many rows an op reduces if these are its input's last dimensions, None if others are."""
        if not op.inputs:
            return None
        before = [dim.at(_SAMPLES) for dim in self.graph.tensors[op.inputs[0]].shape]
        behind = [dim.at(_SAMPLES) for dim in self.graph.tensors[op.outputs[0]].shape]
        if math.prod(behind) >= math.prod(before):
            return self._num_rows(op.outputs[0])
        kept = behind[: next((k for k, (a, b) in enumerate(zip(before, behind, strict=False)) if a != b), len(behind))]
        is_last = all(size == 1 for size in behind[len(kept) :]) and len(kept) > 0
        return math.prod(kept) if is_last else None

    def _hides(self, op: Op, makers: Sequence[int]) -> bool:
        """Tell whether an op is a bias, or an activation, that a product or convolution takes in."""
        if not makers or self.kernels[makers[0]].is_open or not op.is_elementwise or self._is_barred(op, makers[0]):
            return False
        first = self.graph.ops[self.kernels[makers[0]].ops[0]]
        if first.role not in _HOSTS or self._class_of(first) != self._class_of(op):
            return False
        others = [t for t in op.inputs if self._find(self.made_by.get(self.roots[t], -1)) != makers[0]]
        is_bias = (
            op.role == "sum" and len(others) == 1 and self.graph.tensors[self.roots[others[0]]].kind in WEIGHT_KINDS
        )
        return is_bias or (self.has_epilogues and self._is_activation(op))

    def _is_activation(self, op: Op) -> bool:
        """Tell whether an op is a function of one tensor, or its derivative."""
        if op.phase == "backward" and op.forward_op is not None:
            return len(self.graph.ops[op.forward_op].inputs) == 1 and self.graph.ops[op.forward_op].is_elementwise
        return len(op.inputs) == 1 and op.role == ""

    def _may_merge(self, one: int, other: int) -> bool:
        a, b = self.kernels[one], self.kernels[other]
        if not (a.is_open and b.is_open):
            return False
        first, last = self.graph.ops[a.ops[-1]], self.graph.ops[b.ops[-1]]
        if self._class_of(first) != self._class_of(last) or not _are_alike(a, b):
            return False
        barred = any(self._is_barred(self.graph.ops[k], one) for k in b.ops)
        barred = barred or any(self._is_barred(self.graph.ops[k], other) for k in a.ops)
        return not barred and not self._is_between(one, other) and not self._is_between(other, one)

    def _class_of(self, op: Op) -> Hashable:
        return op.phase, op.block, self.classes.get(op.id)

    def _is_barred(self, op: Op, kernel: int) -> bool:
        """Tell whether an op cannot read in the same kernel what another kernel makes."""
        return any(
            (t in self.crossing or self.roots[t] in self.incomplete)
            and self._find(self.made_by.get(self.roots[t], -1)) == kernel
            for t in op.inputs
        )

    def _is_between(self, first: int, last: int) -> bool:
        """Tell whether the last kernel reads, through others, from the first."""
        begin = self.kernels[first].ops[0]
        pending = [n for n in map(self._find, self.kernels[last].makers) if n not in (first, last)]
        seen = set(pending)
        while pending:
            kernel = self.kernels[pending.pop()]
            if kernel.ops[-1] < begin:
                continue
            for maker in map(self._find, kernel.makers):
                if maker == first:
                    return True
                if maker not in seen and maker != last:
                    seen.add(maker)
                    pending.append(maker)
        return False

    def _find(self, number: int) -> int:
        while number >= 0 and self.merged[number] != number:
            self.merged[number] = self.merged[self.merged[number]]
            number = self.merged[number]
        return number

    def _merge(self, one: int, other: int) -> None:
        a, b = self.kernels[one], self.kernels[other]
        self.merged[other] = one
        a.ops = sorted(a.ops + b.ops)
        a.domain, a.rows = max(a.domain, b.domain), b.rows if a.rows is None else a.rows
        a.makers = {self._find(n) for n in a.makers | b.makers} - {one}


def _are_alike(a: _Kernel, b: _Kernel) -> bool:
    """Tell whether two kernels run over the same elements, or the smaller one, which reduces nothing, over some."""
    if a.rows is not None and b.rows is not None and a.rows != b.rows:
        return False
    small = a if a.domain < b.domain else b
    return a.domain == b.domain or small.rows is None
