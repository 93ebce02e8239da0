"""FusedOps: which ops of a sharded graph share a kernel, by the rules of a program."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

from rostam_py.costs.families import fused_kind
from rostam_py.costs.precision import get_precision
from rostam_py.graph import (
    Derived,
    Fusion,
    KernelTraffic,
    Op,
    OperatorGraph,
    fuse,
    fuse_neighbours,
    in_order,
    kernel_traffic,
)
from rostam_py.graph.fusion import APART, ordered_fusion
from rostam_py.placement.sharding import Sharding
from rostam_py.plan.fusion import EPILOGUE, FUSED_NORM, MODULES, POINTWISE, PRODUCER, UNFUSED
from rostam_py.software.joint_products import joint_forward, joint_products
from rostam_py.software.module_epilogues import Epilogues, module_epilogues, within
from rostam_py.software.rules import Rules
from rostam_py.software.wide_ops import norm_numbers

# What barriers, derived tensors and classes make of a graph: its kernels, what each moves, and the order of all ops.
Fused = tuple[Fusion, tuple[KernelTraffic, ...], list[tuple[int, ...]]]


class FusedOps:
    """Which ops share a kernel.

    Args: complex_ops: those of complex numbers, which share none. known: filled and used by all builders of one graph.
    """

    def __init__(
        self, graph: OperatorGraph, sharding: Sharding, rules: Rules, complex_ops: Collection[int],
        known: dict[Any, Fused],
    ) -> None:  # fmt: skip
        self.graph, self.sharding, self.rules = graph, sharding, rules
        self.complex = complex_ops
        self._known = known

    def grouped(self, barriers: frozenset[int], derived: Derived, classes: Mapping[int, Hashable] | None) -> Fused:
        """Return the kernels, what each moves, and the order of all ops, views too. Args: as of KernelBuilder.fused."""
        joint = self._with_epilogues(
            joint_products(self.graph, self.joint_forward, barriers, classes or {}), barriers, classes or {}
        )
        kinds = None if classes is None else frozenset(classes.items())
        key = self.rules.fusion, barriers, frozenset(derived), kinds, joint
        if key not in self._known:
            fusion = self._fuse(barriers, classes, joint)
            is_joined = self.rules.fusion in (POINTWISE, EPILOGUE, MODULES)
            self._known[key] = (
                fusion, kernel_traffic(self.graph, fusion, barriers, derived, joins_parts=is_joined),
                list(fusion.order) or in_order(self.graph, fusion.kernels),
            )  # fmt: skip
        return self._known[key]

    @cached_property
    def joint_forward(self) -> list[tuple[int, ...]]:
        """Groups of forward products that are one: of those that are split alike over tp."""
        found = joint_forward(self.graph) if self.rules.joins_products else []
        ops, sharding = self.graph.ops, self.sharding
        splits = [{(sharding.op_split(op), sharding.op_fraction(ops[op])) for op in group} for group in found]
        return [group for group, ways in zip(found, splits, strict=True) if len(ways) == 1]

    @cached_property
    def epilogues(self) -> Epilogues:
        """What products and attention do themselves in Transformer Engine's modules."""
        if self.rules.fusion != MODULES:
            return Epilogues({}, [], {}, {})
        return module_epilogues(self.graph, is_narrow=get_precision(self.rules.precision).casts is not None)

    def _with_epilogues(
        self, joint: tuple[tuple[int, ...], ...], barriers: frozenset[int], classes: Mapping[int, Hashable]
    ) -> tuple[tuple[int, ...], ...]:
        """Return the ops of each product that several are one of, and of those that have epilogues."""
        found = [list(ops) for ops in joint]
        number_of = {op: number for number, ops in enumerate(joint) for op in ops}
        for ops in within(self.graph, (*self.epilogues.groups.values(), *self.epilogues.units), barriers):
            if len({classes.get(op) for op in ops}) > 1:
                continue
            number = next((number_of[op] for op in ops if op in number_of), len(found))
            if number == len(found):
                found.append([])
            found[number] += (op for op in ops if number_of.get(op) != number)
        return tuple(tuple(sorted(ops)) for ops in found)

    def _fuse(
        self, barriers: frozenset[int], classes: Mapping[int, Hashable] | None, joint: Sequence[tuple[int, ...]]
    ) -> Fusion:
        if not joint:
            return self._fuse_ops(barriers, classes, self.fused_kinds)
        inside = {op for ops in joint for op in ops}
        kinds = [APART if op in inside else kind for op, kind in enumerate(self.fused_kinds)]
        return _joined(self.graph, self._fuse_ops(barriers, classes, kinds), joint)

    def _fuse_ops(
        self, barriers: frozenset[int], classes: Mapping[int, Hashable] | None, kinds: Sequence[str]
    ) -> Fusion:
        if self.rules.fusion == PRODUCER:
            return fuse(self.graph, barriers)
        if self.rules.fusion == UNFUSED and self.rules.eager_norm != FUSED_NORM:
            kernels = tuple((op.id,) for op in self.graph.ops if not op.is_metadata)
            return Fusion(kernels, len(self.graph.ops) - len(kernels), 0)
        known = classes or {}
        if self.rules.fusion == UNFUSED:
            numbers = self.norm_numbers
            kinds = [kind if numbers[i] >= 0 else APART for i, kind in enumerate(kinds)]
            classes = {op.id: (known.get(op.id), numbers[op.id]) for op in self.graph.ops}
        if self.rules.fusion == MODULES:
            classes = {op.id: (known.get(op.id), self._module_of(op)) for op in self.graph.ops}
        return fuse_neighbours(self.graph, kinds, barriers, classes, has_epilogues=self.rules.fusion == EPILOGUE)

    @cached_property
    def fused_kinds(self) -> list[str]:
        return [
            APART if op.id in self.complex else fused_kind(op.op_type, op.role, op.is_elementwise)
            for op in self.graph.ops
        ]

    @cached_property
    def norm_numbers(self) -> list[int]:
        """Of every op the norm that it is part of, -1 for none."""
        return norm_numbers(self.graph)

    @cached_property
    def merged_sums(self) -> frozenset[int]:
        """Ops of backward that add up what products make of one input's gradient."""
        found: set[int] = set()
        for op in self.graph.ops:
            if op.phase != "backward" or op.role != "sum" or len(op.inputs) < 2:
                continue
            makers = [self.graph.tensors[self.graph.view_roots[t]].producer for t in op.inputs]
            if all(m is not None and (m in found or self.graph.ops[m].role == "product") for m in makers):
                found.add(op.id)
        return frozenset(found)

    def _module_of(self, op: Op) -> str:
        """Return the module in which an op may share a kernel: of a sum of products' gradients that of its reader."""
        while op.id in self.merged_sums:
            readers = [r for t in op.outputs for r in readers_of(self.graph, t)]
            if not readers:
                break
            op = self.graph.ops[readers[0]]
        return op.module


def readers_of(graph: OperatorGraph, tensor: int) -> list[int]:
    """Return the ops that read a tensor or a view of it, views apart."""
    found = []
    for reader in graph.readers.get(tensor, ()):
        op = graph.ops[reader]
        found += [r for t in op.outputs for r in readers_of(graph, t)] if op.is_metadata else [reader]
    return found


def _joined(graph: OperatorGraph, fusion: Fusion, joint: Sequence[tuple[int, ...]]) -> Fusion:
    """Return kernels of which those of each product that several are one of are one."""
    number_of = {op: number for number, ops in enumerate(joint) for op in ops}
    merged: dict[int, list[int]] = {}
    kernels = []
    for ops in fusion.kernels:
        number = number_of.get(ops[0], -1)
        if number < 0:
            kernels.append(ops)
        else:
            merged.setdefault(number, []).extend(ops)
    kernels += [tuple(sorted(ops)) for ops in merged.values()]
    num_fused = fusion.num_fused + len(fusion.kernels) - len(kernels)
    return ordered_fusion(graph, kernels, fusion.num_metadata_removed, num_fused)
