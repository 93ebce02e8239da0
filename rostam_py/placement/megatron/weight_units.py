"""WeightUnits: which weights are gathered together where ranks share them (ZeRO, FSDP).

Model: under ZeRO 3 a unit is what a repeated block reads, or what the ops before, between or behind the blocks read;
weights that several of these read (tied ones within a stage, a recurrent block's) are one unit that lasts. Where each
parameter is cut by itself all that blocks do not read is one unit, FSDP2's root, which stays from forward to backward.
Under ZeRO 1 and 2 it is a gradient bucket. A view of a weight counts as the weight.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rostam_py.graph import OperatorGraph
from rostam_py.placement.kernels import Kernel
from rostam_py.placement.megatron.gradients import Gradient
from rostam_py.placement.megatron.pipeline import StageAssignment
from rostam_py.plan.phases import BACKWARDS


@dataclass(frozen=True)
class WeightUnits:
    """The units of one stage, numbered in the order in which forward first reads them.

    of_parameter: name -> unit. parts: of each unit, by the replicas that share them, local parameters; sizes: their
    bytes, as they are gathered. lasting: units that several others' work reads, which therefore stay whole from their
    first use to their last. staying: units that stay whole from forward to backward, whatever
    others do.
    """

    graph: OperatorGraph
    of_parameter: Mapping[str, int]
    parts: Sequence[Mapping[str, int]]
    sizes: Sequence[Mapping[str, int]]
    lasting: frozenset[int] = frozenset()
    staying: frozenset[int] = frozenset()

    def used_by(self, kernel: Kernel) -> tuple[int, ...]:
        """Return the units whose weights a kernel reads, or whose gradients it makes; views use none."""
        if kernel.is_view:
            return ()
        weights, gradients = self._tensors
        read = (weights[t] for t in kernel.inputs if t in weights)
        made = (gradients[t] for t in kernel.outputs if t in gradients)
        return tuple(dict.fromkeys((*read, *made)))

    def used_in(self, phase: str, kernels: Sequence[Kernel]) -> list[tuple[int, ...]]:
        """Return the units that each kernel of a phase needs gathered for it: in backward none of those that stay."""
        there = self.staying if phase in BACKWARDS else frozenset[int]()
        return [tuple(unit for unit in self.used_by(kernel) if unit not in there) for kernel in kernels]

    @cached_property
    def _tensors(self) -> tuple[dict[int, int], dict[int, int]]:
        """Units of weights and their views; units of gradients, by the tensor of which each is a view as a whole."""
        unit_of, roots = self.of_parameter, self.graph.view_roots
        of_weight = {t.id: unit_of[t.name] for t in self.graph.parameters if t.name in unit_of}
        weights = {t: of_weight[root] for t, root in enumerate(roots) if root in of_weight}
        made = [t for t in self.graph.tensors if t.kind == "gradient" and t.name in unit_of]
        return weights, {self.graph.regions[t.id]: unit_of[t.name] for t in made}


def block_units(
    graph: OperatorGraph, stages: StageAssignment, stage: int, held: Mapping[str, tuple[str, int, int]],
    has_root: bool = False, is_kept: bool = False,
) -> WeightUnits:  # fmt: skip
    """Return the units of ZeRO 3 on a stage.

    Args:
        held: of each parameter the replicas that hold it, its elements on a device and their bytes.
        has_root: all that blocks do not read is one unit, which stays. is_kept: all of them stay.
    """
    names = {t.id: t.name for t in graph.parameters if stage in stages.parameter_stages[t.name]}
    readers: dict[str, dict[tuple[str, int], None]] = {name: {} for name in names.values()}
    roots, blocks = graph.view_roots, dict[int, None]()
    for op in graph.ops:
        if op.phase != "forward" or op.is_metadata or stages.op_stages[op.id] != stage:
            continue
        if op.block >= 0:
            blocks[op.block] = None
        reader = ("block", op.block) if op.block >= 0 else ("outside", 0 if has_root else len(blocks))
        for t in op.inputs:
            if roots[t] in names:
                readers[names[roots[t]]][reader] = None
    units: dict[tuple[tuple[str, int], ...], int] = {}
    of_parameter, lasting, staying = dict[str, int](), set[int](), set[int]()
    parts, sizes = list[Counter[str]](), list[Counter[str]]()
    for name, found in readers.items():
        key = tuple(found) if len(found) == 1 else (("lasting", 0),) if found else (("unread", 0),)
        unit = units.setdefault(key, len(units))
        if unit == len(parts):
            parts.append(Counter())
            sizes.append(Counter())
        is_root = has_root and any(kind == "outside" for kind, _ in found)
        if len(found) > 1 or is_root:
            lasting.add(unit)
        if is_kept or is_root:
            staying.add(unit)
        of_parameter[name] = unit
        replicas, count, size = held[name]
        parts[unit][replicas] += count
        sizes[unit][replicas] += size
    return WeightUnits(graph, of_parameter, parts, sizes, frozenset(lasting), frozenset(staying))


def bucket_units(graph: OperatorGraph, buckets: Sequence[Sequence[Gradient]]) -> WeightUnits:
    """Return the units of ZeRO 1 and 2: gradient buckets, the last one first, as forward reads them."""
    units = list(reversed(buckets))
    of_parameter = {g.name: unit for unit, bucket in enumerate(units) for g in bucket}
    parts = [{bucket[0].data_group: sum(g.num_parameters for g in bucket)} for bucket in units]
    sizes = [{bucket[0].data_group: sum(g.weight_bytes for g in bucket)} for bucket in units]
    return WeightUnits(graph, of_parameter, parts, sizes)
