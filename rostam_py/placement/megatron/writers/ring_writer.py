"""Templates in which products overlap with the collectives of their tensor-parallel group (TP overlap).

Model: under sequence parallelism a product that reads what is gathered, and one whose result is reduce-scattered, run
in as many parts as the group has members t. An all-gather becomes t - 1 copies of a part round the ring: the product
begins with the part that is there and takes each as it comes. Of a reduce-scatter t - 1 parts of the product's result
go to another member each, as soon as they are made, and a kernel adds up what has come. Bytes are those of a ring. A
part takes what a product of so few rows takes, and no less than its share of the whole, and reads the whole weight:
together parts take longer than the product where they fill the device less. A copy pays a hop elsewhere: it goes
straight into another member's memory, as user buffers and symmetric memory do, and starts no communicator
(collectives/transport.py). The gathers that backward repeats, and the reduce-scatters of input gradients, run beside
other products already (order.py) and stay whole. Of several products that read one gathered tensor the first is cut
(PyTorch computes all of them part by part, fuse_all_gather_matmul in torch/_inductor/fx_passes/micro_pipeline_tp.py:
ignored), gradients of weights never: they are sums over all rows, and run behind what is cut (order.py). PyTorch
gathers along sequences, so that what it has gathered lies by tokens first (unflatten in _fused_all_gather_matmul_impl):
gradients of weights read a copy of it. Each member first copies its own part to where the others read it.
Products that cast what they read themselves (fp8_row_mixed) begin behind the whole gather: PyTorch's compiler finds no
gather in front of a product there (pytorch/pytorch, issue 149990). Rows of experts come and go whole. A product whose
parts would be shorter than the shortest kernel is not cut.
Source: torch/distributed/_symmetric_memory in pytorch/pytorch (this file: tp_style=dtensor); user_buffers.py for
Transformer Engine's.
"""

import math
from dataclasses import replace

from rostam_py.costs.kernel_shapes import makes_weight_gradient
from rostam_py.costs.model import KernelCall
from rostam_py.costs.precision import get_precision
from rostam_py.graph import Op
from rostam_py.placement.kernels import Kernel
from rostam_py.placement.megatron.writers.template_context import TemplateContext
from rostam_py.placement.megatron.writers.template_writer import TemplateWriter, portion
from rostam_py.placement.sharding import Gather
from rostam_py.plan.program_rules import DTENSOR
from rostam_py.plan.tasks import KernelTime


class RingWriter(TemplateWriter):
    """A TemplateWriter that cuts products into parts, as PyTorch's compiler cuts those of what it compiles."""

    def __init__(self, context: TemplateContext, phase: str, adds_gradients: bool = False) -> None:
        super().__init__(context, phase, adds_gradients)
        self._steps: list[int] = []  # copies that bring the open kernel's input, part by part
        self._brought = -1  # the task behind which others read that input
        self._scattered: dict[int, int] = {}  # tensor that a cut product has made -> the last copy of its parts
        self._is_forward = False  # the open kernel is, first run or replay
        self._in_parts: set[tuple[Gather, bool]] = set()  # what copies have brought, and no kernel joined

    def _begin(self, kernel: Kernel, is_replay: bool) -> None:
        """Start what brings the input of a kernel that runs in parts."""
        self._is_forward = is_replay or self.phase == "forward"
        self._copy_for_weights(kernel, is_replay)
        self._steps = self._copied_in(kernel, is_replay)

    def _copy_for_weights(self, kernel: Kernel, is_replay: bool) -> None:
        """Copy what parts have brought where a gradient of weights is the first to read it whole, as PyTorch does."""
        context = self.context
        main = context.graph.ops[kernel.ops[0]]
        if context.tp_style != DTENSOR or kernel.is_view or not makes_weight_gradient(main, context.graph):
            return
        for gather in (gather for op in kernel.ops for gather in context.sharding.gathers.get(op, ())):
            key = self._key(gather, is_replay)
            if key in self._in_parts:
                self._in_parts.remove(key)
                self.log.wait_for((), [self._gathers[key]])
                size = context.builder.gathered_bytes(gather, context.sharding.gathered_fraction(gather))
                self._gathers[key] = self.log.move(gather.tensor, "copied together", size, size)

    def _is_cut(self, kernel: Kernel) -> bool:
        """Tell whether a kernel is a product, with what is fused to it, that is long enough and may be cut.

        Gradients of weights are sums over all rows: neither Transformer Engine nor PyTorch cuts those.
        """
        context = self.context
        main = context.graph.ops[kernel.ops[0]]
        part_s = kernel.time.duration_s / context.sharding.degree
        is_long = not kernel.is_view and main.role == "product" and part_s >= context.min_kernel_s
        return is_long and self._may_cut(main) and not makes_weight_gradient(main, context.graph)

    def _may_cut(self, op: Op) -> bool:
        return self.context.builder.rules.is_fused(op)

    def _copied_in(self, kernel: Kernel, is_replay: bool) -> list[int]:
        """Start the copies that bring a product's input and return them; none where it is there, or comes otherwise."""
        sharding = self.context.sharding
        read = [gather for gather in sharding.gathers.get(kernel.ops[0], ()) if not self._is_kept(gather)]
        pending = [gather for gather in read if self._key(gather, is_replay) not in self._gathers]
        casts = get_precision(self.context.builder.rules.precision).casts
        if casts is not None and casts.by_product:
            return []
        if len(pending) != 1 or not self._is_cut(kernel) or len(pending[0].levels) != len(sharding.levels):
            return []
        is_again = pending[0] in sharding.gathers_again.get(kernel.ops[0], ())
        if is_again and self._stays_whole_again():
            return []
        key = self._key(pending[0], is_replay)
        steps = self._copy_round(pending[0])
        self._gathers[key] = self._brought = self._brings(pending[0], steps)
        self._in_parts.add(key)
        return steps

    def _brings(self, gather: Gather, steps: list[int]) -> int:
        """Return the task behind which other products read what some copies bring."""
        return steps[-1]

    def _stays_whole_again(self) -> bool:
        """Tell whether what backward gathers again comes whole."""
        return not self._is_forward

    def _copy_round(self, gather: Gather) -> list[int]:
        """Append the copies of a gather and return them."""
        size = math.ceil(self.context.builder.gathered_bytes(gather, 1 / self.context.sharding.degree))
        if self.context.tp_style == DTENSOR:
            self.log.provider[gather.tensor] = self.log.move(gather.tensor, "own part copied", size, size)
        return self._copies(gather.tensor, size)

    def _copies(self, tensor: int, size: int, suffix: str = "") -> list[int]:
        """Append the copies of so many bytes that bring a tensor's parts."""
        deps, steps = self.log.deps_on([tensor]), self.context.sharding.degree - 1
        name = f"all_gather {self.log.origin(tensor)} {self.phase}{suffix}"
        return [self._copy(name, size, deps, step, steps) for step in range(1, steps + 1)]

    def _copy(self, name: str, size: int, deps: tuple[int, ...], step: int, steps: int) -> int:
        """Append one of several copies; the stream keeps it behind those before."""
        return self.log.message(f"{name} (part {step} of {steps})", "tp", "copy", size, deps)

    def _append_parts(self, kernel: Kernel, halos: list[int], gathered: list[int]) -> None:
        scattered = self._scatters(kernel)
        if not self._steps and scattered is None:
            super()._append_parts(kernel, halos, gathered)
            return
        degree = self.context.sharding.degree
        self.log.wait_for(
            kernel.inputs, halos + [task for task in gathered if task not in (*self._steps, self._brought)]
        )
        self._append_casts(kernel)
        one = self._part_of(self._time_of(kernel), is_scattered=scattered is not None)
        for part in range(degree):
            if part and self._steps:
                self.log.wait_for((), [self._steps[part - 1]])
            self.log.add(self._numbered(one, part + 1, degree))
            if scattered is not None and part < degree - 1:
                self._send_part(scattered, part + 1)

    def _numbered(self, part: KernelTime, number: int, parts: int) -> KernelTime:
        """Return a part with its number in its name."""
        return replace(part, name=f"{part.name} (part {number} of {parts})")

    def _part_of(self, whole: KernelTime, *, is_scattered: bool) -> KernelTime:
        """Return a kernel on one part of its rows, which reads all of the weight again, but no faster than the whole.

        Args: is_scattered: its results are.
        """
        call, degree = whole.call, self.context.sharding.degree
        if call is None or whole.cost is None:
            return portion(whole, 1 / degree, "")
        weight = weight_bytes(call)
        part = replace(
            call, flops=call.flops / degree, batch=call.batch / degree, bytes_written=call.bytes_written / degree,
            bytes_read=weight + (call.bytes_read - weight) / degree,
        )  # fmt: skip
        return no_less_than_share(KernelTime.of(whole.cost, part, whole.name, module=whole.module), whole, degree)

    def _scatters(self, kernel: Kernel) -> int | None:
        """Return what a forward product makes that is reduce-scattered over the whole group, None if nothing is."""
        if not self._is_forward or not self._is_cut(kernel):
            return None
        known, rows = self.context.sharding.comms, self.context.builder.experts.exchanged
        comms = {t: known[t] for t in kernel.outputs if t in known and t not in rows}
        for t, found in comms.items():
            if [(comm.kind, comm.group) for comm in found] == [("reduce_scatter", "tp")]:
                return t
        return None

    def _send_part(self, tensor: int, step: int) -> None:
        """Send the part of a sum that the open segment has just computed to the member that adds it up."""
        degree = self.context.sharding.degree
        size = math.ceil(self.context.builder.part_bytes(tensor, 1 / degree))
        self.log.close()
        name = f"reduce_scatter {self.log.origin(tensor)} {self.phase}"
        self._scattered[tensor] = self._copy(name, size, (len(self.log.tasks) - 1,), step, degree - 1)

    def make_whole(self, tensor: int) -> None:
        """Start the collectives that make a tensor whole; where a cut product's parts have been sent, add them up."""
        if tensor not in self._scattered:
            super().make_whole(tensor)
            return
        self.log.close()
        self.log.provider[tensor] = self._scattered.pop(tensor)
        whole = self.context.builder.part_bytes(tensor, self.context.sharding.collective_fraction(tensor))
        self.log.wait_for((tensor,), [])
        self.log.provider[tensor] = self.log.move(tensor, "parts added", whole, whole / self.context.sharding.degree)


def no_less_than_share(part: KernelTime, whole: KernelTime, parts: int) -> KernelTime:
    """Return one of several parts of a product, as long as its share of the whole at least.

    Parts run one after the other at the power of the whole product; tables time short products on a cooler device,
    so that parts of 16 bits would come out up to 6% faster.
    """
    return part.stretched(max(1.0, whole.duration_s / parts / part.duration_s))


def weight_bytes(call: KernelCall) -> float:
    """Return what a product, or several that are one, reads that does not grow with its samples."""
    products = [op for op in call.ops if op.role == "product"] or [call.ops[0]]
    share = call.flops / sum(op.flops.at(call.batch) for op in products)
    width = get_precision(call.precision).product_bytes / 4
    return min(sum(op.bytes_read.constant for op in products) * share * width, call.bytes_read)
