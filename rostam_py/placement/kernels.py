"""Kernels: fused groups of ops with their local work and duration on one device (MODEL B7, D15)."""

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from rostam_py.costs import COST_MODELS, make_cost_model
from rostam_py.costs.accelerators import Accelerator
from rostam_py.costs.families import (
    ADD,
    CAST,
    CONVERT,
    MAP,
    fused_kind,
)
from rostam_py.costs.kernel_shapes import makes_weight_gradient, num_groups
from rostam_py.costs.model import CostModel, KernelCall
from rostam_py.costs.precision import (
    get_precision,
    is_of_log_softmax,
    is_of_loss,
    loss_bytes_factor,
    op_precision,
    tensor_bytes_factor,
)
from rostam_py.costs.row_scales import row_scaled_seconds
from rostam_py.graph import (
    Affine,
    Derived,
    Fusion,
    KernelTraffic,
    Op,
    OperatorGraph,
    fuse,
    fuse_neighbours,
    gathered_bytes,
    in_order,
    kernel_bytes,
    kernel_traffic,
)
from rostam_py.graph.fusion import APART, REDUCTION, ROWS
from rostam_py.graph.vocabulary import DTYPE_BYTES
from rostam_py.placement.context import SequencePart
from rostam_py.placement.experts import SpreadExperts
from rostam_py.placement.kernel_work import NO_WORK, KernelWork, kernel_work
from rostam_py.placement.sharding import Gather, Sharding
from rostam_py.plan.fusion import (
    BLOCKS_AND_LOSS,
    EPILOGUE,
    EVERYWHERE,
    FUSED_NORM,
    LOSS_PARALLEL,
    MODULES,
    POINTWISE,
    PRODUCER,
    UNFUSED,
    VOCAB_PARALLEL,
)
from rostam_py.plan.graph_inputs import GRAPH_INPUTS
from rostam_py.plan.host_calls import INPUT, REPLAY
from rostam_py.plan.machine import Machine
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.joint_products import joint_forward, joint_products
from rostam_py.software.kernel_rule import KERNEL_RULES, KernelRule
from rostam_py.software.losses import makes_gradients_of_logits
from rostam_py.software.module_calls import module_calls
from rostam_py.software.module_epilogues import Epilogues, module_epilogues, within
from rostam_py.software.product_inputs import (
    CastInput,
    cast_inputs,
    gathered_width,
    is_narrow,
    kept_widths,
    memory_of,
    product_width,
)
from rostam_py.software.rules import Rules
from rostam_py.software.wide_ops import COMPLEX, WideOps, norm_numbers, wide_ops

# Roles of ops that torch.autocast runs in 16 bits.
_AUTOCAST = ("product", "batched_product", "convolution")


def cost_model_for(name: str, config: dict[str, Any], graph: OperatorGraph, machine: Machine) -> CostModel:
    """Return the cost model, with the machine's kernel floor if it has one and ``config`` sets none."""
    known = {f.name for f in fields(COST_MODELS.get(name).Config)}
    floor = {"min_kernel_time": machine.min_kernel_time} if "min_kernel_time" in known else {}
    return make_cost_model(name, machine.device, graph=graph, **(floor | config))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel, or one view, which takes no time: what it reads and writes, and its duration.

    ops: main op first. flops: local, padding and replicated work included. work: what it counts. casts: of its inputs,
    and what scales its result, before it. largest: bytes of the largest values that members agree on for these, where
    code has them do so. adding_time: of one that makes gradients of parameters and adds them to what is
    there (MODEL B7), None of others. adds: kernels behind it that add the gradients it makes to what is there.
    """

    ops: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    time: KernelTime
    is_view: bool = False
    flops: float = 0.0
    work: KernelWork = NO_WORK
    adding_time: KernelTime | None = None
    casts: tuple[KernelTime, ...] = ()
    largest: tuple[int, ...] = ()
    adds: tuple[KernelTime, ...] = ()


class KernelBuilder:
    """Build the kernels of a sharded graph at one micro-batch, by a program's rules; each is timed once.

    Args:
        fusions: what ``fuse`` and ``kernel_traffic`` return for barriers and derived tensors, filled and used by
            builders of one graph.
        part: of whose graph the kernels are, where several ranks share each sequence.
        device: whose kernels they are; without one nothing is known of its multiprocessors.
        rank_share: rows that ranks receive over those of their experts, where one goes to each rank; else 0.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        sharding: Sharding,
        cost: CostModel,
        rules: Rules,
        batch: float,
        *,
        experts: SpreadExperts | None = None,
        part: SequencePart | None = None,
        fusions: dict[Any, tuple[Fusion, tuple[KernelTraffic, ...], list[tuple[int, ...]]]] | None = None,
        device: Accelerator | None = None,
        rank_share: float = 0.0,
    ) -> None:
        self.graph, self.sharding, self.cost, self.part = graph, sharding, cost, part
        self.rules, self.batch, self.rank_share = rules, batch, rank_share
        self.inputs = GRAPH_INPUTS[rules.inputs]
        self.transposes_fp8 = device is not None and device.transposes_fp8
        self.multiprocessors = 0 if device is None else device.multiprocessors
        self.experts = SpreadExperts() if experts is None else experts
        self.kept_times: dict[int, float] = {}  # tensor -> how many times its bytes are kept for backward
        self.num_metadata = self.num_fused = self.num_kernels = 0
        self._known: dict[tuple[tuple[int, ...], KernelTraffic], Kernel] = {}
        self._op_seconds: list[float] | None = None
        self._fusions = {} if fusions is None else fusions
        self._full_bytes: dict[int, float] = {}
        self._views: dict[int, Kernel] = {}
        self._tensor_bytes: dict[tuple[int, bool], float] = {}
        self._factors: dict[str, float] = {}  # dtype -> what the precision makes of its bytes
        self._kernel_rules: list[KernelRule] = [KERNEL_RULES.get(name)(self) for name in rules.kernels]

    def tensor_bytes(self, tensor: int, whole: bool = False) -> float:
        """Return one member's bytes of a tensor in the run's precision."""
        key = (tensor, whole)
        found = self._tensor_bytes.get(key)
        if found is None:
            t = self.graph.tensors[tensor]
            share = self.sharding.tensor_fraction(tensor, whole) * self.experts.share(tensor)
            found = self._tensor_bytes[key] = t.num_bytes(self.batch) * share * self._precision_factor(tensor)
        return found

    def part_bytes(self, tensor: int, share: float) -> float:
        """Return the bytes of a share of the whole tensor in the run's precision."""
        return self.graph.tensors[tensor].num_bytes(self.batch) * share * self._precision_factor(tensor)

    def stored_bytes(self, tensor: int) -> float:
        """Return one member's bytes of a tensor kept for backward: gathered if it is, with the halo that stays."""
        times = self.experts.kept_rows(tensor) * self.kept_times.get(tensor, 1)
        whole = self.tensor_bytes(tensor, whole=True) * times
        halo = self.part_bytes(tensor, self.sharding.kept_shares.get(tensor, 0))
        width = self._kept_widths.get(tensor, 1.0) * self.loss_factor(tensor)
        if self.graph.tensors[tensor].dtype == COMPLEX and not self.wide.keeps_wide(tensor):
            width /= self.wide_factor
        return (whole + halo) * width

    def passing_bytes(self, tensor: int) -> float:
        """Return one member's bytes of a tensor that is not kept, while it is there."""
        if self._is_in_place(tensor):
            return 0.0
        width = self.loss_factor(tensor) if self.rules.fusion == PRODUCER else self._written_width(tensor)
        return self.tensor_bytes(tensor) * width

    @cached_property
    def widened(self) -> frozenset[int]:
        """Tensors that an eager loss reads in fp32 and others made in fewer bits: the logits."""
        found = (op for op in self.graph.ops if self.rules.eager_loss and self.is_loss(op))
        return frozenset(
            self.graph.view_roots[t] for op in found if op.phase == "forward" for t in op.inputs
            if self.is_widened(t)
        )  # fmt: skip

    def bytes_inside(self, op: Op) -> float:
        """Return one member's bytes that kernels of an eager loss hand on inside an op, at most."""
        is_summed = self.rules.eager_loss == LOSS_PARALLEL and makes_gradients_of_logits(op)
        return self.passing_bytes(op.outputs[0]) if is_summed else 0.0  # exponentials, then the sum with them

    def loss_factor(self, tensor: int) -> float:
        t = self.graph.tensors[self.graph.view_roots[tensor]]
        if t.producer is None or t.dtype != "float32":
            return 1.0
        return loss_bytes_factor(self.rules.precision, self.graph.ops[t.producer].op_type)

    @cached_property
    def _kept_widths(self) -> dict[int, float]:
        found = kept_widths(self.graph, self.rules.precision)
        if self.rules.splits_loss:  # in place of logits their gradient
            made = (op for op in self.graph.ops if op.phase == "forward" and is_of_log_softmax(op.op_type))
            found = {**found, **{op.inputs[0]: self.wide_factor for op in made}}
        return found

    def op_seconds(self) -> list[float]:
        """Return the seconds of every op alone, an estimate for balancing stages."""
        if self._op_seconds is None:
            ops = [op for op in self.graph.ops if not op.is_metadata]
            seconds = [0.0] * len(self.graph.ops)
            alone = Fusion(tuple((op.id,) for op in ops), 0, 0)
            for op, traffic in zip(ops, kernel_traffic(self.graph, alone), strict=True):
                seconds[op.id] = self._kernel((op.id,), traffic).time.duration_s
            self._op_seconds = seconds
        return self._op_seconds

    def fused(
        self, barriers: Collection[int], derived: Derived, classes: Mapping[int, Hashable] | None = None
    ) -> list[Kernel]:
        """Return all kernels and views in execution order, fused except across the barriers.

        Args:
            derived: what backward kernels compute again, none of it a barrier.
            classes: op -> what only ops of the same may share a kernel; None for all.
        """
        barriers = frozenset(barriers)
        joint = self._with_epilogues(
            joint_products(self.graph, self.joint_forward, barriers, classes or {}), barriers, classes or {}
        )
        key = (
            self.rules.fusion,
            barriers,
            frozenset(derived),
            None if classes is None else frozenset(classes.items()),
            joint,
        )
        if key not in self._fusions:
            fusion = self._fuse(barriers, classes, joint)
            is_joined = self.rules.fusion in (POINTWISE, EPILOGUE, MODULES)
            self._fusions[key] = (
                fusion, kernel_traffic(self.graph, fusion, barriers, derived, joins_parts=is_joined),
                in_order(self.graph, fusion.kernels),
            )  # fmt: skip
        fusion, traffics, order = self._fusions[key]
        self.num_metadata, self.num_fused = fusion.num_metadata_removed, fusion.num_fused
        self.num_kernels = len(fusion.kernels)
        kernels = {ops: self._kernel(ops, traffic) for ops, traffic in zip(fusion.kernels, traffics, strict=True)}
        return self._with_inputs(self._with_casts([kernels.get(ops) or self._view(ops[0]) for ops in order]))

    def _with_inputs(self, kernels: list[Kernel]) -> list[Kernel]:
        """Return kernels, the first that reads what the model is given behind those that bring it there.

        The first kernel behind these is where a host replays a graph, if it does (plan.host_calls.REPLAY).
        """
        given, roots = [t.id for t in self.graph.tensors if t.kind == "input"], self.graph.view_roots
        for place, kernel in enumerate(kernels):
            read = [] if kernel.is_view else [t for t in given if t in {roots[one] for one in kernel.inputs}]
            if not read:
                continue
            first, *others = (*kernel.casts, kernel.time)
            *casts, time = (replace(first, calls=first.calls or REPLAY), *others)
            brought = self._brought(self.graph.ops[kernel.ops[0]], given, read)
            kernels[place] = replace(kernel, casts=(*brought, *casts), time=time)
            break
        return kernels

    def _brought(self, op: Op, given: list[int], read: list[int]) -> list[KernelTime]:
        """Return the kernels that make the model's inputs of what arrives, and copy them to where a graph reads them.

        Args: op: the first that reads any. given: all of the model's inputs. read: those that it reads.
        """
        found = []
        wide = self.wide_factor if self.rules.autocast else 1.0
        for t in given:
            is_real = self.graph.tensors[t].dtype == "float32"
            size = self.tensor_bytes(t) * (wide if is_real else 1.0)
            if self.inputs.is_widened and is_real and t in read:
                found.append(self.apart(op, "input widened", CONVERT, 2 * self.num_elements(t), size))
            if self.inputs.is_copied:
                found.append(self.apart(op, "input copied", MAP, size, size))
        return [replace(one, calls=INPUT) for one in found]

    def _with_casts(self, kernels: list[Kernel]) -> list[Kernel]:
        """Return kernels, the first reader of what is cast for products with its cast."""
        chosen = get_precision(self.rules.precision).casts
        if chosen is None:
            return kernels
        left = cast_inputs(self.graph, with_weights=self.rules.casts_weights, by_product=chosen.by_product)
        found, of_norms = [], set[int]()
        narrow = [not kernel.is_view and is_narrow(self.graph, self.graph.ops[kernel.ops[0]]) for kernel in kernels]
        of_inputs = self._read_for_inputs(one for one, is_one in zip(kernels, narrow, strict=True) if is_one)
        for kernel, is_one in zip(kernels, narrow, strict=True):
            op = self.graph.ops[kernel.ops[0]]
            casts: list[KernelTime] = []
            largest: list[int] = []
            if is_one:
                later = of_inputs if makes_weight_gradient(op, self.graph) else frozenset[int]()
                casts, largest = self._casts_of(kernel, left, of_norms, later)
                if chosen.scales_gradients and op.phase == "backward":
                    casts.append(self._scaled(kernel))
            found.append(
                replace(kernel, casts=(*kernel.casts, *casts), largest=tuple(largest)) if casts or largest else kernel
            )
            if self._is_norm(kernel):
                of_norms.update(memory_of(self.graph, t) for t in kernel.outputs)
        return found

    def _read_for_inputs(self, products: Iterable[Kernel]) -> frozenset[int]:
        """Return memory that products for inputs' gradients read, which run in front of those for weights'."""
        ops = (self.graph.ops[index] for kernel in products for index in kernel.ops)
        backward = (op for op in ops if op.phase == "backward" and op.role == "product")
        return frozenset(
            memory_of(self.graph, t) for op in backward if not makes_weight_gradient(op, self.graph) for t in op.inputs
        )

    def _casts_of(
        self, kernel: Kernel, left: dict[tuple[str, int], CastInput], of_norms: Collection[int], later: Collection[int]
    ) -> tuple[list[KernelTime], list[int]]:
        """Return the casts of what a product is the first to read; several that are one read one input of each kind.

        Args: later: memory that others read first.
        Returns: the casts; bytes of the largest values that members agree on before them.
        """
        found: dict[tuple[CastInput, bool, int], list[tuple[Op, int]]] = {}
        for index in kernel.ops:
            op = self.graph.ops[index]
            for place, t in enumerate(op.inputs) if is_narrow(self.graph, op) else ():
                memory = memory_of(self.graph, t)
                one = None if memory in later else left.pop((op.phase, memory), None)
                if one is not None:
                    found.setdefault((one, memory in of_norms, place), []).append((op, t))
        casts = [cast for (one, is_of_norm, _), read in found.items() for cast in self._cast(read, one, is_of_norm)]
        sizes = [self._largest_bytes(*read[0]) for read in found.values()] if self.rules.compiles_casts else []
        return casts, [size for size in sizes if size]

    def _largest_bytes(self, product: Op, tensor: int) -> int:
        """Return the bytes of largest values that members agree on to cast a product's input, 0 if each has its own.

        Model: one for each tensor of which they hold parts; for each row where the product sums over parts of rows.
        Source: amax_to_scale and tensor_to_amax in torchao/float8 of pytorch/ao, which compute with DTensors in
            float64: code that PyTorch 2.13 generates of a block of torchtitan's all-reduces 29 scalars, or 14 columns.
        """
        casts = get_precision(self.rules.precision).casts
        if casts is None or self.sharding.tensor_fraction(tensor) == 1:
            return 0
        if not casts.by_product:
            return _WIDE_SCALE
        if self.sharding.op_split(product.id)[0] != "row":
            return 0
        entries, made = (
            self.graph.tensors[t].num_bytes(self.batch) / DTYPE_BYTES[self.graph.tensors[t].dtype]
            for t in (tensor, product.outputs[0])
        )
        return math.ceil(_WIDE_SCALE * entries / (product.flops.at(self.batch) / (2 * made)))

    def _is_norm(self, kernel: Kernel) -> bool:
        """Tell whether a kernel of forward is a norm by rows, written out or not, so that it may know what it makes."""
        ops = [self.graph.ops[i] for i in kernel.ops]
        kinds = {self.fused_kinds[op.id] for op in ops}
        return ops[0].phase == "forward" and not kinds.isdisjoint((ROWS, REDUCTION)) and APART not in kinds

    def _cast(self, inputs: Sequence[tuple[Op, int]], one: CastInput, is_of_norm: bool) -> list[KernelTime]:
        """Return what the cast of a product's input takes beyond it, nothing where a norm has made all.

        Model: what is gathered for the product is cast by those that hold it, before; each transposes all of it then.
        Args: inputs: products and what they read of it; several products that are one read parts of it.
        """
        precision, width, op = get_precision(self.rules.precision), product_width(self.rules.precision), inputs[0][0]
        if precision.casts is None:
            return []
        moved: dict[int, list[float]] = {}  # number of the kernel -> bytes read, bytes written, pace, elements scaled
        for product, tensor in inputs:
            held = whole = self.wide_read_bytes((product,), tensor)
            if not precision.casts.by_product:
                held *= min(1.0, self.sharding.tensor_fraction(tensor) / (self.read_share(product, tensor) or 1.0))
            kind = {"is_of_norm": is_of_norm, "is_gathered": held < whole}
            kernels = (
                one.compiled(precision, self.transposes_fp8, **kind) if self.rules.compiles_casts
                else (one.traffic(precision, self.transposes_fp8, **kind),)
            )  # fmt: skip
            for number, traffic in enumerate(kernels):
                sums = moved.setdefault(number, [0.0, 0.0, traffic.pace, 0.0])
                sums[0] += traffic.wide_reads * held + traffic.narrow_reads * whole * width
                sums[1] += (traffic.copies * held + traffic.narrow_copies * whole) * width
                if precision.casts.by_product and one.by_rows and traffic.copies:
                    sums[3] += held / precision.tensor_bytes
        launches = precision.casts.launches * (1 if precision.casts.takes_all else self.num_products(op))
        return [
            self._compiled(self.apart(op, "cast", CAST, read, written, launches), pace, elements)
            for read, written, pace, elements in moved.values() if read
        ]  # fmt: skip

    def _compiled(self, stream: KernelTime, pace: float, row_scaled: float) -> KernelTime:
        """Return a kernel of casts as PyTorch's compiler makes it, as it is where others do.

        Args: pace: how many times as long as a stream it takes. row_scaled: elements that it computes a scale for.
        """
        if not self.rules.compiles_casts:
            return stream
        longest = max(stream.duration_s * pace, row_scaled_seconds(row_scaled, self.multiprocessors))
        # Busy with accesses or arithmetic, not idle: it draws what the stream does for as long.
        return replace(stream.stretched(max(1.0, longest / stream.duration_s)), watts=stream.watts)

    def _scaled(self, kernel: Kernel) -> KernelTime:
        """Return the kernel that multiplies what a product of gradients has made, in the width of activations."""
        ops = [self.graph.ops[i] for i in kernel.ops if self.graph.ops[i].role == "product"]
        made, op = 0.0, ops[0]
        joint = ops if makes_weight_gradient(op, self.graph) else ops[:1]  # one sum of inputs' gradients
        for t in (t for one in joint for t in one.outputs):
            tensor, share = self.graph.tensors[t], self.sharding.tensor_fraction(t, t in self.sharding.comms)
            made += tensor.num_bytes(self.batch) / DTYPE_BYTES[tensor.dtype] * share * self.experts.share(t)
        moved = made * get_precision(self.rules.precision).tensor_bytes
        return self._compiled(self.apart(op, "scaled", MAP, moved, moved), 1.0, made)

    def num_products(self, op: Op) -> int:
        """Return the products of one expert each that a device runs for a grouped product; 1 for other ops."""
        kind, degree = self.sharding.op_split(op.id)
        call = KernelCall(
            (op,), 0.0, 0.0, 0.0, self.batch, degree=degree, split_kind=kind, spread=self.experts.spread(op)
        )
        return round(num_groups(call, op, self.graph))

    def gathered_bytes(self, gather: Gather, share: float) -> float:
        """Return the bytes of a share of what is gathered, as wide as it is gathered."""
        return self.part_bytes(gather.tensor, share) * self._gathered_widths[gather.tensor]

    @cached_property
    def _gathered_widths(self) -> dict[int, float]:
        """Of every tensor that is gathered over tp how wide that is, over an activation."""
        readers: dict[int, list[int]] = {}
        for op, gathers in self.sharding.gathers.items():
            for gather in gathers:
                readers.setdefault(gather.tensor, []).append(op)
        return {t: gathered_width(self.graph, self.rules.precision, ops) for t, ops in readers.items()}

    def moved(self, op: Op, what: str, read: float, written: float) -> KernelTime:
        """Return a kernel next to an op's that moves, or adds up, what it reads or makes. Args: what: for its name."""
        return self.apart(op, what, MAP, read, written)

    def apart(self, op: Op, what: str, op_type: str, read: float, written: float, launches: int = 1) -> KernelTime:
        """Return a kernel next to an op's, which moves so many bytes.

        Args:
            what: it does, for its name.
            launches: see KernelTime.
        """
        apart = Op(
            id=0, name=f"{op.name} ({what})", module=op.module, phase=op.phase, op_type=op_type, inputs=(), outputs=(),
            is_elementwise=True, bytes_read=Affine(read), bytes_written=Affine(written),
        )  # fmt: skip
        others = get_precision(self.rules.precision).others
        call = KernelCall((apart,), 0.0, read, written, self.batch, others)
        return KernelTime.of(self.cost, call, launches=launches)

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
            APART if op.id in self.wide.complex else fused_kind(op.op_type, op.role, op.is_elementwise)
            for op in self.graph.ops
        ]

    @cached_property
    def norm_numbers(self) -> list[int]:
        """Of every op the norm that it is part of, -1 for none."""
        return norm_numbers(self.graph)

    @cached_property
    def wide(self) -> WideOps:
        """Ops that compute in 32 bits: nothing of it with ``producer`` fusion, nor where all is as wide."""
        eager: Iterable[Op] = ()
        if self.rules.eager_norm and self.rules.eager_norm != FUSED_NORM:
            eager = (op for op in self.graph.ops if not self.is_fused(op))
        return wide_ops(self.graph, {op.id for op in eager})

    @cached_property
    def wide_factor(self) -> float:
        """Bytes of 32 bits over those of the run's activations."""
        return 4 / get_precision(self.rules.precision).tensor_bytes

    def is_fused(self, op: Op) -> bool:
        """Tell whether an op may share a kernel with others."""
        if self.rules.fusion == UNFUSED:
            return False
        return (
            op.block >= 0
            or self.rules.fused_part == EVERYWHERE
            or (self.rules.fused_part == BLOCKS_AND_LOSS and is_of_loss(op.op_type))
        )

    def held_share(self, tensor: int) -> float:
        """Return the part of a tensor that one member of a tensor-parallel group holds."""
        return self.sharding.tensor_fraction(tensor)

    def sent_bytes(self, tensor: int) -> float:
        """Return the bytes of a tensor's rows that the busiest rank exchanges with the others."""
        return self.tensor_bytes(tensor) * self.experts.sent(tensor)

    def are_sent_rows(self, tensor: int) -> bool:
        """Tell whether a tensor is rows, not their weights, that are dispatched to experts or combined."""
        shape = self.graph.tensors[tensor].shape
        return tensor in self.experts.exchanged and len(shape) > 1 and shape[-1].at(1) > 1

    def sent_way(self, tensor: int) -> str:
        """Return "dispatch" or "combine" of rows that go to experts or back, "" of others."""
        root = self.graph.view_roots[tensor]
        return self.experts.exchanged[root] if self.are_sent_rows(root) else ""

    def has_several_experts(self) -> bool:
        """Tell whether a device has several experts of one layer."""
        return any(n > self.experts.degree for _, n in self.experts.layers)

    def sorted_ids(self, op: Op) -> tuple[float, int]:
        """Return the ids of spread tables that are sorted in front of an op, and how many they tell apart."""
        return self.experts.sorted_ids(op)

    def num_elements(self, tensor: int) -> float:
        """Return one member's elements of a tensor."""
        t = self.graph.tensors[tensor]
        share = self.sharding.tensor_fraction(tensor) * self.experts.share(tensor)
        return t.num_bytes(self.batch) / DTYPE_BYTES[t.dtype] * share

    def _view(self, op: int) -> Kernel:
        if op not in self._views:
            self._views[op] = _view(self.graph.ops[op])
        return self._views[op]

    def _main_first(self, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        """Return a kernel's ops, in front that which decides its kind: a norm's or softmax's, not the first sum's."""
        main = next((op for op in ops if op.id in self.epilogues.groups), ops[0])
        if main is not ops[0]:
            return (main, *(op for op in ops if op is not main))
        if self.rules.fusion == PRODUCER or not ops[0].is_elementwise:
            return ops
        sums = self.graph.gradient_tensors  # of biases and the like, in addition to the kernel's own work
        others = (op for op in ops if not op.is_elementwise and op.role not in ("copy", "join"))
        main = next((op for op in others if not sums.issuperset(op.outputs)), ops[0])
        return (main, *(op for op in ops if op is not main))

    def _kernel(self, op_ids: tuple[int, ...], traffic: KernelTraffic) -> Kernel:
        key = (op_ids, traffic)
        if key not in self._known:
            self._known[key] = self._new_kernel(op_ids, traffic)
        return self._known[key]

    def _new_kernel(self, op_ids: tuple[int, ...], traffic: KernelTraffic) -> Kernel:
        ops = tuple(self.graph.ops[i] for i in op_ids)
        products = [op for op in ops if op.role == "product"]
        at_work = products if len(products) > 1 else ops  # several that are one add up as they multiply
        has_epilogue = not self.epilogues.groups.keys().isdisjoint(op_ids)
        if has_epilogue:
            at_work = [op for op in ops if op.role in ("product", "attention")]
            traffic = replace(traffic, gathered=())  # rows of biases, which are few
        flops = sum(op.flops.at(self.batch) * self.sharding.op_fraction(op) * self.experts.work(op) for op in at_work)
        read, written = self._local_traffic(ops, traffic)
        casts = tuple(one for rule in self._kernel_rules for one in rule.kernels(ops, traffic))
        for rule in self._kernel_rules:
            read, written = rule.moved(ops, read, written)
        ops = self._main_first(ops)
        time = self._time(ops, flops, read, written)
        for rule in self._kernel_rules:
            time = rule.time(ops, time, written)
        outputs = tuple(t for op in ops for t in op.outputs)
        made = set(outputs)
        inputs = tuple(dict.fromkeys(t for op in ops for t in op.inputs if t not in made))
        work = kernel_work(self._unsplit(ops), self.batch, self.num_members, flops, time, self.cost)
        gradients = tuple(t for t in traffic.writes if t in self._final_gradients)
        adding = (
            self._adding_time(ops, gradients, (flops, read, written)) if self.rules.accumulation == "fused" else None
        )
        adds = tuple(self._add(ops[0], t) for t in gradients) if self.rules.accumulation == "separate" else ()
        return Kernel(
            ops=tuple(op.id for op in ops) if has_epilogue else op_ids, inputs=inputs, outputs=outputs, time=time,
            flops=flops, work=work, adding_time=adding, casts=casts, adds=adds,
        )  # fmt: skip

    @cached_property
    def _module_calls(self) -> list[str]:
        is_cast = get_precision(self.rules.precision).casts is not None
        return module_calls(self.graph, lambda op: is_cast and is_narrow(self.graph, op))

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
            readers = [r for t in op.outputs for r in self.readers_of(t)]
            if not readers:
                break
            op = self.graph.ops[readers[0]]
        return op.module

    def readers_of(self, tensor: int) -> list[int]:
        """Return the ops that read a tensor or a view of it, views apart."""
        found = []
        for reader in self.graph.readers.get(tensor, ()):
            op = self.graph.ops[reader]
            found += [r for t in op.outputs for r in self.readers_of(t)] if op.is_metadata else [reader]
        return found

    def _adding_time(
        self, ops: tuple[Op, ...], made: tuple[int, ...], work: tuple[float, float, float]
    ) -> KernelTime | None:
        """Return a kernel's time if it reads the gradients that it writes as well, None if it writes none."""
        flops, read, written = work
        there = sum(self.tensor_bytes(t) * self.experts.rows_of(ops[0], t) for t in made)
        return self._time(ops, flops, read + there, written) if there else None

    def _add(self, op: Op, gradient: int) -> KernelTime:
        """Return the kernel that reads a gradient as the products' precision has it, and adds it to what is there.

        Source: of copies into what is reduced, _grad_acc in megatron_fsdp.py of NVIDIA/Megatron-LM
            (megatron/core/distributed/fsdp/src): main_grad.copy_(param.grad), unless a product wrote it there.
        """
        precision = get_precision(self.rules.precision)
        there = self.tensor_bytes(gradient) * self.experts.rows_of(op, gradient)
        made = there * precision.tensor_bytes / self.rules.gradient_bytes
        if self.rules.copies_gradients:
            return self.apart(op, "copied in", MAP, made, there)
        return self.apart(op, "add", ADD, there + made, there)

    @cached_property
    def _final_gradients(self) -> frozenset[int]:
        return frozenset(self.graph.view_roots[t.id] for t in self.graph.gradients)

    @property
    def num_members(self) -> int:
        """Devices that share a stage's model FLOPs."""
        return self.sharding.degree * (1 if self.part is None else self.part.degree)

    def _unsplit(self, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        """Return the ops as the whole model has them, by which cost models look them up."""
        return ops if self.part is None else tuple(self.part.whole.ops[op.id] for op in ops)

    def _time(
        self, ops: tuple[Op, ...], flops: float, read: float, written: float, num_pieces: int = 1, name: str = ""
    ) -> KernelTime:
        """Return a kernel's time. Args: num_pieces: equal kernels that the op runs in. name: by default the op's."""
        main = ops[0]
        kind, degree = self.sharding.op_split(main.id)
        pieces = 1
        if self.part is not None and main.id in self.part.shared:
            kind, pieces = kind or "feature", num_pieces * self.part.degree
            num_pieces = pieces
        dtypes = (self.graph.tensors[t].dtype for t in main.inputs)
        precision = op_precision(self.rules.precision, dtypes, main.role, is_wide=not is_narrow(self.graph, main))
        call = KernelCall(
            self._unsplit(ops), flops, read, written, self.batch, precision, degree * num_pieces,
            kind or ("feature" if num_pieces > 1 else ""), pieces, self.experts.spread(main),
        )  # fmt: skip
        calls = next((one for one in (self._module_calls[op.id] for op in ops) if one), "")
        return KernelTime.of(self.cost, call, name or main.name, self.num_products(main), calls)

    def piece_time(
        self, kernel: Kernel, what: str, num_pieces: int, read: float = 0.0, written: float = 0.0
    ) -> KernelTime:
        """Return the time of one of the equal kernels that a kernel of one op is replaced by.

        Args: what: which one, for its name. read, written: bytes that it moves beyond what the op does.
        """
        op = self.graph.ops[kernel.ops[0]]
        read += sum(self.tensor_bytes(t, whole=True) for t in dict.fromkeys(op.inputs))
        written += sum(self.tensor_bytes(t) for t in op.outputs)
        flops = kernel.flops / num_pieces
        name = f"{kernel.time.name} ({what})" if what else kernel.time.name
        return self._time((op,), flops, read, written, num_pieces, name)

    def _local_traffic(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> tuple[float, float]:
        """Return local (bytes read, bytes written) in the run's precision."""
        read = sum(self.read_bytes(ops, t) for t in traffic.reads if not self._is_in_place(t))
        for gather in traffic.gathered:
            table, _, result = gather
            looked_up = gathered_bytes(self.graph, gather, self.batch) * self._precision_factor(result)
            read += looked_up * self.sharding.tensor_fraction(table) * self.experts.gathered(ops[0])
        for op, more in ((op, self.experts.ids_per_gradient(op) - 1) for op in ops):
            read += more * self.read_bytes((op,), op.inputs[0]) if more > 0 else 0.0
        return read, sum(
            self.tensor_bytes(t) * self.experts.rows_of(ops[0], t) * self._written_width(t)
            for t in traffic.writes if not self._is_in_place(t)
        )  # fmt: skip

    def is_loss(self, op: Op) -> bool:
        """Tell whether an op is of a loss that moves fp32; ``producer`` fusion counts it as wide as the rest."""
        return self.rules.fusion != PRODUCER and loss_bytes_factor(self.rules.precision, op.op_type) > 1

    def _written_width(self, tensor: int) -> float:
        """Return the bytes of what an op makes over those of other activations: fp32 of what the loss hands on.

        Model: what products read of it is cast by the kernel that makes it, or behind that in eager code.
        """
        factor = 1.0 if self.rules.fusion == PRODUCER else self.loss_factor(tensor)
        producer = self.graph.tensors[tensor].producer
        if producer is not None and self.wide.is_wide(self.graph.ops[producer], tensor):
            return self.wide_factor
        return factor if factor == 1 or self.rules.eager_loss or not self.leaves_loss(tensor) else 1.0

    def leaves_loss(self, tensor: int) -> bool:
        """Tell whether others than the loss read what it makes."""
        readers = self.graph.readers.get(self.graph.view_roots[tensor], ())
        return any(not self.is_loss(self.graph.ops[reader]) for reader in readers)

    def _is_in_place(self, tensor: int) -> bool:
        """Tell whether a tensor is never in memory by itself: Megatron's loss makes its gradient where it keeps the
        quotients."""
        producer = self.graph.tensors[self.graph.view_roots[tensor]].producer
        return (
            self.rules.eager_loss == VOCAB_PARALLEL
            and producer is not None
            and self.graph.ops[producer].role == "pick_backward"
        )

    def is_widened(self, tensor: int) -> bool:
        """Tell whether the loss reads in fp32 what an op next to it made in the run's precision: the logits."""
        t = self.graph.tensors[self.graph.view_roots[tensor]]
        return t.kind == "activation" and t.dtype == "float32" and self.loss_factor(tensor) == 1

    def read_bytes(self, ops: tuple[Op, ...], tensor: int) -> float:
        """Return the bytes that a kernel reads of a tensor: of what narrow products multiply their copies'."""
        return self.wide_read_bytes(ops, tensor) * self._read_width(ops, tensor)

    def wide_read_bytes(self, ops: tuple[Op, ...], tensor: int) -> float:
        """Return the bytes that a kernel reads of a tensor as other kernels have it."""
        full = self._full_bytes.get(tensor)
        if full is None:
            full, _ = kernel_bytes(self.graph, KernelTraffic((tensor,), ()), self.batch)
            self._full_bytes[tensor] = full
        op = next((op for op in ops if tensor in op.inputs), ops[0])
        is_own = tensor in op.inputs  # else what one of its inputs is computed from again
        share = self.read_share(op, tensor) if is_own else self.sharding.tensor_fraction(tensor, whole=True)
        share *= self.experts.share(tensor) * self.experts.rows_of(op, tensor)
        return full * share * self._precision_factor(tensor)

    def _read_width(self, ops: tuple[Op, ...], tensor: int) -> float:
        """Return the bytes that ops read of a tensor over those in the run's precision.

        Model: products read what is cast for them, scales included; the loss reads fp32.
        """
        if is_narrow(self.graph, ops[0]) and tensor in ops[0].inputs:
            return product_width(self.rules.precision)
        if self.wide.is_wide(ops[0], tensor):
            return self.wide_factor
        if not any(self.is_loss(op) for op in ops):
            return 1.0
        is_apart = bool(self.rules.eager_loss) or (self.rules.splits_loss and any(map(makes_gradients_of_logits, ops)))
        is_wide = self.loss_factor(tensor) > 1 or (is_apart and self.is_widened(tensor))
        return 4 / get_precision(self.rules.precision).tensor_bytes if is_wide else 1.0

    def read_share(self, op: Op, tensor: int) -> float:
        """Return the part of a tensor that one member's share of an op reads."""
        if tensor not in op.inputs:
            return 1.0
        return self.sharding.read_fraction(op, op.inputs.index(tensor))

    def _precision_factor(self, tensor: int) -> float:
        t = self.graph.tensors[tensor]
        if t.kind == "loss":
            return 1.0
        if tensor in self.graph.gradient_tensors:
            return self.rules.gradient_bytes / DTYPE_BYTES[t.dtype]
        if t.dtype not in self._factors:
            self._factors[t.dtype] = tensor_bytes_factor(self.rules.precision, t.dtype)
        return self._factors[t.dtype]


_WIDE_SCALE = 8  # bytes of a largest value as torchao has it: float64


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
    computing = set(kernels)
    ordered = tuple(ops for ops in in_order(graph, kernels) if ops in computing)
    return Fusion(ordered, fusion.num_metadata_removed, fusion.num_fused + len(fusion.kernels) - len(kernels))


def _view(op: Op) -> Kernel:
    return Kernel(
        ops=(op.id,),
        inputs=op.inputs,
        outputs=op.outputs,
        time=KernelTime(op.name, op.module, op.op_type, 0.0),
        is_view=True,
    )
