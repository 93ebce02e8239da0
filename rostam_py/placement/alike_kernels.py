"""AlikeKernels: kernels of alike blocks are priced once; the others are copies under the names of their own ops.

Model: what a kernel takes follows from its ops and what is around them, and from how these are spread over ranks.
Blocks that are alike in both (``Likeness``) have equal kernels where the same places of them share one, and move the
same.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

from rostam_py.costs.model import CostModel, KernelCall
from rostam_py.graph import KernelTraffic, Op, OperatorGraph
from rostam_py.placement.context import SequencePart
from rostam_py.placement.experts import SpreadExperts
from rostam_py.placement.kernel import Kernel
from rostam_py.placement.sharding import Sharding
from rostam_py.plan.tasks import KernelTime

_REACH = 1  # blocks: prices follow from ops, from who made what they read, and from who reads what they make
Named = tuple[KernelTime, int, str]  # a kernel, the place of the op that it is named after, and what its name adds


@dataclass(frozen=True, slots=True)
class Priced:
    """A kernel that others are copies of.

    places: of its ops among those that it was asked for by. time, adding_time, casts, adds: as of a Kernel. calls: what
    the cost model was asked for it.
    """

    kernel: Kernel
    places: tuple[int, ...]
    time: Named
    adding_time: Named | None
    casts: tuple[Named, ...]
    adds: tuple[Named, ...]
    calls: tuple[KernelCall, ...]

    def of(self, ops: Sequence[Op]) -> Kernel:
        """Return the same kernel of other ops."""
        own = [ops[place] for place in self.places]
        outputs = tuple(t for op in own for t in op.outputs)
        made = set(outputs)
        inputs = tuple(dict.fromkeys(t for op in own for t in op.inputs if t not in made))
        return Kernel(
            ops=tuple(op.id for op in own), inputs=inputs, outputs=outputs, time=_renamed(self.time, ops),
            flops=self.kernel.flops, work=self.kernel.work,
            adding_time=None if self.adding_time is None else _renamed(self.adding_time, ops),
            casts=tuple(_renamed(one, ops) for one in self.casts), adds=tuple(_renamed(one, ops) for one in self.adds),
        )  # fmt: skip

    def count(self, cost: CostModel) -> None:
        """Ask the cost model as often as for a kernel of its own: it counts what its answers rest on."""
        for call in self.calls:
            cost.duration_s(call)


class AlikeKernels:
    """Which kernels of a sharded graph are equal. Args: properties: of every op, what else decides its kernel."""

    def __init__(
        self, graph: OperatorGraph, sharding: Sharding, experts: SpreadExperts, part: SequencePart | None,
        properties: Iterable[Sequence[object]] = (),
    ) -> None:  # fmt: skip
        self.graph, self.likeness = graph, graph.likeness
        self.kinds = self.likeness.kinds(_Properties(graph, sharding, experts, part, tuple(properties)).of, _REACH)

    def first(self, op: int) -> int:
        """Return the op whose kernel, of it alone, an op's is like: itself, or one of the first block alike."""
        block = self.graph.ops[op].block
        return op if block < 0 else self.likeness.ops[self.kinds[block]][self.likeness.op_places[op]]

    def key(self, op_ids: tuple[int, ...], traffic: KernelTraffic) -> Hashable:
        """Return what equal kernels have in common, None for one that lies in no block, or in several."""
        ops, likeness = self.graph.ops, self.likeness
        block = ops[op_ids[0]].block
        if block < 0 or any(ops[op].block != block for op in op_ids):
            return None
        places, reference = likeness.op_places, likeness.reference
        return (
            self.kinds[block], *(places[op] for op in op_ids), *(reference(block, t) for t in traffic.reads), None,
            *(reference(block, t) for t in traffic.writes), None,
            *(reference(block, t) for t in chain.from_iterable(traffic.gathered)),
        )  # fmt: skip

    def priced(self, kernel: Kernel, op_ids: tuple[int, ...], calls: Sequence[KernelCall]) -> Priced | None:
        """Return what a kernel's copies are made of, None if one of its times is named after none of its ops."""
        ops = [self.graph.ops[op] for op in op_ids]
        adding = () if kernel.adding_time is None else (kernel.adding_time,)
        named = [_named(one, ops) for one in (kernel.time, *adding, *kernel.casts, *kernel.adds)]
        found = [one for one in named if one is not None]
        if len(found) < len(named):
            return None
        time, *others = found
        begin = len(adding)
        end = begin + len(kernel.casts)
        return Priced(
            kernel=kernel, places=tuple(op_ids.index(op) for op in kernel.ops), time=time,
            adding_time=others[0] if adding else None, casts=tuple(others[begin:end]), adds=tuple(others[end:]),
            calls=tuple(calls),
        )  # fmt: skip


class _Properties:
    """What decides a block's kernels besides its ops: how these and their tensors are spread over ranks."""

    def __init__(
        self, graph: OperatorGraph, sharding: Sharding, experts: SpreadExperts, part: SequencePart | None,
        properties: Sequence[Sequence[object]],
    ) -> None:  # fmt: skip
        self.graph, self.sharding = graph, sharding
        self.of_ops: list[Sequence[object]] = [*properties]
        self.of_tensors: list[Sequence[object]] = []
        for level in sharding.levels:
            self.of_ops += [level.axes, level.uses_whole]
            self.of_tensors.append(level.states)
        self.of_op: list[Callable[[int], object]] = []
        self.of_tensor: list[Callable[[int], object]] = [graph.gradient_tensors.__contains__]
        self.of_tensor += [level.comms.get for level in sharding.levels]
        if part is not None:
            self.of_op += [part.shared.__contains__, partial(_whole, part)]
        if experts.degree > 1:
            self.of_op.append(experts.ops.__contains__)
            sets = (experts.divided, experts.multiplied, experts.received, experts.copied)
            self.of_tensor += [one.__contains__ for one in sets]
            self.of_tensor.append(experts.exchanged.get)

    def of(self, block: int) -> list[object]:
        """Return a block's properties; equal ones compare equal."""
        likeness = self.graph.likeness
        ops, tensors = likeness.ops[block], likeness.tensors[block]
        found: list[object] = [_items(values, ops) for values in self.of_ops]
        found += [_items(values, tensors) for values in self.of_tensors]
        found += [list(map(property_of, ops)) for property_of in self.of_op]
        found += [list(map(property_of, tensors)) for property_of in self.of_tensor]
        for level in self.sharding.levels:
            gathers = level.gathers
            found.append(
                [(place, [likeness.reference(block, t) for t in gathers[op]])
                 for place, op in enumerate(ops) if op in gathers]
            )  # fmt: skip
        return found


def _whole(part: SequencePart, op: int) -> object:
    """Return what the whole model's op does, of which a rank runs a part."""
    whole = part.whole.ops[op]
    return whole.flops, whole.repeated_flops, whole.bytes_read, whole.bytes_written, whole.arguments, whole.splits


def _items(values: Sequence[Any], ids: Sequence[int]) -> object:
    return itemgetter(*ids)(values) if ids else ()


def _named(time: KernelTime, ops: Sequence[Op]) -> Named | None:
    """Return a kernel with the place of the op that it is named after and what follows in its name; None for none."""
    for place, op in enumerate(ops):
        added = time.name[len(op.name) :]
        if time.module == op.module and time.name.startswith(op.name) and (not added or added.startswith(" (")):
            return time, place, added
    return None


def _renamed(named: Named, ops: Sequence[Op]) -> KernelTime:
    time, place, added = named
    return replace(time, name=ops[place].name + added, module=ops[place].module)
