"""Kernel: one kernel of a sharded graph, and what runs around it."""

from dataclasses import dataclass

from rostam_py.placement.kernel_work import NO_WORK, KernelWork
from rostam_py.plan.tasks import KernelTime


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
