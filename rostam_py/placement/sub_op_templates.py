"""Templates of a sip_ml plan: what every device of a group runs and sends, from placed sub-ops.

Tasks are written in one global order, that of the placed nodes: sub-ops by their own place, messages by that
of their first reader. Streams are first-in first-out in that order and every dependency points backwards in
it, so the devices cannot wait for one another in a circle.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from rostam_py.placement.algorithm1 import SubOpPlacement, parts_read
from rostam_py.placement.plan import KernelTime, Task
from rostam_py.placement.sub_ops import GRADIENT, KERNEL, Flow, SubOpGraph, SubOps

AXIS, GRADIENT_AXIS = "mp", "mp_gradient"
_Slice = tuple[int, str, int, object]  # node, what of it, its part, which slice of that (None: all of it)


@dataclass(slots=True)
class _Device:
    """One device's template while it is written.

    segment: kernels of the compute task that is open, and the messages it waits for. providers: (node, part)
    -> tasks after which others may have it. received: what came from other devices -> its recv task.
    bucket: gradient slices not yet reduced. finals: what the optimizer waits for.
    """

    tasks: list[Task] = field(default_factory=list)
    segment: list[KernelTime] = field(default_factory=list)
    segment_deps: set[int] = field(default_factory=set)
    awaited: set[int] = field(default_factory=set)
    providers: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    received: dict[_Slice, int] = field(default_factory=dict)
    bucket: list[tuple[int, int]] = field(default_factory=list)
    bucket_bytes: int = 0
    num_buckets: int = 0
    finals: set[int] = field(default_factory=set)
    flops: float = 0.0

    def append(self, task: Task) -> int:
        """Add a task; return its index."""
        self.tasks.append(task)
        return len(self.tasks) - 1

    def run(self, kernel: KernelTime, needed: set[int]) -> None:
        """Run a kernel in the open segment, or in a new one if it waits for messages no segment awaited yet."""
        fresh = needed - self.awaited
        if fresh:
            self.close()
            self.segment_deps |= fresh
            self.awaited |= fresh
        self.segment.append(kernel)
        self.flops += kernel.flops

    def close(self) -> int:
        """End the open segment; return its task, which must not be empty, else -1."""
        if not self.segment:
            return -1
        first, last = (kernel.module or kernel.name for kernel in (self.segment[0], self.segment[-1]))
        name = first if last == first else f"{first} to {last}"
        task = Task("compute", name, tuple(sorted(self.segment_deps)), kernels=tuple(self.segment))
        self.segment, self.segment_deps = [], set()
        return self.append(task)

    def latest(self, tasks: Iterable[int]) -> tuple[int, ...]:
        """Drop all compute tasks but the last: they run in order."""
        compute = [t for t in tasks if self.tasks[t].kind == "compute"]
        return tuple(sorted({t for t in tasks if self.tasks[t].kind != "compute"} | set(compute and [max(compute)])))


@dataclass(frozen=True, slots=True)
class GroupTemplates:
    """tasks: of each device of the group. flops: each computes in one iteration, without the optimizer."""

    tasks: list[tuple[Task, ...]]
    flops: list[float]


def write_templates(
    sub_ops: SubOpGraph,
    placed: SubOpPlacement,
    num_devices: int,
    bucket_bytes: int,
    optimizers: list[KernelTime | None],
) -> GroupTemplates:
    """Return one iteration's tasks of every device of a model-parallel group.

    Model: a device receives a slice once, however many of its sub-ops read it. Gradients fill buckets in the
        order they are made; each bucket is all-reduced with the device's counterparts in the other groups, then
        handed to the devices that hold copies of its parameters; the optimizer runs last. What goes into
        gradients has streams of its own, so that no sub-op waits behind it.
    Args: bucket_bytes: 0 without data parallelism. optimizers: of each device.
    Cost: linear in reads x parts^2.
    """
    return _Writer(sub_ops.nodes, placed.devices, num_devices, bucket_bytes).write(optimizers)


class _Writer:
    def __init__(self, nodes: list[SubOps], where: list[tuple[int, ...]], num_devices: int, bucket_bytes: int) -> None:
        self.nodes, self.where, self.bucket_bytes = nodes, where, bucket_bytes
        self.devices = [_Device() for _ in range(num_devices)]
        self.cuts = self._cuts()

    def write(self, optimizers: list[KernelTime | None]) -> GroupTemplates:
        for index, node in enumerate(self.nodes):
            for part, d in enumerate(self.where[index]):
                self._sub_op(index, node, part, self.devices[d])
            if node.kind == GRADIENT:
                for part, d in enumerate(self.where[index]):
                    self._fill_bucket(index, part, d)
        for d in range(len(self.devices)):
            self._reduce_bucket(d)
        for device, kernel in zip(self.devices, optimizers, strict=True):
            device.close()
            kernels = () if kernel is None else (kernel,)
            deps = device.latest(sorted(device.finals))
            device.append(Task("compute", "optimizer", deps, kernels=kernels, is_optimizer=True))
        return GroupTemplates([tuple(device.tasks) for device in self.devices], [d.flops for d in self.devices])

    def _cuts(self) -> set[tuple[int, int]]:
        """Return the (node, part) where a compute task must end: another device, a sum or a gradient reads it."""
        cuts = set()
        for index, node in enumerate(self.nodes):
            for flow in node.flows:
                there = self.where[flow.source]
                for part, d in enumerate(self.where[index]):
                    for i in parts_read(flow.relation, part, node.num_parts, len(there)):
                        if node.kind != KERNEL or there[i] != d:
                            cuts.add((flow.source, i))
        return cuts

    def _sub_op(self, index: int, node: SubOps, part: int, device: _Device) -> None:
        needed = self._inputs(index, node, part, device)
        if node.time is None:
            device.providers[index, part] = device.latest(needed)
            return
        device.run(node.time, {t for t in needed if device.tasks[t].kind != "compute"})
        device.providers[index, part] = (device.close(),) if (index, part) in self.cuts else ()

    def _inputs(self, index: int, node: SubOps, part: int, device: _Device) -> set[int]:
        """Return the tasks that a sub-op waits for on its device, with the messages for what it lacks written."""
        needed: set[int] = set()
        d = self.where[index][part]
        for number, flow in enumerate(node.flows):
            there = self.where[flow.source]
            missing: dict[int, list[int]] = {}
            for i in parts_read(flow.relation, part, node.num_parts, len(there)):
                if there[i] == d:
                    needed.update(device.providers[flow.source, i])
                    continue
                known = device.received.get(_slice(flow, node.num_parts, len(there), part, i))
                if known is None:
                    missing.setdefault(there[i], []).append(i)
                else:
                    needed.add(known)
            for source, parts in missing.items():
                size = sum(flow.pair_bytes(part, node.num_parts, i, len(there)) for i in parts)
                if size <= 0:
                    continue
                deps = {t for i in parts for t in self.devices[source].providers[flow.source, i]}
                label = f"{self.nodes[flow.source].name}.{index}.{number}.{part}"
                axis = GRADIENT_AXIS if node.is_gradient else AXIS
                recv = self._message(source, d, deps, math.ceil(size - 1e-6), label, axis)
                needed.add(recv)
                for i in parts:
                    device.received[_slice(flow, node.num_parts, len(there), part, i)] = recv
        return needed

    def _message(self, source: int, target: int, deps: set[int], num_bytes: int, label: str, axis: str) -> int:
        """Write a send on ``source`` and its recv on ``target``; return the recv."""
        sender, receiver = self.devices[source], self.devices[target]
        size = max(1, num_bytes)
        waits = sender.latest(sorted(deps))
        step = target - source
        sender.append(Task("send", f"send {label}", waits, axis, num_bytes=size, tensor=label, stage_offset=step))
        return receiver.append(
            Task("recv", f"recv {label}", (), axis, num_bytes=size, tensor=label, stage_offset=-step)
        )

    # Gradients

    def _fill_bucket(self, index: int, part: int, d: int) -> None:
        device = self.devices[d]
        device.bucket.append((index, part))
        device.bucket_bytes += self.nodes[index].part_bytes
        if self.bucket_bytes and device.bucket_bytes >= self.bucket_bytes:
            self._reduce_bucket(d)

    def _reduce_bucket(self, d: int) -> None:
        """All-reduce the bucket with the other groups, then hand it to the devices with copies of its parameters."""
        device = self.devices[d]
        if not device.bucket:
            return
        deps = {t for item in device.bucket for t in device.providers[item]}
        if self.bucket_bytes:
            name = f"gradients.{device.num_buckets}"
            waits = device.latest(sorted(deps))
            task = Task("collective", name, waits, "dp", collective="all_reduce", num_bytes=device.bucket_bytes)
            deps = {device.append(task)}
        device.finals |= deps
        copies: dict[int, int] = {}
        for index, _ in device.bucket:
            if self.nodes[index].is_replicated:
                for other in sorted(set(self.where[index]) - {d}):
                    copies[other] = copies.get(other, 0) + self.nodes[index].part_bytes
        for other, size in copies.items():
            recv = self._message(d, other, deps, size, f"gradients.{d}.{device.num_buckets}", GRADIENT_AXIS)
            self.devices[other].finals.add(recv)
        device.bucket, device.bucket_bytes = [], 0
        device.num_buckets += 1


def _slice(flow: Flow, num_parts: int, num_source_parts: int, part: int, source_part: int) -> _Slice:
    """Return what names a slice once it has been received: a whole part, or what one sub-op of n reads of it."""
    is_whole = flow.relation in ("all", "same_part") or (flow.relation == "aligned" and num_parts <= num_source_parts)
    which = None if is_whole else (flow.relation, num_parts, part)
    return flow.source, flow.key, source_part, which
