"""LocalBytes: what one device reads, writes and keeps of a sharded graph's tensors, as wide as a program has them."""

from collections.abc import Iterable
from functools import cached_property

from rostam_py.costs.precision import get_precision, is_of_log_softmax, loss_bytes_factor, tensor_bytes_factor
from rostam_py.graph import KernelTraffic, Op, OperatorGraph, gathered_bytes, kernel_bytes
from rostam_py.graph.vocabulary import DTYPE_BYTES
from rostam_py.placement.experts import SpreadExperts
from rostam_py.placement.sharding import Gather, Sharding
from rostam_py.plan.fusion import FUSED_NORM, LOSS_PARALLEL, PRODUCER, VOCAB_PARALLEL
from rostam_py.software.losses import makes_gradients_of_logits
from rostam_py.software.product_inputs import gathered_width, is_narrow, kept_widths, product_width
from rostam_py.software.rules import Rules
from rostam_py.software.wide_ops import COMPLEX, WideOps, wide_ops


class LocalBytes:
    """Bytes of tensors on one device, at one micro-batch and by a program's rules; each is computed once.

    kept_times: tensor -> how many times its bytes are kept for backward, filled by who finds out.
    """

    def __init__(
        self, graph: OperatorGraph, sharding: Sharding, rules: Rules, batch: float, experts: SpreadExperts
    ) -> None:
        self.graph, self.sharding, self.rules = graph, sharding, rules
        self.batch, self.experts = batch, experts
        self.kept_times: dict[int, float] = {}
        self._full_bytes: dict[int, float] = {}
        self._tensor_bytes: dict[tuple[int, bool], float] = {}
        self._factors: dict[str, float] = {}  # dtype -> what the precision makes of its bytes

    def tensor_bytes(self, tensor: int, whole: bool = False) -> float:
        """Return one member's bytes of a tensor in the run's precision."""
        key = (tensor, whole)
        found = self._tensor_bytes.get(key)
        if found is None:
            t = self.graph.tensors[tensor]
            share = self.sharding.tensor_fraction(tensor, whole) * self.experts.share(tensor)
            found = self._tensor_bytes[key] = t.num_bytes(self.batch) * share * self.precision_factor(tensor)
        return found

    def part_bytes(self, tensor: int, share: float) -> float:
        """Return the bytes of a share of the whole tensor in the run's precision."""
        return self.graph.tensors[tensor].num_bytes(self.batch) * share * self.precision_factor(tensor)

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

    def bytes_inside(self, op: Op) -> float:
        """Return one member's bytes that kernels of an eager loss hand on inside an op, at most."""
        is_summed = self.rules.eager_loss == LOSS_PARALLEL and makes_gradients_of_logits(op)
        return self.passing_bytes(op.outputs[0]) if is_summed else 0.0  # exponentials, then the sum with them

    def gathered_bytes(self, gather: Gather, share: float) -> float:
        """Return the bytes of a share of what is gathered, as wide as it is gathered."""
        return self.part_bytes(gather.tensor, share) * self._gathered_widths[gather.tensor]

    def num_elements(self, tensor: int) -> float:
        """Return one member's elements of a tensor."""
        t = self.graph.tensors[tensor]
        share = self.sharding.tensor_fraction(tensor) * self.experts.share(tensor)
        return t.num_bytes(self.batch) / DTYPE_BYTES[t.dtype] * share

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
        return full * share * self.precision_factor(tensor)

    def read_share(self, op: Op, tensor: int) -> float:
        """Return the part of a tensor that one member's share of an op reads."""
        if tensor not in op.inputs:
            return 1.0
        return self.sharding.read_fraction(op, op.inputs.index(tensor))

    def local_traffic(self, ops: tuple[Op, ...], traffic: KernelTraffic) -> tuple[float, float]:
        """Return local (bytes read, bytes written) in the run's precision."""
        read = sum(self.read_bytes(ops, t) for t in traffic.reads if not self._is_in_place(t))
        for gather in traffic.gathered:
            table, _, result = gather
            looked_up = gathered_bytes(self.graph, gather, self.batch) * self.precision_factor(result)
            read += looked_up * self.sharding.tensor_fraction(table) * self.experts.gathered(ops[0])
        for op, more in ((op, self.experts.ids_per_gradient(op) - 1) for op in ops):
            read += more * self.read_bytes((op,), op.inputs[0]) if more > 0 else 0.0
        return read, sum(
            self.tensor_bytes(t) * self.experts.rows_of(ops[0], t) * self._written_width(t)
            for t in traffic.writes if not self._is_in_place(t)
        )  # fmt: skip

    @cached_property
    def widened(self) -> frozenset[int]:
        """Tensors that an eager loss reads in fp32 and others made in fewer bits: the logits."""
        found = (op for op in self.graph.ops if self.rules.eager_loss and self.is_loss(op))
        return frozenset(
            self.graph.view_roots[t] for op in found if op.phase == "forward" for t in op.inputs
            if self.is_widened(t)
        )  # fmt: skip

    @cached_property
    def wide(self) -> WideOps:
        """Ops that compute in 32 bits: nothing of it with ``producer`` fusion, nor where all is as wide."""
        eager: Iterable[Op] = ()
        if self.rules.eager_norm and self.rules.eager_norm != FUSED_NORM:
            eager = (op for op in self.graph.ops if not self.rules.is_fused(op))
        return wide_ops(self.graph, {op.id for op in eager})

    @cached_property
    def wide_factor(self) -> float:
        """Bytes of 32 bits over those of the run's activations."""
        return 4 / get_precision(self.rules.precision).tensor_bytes

    def is_loss(self, op: Op) -> bool:
        """Tell whether an op is of a loss that moves fp32; ``producer`` fusion counts it as wide as the rest."""
        return self.rules.fusion != PRODUCER and loss_bytes_factor(self.rules.precision, op.op_type) > 1

    def loss_factor(self, tensor: int) -> float:
        t = self.graph.tensors[self.graph.view_roots[tensor]]
        if t.producer is None or t.dtype != "float32":
            return 1.0
        return loss_bytes_factor(self.rules.precision, self.graph.ops[t.producer].op_type)

    def leaves_loss(self, tensor: int) -> bool:
        """Tell whether others than the loss read what it makes."""
        readers = self.graph.readers.get(self.graph.view_roots[tensor], ())
        return any(not self.is_loss(self.graph.ops[reader]) for reader in readers)

    def is_widened(self, tensor: int) -> bool:
        """Tell whether the loss reads in fp32 what an op next to it made in the run's precision: the logits."""
        t = self.graph.tensors[self.graph.view_roots[tensor]]
        return t.kind == "activation" and t.dtype == "float32" and self.loss_factor(tensor) == 1

    def _is_in_place(self, tensor: int) -> bool:
        """Tell whether a tensor is never in memory by itself: Megatron's loss makes its gradient where it keeps the
        quotients."""
        producer = self.graph.tensors[self.graph.view_roots[tensor]].producer
        return (
            self.rules.eager_loss == VOCAB_PARALLEL
            and producer is not None
            and self.graph.ops[producer].role == "pick_backward"
        )

    def _written_width(self, tensor: int) -> float:
        """Return the bytes of what an op makes over those of other activations: fp32 of what the loss hands on.

        Model: what products read of it is cast by the kernel that makes it, or behind that in eager code.
        """
        factor = 1.0 if self.rules.fusion == PRODUCER else self.loss_factor(tensor)
        producer = self.graph.tensors[tensor].producer
        if producer is not None and self.wide.is_wide(self.graph.ops[producer], tensor):
            return self.wide_factor
        return factor if factor == 1 or self.rules.eager_loss or not self.leaves_loss(tensor) else 1.0

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

    def precision_factor(self, tensor: int) -> float:
        t = self.graph.tensors[tensor]
        if t.kind == "loss":
            return 1.0
        if tensor in self.graph.gradient_tensors:
            return self.rules.gradient_bytes / DTYPE_BYTES[t.dtype]
        if t.dtype not in self._factors:
            self._factors[t.dtype] = tensor_bytes_factor(self.rules.precision, t.dtype)
        return self._factors[t.dtype]

    @cached_property
    def _kept_widths(self) -> dict[int, float]:
        found = kept_widths(self.graph, self.rules.precision)
        if self.rules.splits_loss:  # in place of logits their gradient
            made = (op for op in self.graph.ops if op.phase == "forward" and is_of_log_softmax(op.op_type))
            found = {**found, **{op.inputs[0]: self.wide_factor for op in made}}
        return found

    @cached_property
    def _gathered_widths(self) -> dict[int, float]:
        """Of every tensor that is gathered over tp how wide that is, over an activation."""
        readers: dict[int, list[int]] = {}
        for op, gathers in self.sharding.gathers.items():
            for gather in gathers:
                readers.setdefault(gather.tensor, []).append(op)
        return {t: gathered_width(self.graph, self.rules.precision, ops) for t, ops in readers.items()}
