"""Templates in which products run beside the collectives of their tensor-parallel group (TP overlap).

Model: under sequence parallelism a product that reads what is gathered, and one whose result is reduce-scattered, run
in as many parts as the group has members t. An all-gather becomes t - 1 copies of a part round the ring: the product
begins with the part that is there and takes each as it comes. A reduce-scatter becomes t - 1 copies of a part's sums,
each behind the product's part that adds to them. Bytes are those of a ring. A part takes what a product of so few
rows takes, and reads the whole weight: together parts take longer than the product where they fill the device less.
Where they do not, and links cost nothing to start, nothing ends later than with ring algorithms and whole products. A
copy pays a hop elsewhere: it goes straight into the next member's memory, as userbuffers and symmetric memory do, and
starts no communicator (collectives/transport.py). The gathers that backward repeats, and the reduce-scatters of input
gradients, run beside other products already (order.py) and stay whole, as in Megatron. Of several products that read
one gathered tensor the first is cut. Products that cast what they read themselves (fp8_row_mixed) begin behind the
whole gather: PyTorch's compiler finds no gather in front of a product there (pytorch/pytorch, issue 149990). Rows of
experts come and go whole. A product whose parts would be shorter than the shortest kernel is not.
Source: own, after Megatron-Core's tp_comm_overlap (Transformer Engine's userbuffers); test_tp_overlap.py.
"""

import math
from dataclasses import replace

from rostam_py.costs.precision import get_precision
from rostam_py.placement.kernels import Kernel
from rostam_py.placement.megatron.template_writer import TemplateContext, TemplateWriter, portion
from rostam_py.plan.strategy import DTENSOR, MCORE
from rostam_py.plan.tasks import KernelTime


class RingWriter(TemplateWriter):
    """A TemplateWriter that cuts products into parts."""

    def __init__(self, context: TemplateContext, phase: str, adds_gradients: bool = False) -> None:
        super().__init__(context, phase, adds_gradients)
        self._steps: list[int] = []  # copies that bring the open kernel's input, part by part
        self._scattered: dict[int, int] = {}  # tensor that a cut product has made -> the last copy of its sums
        self._is_forward = False  # the open kernel is, first run or replay

    def run(self, kernel: Kernel, is_replay: bool = False) -> None:
        """Run a kernel, in parts if it is a product, then the collectives its outputs ask for."""
        self._is_forward = is_replay or self.phase == "forward"
        self._steps = self._copied_in(kernel, is_replay)
        super().run(kernel, is_replay)

    def _is_cut(self, kernel: Kernel) -> bool:
        """Tell whether a kernel is a product, with what is fused to it, that is long enough.

        PyTorch's compiler cuts those of what it compiles.
        """
        context = self.context
        main = context.graph.ops[kernel.ops[0]]
        if context.tp_style == DTENSOR and not context.builder.is_fused(main):
            return False
        part_s = kernel.time.duration_s / context.sharding.degree
        return not kernel.is_view and main.role == "product" and part_s >= context.min_kernel_s

    def _copied_in(self, kernel: Kernel, is_replay: bool) -> list[int]:
        """Start the copies that bring a product's input and return them; none where it is there, or comes otherwise."""
        sharding = self.context.sharding
        read = [gather for gather in sharding.gathers.get(kernel.ops[0], ()) if not self._is_kept(gather)]
        pending = [gather for gather in read if self._key(gather, is_replay) not in self._gathers]
        casts = get_precision(self.context.builder.precision).casts
        if casts is not None and casts.by_product:
            return []
        if len(pending) != 1 or not self._is_cut(kernel) or len(pending[0].levels) != len(sharding.levels):
            return []
        is_again = pending[0] in sharding.gathers_again.get(kernel.ops[0], ())
        if is_again and (self.context.tp_style == MCORE or not self._is_forward):
            return []
        tensor = pending[0].tensor
        deps = self._deps_on([tensor])
        size = math.ceil(self.context.builder.gathered_bytes(pending[0], 1 / sharding.degree))
        name = f"all_gather {self._origin(tensor)} {self.phase}"
        steps = [self._copy(name, size, deps, step) for step in range(1, sharding.degree)]
        self._gathers[self._key(pending[0], is_replay)] = steps[-1]
        return steps

    def _copy(self, name: str, size: int, deps: tuple[int, ...], step: int) -> int:
        """Append one step round the ring; the stream keeps it behind the steps before."""
        label = f"{name} (part {step} of {self.context.sharding.degree - 1})"
        return self.message(label, "tp", "copy", size, deps)

    def _append_parts(self, kernel: Kernel, halos: list[int], gathered: list[int]) -> None:
        scattered = self._scatters(kernel)
        if not self._steps and scattered is None:
            super()._append_parts(kernel, halos, gathered)
            return
        degree = self.context.sharding.degree
        self._await(kernel.inputs, halos + [task for task in gathered if task not in self._steps])
        self._append_casts(kernel)
        one = self._part_of(self._time_of(kernel))
        for part in range(degree):
            if part and self._steps:
                self._await((), [self._steps[part - 1]])
            self._segment.append(replace(one, name=f"{one.name} (part {part + 1} of {degree})"))
            if scattered is not None and part < degree - 1:
                self._send_sums(scattered, part + 1)

    def _part_of(self, whole: KernelTime) -> KernelTime:
        """Return a kernel on one part of its rows, as its cost model times it: all of its weight is read again."""
        call, degree = whole.call, self.context.sharding.degree
        if call is None or whole.cost is None:
            return portion(whole, 1 / degree, "")
        main = call.ops[0]
        share = call.flops / main.flops.at(call.batch) * get_precision(call.precision).tensor_bytes / 4
        weight = min(main.bytes_read.constant * share, call.bytes_read)
        part = replace(
            call, flops=call.flops / degree, batch=call.batch / degree, bytes_written=call.bytes_written / degree,
            bytes_read=weight + (call.bytes_read - weight) / degree,
        )  # fmt: skip
        return KernelTime.of(whole.cost, part, whole.name)

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

    def _send_sums(self, tensor: int, step: int) -> None:
        """Send the sums of a part that the open segment has just computed to the next member."""
        size = math.ceil(self.context.builder.part_bytes(tensor, 1 / self.context.sharding.degree))
        self.close()
        name = f"reduce_scatter {self._origin(tensor)} {self.phase}"
        self._scattered[tensor] = self._copy(name, size, (len(self.tasks) - 1,), step)

    def make_whole(self, tensor: int) -> None:
        """Start the collectives that make a tensor whole, unless a ring of partial sums does."""
        if tensor not in self._scattered:
            super().make_whole(tensor)
            return
        self.close()
        self._provider[tensor] = self._scattered.pop(tensor)
        if self.context.tp_style == DTENSOR:  # all parts of the sums have come, and a kernel adds them up
            whole = self.context.builder.part_bytes(tensor, self.context.sharding.collective_fraction(tensor))
            self._await((tensor,), [])
            self._provider[tensor] = self._move(tensor, "parts added", whole, whole / self.context.sharding.degree)
