"""Estimate of plans that the "sip_ml" placer made: their sub-ops retimed with the messages between them.

Algorithm 1 takes communication as free (MODEL D14). Here the same sub-ops run on the same devices in the same
order, and what one reads from another device comes alpha + bytes / rate after it was made. On circuits the rate is
the circuit's; elsewhere a device sends one burst after the other at its injection rate, divided by how much
slower the fullest link of the route is when every pair sends all of an iteration at once. Ignores that bursts of
several devices meet on a link at some times and not at others. In a window, messages take their hops one after
another, and a ring's steps take as long as the slowest of its links.

Legend: k = devices of a group; a burst is what one node reads from another; a leg is one hop of its messages.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from rostam_py.collectives.group_costs import pair_costs
from rostam_py.errors import InternalError
from rostam_py.fabrics.fabric import Fabric
from rostam_py.placement.axis_costs import ALL_STAGES, AxisCosts
from rostam_py.placement.placer import Estimate
from rostam_py.placement.sip_ml.algorithm1 import parts_read
from rostam_py.placement.sip_ml.group import GroupPlacement
from rostam_py.placement.sip_ml.layouts import ALL, EXCHANGE
from rostam_py.placement.sip_ml.sub_op_templates import is_handed_round, ring_chunk_bytes, runs_in_ring
from rostam_py.placement.sip_ml.sub_ops import GRADIENT, Flow, SubOps
from rostam_py.plan import Plan
from rostam_py.plan.work import launch_bound_s


@dataclass(frozen=True, slots=True)
class _Legs:
    """One hop of a burst's messages, as arrays. src, dst: devices. num_bytes: of each.

    came: of the first hop the source node's part, of others the leg of the hop before.
    """

    came: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    num_bytes: np.ndarray
    out_bytes: np.ndarray
    in_bytes: np.ndarray


@dataclass(frozen=True, slots=True)
class _Burst:
    """Messages from one node's parts to another's.

    source: node. same: an earlier burst that carries the same, -1 for none. legs: by hop. last_hop, last_leg: with
    which each message arrives, sorted by reader. first: where each distinct reader's messages begin, ``readers`` which.
    local_part, local_reader: pairs on one device.
    """

    source: int
    same: int
    legs: tuple[_Legs, ...]
    last_hop: np.ndarray
    last_leg: np.ndarray
    first: np.ndarray
    readers: np.ndarray
    local_part: np.ndarray
    local_reader: np.ndarray


@dataclass(frozen=True, slots=True)
class _Ring:
    """Devices of a ring in position order, and their links: (src, dst) of every hop from one to the next."""

    members: np.ndarray
    src: np.ndarray
    dst: np.ndarray


@dataclass(frozen=True, slots=True)
class CompiledGroup:
    """A group's sub-ops as arrays; they depend on no fabric. bursts: of every node. traffic: bytes, (k, k).

    rings: node -> the ring that sums it, or hands it round. is_summed: nodes whose ring adds up what they read.
    """

    nodes: list[SubOps]
    devices: list[np.ndarray]
    is_spread: list[bool]
    bursts: list[list[_Burst]]
    rings: dict[int, _Ring]
    is_summed: set[int]
    traffic: np.ndarray
    compute_s: float


def compile_group(plan: Plan) -> CompiledGroup:
    """Return the sub-ops of a sip_ml plan ready to be retimed. Cost: reads x parts^2, in arrays without a window."""
    if plan.details is None:
        raise InternalError(f"a plan of placer {plan.strategy.placer!r} has no sub-ops to be timed")
    return _Compiler(plan.details, plan.strategy.mp).compile()


class _Compiler:
    def __init__(self, group: GroupPlacement, num_devices: int) -> None:
        self.group, self.nodes, self.window = group, group.sub_ops.nodes, group.window
        self.devices = [np.array(d, dtype=np.int64) for d in group.placed.devices]
        self.known: dict[tuple[object, ...], int] = {}
        self.traffic = np.zeros((num_devices, num_devices))
        self.numbers = itertools.count()

    def compile(self) -> CompiledGroup:
        bursts: list[list[_Burst]] = []
        rings: dict[int, _Ring] = {}
        summed: set[int] = set()
        busy = np.array(self.group.optimizer_s, dtype=float)
        for index, node in enumerate(self.nodes):
            is_sum = self.window is not None and runs_in_ring(node, self.nodes, self.window)
            if is_sum or (node.kind == GRADIENT and self.window is not None and is_handed_round(node, self.window)):
                rings[index] = self._ring(index, node, is_sum)
            if is_sum:
                summed.add(index)
            bursts.append([] if is_sum else [self._burst(index, flow) for flow in node.flows])
            if node.time is not None:
                np.add.at(busy, self.devices[index], node.time.duration_s)
        spread = [len(set(d.tolist())) == len(d) for d in self.devices]
        return CompiledGroup(
            self.nodes, self.devices, spread, bursts, rings, summed, self.traffic, float(busy.max())
        )  # fmt: skip

    def _ring(self, index: int, node: SubOps, is_sum: bool) -> _Ring:
        """Return the ring of a node's devices, after adding what goes round it to the traffic."""
        there = self.devices[node.flows[0].source] if is_sum else self.devices[index]
        members = np.unique(np.concatenate([there, self.devices[index]]))
        hops: list[tuple[int, int]] = []
        for a, b in zip(members.tolist(), np.roll(members, -1).tolist(), strict=True):
            way = [a, *(self.window.path(a, b) if self.window is not None and a != b else ())]
            hops += itertools.pairwise(way)
        src, dst = (np.array(ends, dtype=np.int64) for ends in (zip(*hops, strict=True) if hops else ((), ())))
        rounds = is_sum + (node.kind == GRADIENT and node.is_replicated)
        size = rounds * ring_chunk_bytes(node, self.nodes, len(members)) * (len(members) - 1)
        np.add.at(self.traffic, (src, dst), size)
        return _Ring(members, src, dst)

    def _burst(self, index: int, flow: Flow) -> _Burst:
        node, devices = self.nodes[index], self.devices
        number, source = next(self.numbers), flow.source
        key = (source, flow.key, flow.relation, node.num_parts, devices[index].tobytes())
        same = self.known.setdefault(key, number)
        part, reader = _pairs(flow.relation, node.num_parts, len(devices[source]))
        is_local = devices[source][part] == devices[index][reader]
        local_part, local_reader = part[is_local], reader[is_local]
        part, reader = part[~is_local], reader[~is_local]
        moved = _moved(flow, reader, node.num_parts, part, len(devices[source]))
        part, reader, moved = (column[moved > 0] for column in (part, reader, moved))
        at, there = devices[source][part], devices[index][reader]
        legs: tuple[_Legs, ...]
        if self.window is None:
            legs = (_legs(part, at, there, moved),) if part.size else ()
            last_hop, last_leg = np.zeros_like(part), np.arange(part.size)
        else:
            hops: list[_Rows] = []
            messages = zip(part.tolist(), reader.tolist(), at.tolist(), there.tolist(), moved.tolist(), strict=True)
            last = [self._add_legs(hops, flow, (i, j), (a, b), size) for i, j, a, b, size in messages]
            legs = tuple(_legs(*(np.array(c) for c in zip(*hop.rows, strict=True))) for hop in hops)
            last_hop, last_leg = np.array(last, dtype=np.int64).reshape(-1, 2).T
        readers, first = np.unique(reader, return_index=True)
        if same == number:
            for leg in legs:
                np.add.at(self.traffic, (leg.src, leg.dst), leg.num_bytes)
        return _Burst(
            source, -1 if same == number else same, legs, last_hop, last_leg, first, readers, local_part, local_reader
        )

    def _add_legs(
        self, hops: list["_Rows"], flow: Flow, parts: tuple[int, int], ends: tuple[int, int], num_bytes: float
    ) -> tuple[int, int]:
        """Add the hops of one message; return the hop and the leg with which it arrives."""
        at, there = ends
        way = [there] if self.window is None or self.window.holds(at, there) else self.window.path(at, there)
        came = parts[0]
        for hop, target in enumerate(way):
            if hop == len(hops):
                hops.append(_Rows())
            # A device passes on what all read once to each that it hands it to, whoever reads it in the end.
            is_shared = len(way) > 1 and flow.relation == ALL
            key = (parts[0], at, target) if is_shared else (*parts, at, target)
            came = hops[hop].add(key, (came, at, target, num_bytes))
            at = target
        return hop, came


class _Rows:
    """Legs of one hop while they are collected, equal ones once."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, float]] = []
        self.places: dict[tuple[int, ...], int] = {}

    def add(self, key: tuple[int, ...], row: tuple[int, int, int, float]) -> int:
        """Add a leg unless one of its key is known; return its place."""
        place = self.places.setdefault(key, len(self.rows))
        if place == len(self.rows):
            self.rows.append(row)
        return place


def _pairs(relation: str, num_parts: int, num_source_parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which part of a source which sub-op reads, as two arrays, one sub-op's after the other's."""
    if relation in (ALL, EXCHANGE):
        part = np.tile(np.arange(num_source_parts), num_parts)
        return part, np.repeat(np.arange(num_parts), num_source_parts)
    reads = [parts_read(relation, j, num_parts, num_source_parts) for j in range(num_parts)]
    part = np.fromiter(itertools.chain.from_iterable(reads), np.int64)
    return part, np.repeat(np.arange(num_parts), [len(parts) for parts in reads])


def _moved(flow: Flow, reader: np.ndarray, num_parts: int, part: np.ndarray, num_source_parts: int) -> np.ndarray:
    """Return the bytes of every pair of a sub-op and a part that it reads."""
    if flow.relation in (ALL, EXCHANGE):
        return np.full(part.shape, flow.pair_bytes(0, num_parts, 0, num_source_parts))
    pairs = zip(reader.tolist(), part.tolist(), strict=True)
    return np.array([flow.pair_bytes(j, num_parts, i, num_source_parts) for j, i in pairs], dtype=float)


def _legs(came: np.ndarray, src: np.ndarray, dst: np.ndarray, size: np.ndarray) -> _Legs:
    size = np.asarray(size, float)
    k = 1 + max(int(src.max()), int(dst.max()))
    return _Legs(came, src, dst, size, np.bincount(src, size, k)[src], np.bincount(dst, size, k)[dst])


class SipMlEstimator:
    """Estimates of a plan of sub-ops, which are compiled once."""

    def __init__(self, plan: Plan) -> None:
        self.group = compile_group(plan)

    def estimate(self, plan: Plan, fabric: Fabric, costs: AxisCosts) -> Estimate:
        """Return the estimated iteration of the plan on a fabric."""
        return estimate_sip_ml(plan, fabric, costs, self.group)

    def micro_batch_s(self, plan: Plan, costs: AxisCosts | None) -> float:
        """Return 0: a group runs its whole batch at once."""
        return 0.0


def estimate_sip_ml(plan: Plan, fabric: Fabric, costs: AxisCosts, group: CompiledGroup | None = None) -> Estimate:
    """Return the estimated iteration of a plan with sub-ops spread over model-parallel groups, its launches at least.

    Args: fabric: with circuits set where it is circuit-switched. costs: of the data-parallel rings on it.
        group: what ``compile_group`` returned, to be shared between fabrics.
    Cost: about 30 us a read of one node by another.
    """
    compiled = compile_group(plan) if group is None else group
    launched_s = launch_bound_s(plan.stages, plan.machine.host_costs)
    return Estimate(max(launched_s, _Clock(plan, fabric, costs, compiled).iteration_s()), compiled.compute_s)


class _Clock:
    """Run the nodes in their order over one clock a device."""

    def __init__(self, plan: Plan, fabric: Fabric, costs: AxisCosts, group: CompiledGroup) -> None:
        self.plan, self.costs, self.group = plan, costs, group
        self.launch_s = plan.machine.launch_latency_s
        k = plan.strategy.mp
        self.num_devices = k
        self.has_circuits = fabric.circuits is not None
        self.alpha_s, self.s_per_byte = _rates(plan, fabric, group.traffic)
        self.free_s = np.zeros(k)
        # What a device sends, by stream (sub-ops, gradients): free again at; to each peer on circuits, else in all.
        self.sent_s = [np.zeros((k, k)) if self.has_circuits else np.zeros(k) for _ in range(2)]
        self.arrivals: list[np.ndarray] = []
        self.slow = np.ones(k)
        if plan.machine.slow:
            ids = plan.accelerators[:, :, 0]
            self.slow = np.array([max(1 / plan.machine.slow.get(int(a), 1.0) for a in ids[:, d]) for d in range(k)])
        self.bucket: list[list[tuple[int, float]]] = [[] for _ in range(k)]
        self.bucket_bytes = [0] * k
        self.ring_s = np.zeros(k)
        self.final_s = np.zeros(k)
        # Gradients that go round the same devices: key -> (ring, bytes of a step, made); and sums to be handed round.
        self.ring_buckets: dict[tuple[object, ...], tuple[_Ring, float, float]] = {}
        self.gathers: list[tuple[_Ring, float, float]] = []

    def iteration_s(self) -> float:
        """Return the end of the last optimizer [s]."""
        ends: list[np.ndarray] = []
        for index, node in enumerate(self.group.nodes):
            devices = self.group.devices[index]
            ring = self.group.rings.get(index)
            if ring is not None and node.kind == GRADIENT:
                ends.append(self._ring_gradient(index, node, ring, ends))
                continue
            if ring is not None:
                source = node.flows[0].source
                size = ring_chunk_bytes(node, self.group.nodes, len(ring.members))
                summed_s = self._go_round(ring, float(ends[source].max()), size, int(node.is_gradient))
                ends.append(np.full(len(devices), summed_s))
                continue
            ready, awaited = self._ready(index, ends)
            if node.time is None:
                ends.append(np.maximum(ready, awaited))
                if node.kind == GRADIENT:
                    self._gradient(index, node, ends[-1])
                continue
            ready = np.maximum(ready, awaited + self.launch_s)
            seconds = node.time.duration_s * self.slow[devices]
            if self.group.is_spread[index]:
                end = np.maximum(ready, self.free_s[devices]) + seconds
                self.free_s[devices] = end
            else:
                end = np.empty(len(devices))
                for j, d in enumerate(devices):
                    end[j] = self.free_s[d] = max(ready[j], self.free_s[d]) + seconds[j]
            ends.append(end)
        for key in list(self.ring_buckets):
            self._reduce_ring(key)
        self._gather_rings()
        for d in range(self.num_devices):
            self._reduce(d)
        optimizer = np.array(self.plan.details.optimizer_s if self.plan.details else ())
        return float((np.maximum(self.free_s, self.final_s + self.launch_s) + optimizer * self.slow).max())

    def _ready(self, index: int, ends: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return when every sub-op's local inputs are made, and when its messages are there."""
        count = len(self.group.devices[index])
        ready, awaited = np.zeros(count), np.full(count, -self.launch_s)
        for burst in self.group.bursts[index]:
            made = ends[burst.source]
            if burst.local_part.size:
                np.maximum.at(ready, burst.local_reader, made[burst.local_part])
            if burst.same >= 0:
                arrived = self.arrivals[burst.same]
            elif burst.readers.size:
                stream = int(self.group.nodes[index].is_gradient)
                here, there = made, np.empty(len(burst.last_hop))
                for hop, legs in enumerate(burst.legs):
                    here = self._send(legs, here[legs.came], stream)
                    is_last = burst.last_hop == hop
                    there[is_last] = here[burst.last_leg[is_last]]
                arrived = np.maximum.reduceat(there, burst.first)
            else:
                arrived = np.empty(0)
            self.arrivals.append(arrived)
            if burst.readers.size:
                awaited[burst.readers] = np.maximum(awaited[burst.readers], arrived)
        return ready, awaited

    def _send(self, burst: _Legs, made: np.ndarray, stream: int) -> np.ndarray:
        """Return when every message of a burst arrives, or has come one hop further.

        Model: a stream sends one burst after the other; while other streams send over the same port or circuit,
            all of them get equal shares, so that each is delayed by as much as it overlaps with.
        """
        rate, alpha = self.s_per_byte[burst.src, burst.dst], self.alpha_s[burst.src, burst.dst]
        own, others = self.sent_s[stream], [self.sent_s[1 - stream]]
        at: tuple[np.ndarray, ...] = (burst.src, burst.dst) if self.has_circuits else (burst.src,)
        if not self.has_circuits:
            others.append(self.ring_s)
        start = np.maximum(made + self.launch_s, own[at])
        alone = (burst.num_bytes if self.has_circuits else np.maximum(burst.out_bytes, burst.in_bytes)) * rate
        seconds = alone
        for other in others:
            overlap = np.clip(other[at] - start, 0.0, alone)
            seconds = seconds + overlap
            longer = other[at] + overlap
            np.maximum.at(other, at, np.where(overlap > 0, longer, 0.0))
        end = start + seconds
        np.maximum.at(own, at, end)
        return end + alpha

    # Rings

    def _go_round(self, ring: _Ring, ready: float, num_bytes: float, stream: int) -> float:
        """Return when chunks of so many bytes have gone round once, beginning when the last device is ready."""
        steps = len(ring.members) - 1
        if steps < 1:
            return ready
        links: tuple[np.ndarray, ...] = (ring.src, ring.dst) if self.has_circuits else (ring.src,)
        seconds = self.launch_s + self.alpha_s[ring.src, ring.dst] + num_bytes * self.s_per_byte[ring.src, ring.dst]
        slowest = float(seconds.max()) * max(1.0, len(ring.src) / len(ring.members))
        end = max(ready, float(self.sent_s[stream][links].max())) + steps * slowest
        self.sent_s[stream][links] = end
        return end

    def _ring_gradient(self, index: int, node: SubOps, ring: _Ring, ends: list[np.ndarray]) -> np.ndarray:
        """Add a gradient to the bucket that goes round its devices; return when it is made."""
        is_sum = index in self.group.is_summed
        if is_sum:
            made = np.full(len(self.group.devices[index]), ends[node.flows[0].source].max())
        else:
            made = np.maximum(*self._ready(index, ends))
        key = (ring.members.tobytes(), is_sum, node.is_replicated)
        _, num_bytes, last = self.ring_buckets.get(key, (ring, 0.0, 0.0))
        num_bytes += ring_chunk_bytes(node, self.group.nodes, len(ring.members))
        self.ring_buckets[key] = (ring, num_bytes, max(last, float(made.max())))
        if num_bytes * len(ring.members) >= self.plan.strategy.rules.bucket_bytes:
            self._reduce_ring(key)
        return made

    def _reduce_ring(self, key: tuple[object, ...]) -> None:
        ring, num_bytes, end = self.ring_buckets.pop(key)
        _, is_sum, is_replicated = key
        if is_sum:
            end = self._go_round(ring, end, num_bytes, 1)
        self._gather_rings()
        if self.plan.strategy.dp > 1:
            seconds = self.costs.collective_s(ALL_STAGES, "dp", "all_reduce", math.ceil(num_bytes))
            end = max(end + self.launch_s, float(self.ring_s[ring.members].max())) + seconds
            self.ring_s[ring.members] = end
        self.final_s[ring.members] = np.maximum(self.final_s[ring.members], end)
        if is_replicated:
            self.gathers.append((ring, num_bytes, end))

    def _gather_rings(self) -> None:
        for ring, num_bytes, ready in self.gathers:
            end = self._go_round(ring, ready, num_bytes, 1)
            self.final_s[ring.members] = np.maximum(self.final_s[ring.members], end)
        self.gathers = []

    # Gradients

    def _gradient(self, index: int, node: SubOps, ready: np.ndarray) -> None:
        limit = self.plan.strategy.rules.bucket_bytes
        devices = self.group.devices[index].tolist()
        for d, made in zip(devices, ready.tolist(), strict=True):
            self.bucket[d].append((index, made))
            self.bucket_bytes[d] += node.part_bytes
        for d in devices:
            if self.bucket_bytes[d] >= limit:
                self._reduce(d)

    def _reduce(self, d: int) -> None:
        """Reduce a device's bucket over the groups, then hand it to those with copies."""
        if not self.bucket[d]:
            return
        end = max(made for _, made in self.bucket[d])
        if self.plan.strategy.dp > 1:
            seconds = self.costs.collective_s(ALL_STAGES, "dp", "all_reduce", self.bucket_bytes[d])
            end = max(end + self.launch_s, float(self.ring_s[d])) + seconds
            self.ring_s[d] = end
        self.final_s[d] = max(float(self.final_s[d]), end)
        copies: dict[int, int] = {}
        for index, _ in self.bucket[d]:
            if self.group.nodes[index].is_replicated:
                for other in set(self.group.devices[index].tolist()) - {d}:
                    copies[other] = copies.get(other, 0) + self.group.nodes[index].part_bytes
        total = sum(copies.values())
        sent = self.sent_s[1]
        for other, size in copies.items():
            at = (d, other) if self.has_circuits else (d,)
            begin = max(end + self.launch_s, float(sent[at]))
            there = begin + (size if self.has_circuits else total) * self.s_per_byte[d, other]
            if self.has_circuits:
                sent[at] = there
            self.final_s[other] = max(float(self.final_s[other]), there + self.alpha_s[d, other])
        if copies and not self.has_circuits:
            sent[d] = max(end + self.launch_s, float(sent[d])) + total * float(self.s_per_byte[d].max())
        self.bucket[d], self.bucket_bytes[d] = [], 0


def _rates(plan: Plan, fabric: Fabric, traffic: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return alpha [s] and seconds per byte between devices of a group, (k, k): of the slowest group.

    Model: without circuits the seconds of a device's whole traffic on its own port, times how much longer the
        fullest link of the route takes when all groups send all their traffic.
    """
    k = len(traffic)
    i, j = np.nonzero(traffic)
    alpha, rate = np.zeros((k, k)), np.zeros((k, k))
    if not len(i):
        return alpha, rate
    ids = plan.accelerators[:, :, 0]
    sizes = np.broadcast_to(traffic[i, j], (len(ids), len(i))).ravel()
    delay, seconds = pair_costs(fabric, ids[:, i].ravel(), ids[:, j].ravel(), sizes)
    alpha[i, j] = delay.reshape(len(ids), -1).max(axis=0)
    worst = seconds.reshape(len(ids), -1).max(axis=0)
    if fabric.circuits is not None:
        rate[i, j] = worst / traffic[i, j]
        return alpha, rate
    port = np.maximum(traffic.sum(axis=1)[i], traffic.sum(axis=0)[j])
    rate[i, j] = np.maximum(worst / port, 1 / fabric.config.peak_bandwidth_bytes_per_s)
    return alpha, rate
