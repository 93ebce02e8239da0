"""Kernels: fused groups of ops with their local work and duration on one device (MODEL B7, D15)."""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

from rostam_py.costs import COST_MODELS, make_cost_model
from rostam_py.costs.accelerators import Accelerator
from rostam_py.costs.families import ADD, MAP
from rostam_py.costs.kernel_shapes import num_groups
from rostam_py.costs.model import CostModel, KernelCall
from rostam_py.costs.precision import get_precision, op_precision
from rostam_py.graph import (
    Affine,
    Derived,
    Fusion,
    KernelTraffic,
    Op,
    OperatorGraph,
    kernel_traffic,
)
from rostam_py.placement.alike_kernels import AlikeKernels, Priced
from rostam_py.placement.context import SequencePart
from rostam_py.placement.experts import SpreadExperts
from rostam_py.placement.fused_ops import Fused, FusedOps, readers_of
from rostam_py.placement.given_inputs import with_inputs
from rostam_py.placement.kernel import Kernel
from rostam_py.placement.kernel_work import kernel_work
from rostam_py.placement.memory.local_bytes import LocalBytes
from rostam_py.placement.product_casts import ProductCasts
from rostam_py.placement.sharding import Sharding
from rostam_py.plan.fusion import (
    PRODUCER,
)
from rostam_py.plan.machine import Machine
from rostam_py.plan.tasks import KernelTime
from rostam_py.software.kernel_rule import KERNEL_RULES, KernelRule
from rostam_py.software.module_calls import module_calls
from rostam_py.software.module_epilogues import Epilogues
from rostam_py.software.product_inputs import (
    is_narrow,
)
from rostam_py.software.rules import Rules


def cost_model_for(name: str, config: dict[str, Any], graph: OperatorGraph, machine: Machine) -> CostModel:
    """Return the cost model, with the machine's kernel floor if it has one and ``config`` sets none."""
    known = {f.name for f in fields(COST_MODELS.get(name).Config)}
    floor = {"min_kernel_time": machine.min_kernel_time} if "min_kernel_time" in known else {}
    return make_cost_model(name, machine.device, graph=graph, **(floor | config))


class KernelBuilder(LocalBytes):
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
        fusions: dict[Any, Fused] | None = None,
        device: Accelerator | None = None,
        rank_share: float = 0.0,
    ) -> None:
        super().__init__(graph, sharding, rules, batch, SpreadExperts() if experts is None else experts)
        self.cost, self.part, self.rank_share = cost, part, rank_share
        self.multiprocessors = 0 if device is None else device.multiprocessors
        self.num_metadata = self.num_fused = self.num_kernels = 0
        self._known: dict[tuple[tuple[int, ...], KernelTraffic], Kernel] = {}
        self._priced: dict[Hashable, Priced | None] = {}
        self._calls: list[KernelCall] = []  # of the kernel that is being priced
        self._counted: set[tuple[int, Hashable]] = set()  # ops and keys of kernels by themselves that were asked for
        self._op_seconds: list[float] | None = None
        self._views: dict[int, Kernel] = {}
        self._fused = FusedOps(graph, sharding, rules, self.wide.complex, {} if fusions is None else fusions)
        self._casts = ProductCasts(self, sharding, self.experts, device is not None and device.transposes_fp8)
        self._kernel_rules: list[KernelRule] = [KERNEL_RULES.get(name)(self) for name in rules.kernels]

    @property
    def joint_forward(self) -> list[tuple[int, ...]]:
        """Groups of forward products that are one."""
        return self._fused.joint_forward

    @property
    def epilogues(self) -> Epilogues:
        """What products and attention do themselves."""
        return self._fused.epilogues

    @property
    def fused_kinds(self) -> list[str]:
        """Of every op what it may share a kernel as."""
        return self._fused.fused_kinds

    @property
    def norm_numbers(self) -> list[int]:
        """Of every op the norm that it is part of, -1 for none."""
        return self._fused.norm_numbers

    @property
    def merged_sums(self) -> frozenset[int]:
        """Ops of backward that add up what products make of one input's gradient."""
        return self._fused.merged_sums

    def readers_of(self, tensor: int) -> list[int]:
        """Return the ops that read a tensor or a view of it, views apart."""
        return readers_of(self.graph, tensor)

    def op_seconds(self) -> list[float]:
        """Return the seconds of every op alone, an estimate for balancing stages; of alike blocks one is priced."""
        if self._op_seconds is None:
            ops = [op for op in self.graph.ops if not op.is_metadata]
            firsts = {op.id: self._alike.first(op.id) for op in ops}
            seconds = [0.0] * len(self.graph.ops)
            alone = Fusion(tuple((op,) for op, first in firsts.items() if op == first), 0, 0)
            keys: dict[int, Hashable] = {}
            for (op,), traffic in zip(alone.kernels, kernel_traffic(self.graph, alone), strict=True):
                seconds[op] = self._kernel((op,), traffic).time.duration_s
                keys[op] = self._alike.key((op,), traffic)
            for op, first in firsts.items():
                if op != first:
                    seconds[op] = seconds[first] if self._is_counted(op, keys[first]) else self._seconds_alone(op)
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
        fusion, traffics, order = self._fused.grouped(frozenset(barriers), derived, classes)
        self.num_metadata, self.num_fused = fusion.num_metadata_removed, fusion.num_fused
        self.num_kernels = len(fusion.kernels)
        kernels = {ops: self._kernel(ops, traffic) for ops, traffic in zip(fusion.kernels, traffics, strict=True)}
        return with_inputs(self, self._casts.added_to([kernels.get(ops) or self._view(ops[0]) for ops in order]))

    def num_products(self, op: Op) -> int:
        """Return the products of one expert each that a device runs for a grouped product; 1 for other ops."""
        kind, degree = self.sharding.op_split(op.id)
        call = KernelCall(
            ops=(op,),
            flops=0.0,
            bytes_read=0.0,
            bytes_written=0.0,
            batch=self.batch,
            degree=degree,
            split_kind=kind,
            spread=self.experts.spread(op),
        )
        return round(num_groups(call, op, self.graph))

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
        call = KernelCall(
            ops=(apart,), flops=0.0, bytes_read=read, bytes_written=written, batch=self.batch, precision=others
        )
        return self._timed(call, launches=launches)

    def has_several_experts(self) -> bool:
        """Tell whether a device has several experts of one layer."""
        return any(n > self.experts.degree for _, n in self.experts.layers)

    def sorted_ids(self, op: Op) -> tuple[float, int]:
        """Return the ids of spread tables that are sorted in front of an op, and how many they tell apart."""
        return self.experts.sorted_ids(op)

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

    @cached_property
    def _alike(self) -> AlikeKernels:
        properties = self.fused_kinds, self._module_calls
        return AlikeKernels(self.graph, self.sharding, self.experts, self.part, properties)

    def _is_counted(self, op: int, key: Hashable) -> bool:
        """Count an op's kernel by itself as asked for if others are copied from one with this key; tell whether so."""
        priced = self._priced[key]
        if priced is None:
            return False
        if (op, key) not in self._counted:
            self._counted.add((op, key))
            priced.count(self.cost)
        return True

    def _seconds_alone(self, op: int) -> float:
        (traffic,) = kernel_traffic(self.graph, Fusion(((op,),), 0, 0))
        return self._kernel((op,), traffic).time.duration_s

    def _kernel(self, op_ids: tuple[int, ...], traffic: KernelTraffic) -> Kernel:
        known = op_ids, traffic
        if known not in self._known:
            self._known[known] = self._copied_kernel(op_ids, traffic)
        return self._known[known]

    def _copied_kernel(self, op_ids: tuple[int, ...], traffic: KernelTraffic) -> Kernel:
        """Return a kernel, the copy of one of an alike block if there is one."""
        key = self._alike.key(op_ids, traffic)
        priced = self._priced.get(key)
        if priced is not None:
            if len(op_ids) > 1:
                priced.count(self.cost)
            else:
                self._is_counted(op_ids[0], key)
            return priced.of([self.graph.ops[op] for op in op_ids])
        self._calls.clear()
        kernel = self._new_kernel(op_ids, traffic)
        if key is not None:
            self._priced[key] = self._alike.priced(kernel, op_ids, self._calls)
            self._counted.add((op_ids[0], key))
        return kernel

    def _timed(self, call: KernelCall, name: str = "", launches: int = 1, calls: str = "") -> KernelTime:
        self._calls.append(call)
        return KernelTime.of(self.cost, call, name, launches, calls)

    def _new_kernel(self, op_ids: tuple[int, ...], traffic: KernelTraffic) -> Kernel:
        ops = tuple(self.graph.ops[i] for i in op_ids)
        products = [op for op in ops if op.role == "product"]
        at_work = products if len(products) > 1 else ops  # several that are one add up as they multiply
        has_epilogue = not self.epilogues.groups.keys().isdisjoint(op_ids)
        if has_epilogue:
            at_work = [op for op in ops if op.role in ("product", "attention")]
            traffic = replace(traffic, gathered=())  # rows of biases, which are few
        flops = sum(op.flops.at(self.batch) * self.sharding.op_fraction(op) * self.experts.work(op) for op in at_work)
        read, written = self.local_traffic(ops, traffic)
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
            ops=self._unsplit(ops),
            flops=flops,
            bytes_read=read,
            bytes_written=written,
            batch=self.batch,
            precision=precision,
            degree=degree * num_pieces,
            split_kind=kind or ("feature" if num_pieces > 1 else ""),
            pieces=pieces,
            spread=self.experts.spread(main),
        )
        calls = next((one for one in (self._module_calls[op.id] for op in ops) if one), "")
        return self._timed(call, name or main.name, self.num_products(main), calls)

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


def _view(op: Op) -> Kernel:
    return Kernel(
        ops=(op.id,),
        inputs=op.inputs,
        outputs=op.outputs,
        time=KernelTime(name=op.name, module=op.module, op_type=op.op_type, duration_s=0.0),
        is_view=True,
    )
