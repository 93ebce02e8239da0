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
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rostam_py.errors import InternalError
from rostam_py.graph.cleanup import Fusion, behind_barrier
from rostam_py.graph.likeness import runs_of
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
    nodes = sorted([*kernels, *((op.id,) for op in graph.ops if op.is_metadata)])
    return nodes if _is_in_order(graph, nodes) else _reordered(graph, nodes)


def ordered_fusion(
    graph: OperatorGraph, kernels: Iterable[tuple[int, ...]], num_metadata: int, num_fused: int
) -> Fusion:
    """Return kernels in an execution order. Args: num_metadata, num_fused: what the clean-up did."""
    order = tuple(in_order(graph, kernels))
    computing = tuple(ops for ops in order if not graph.ops[ops[0]].is_metadata)
    return Fusion(computing, num_metadata, num_fused, order)


def _is_in_order(graph: OperatorGraph, nodes: Sequence[tuple[int, ...]]) -> bool:
    """Tell whether what kernels and views read is made by those before them, or by themselves."""
    place_of = [-1] * (len(graph.ops) + 1)  # the last is that of what no op makes
    for place, node in enumerate(nodes):
        for op in node:
            place_of[op] = place
    makers = [-1 if t.producer is None else t.producer for t in graph.tensors]
    ops, roots = graph.ops, graph.view_roots
    for place, node in enumerate(nodes):
        for op in node:
            late = [t for t in ops[op].inputs if place_of[makers[t]] > place]
            if late and any(roots[t] not in {made for one in node for made in ops[one].outputs} for t in late):
                return False
    return True


def _reordered(graph: OperatorGraph, nodes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return kernels and views so that each comes behind those that make what it reads."""
    node_of = [-1] * (len(graph.ops) + 1)  # the last is that of what no op makes
    for n, node in enumerate(nodes):
        for op in node:
            node_of[op] = n
    made_by = [node_of[-1 if t.producer is None else t.producer] for t in graph.tensors]
    of_roots = [made_by[root] for root in graph.view_roots]
    inputs = [op.inputs for op in graph.ops]
    behind: list[list[int]] = [[] for _ in nodes]
    num_awaited = [0] * len(nodes)
    for n, node in enumerate(nodes):
        makers = {made_by[t] for op in node for t in inputs[op] if of_roots[t] != n}  # not its own views
        makers.discard(-1)
        num_awaited[n] = len(makers)
        for maker in makers:
            behind[maker].append(n)
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
        self.num_elements = [t.num_elements(_SAMPLES) for t in graph.tensors]
        self.repeats = _Repeats(self)

    def fuse(self) -> Fusion:
        num_metadata = 0
        for run in runs_of(self.graph.ops):
            ops = [op for op in run if not op.is_metadata]
            num_metadata += len(run) - len(ops)
            self.repeats.fuse(run[0].block, ops)
        whole = [tuple(one.ops) for n, one in enumerate(self.kernels) if self.merged[n] == n]
        return ordered_fusion(self.graph, whole, num_metadata, len(self.graph.ops) - num_metadata - len(whole))

    def add(self, op: Op) -> None:
        """Make a kernel of the op, and merge it with its neighbours."""
        number = len(self.kernels)
        kernel = self._alone(op)
        self.kernels.append(kernel)
        self.merged.append(number)
        sources = list(dict.fromkeys(self.roots[t] for t in op.inputs))
        makers = sorted({self.find(self.made_by[t]) for t in sources if t in self.made_by}, reverse=True)
        kernel.makers.update(makers)
        self.made_by.update(dict.fromkeys(op.outputs, number))
        if self.kinds[op.id] == APART:
            return
        if self._hides(op, makers):
            self._merge(makers[0], number)
            return
        has_joined = False
        for maker in makers:
            if self.find(maker) != self.find(number) and self._may_merge(self.find(maker), self.find(number)):
                self._merge(self.find(maker), self.find(number))
                has_joined = True
        if not has_joined:
            shared = (self.read_by[t] for t in sources if t in self.read_by and self._is_own_size(t, kernel))
            for reader in sorted({self.find(one) for one in shared}, reverse=True):
                if self._may_merge(reader, number):
                    self._merge(reader, number)
                    break
        self.read_by.update(dict.fromkeys(sources, self.find(number)))

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
        others = [t for t in op.inputs if self.find(self.made_by.get(self.roots[t], -1)) != makers[0]]
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
            and self.find(self.made_by.get(self.roots[t], -1)) == kernel
            for t in op.inputs
        )

    def _is_between(self, first: int, last: int) -> bool:
        """Tell whether the last kernel reads, through others, from the first."""
        begin = self.kernels[first].ops[0]
        pending = [n for n in map(self.find, self.kernels[last].makers) if n not in (first, last)]
        seen = set(pending)
        while pending:
            kernel = self.kernels[pending.pop()]
            if kernel.ops[-1] < begin:
                continue
            for maker in map(self.find, kernel.makers):
                if maker == first:
                    return True
                if maker not in seen and maker != last:
                    seen.add(maker)
                    pending.append(maker)
        return False

    def find(self, number: int) -> int:
        while number >= 0 and self.merged[number] != number:
            self.merged[number] = self.merged[self.merged[number]]
            number = self.merged[number]
        return number

    def _merge(self, one: int, other: int) -> None:
        a, b = self.kernels[one], self.kernels[other]
        self.merged[other] = one
        a.ops = sorted(a.ops + b.ops)
        a.domain, a.rows = max(a.domain, b.domain), b.rows if a.rows is None else a.rows
        a.makers = {self.find(n) for n in a.makers | b.makers} - {one}


@dataclass(frozen=True, slots=True)
class _FusedRun:
    """The kernels of a run of a block's ops, seen from the block.

    places: of the ops of each. like: kernels that theirs are copies of. inside: of each, those of the run that it reads
    from. outside: of each, tensors that it reads and that others make.
    """

    places: list[list[int]]
    like: list[_Kernel]
    inside: list[list[int]]
    outside: list[list[int]]


class _Repeats:
    """Fuses one of alike runs of blocks; others are fused as it is.

    Model: kernels lie in one block and phase, so that those of a run depend on nothing else where it is all of that.
    """

    def __init__(self, fuser: _Fuser) -> None:
        self.fuser, self.graph, self.likeness = fuser, fuser.graph, fuser.graph.likeness
        self.kinds = self.likeness.kinds(lambda block: None)
        self.known: dict[Hashable, _FusedRun] = {}
        counts = Counter(self.kinds)
        phases = Counter(one for run in runs_of(self.graph.ops) for one in {(op.block, op.phase) for op in run})
        split = {block for (block, _), count in phases.items() if count > 1}
        self.repeated = {block for block, kind in enumerate(self.kinds) if counts[kind] > 1 and block not in split}
        self.crossed: dict[int, list[int]] = {}  # block -> places of its ops, and of their inputs, behind barriers
        for t in sorted(fuser.crossing):
            for user in self.graph.consumers[t]:
                op = self.graph.ops[user]
                self.crossed.setdefault(op.block, []).append(
                    self.likeness.op_places[user] * len(self.graph.tensors) + op.inputs.index(t)
                )

    def fuse(self, block: int, ops: Sequence[Op]) -> None:
        """Fuse a run of ops that compute, of one block."""
        if block not in self.repeated or not ops:
            for op in ops:
                self.fuser.add(op)
            return
        key = self._key(block, ops)
        if key in self.known:
            self._repeat(block, self.known[key])
            return
        begin = len(self.fuser.kernels)
        for op in ops:
            self.fuser.add(op)
        self.known[key] = self._noted(block, begin)

    def _key(self, block: int, ops: Sequence[Op]) -> Hashable:
        """Return what decides a run's kernels."""
        fuser = self.fuser
        numbers: dict[Hashable, int] = {}
        classes = [numbers.setdefault(fuser.classes.get(op.id), len(numbers)) for op in ops] if fuser.classes else ()
        return (
            self.kinds[block], self.likeness.op_places[ops[0].id], len(ops), tuple([fuser.kinds[op.id] for op in ops]),
            tuple(sorted(self.crossed.get(block, ()))), tuple(classes),
        )  # fmt: skip

    def _noted(self, block: int, begin: int) -> _FusedRun:
        """Return the kernels from number ``begin`` on, which are a run's."""
        fuser, roots, places = self.fuser, self.graph.view_roots, self.likeness.op_places
        numbers = [n for n in range(begin, len(fuser.kernels)) if fuser.merged[n] == n]
        own = {n: place for place, n in enumerate(numbers)}
        found = _FusedRun([], [], [], [])
        for number in numbers:
            kernel = fuser.kernels[number]
            makers = {fuser.find(n) for n in kernel.makers}
            read = dict.fromkeys(roots[t] for op in kernel.ops for t in self.graph.ops[op].inputs)
            others = [t for t in read if t in fuser.made_by and fuser.find(fuser.made_by[t]) not in own]
            found.places.append([places[op] for op in kernel.ops])
            found.like.append(kernel)
            found.inside.append([own[n] for n in makers if n in own])
            found.outside.append([self.likeness.reference(block, t) for t in others])
        return found

    def _repeat(self, block: int, run: _FusedRun) -> None:
        """Make the kernels of a run as those of another one are."""
        fuser, ids = self.fuser, self.likeness.ops[block]
        begin = len(fuser.kernels)
        for places, like, inside, outside in zip(run.places, run.like, run.inside, run.outside, strict=True):
            number, ops = len(fuser.kernels), [ids[place] for place in places]
            makers = {begin + place for place in inside}
            makers.update(fuser.find(fuser.made_by[self.likeness.referred(block, one)]) for one in outside)
            fuser.kernels.append(_Kernel(ops, like.is_open, like.domain, like.rows, makers))
            fuser.merged.append(number)
            for op in ops:
                fuser.made_by.update(dict.fromkeys(self.graph.ops[op].outputs, number))


def _are_alike(a: _Kernel, b: _Kernel) -> bool:
    """Tell whether two kernels run over the same elements, or the smaller one, which reduces nothing, over some."""
    if a.rows is not None and b.rows is not None and a.rows != b.rows:
        return False
    small = a if a.domain < b.domain else b
    return a.domain == b.domain or small.rows is None
