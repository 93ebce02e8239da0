"""Estimate of plans that the "sip_ml" placer made: their sub-ops retimed with the messages between them.

Algorithm 1 takes communication as free (MODEL D14). Here the same sub-ops run on the same devices in the same
order, and what one reads from another device comes alpha + bytes / rate after it was made. On circuits the rate is
the circuit's; elsewhere a device sends one burst after the other at its injection rate, divided by how much
slower the fullest link of the route is when every pair sends all of an iteration at once. Ignores that bursts of
several devices meet on a link at some times and not at others.

Legend: k = devices of a group; a burst is what one node reads from another.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from rostam_py.collectives.group_costs import pair_costs
from rostam_py.errors import InternalError
from rostam_py.fabrics.fabric import Fabric
from rostam_py.placement.sip_ml.algorithm1 import parts_read
from rostam_py.placement.sip_ml.sub_ops import GRADIENT, Flow, SubOps
from rostam_py.plan import Plan
from rostam_py.searching.axis_costs import ALL_STAGES, AxisCosts
from rostam_py.searching.estimate import Estimate
from rostam_py.units import parse_time


@dataclass(frozen=True, slots=True)
class _Burst:
    """Messages from one node's parts to another's; arrays over messages, sorted by reader.

    source: node. same: an earlier burst that carries the same, -1 for none. part, reader: parts of the two nodes.
    src, dst: devices. num_bytes: of each. first: where each distinct reader's messages begin, ``readers`` which.
    local: (part, reader) pairs on one device.
    """

    source: int
    same: int
    part: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    num_bytes: np.ndarray
    first: np.ndarray
    readers: np.ndarray
    local_part: np.ndarray
    local_reader: np.ndarray
    out_bytes: np.ndarray
    in_bytes: np.ndarray


@dataclass(frozen=True, slots=True)
class CompiledGroup:
    """A group's sub-ops as arrays; they depend on no fabric. bursts: of every node. traffic: bytes, (k, k)."""

    nodes: list[SubOps]
    devices: list[np.ndarray]
    is_spread: list[bool]
    bursts: list[list[_Burst]]
    traffic: np.ndarray
    compute_s: float


def compile_group(plan: Plan) -> CompiledGroup:
    """Return the sub-ops of a sip_ml plan ready to be retimed. Cost: reads x parts^2."""
    if plan.details is None:
        raise InternalError(f"a plan of placer {plan.strategy.placer!r} has no sub-ops to be timed")
    nodes, placed = plan.details.sub_ops.nodes, plan.details.placed
    k = plan.strategy.mp
    devices = [np.array(d, dtype=np.int64) for d in placed.devices]
    known: dict[tuple[object, ...], int] = {}
    traffic = np.zeros((k, k))
    numbers = itertools.count()
    bursts: list[list[_Burst]] = []
    busy = np.array(plan.details.optimizer_s, dtype=float)
    for index, node in enumerate(nodes):
        found = []
        for flow in node.flows:
            burst = _burst(nodes, devices, index, flow, known, next(numbers))
            if burst.same < 0:
                np.add.at(traffic, (burst.src, burst.dst), burst.num_bytes)
            found.append(burst)
        bursts.append(found)
        if node.time is not None:
            np.add.at(busy, devices[index], node.time.duration_s)
    spread = [len(set(d.tolist())) == len(d) for d in devices]
    return CompiledGroup(nodes, devices, spread, bursts, traffic, float(busy.max()))


def _burst(
    nodes: list[SubOps], devices: list[np.ndarray], index: int, flow: Flow, known: dict[tuple[object, ...], int],
    number: int,
) -> _Burst:  # fmt: skip
    node = nodes[index]
    source = flow.source
    count = len(devices[source])
    rows, local = [], []
    for j in range(node.num_parts):
        for i in parts_read(flow.relation, j, node.num_parts, count):
            if devices[source][i] == devices[index][j]:
                local.append((i, j))
                continue
            moved = flow.pair_bytes(j, node.num_parts, i, count)
            if moved > 0:
                rows.append((i, j, devices[source][i], devices[index][j], moved))
    key = (source, flow.key, flow.relation, node.num_parts, devices[index].tobytes())
    same = known.setdefault(key, number)
    part, reader, src, dst, size = (np.array(c) for c in zip(*rows, strict=True)) if rows else (np.empty(0, int),) * 5
    readers, first = np.unique(reader, return_index=True)
    k = 1 + max(int(devices[source].max()), int(devices[index].max()))
    pairs = np.array(local, dtype=np.int64).reshape(-1, 2)
    return _Burst(
        source, -1 if same == number else same, part, src, dst, np.asarray(size, float), first, readers,
        pairs[:, 0], pairs[:, 1], np.bincount(src, size, k)[src] if rows else np.empty(0),
        np.bincount(dst, size, k)[dst] if rows else np.empty(0),
    )  # fmt: skip


def estimate_sip_ml(plan: Plan, fabric: Fabric, costs: AxisCosts, group: CompiledGroup | None = None) -> Estimate:
    """Return the estimated iteration of a plan with sub-ops spread over model-parallel groups.

    Args: fabric: with circuits set where it is circuit-switched. costs: of the data-parallel rings on it.
        group: what ``compile_group`` returned, to be shared between fabrics.
    Cost: about 30 us a read of one node by another.
    """
    compiled = compile_group(plan) if group is None else group
    return Estimate(_Clock(plan, fabric, costs, compiled).iteration_s(), compiled.compute_s)


class _Clock:
    """Run the nodes in their order over one clock a device."""

    def __init__(self, plan: Plan, fabric: Fabric, costs: AxisCosts, group: CompiledGroup) -> None:
        self.plan, self.costs, self.group = plan, costs, group
        self.launch_s = parse_time(plan.strategy.launch_latency)
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

    def iteration_s(self) -> float:
        """Return the end of the last optimizer [s]."""
        ends: list[np.ndarray] = []
        for index, node in enumerate(self.group.nodes):
            devices = self.group.devices[index]
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
                arrived = np.maximum.reduceat(self._send(burst, made[burst.part], stream), burst.first)
            else:
                arrived = np.empty(0)
            self.arrivals.append(arrived)
            if burst.readers.size:
                awaited[burst.readers] = np.maximum(awaited[burst.readers], arrived)
        return ready, awaited

    def _send(self, burst: _Burst, made: np.ndarray, stream: int) -> np.ndarray:
        """Return when every message of a burst arrives.

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

    # Gradients

    def _gradient(self, index: int, node: SubOps, ready: np.ndarray) -> None:
        limit = self.plan.strategy.bucket_bytes
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
