"""TemplateWriter: run kernels in order, and append the collectives of a tensor-parallel group as they are whole.

Others of these writers (ring_writer, user_buffers) run kernels in parts and replace some of the collectives.

Example:
    writer = TemplateWriter(context, "forward")
    writer.run(kernel)
    writer.log.tasks
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from rostam_py.placement.kernel import Kernel
from rostam_py.placement.kernel_work import NO_WORK
from rostam_py.placement.megatron.op_steps import OpStep
from rostam_py.placement.megatron.writers.row_exchange import RowExchange
from rostam_py.placement.megatron.writers.task_log import TaskLog
from rostam_py.placement.megatron.writers.template_context import TemplateContext
from rostam_py.placement.sharding import Gather, HaloExchange
from rostam_py.plan.phases import FORWARD, FULL
from rostam_py.plan.program_rules import DTENSOR, MCORE
from rostam_py.plan.tasks import KernelTime


class TemplateWriter:
    """Append a template's kernels to its log, each behind what it reads, then the collectives of what it makes.

    Args: adds_gradients: kernels add gradients of parameters to what is there.
    """

    def __init__(self, context: TemplateContext, phase: str, adds_gradients: bool = False) -> None:
        self.context, self.phase, self.adds_gradients = context, phase, adds_gradients
        self.log, self.work = TaskLog(context, phase), NO_WORK
        self._rows = RowExchange(self.log)
        self._gathers: dict[tuple[Gather, bool], int] = {}  # (gather, whether for a replay) -> its task
        self._halos: dict[int, int] = {}  # tensor -> task after which a member has its halo

    def run(self, kernel: Kernel, is_replay: bool = False) -> None:
        """Run a kernel, then the collectives its outputs ask for."""
        graph, sharding = self.context.graph, self.context.sharding
        self._agree_on_largest(kernel)
        self._begin(kernel, is_replay)
        if self.context.tp_style == MCORE:
            for gather in _listed(sharding.gathers_again, kernel):
                self._gather(gather, (gather.tensor, *kernel.inputs), is_replay)
        missing = (gather for gather in _listed(sharding.gathers, kernel) if not self._is_kept(gather))
        gathered = [self._gather(gather, (gather.tensor,), is_replay) for gather in missing]
        steps = [] if self.context.exchange is None else self.context.exchange.steps(kernel)
        if kernel.is_view:
            known = gathered + [self.log.provider[t] for t in kernel.inputs if t in self.log.provider]
            if not known:
                return
            self.log.provide(kernel.outputs, max(known))
        else:
            halos = [self._halo(halo) for index in kernel.ops for halo in sharding.halo_exchanges(index)]
            if steps:
                self.log.wait_for((), gathered)
                self._append_casts(kernel)
                self._run_steps(kernel, steps)
            else:
                self._append_kernel(kernel, halos, gathered)
                self.log.provide(kernel.outputs, self.log.open_task)
            self.work += kernel.work.again if is_replay else kernel.work
        for index in kernel.ops:
            for comm, size in sharding.inner_comms(index):
                op = graph.ops[index]
                name = f"{comm.kind} {op.module or op.name} {self.phase} (inside the op)"
                deps = self.log.deps_on(kernel.outputs)
                task = self.log.collective(name, comm.group, comm.kind, math.ceil(size), deps)
                self.log.provide(kernel.outputs, task)
        exchanged = self.context.builder.experts.exchanged
        for t in kernel.outputs:
            is_first = self._rows.is_before_gather(t)
            if is_first:
                self._rows.exchange(t)
            if t in sharding.comms and (t not in self.context.late or self.phase == FULL):
                self.make_whole(t)
            if t in exchanged and not is_first:
                self._rows.exchange(t)

    def _gather(self, gather: Gather, behind: tuple[int, ...], is_replay: bool) -> int:
        """Gather a tensor behind others unless that is done, and return the task that brings it."""
        key = self._key(gather, is_replay)
        if key not in self._gathers:
            context = self.context
            size = math.ceil(self._gathered_bytes(gather, context.sharding.gathered_fraction(gather)))
            name = f"all_gather {self.log.origin(gather.tensor)} {self.phase}"
            group = context.sharding.group(gather.levels)
            self._gathers[key] = self.log.collective(name, group, "all_gather", size, self.log.deps_on(behind))
            if context.tp_style == DTENSOR:
                self.log.wait_for((), [self._gathers[key]])
                self._gathers[key] = self.log.move(gather.tensor, "copied together", size, size)
        return self._gathers[key]

    def _gathered_bytes(self, gather: Gather, share: float) -> float:
        """Return the bytes of a share of what a collective gathers."""
        return self.context.builder.gathered_bytes(gather, share)

    def _key(self, gather: Gather, is_replay: bool) -> tuple[Gather, bool]:
        """Return what tells gathers apart: what a replay has gathered serves weight gradients as well in PyTorch."""
        return gather, is_replay and self.context.tp_style == MCORE

    def _is_kept(self, gather: Gather) -> bool:
        """Tell whether what is gathered lies there since forward."""
        return self.phase != FORWARD and gather.tensor in self.context.kept_whole

    def _run_steps(self, kernel: Kernel, steps: list[OpStep]) -> None:
        """Append the steps of an op in their order."""
        ends: list[int] = []
        for step in steps:
            needed = {ends[place] for place in step.after}
            if step.time is not None:
                self.log.wait_for(step.reads, sorted(needed))
                self.log.add(step.time)
                ends.append(self.log.open_task)
            else:
                if self.log.open_task in needed:
                    self.log.close()
                deps = tuple(sorted({*needed, *self.log.deps_on(step.reads)}))
                name = f"{step.name} {kernel.time.module or kernel.time.name} {self.phase}"
                ends.append(self.log.collective(name, step.group, step.collective, step.num_bytes, deps))
            self.log.provide(step.makes, ends[-1])

    def _append_kernel(self, kernel: Kernel, halos: list[int], gathered: list[int]) -> None:
        """Append a kernel behind what it reads, and what adds the gradients that it makes to those before."""
        self._append_parts(kernel, halos, gathered)
        if self.adds_gradients:
            self.log.add(*kernel.adds)

    def _append_parts(self, kernel: Kernel, halos: list[int], gathered: list[int]) -> None:
        """Append a kernel behind what it reads; if it is several, what needs no halo during the exchange.

        Each lasts at least as long as the shortest kernel does, else all of it waits.
        """
        self.log.wait_for((), gathered)
        self._append_casts(kernel)
        share = 1.0
        if halos and self.context.is_tp_asynchronous:
            share = self.context.sharding.waiting_share(self.context.graph.ops[kernel.ops[0]])
        time = self._time_of(kernel)
        if share == 1 or time.duration_s * min(share, 1 - share) < self.context.min_kernel_s:
            self.log.wait_for(kernel.inputs, halos)
            self.log.add(time)
            return
        free, waiting = portion(time, 1 - share, "without halo"), portion(time, share, "with halo")
        self.log.wait_for(kernel.inputs, [])
        self.log.add(free)
        self.log.wait_for((), halos)
        self.log.add(waiting)

    def _append_casts(self, kernel: Kernel) -> None:
        """Append the casts of what a kernel is the first to read."""
        if kernel.casts:
            self.log.wait_for(kernel.inputs, [])
            self.log.add(*kernel.casts)

    def _begin(self, kernel: Kernel, is_replay: bool) -> None:
        """Do what a kernel begins with in front of what it gathers: nothing here."""

    def _agree_on_largest(self, kernel: Kernel) -> None:
        """Let members agree on the largest values of what a kernel's inputs are cast by, as DTensors do."""
        is_of_dtensors = bool(kernel.largest) and self.context.tp_style == DTENSOR
        for group in self.context.sharding.groups if is_of_dtensors else ():
            for size in kernel.largest:
                name = f"all_reduce largest of {kernel.time.module or kernel.time.name} {self.phase}"
                self.log.collective(name, group, "all_reduce", size, self.log.deps_on(kernel.inputs))

    def _time_of(self, kernel: Kernel) -> KernelTime:
        """Return a kernel's time, with what adding gradients to those that are there takes."""
        return kernel.adding_time if self.adds_gradients and kernel.adding_time is not None else kernel.time

    def _halo(self, halo: HaloExchange) -> int:
        """Exchange a halo unless that is done, and return the task that brings it: the same both ways, then the rest.

        The first and the last member exchange with one neighbour.
        """
        if halo.tensor not in self._halos:
            deps = self.log.deps_on([halo.tensor])
            name = f"halo {self.log.origin(halo.tensor)} {self.phase}"
            before, after = (
                math.ceil(self.context.builder.part_bytes(halo.tensor, share) - 1e-6)
                for share in (halo.before, halo.after)
            )
            both, rest = min(before, after), before - after
            messages = (("halo", 2 * both), ("halo_up", max(0, rest)), ("halo_down", max(0, -rest)))
            for kind, size in messages:
                if size:
                    self._halos[halo.tensor] = self.log.collective(name, halo.group, kind, size, deps)
        return self._halos[halo.tensor]

    def make_whole(self, tensor: int) -> None:
        """Start the collectives that make a tensor whole."""
        whole = self.context.builder.part_bytes(tensor, self.context.sharding.collective_fraction(tensor))
        size = math.ceil(whole * self._rows.sent(tensor) - 1e-6)
        for comm in self.context.sharding.comms[tensor]:
            if comm.kind == "reduce_scatter" and self._is_copied_apart(tensor):
                self.log.wait_for((tensor,), [])
                self.log.provider[tensor] = self.log.move(tensor, "copied apart", size, size)
            deps = self.log.deps_on([tensor])
            name = f"{comm.kind} {self.log.origin(tensor)} {self.phase}"
            self.log.provider[tensor] = self.log.collective(name, comm.group, comm.kind, size, deps)

    def _is_copied_apart(self, tensor: int) -> bool:
        """Tell whether a kernel of its own copies what is reduce-scattered along sequences inside the batch.

        Model: where kernels are fused, one that makes it element by element writes it so.
        """
        if self.context.tp_style != DTENSOR:
            return False
        producer = self.context.graph.tensors[tensor].producer
        op = None if producer is None else self.context.graph.ops[producer]
        return op is None or not (op.is_elementwise and self.context.builder.rules.is_fused(op))


def _listed(by_op: Mapping[int, tuple[Gather, ...]], kernel: Kernel) -> list[Gather]:
    return [gather for op in kernel.ops for gather in by_op.get(op, ())] if by_op else []


def portion(time: KernelTime, share: float, which: str) -> KernelTime:
    """Return a part of a kernel's time and work."""
    return replace(time, name=f"{time.name} ({which})", duration_s=time.duration_s * share, flops=time.flops * share)
