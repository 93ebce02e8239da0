"""Templates of a sip_ml plan: what every device of a group runs and sends, from placed sub-ops.

Tasks are written in one global order, that of the placed nodes: sub-ops by their own place, messages by that
of their first reader. Streams are first-in first-out in that order and every dependency points backwards in
it, so the devices cannot wait for one another in a circle.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rostam_py.placement.sip_ml.algorithm1 import SubOpPlacement, parts_read
from rostam_py.placement.sip_ml.layouts import ALIGNED, ALL, EXCHANGE, SAME_PART
from rostam_py.placement.sip_ml.sub_ops import GRADIENT, KERNEL, Flow, SubOpGraph, SubOps
from rostam_py.placement.sip_ml.window import Window
from rostam_py.plan.tasks import KernelTime, Task

# What 1 Tb/s sends in the 2 us of a message, one launch and one hop (SiP-ML 4.2); placements know no bandwidth.
RING_SLICE_BYTES = 250_000
GROUP, GRADIENT_GROUP = "mp", "mp_gradient"
_Slice = tuple[int, str, int, object]  # node, what of it, its part, which slice of that (None: all of it)


@dataclass(slots=True, kw_only=True)
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

    def run(self, kernel: KernelTime, work: float, needed: set[int]) -> None:
        """Run a kernel in the open segment, or in a new one if it waits for messages no segment awaited yet.

        Args:
            work: the FLOPs that it runs.
            needed: tasks that it waits for.
        """
        fresh = needed - self.awaited
        if fresh:
            self.close()
            self.segment_deps |= fresh
            self.awaited |= fresh
        self.segment.append(kernel)
        self.flops += work

    def close(self) -> int:
        """End the open segment; return its task, which must not be empty, else -1."""
        if not self.segment:
            return -1
        first, last = (kernel.module or kernel.name for kernel in (self.segment[0], self.segment[-1]))
        name = first if last == first else f"{first} to {last}"
        task = Task(kind="compute", name=name, deps=tuple(sorted(self.segment_deps)), kernels=tuple(self.segment))
        self.segment, self.segment_deps = [], set()
        return self.append(task)

    def latest(self, tasks: Iterable[int]) -> tuple[int, ...]:
        """Drop all compute tasks except the last: they run in order."""
        tasks = tuple(tasks)
        if len(tasks) < 2:
            return tasks
        compute = [t for t in tasks if self.tasks[t].kind == "compute"]
        return tuple(sorted({t for t in tasks if self.tasks[t].kind != "compute"} | set(compute and [max(compute)])))


def runs_in_ring(node: SubOps, nodes: Sequence[SubOps], window: Window) -> bool:
    """Tell whether a sum goes round its devices in position order: no window holds them all, nor is it short.

    Model: a ring takes a step for every part, an exchange passed on hop by hop only as many as the window asks for; so
        sums whose slices are sent in less time than a step's latency are exchanged.
    """
    flow = node.flows[0] if len(node.flows) == 1 else None
    if flow is None or not flow.is_sum or window.fits(node.num_parts, nodes[flow.source].num_parts):
        return False
    slice_bytes = flow.num_bytes / (nodes[flow.source].num_parts * node.num_parts)
    return node.kind == GRADIENT or slice_bytes >= RING_SLICE_BYTES


def is_handed_round(node: SubOps, window: Window) -> bool:
    """Tell whether the slices of a gradient go round a ring to all copies of its parameter."""
    return node.is_replicated and not window.fits(node.num_parts, node.num_parts)


def ring_chunk_bytes(node: SubOps, nodes: Sequence[SubOps], num_members: int) -> float:
    """Return the bytes of a node that one step of a ring over so many devices moves, on average."""
    if node.kind == GRADIENT:
        return node.part_bytes * node.num_parts / num_members
    return node.flows[0].num_bytes / nodes[node.flows[0].source].num_parts / num_members


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
    has_replicas: bool,
    optimizers: list[KernelTime | None],
    window: Window | None = None,
) -> GroupTemplates:
    """Return one iteration's tasks of every device of a model-parallel group.

    Model: a device receives a slice once, however many of its sub-ops read it. Gradients fill buckets in the
        order they are made; each bucket is all-reduced with the device's counterparts in the other groups, then
        handed to the devices that hold copies of its parameters; the optimizer runs last. What goes into
        gradients has streams of its own, so that no sub-op waits behind it.
        In a window, what is sent out of range is passed on by the devices in between; sums over more parts than can
        all be in range go round a ring of the devices in position order (``runs_in_ring``), gradients bucket by bucket.
    Args:
        has_replicas: there are other groups to all-reduce with.
        optimizers: of each device.
        window: of the placement.
    Cost: linear in reads x parts^2, about 4 us a message.
    """
    return _Writer(sub_ops.nodes, placed.devices, num_devices, bucket_bytes, has_replicas, window).write(optimizers)


_RingKey = tuple[tuple[int, ...], bool, bool]  # devices, still to be summed, copied to all of them


@dataclass(slots=True)
class _RingBucket:
    """Gradients, as nodes, that go round the same devices together; num_bytes: of all of them."""

    entries: list[int] = field(default_factory=list)
    num_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Gather:
    """A bucket whose chunks are reduced: device -> the tasks after which it has its chunk, and its bytes."""

    label: str
    done: dict[int, tuple[int, ...]]
    chunks: dict[int, int]


@dataclass(frozen=True, slots=True)
class _Sender:
    """What a device sends to each reader. sends, recvs: by the step to a reader, shared by senders that are alike."""

    device: int
    waits: tuple[int, ...]
    num_bytes: int
    sends: dict[int, Task]
    recvs: dict[int, Task]


class _Reader:
    """One flow of the node that is being written: where what it reads lies, and the messages written so far.

    groups: device -> parts there, if every sub-op reads all parts. is_known_later: a slice may be asked for again.
    tasks: equal tasks are one object. senders: what every sub-op gets from each device, where it is alike for all.
    """

    __slots__ = (
        "count", "flow", "group", "groups", "is_known_later", "label", "num_parts", "senders", "tasks", "there",
    )  # fmt: skip

    def __init__(self, flow: Flow, node: SubOps, there: tuple[int, ...], label: str, is_known_later: bool) -> None:
        self.flow, self.num_parts, self.there, self.count = flow, node.num_parts, there, len(there)
        self.label, self.is_known_later = label, is_known_later
        self.group = GRADIENT_GROUP if node.is_gradient else GROUP
        self.groups = _by_device(there, range(self.count)) if flow.relation in (ALL, EXCHANGE) else None
        self.tasks: dict[tuple[object, ...], Task] = {}
        self.senders: list[_Sender] | None = None

    @property
    def is_alike(self) -> bool:
        """Whether every sub-op gets as many bytes from a device as any other, and no slice is asked for again."""
        return self.flow.relation == EXCHANGE and not self.is_known_later

    def groups_of(self, part: int) -> dict[int, list[int]]:
        """Return device -> parts there that sub-op ``part`` reads."""
        if self.groups is not None:
            return self.groups
        return _by_device(self.there, parts_read(self.flow.relation, part, self.num_parts, self.count))

    def slice(self, part: int, source_part: int) -> _Slice:
        """Return what names a slice once it is received: a whole part, or what one sub-op of n reads of it."""
        flow = self.flow
        is_whole = flow.relation in (ALL, SAME_PART) or (flow.relation == ALIGNED and self.count % self.num_parts == 0)
        return flow.source, flow.key, source_part, None if is_whole else (flow.relation, self.num_parts, part)


class _Writer:
    def __init__(
        self, nodes: list[SubOps], where: list[tuple[int, ...]], num_devices: int, bucket_bytes: int,
        has_replicas: bool, window: Window | None,
    ) -> None:  # fmt: skip
        self.nodes, self.where, self.window = nodes, where, window
        self.bucket_bytes, self.has_replicas = bucket_bytes, has_replicas
        self.devices = [_Device() for _ in range(num_devices)]
        self.rings: dict[_RingKey, _RingBucket] = {}
        self.gathers: list[_Gather] = []
        self.num_rings = 0
        self.cuts = self._cuts()
        self.times_read = Counter((flow.source, flow.key) for node in nodes for flow in node.flows)

    def write(self, optimizers: list[KernelTime | None]) -> GroupTemplates:
        for index, node in enumerate(self.nodes):
            if self.window is not None and runs_in_ring(node, self.nodes, self.window):
                if node.kind == GRADIENT:
                    self._fill_ring(index, node)
                else:
                    self._ring_sum(index, node)
                continue
            readers = self._readers(index, node)
            for part, d in enumerate(self.where[index]):
                self._sub_op(index, node, part, d, readers)
            if node.kind == GRADIENT and self.window is not None and is_handed_round(node, self.window):
                self._fill_ring(index, node)
            elif node.kind == GRADIENT:
                for part, d in enumerate(self.where[index]):
                    self._fill_bucket(index, part, d)
        for key in list(self.rings):
            self._reduce_ring(key)
        self._gather_rings()
        for d in range(len(self.devices)):
            self._reduce_bucket(d)
        for device, kernel in zip(self.devices, optimizers, strict=True):
            device.close()
            kernels = () if kernel is None else (kernel,)
            deps = device.latest(sorted(device.finals))
            device.append(Task(kind="compute", name="optimizer", deps=deps, kernels=kernels, is_optimizer=True))
        return GroupTemplates([tuple(device.tasks) for device in self.devices], [d.flops for d in self.devices])

    def _cuts(self) -> set[tuple[int, int]]:
        """Return the (node, part) where a compute task must end: another device, a sum or a gradient reads it."""
        cuts = set()
        for index, node in enumerate(self.nodes):
            here = self.where[index]
            for flow in node.flows:
                there = self.where[flow.source]
                reads_all = flow.relation in (ALL, EXCHANGE)
                for part, d in enumerate(here[:1] if reads_all and len(set(here)) == 1 else here):
                    for i in parts_read(flow.relation, part, node.num_parts, len(there)):
                        if node.kind != KERNEL or there[i] != d:
                            cuts.add((flow.source, i))
        return cuts

    def _readers(self, index: int, node: SubOps) -> list[_Reader]:
        is_spread = len(set(self.where[index])) == node.num_parts
        readers = []
        for number, flow in enumerate(node.flows):
            is_known_later = not is_spread or self.times_read[flow.source, flow.key] > 1 or self._may_pass_on(flow)
            label = f"{self.nodes[flow.source].name}.{index}.{number}"
            readers.append(_Reader(flow, node, self.where[flow.source], label, is_known_later))
        return readers

    def _may_pass_on(self, flow: Flow) -> bool:
        """Tell whether a device that passes a slice on may read it itself."""
        return self.window is not None and flow.relation == ALL

    def _sub_op(self, index: int, node: SubOps, part: int, d: int, readers: list[_Reader]) -> None:
        device = self.devices[d]
        needed: set[int] = set()
        for reader in readers:
            self._read(reader, part, d, needed)
        if node.time is None:
            device.providers[index, part] = device.latest(needed)
            return
        device.run(node.time, node.work.run, {t for t in needed if device.tasks[t].kind != "compute"})
        device.providers[index, part] = (device.close(),) if (index, part) in self.cuts else ()

    def _read(self, reader: _Reader, part: int, d: int, needed: set[int]) -> None:
        """Add the tasks that a sub-op on device ``d`` waits for; write the messages for what is not there yet."""
        if self.window is None and reader.is_alike:
            self._read_alike(reader, d, needed)
            return
        device, source_node = self.devices[d], reader.flow.source
        for source, parts in reader.groups_of(part).items():
            if source == d:
                for i in parts:
                    needed.update(device.providers[source_node, i])
                continue
            if reader.is_known_later:
                known = {i: device.received.get(reader.slice(part, i)) for i in parts}
                needed.update(t for t in known.values() if t is not None)
                parts = [i for i, t in known.items() if t is None]
            if not parts:
                continue
            if self.window is not None and not self.window.holds(source, d):
                needed.update(self._pass_on(reader, part, source, d, parts))
                continue
            size = self._size(reader, part, parts)
            if size <= 0:
                continue
            providers = self.devices[source].providers
            waits = providers[source_node, parts[0]]
            if len(parts) > 1:
                waits = self.devices[source].latest({t for i in parts for t in providers[source_node, i]})
            label = f"{reader.label}.{part}" if reader.is_known_later else reader.label
            recv = self._message(source, d, waits, math.ceil(size - 1e-6), label, reader.group, reader.tasks)
            needed.add(recv)
            if reader.is_known_later:
                device.received.update((reader.slice(part, i), recv) for i in parts)

    def _read_alike(self, reader: _Reader, d: int, needed: set[int]) -> None:
        """Do what ``_read`` does where all sub-ops get as much from a device: millions of messages, nothing to ask."""
        if reader.senders is None:
            reader.senders = self._senders(reader)
        here = self.devices[d].tasks
        first = len(here)
        label, group = reader.label, reader.group
        for sender in reader.senders:
            step = d - sender.device
            if step == 0:
                needed.update(sender.waits)
            if step == 0 or not sender.num_bytes:
                continue
            send, recv = sender.sends.get(step), sender.recvs.get(step)
            if send is None:
                send = sender.sends[step] = Task(
                    kind="send",
                    name=f"send {label}",
                    deps=sender.waits,
                    group=group,
                    num_bytes=sender.num_bytes,
                    channel=label,
                    peer=step,
                )
            if recv is None:
                recv = sender.recvs[step] = Task(
                    kind="recv",
                    name=f"recv {label}",
                    deps=(),
                    group=group,
                    num_bytes=sender.num_bytes,
                    channel=label,
                    peer=-step,
                )
            self.devices[sender.device].tasks.append(send)
            here.append(recv)
        needed.update(range(first, len(here)))

    def _senders(self, reader: _Reader) -> list[_Sender]:
        """Return what every device that has parts sends to each reader."""
        found = []
        alike: dict[tuple[tuple[int, ...], int], dict[int, Task]] = {}
        recvs: dict[int, dict[int, Task]] = {}
        for source, parts in reader.groups_of(0).items():
            size = self._size(reader, 0, parts)
            providers = self.devices[source].providers
            waits = providers[reader.flow.source, parts[0]]
            if len(parts) > 1:
                waits = self.devices[source].latest({t for i in parts for t in providers[reader.flow.source, i]})
            num_bytes = max(1, math.ceil(size - 1e-6)) if size > 0 else 0
            sends = alike.setdefault((waits, num_bytes), {})
            found.append(_Sender(source, waits, num_bytes, sends, recvs.setdefault(num_bytes, {})))
        return found

    @staticmethod
    def _size(reader: _Reader, part: int, parts: Sequence[int]) -> float:
        if len(parts) == 1:
            return reader.flow.pair_bytes(part, reader.num_parts, parts[0], reader.count)
        return sum(reader.flow.pair_bytes(part, reader.num_parts, i, reader.count) for i in parts)

    def _pass_on(self, reader: _Reader, part: int, source: int, d: int, parts: list[int]) -> set[int]:
        """Send what a sub-op on ``d`` reads of parts on ``source`` hop by hop; return the last hop's recvs."""
        providers = self.devices[source].providers
        at, has = source, {i: providers[reader.flow.source, i] for i in parts}
        for there in self.window.path(source, d):  # type: ignore[union-attr]
            received = self.devices[there].received
            arrived: dict[int, tuple[int, ...]] = {}
            if reader.is_known_later:
                arrived = {i: (t,) for i in parts if (t := received.get(reader.slice(part, i))) is not None}
            missing = [i for i in parts if i not in arrived]
            size = self._size(reader, part, missing)
            if size > 0:
                waits = self.devices[at].latest({t for i in missing for t in has[i]})
                label = f"{reader.label}.{part} of {source}"
                recv = self._message(at, there, waits, math.ceil(size - 1e-6), label, reader.group, {})
                arrived.update((i, (recv,)) for i in missing)
                if reader.is_known_later:
                    received.update((reader.slice(part, i), recv) for i in missing)
            at, has = there, {i: arrived.get(i, ()) for i in parts}
        return {t for tasks in has.values() for t in tasks}

    def _message(
        self, source: int, target: int, waits: tuple[int, ...], num_bytes: int, label: str, group: str,
        known: dict[tuple[object, ...], Task],
    ) -> int:  # fmt: skip
        """Write a send on ``source`` and its recv on ``target``; return the recv. known: tasks like these."""
        size, step = max(1, num_bytes), target - source
        key = (waits, size, step, label)
        send = known.get(key)
        if send is None:
            send = known[key] = Task(
                kind="send", name=f"send {label}", deps=waits, group=group, num_bytes=size, channel=label, peer=step
            )
        self.devices[source].append(send)
        there = (size, step, label)
        recv = known.get(there)
        if recv is None:
            recv = known[there] = Task(
                kind="recv", name=f"recv {label}", deps=(), group=group, num_bytes=size, channel=label, peer=-step
            )
        return self.devices[target].append(recv)

    def _carry(self, source: int, target: int, waits: tuple[int, ...], num_bytes: int, label: str, group: str) -> int:
        """Write a message, or one for every hop where its ends are out of range; return the last recv."""
        way = [target] if self.window is None else self.window.path(source, target)
        label = label if len(way) == 1 else f"{label} to {target}"
        for there in way:
            recv = self._message(source, there, waits, num_bytes, label, group, {})
            source, waits = there, (recv,)
        return recv

    # Rings

    def _ring_sum(self, index: int, node: SubOps) -> None:
        """Sum parts round a ring, so that every sub-op of a sum has its slice."""
        (flow,) = node.flows
        there, here = self.where[flow.source], self.where[index]
        own = {
            d: self.devices[d].latest({t for i in parts for t in self.devices[d].providers[flow.source, i]})
            for d, parts in _by_device(there, range(len(there))).items()
        }
        each = flow.num_bytes / (len(there) * node.num_parts)
        chunks = {d: math.ceil(each * len(parts) - 1e-6) for d, parts in _by_device(here, range(len(here))).items()}
        group = GRADIENT_GROUP if node.is_gradient else GROUP
        done = self._reduce_scatter(own, chunks, f"ring {node.name}.{index}", group)
        for part, d in enumerate(here):
            self.devices[d].providers[index, part] = done[d]

    def _reduce_scatter(
        self, own: dict[int, tuple[int, ...]], chunks: dict[int, int], label: str, group: str
    ) -> dict[int, tuple[int, ...]]:
        """Sum chunks round a ring of devices, position after position.

        Args: own: devices with a summand -> the tasks that make it. chunks: devices that get a chunk of the sum -> its
            bytes.
        Returns: device -> tasks after which it has its chunk.
        """
        members = sorted({*own, *chunks})
        place = {d: r for r, d in enumerate(members)}
        count = len(members)
        # A chunk begins at the first device after its own that has a summand.
        ways = {}
        for d in chunks:
            order = [members[(place[d] + 1 + step) % count] for step in range(count)]
            ways[d] = [m for m in order if m in own or m == d]
        last: dict[int, int] = {}
        for step in range(count - 1):
            for d, way in ways.items():
                if step + 1 < len(way):
                    here, there = way[step], way[step + 1]
                    waits = set(own.get(here, ())) | ({last[d]} if d in last else set())
                    sent = self.devices[here].latest(waits)
                    last[d] = self._carry(here, there, sent, chunks[d], f"{label} for {d}.{step}", group)
        return {
            d: self.devices[d].latest({*own.get(d, ()), *([last[d]] if d in last else [])}) for d in chunks
        }  # fmt: skip

    def _fill_ring(self, index: int, node: SubOps) -> None:
        """Add a parameter's gradient, summed or yet to be summed, to the bucket that goes round its devices."""
        flow = node.flows[0]
        is_sum = runs_in_ring(node, self.nodes, self.window)  # type: ignore[arg-type]
        there = self.where[flow.source] if is_sum else ()
        key = tuple(sorted({*there, *self.where[index]})), is_sum, node.is_replicated
        bucket = self.rings.setdefault(key, _RingBucket())
        bucket.entries.append(index)
        bucket.num_bytes += node.part_bytes * node.num_parts
        if bucket.num_bytes >= self.bucket_bytes:
            self._reduce_ring(key)

    def _reduce_ring(self, key: _RingKey) -> None:
        """Sum a bucket of gradients round its devices, all-reduce every device's chunk with the other groups."""
        bucket, (_, is_sum, is_replicated) = self.rings.pop(key), key
        own: dict[int, set[int]] = {}
        chunks: dict[int, int] = {}
        for index in bucket.entries:
            node, flow = self.nodes[index], self.nodes[index].flows[0]
            source, parts = (flow.source, self.where[flow.source]) if is_sum else (index, self.where[index])
            for i, d in enumerate(parts):
                own.setdefault(d, set()).update(self.devices[d].providers[source, i])
            for d in self.where[index]:
                chunks[d] = chunks.get(d, 0) + node.part_bytes
        label = f"ring {self.num_rings}"
        self.num_rings += 1
        made = {d: self.devices[d].latest(tasks) for d, tasks in own.items()}
        done: dict[int, tuple[int, ...]] = made
        if is_sum:
            done = self._reduce_scatter(made, chunks, label, GRADIENT_GROUP)
        self._gather_rings()  # of the bucket before, whose all-reduce took its time meanwhile
        for d, tasks in done.items():
            if self.has_replicas:
                task = Task(
                    kind="collective", name=label, deps=tasks, group="dp", collective="all_reduce", num_bytes=chunks[d]
                )
                done[d] = (self.devices[d].append(task),)
            self.devices[d].finals.update(done[d])
        if is_replicated:
            self.gathers.append(_Gather(label, done, chunks))

    def _gather_rings(self) -> None:
        """Hand the chunks of reduced buckets round their devices, all of which hold copies of the parameters."""
        for gather in self.gathers:
            members = sorted(gather.chunks)
            has: dict[int, tuple[int, ...]] = dict(gather.done)
            for step in range(len(members) - 1):
                sent: dict[int, tuple[int, ...]] = {}
                for r, here in enumerate(members):
                    there, owner = members[(r + 1) % len(members)], members[(r - step) % len(members)]
                    label = f"{gather.label} from {owner}.{step}"
                    recv = self._carry(here, there, has[here], gather.chunks[owner], label, GRADIENT_GROUP)
                    sent[there] = (recv,)
                    self.devices[there].finals.add(recv)
                has = sent
        self.gathers = []

    # Gradients

    def _fill_bucket(self, index: int, part: int, d: int) -> None:
        device = self.devices[d]
        device.bucket.append((index, part))
        device.bucket_bytes += self.nodes[index].part_bytes
        if device.bucket_bytes >= self.bucket_bytes:
            self._reduce_bucket(d)

    def _reduce_bucket(self, d: int) -> None:
        """All-reduce the bucket with the other groups, then hand it to the devices with copies of its parameters."""
        device = self.devices[d]
        if not device.bucket:
            return
        deps = {t for item in device.bucket for t in device.providers[item]}
        if self.has_replicas:
            name = f"gradients.{device.num_buckets}"
            waits = device.latest(sorted(deps))
            task = Task(
                kind="collective",
                name=name,
                deps=waits,
                group="dp",
                collective="all_reduce",
                num_bytes=device.bucket_bytes,
            )
            deps = {device.append(task)}
        device.finals |= deps
        copies: dict[int, int] = {}
        for index, _ in device.bucket:
            if self.nodes[index].is_replicated:
                for other in sorted(set(self.where[index]) - {d}):
                    copies[other] = copies.get(other, 0) + self.nodes[index].part_bytes
        waits = device.latest(deps)
        for other, size in copies.items():
            label = f"gradients.{d}.{device.num_buckets}"
            recv = self._carry(d, other, waits, size, label, GRADIENT_GROUP)
            self.devices[other].finals.add(recv)
        device.bucket, device.bucket_bytes = [], 0
        device.num_buckets += 1


def _by_device(there: tuple[int, ...], parts: Iterable[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for i in parts:
        found.setdefault(there[i], []).append(i)
    return found
