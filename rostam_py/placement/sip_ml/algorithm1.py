"""Algorithm 1 of SiP-ML, step 2: sub-ops onto the k devices of a group so that no device talks to too many.

A ``Node`` is one op as ``num_parts`` sub-ops. Devices i and j may exchange data only if j lies in i's window,
which keeps every device's circuits within the degree (MODEL D14). Usable on its own:

    nodes = [Node(1e-5, 4), Node(1e-5, 4, reads=(Read(0, "all"),))]
    place_sub_ops(nodes, num_devices=8, degree=4).devices
"""

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rostam_py.errors import MemoryCapacityError
from rostam_py.placement.sip_ml.kept import raise_without_room
from rostam_py.placement.sip_ml.repair import Units, repair
from rostam_py.placement.sip_ml.sub_op_nodes import Node, Read, binds, check_nodes, parts_read, unit_bytes
from rostam_py.placement.sip_ml.window import Window, bits, make_window
from rostam_py.units import format_size

__all__ = ["Node", "Read", "SubOpPlacement", "parts_read", "place_in_window", "place_sub_ops"]

# A sub-op stays with its data if another device could start it no earlier than a message would take:
# one launch and one hop of 1 us each (SiP-ML 4.2; Elect-Flat's latency).
LOCALITY_SLACK_S = 2e-6
# Devices pass on the data of sub-ops out of range where sub-ops in range would take so many times as long.
WORTH_PASSING_ON = 2.0
_MOVES_PER_UNIT = 4  # relocations allowed, times the sub-ops that can move


@dataclass(frozen=True, slots=True)
class SubOpPlacement:
    """Where and when every sub-op runs.

    devices, starts_s: per node, per part. makespan_s: end of the last sub-op, communication free.
    memory_bytes: per device. num_relocations: sub-ops moved to satisfy the windows, or to fit the memory.
    num_out_of_range: pairs of sub-ops, one reading the other, that ended out of range all the same.
    """

    devices: list[tuple[int, ...]]
    starts_s: list[tuple[float, ...]]
    makespan_s: float
    memory_bytes: list[float]
    num_relocations: int = 0
    num_out_of_range: int = 0


def place_sub_ops(
    nodes: Sequence[Node],
    num_devices: int,
    *,
    degree: int | None = None,
    has_ring: bool = True,
    window: str = "symmetric",
    capacity_bytes: float | None = None,
) -> SubOpPlacement:
    """Place sub-ops in the order of ``nodes``, a topological one, on devices of so many circuits.

    Args:
        degree: circuits a device may hold; None without a limit.
        has_ring: one of them is kept for a data-parallel ring.
        window: symmetric or paper, see ``make_window``.
        capacity_bytes: of one device.
    Raises: as ``place_in_window``, which does the work.
    """
    check_nodes(nodes, num_devices, degree)
    return place_in_window(
        nodes, num_devices, make_window(num_devices, degree, kind=window, has_ring=has_ring), capacity_bytes
    )


def place_in_window(
    nodes: Sequence[Node], num_devices: int, window: Window | None, capacity_bytes: float | None = None
) -> SubOpPlacement:
    """Place sub-ops in the order of ``nodes``, a topological one.

    Model: candidates are the devices in the windows of all that a sub-op reads from, with enough memory for it
        and all that will be co-located with it; the one that can start it first, max(device free, inputs made),
        is taken, communication being free. Among those within LOCALITY_SLACK_S it stays with its largest
        input, else the smallest number wins. Reads of more parts than devices can be in range of one another bind
        nothing (``binds``). Without a candidate a sub-op goes where most windows hold, and what it
        reads from is relocated to the nearest device in range, backwards recursively; then all is verified
        forwards, until nothing is violated. After 4 relocations a sub-op, or where memory does not suffice, all is
        placed as windows and memory allow at each step, and single sub-ops are moved until both hold (``repair``).
        If the windows do not hold after that either, or only with far more work on some devices, others pass on the
        data of those out of range.
    Args: window: None without a limit. capacity_bytes: of one device.
    Raises: MemoryCapacityError if no devices with room are found; ConfigError for nodes that make no sense, e.g. reads
        that point forwards.
    Cost: sub-ops x devices, plus reads x parts^2 where a window applies, and a relocation's neighbourhood each.
    Source: Khani et al. 2021, Algorithm 1; the bound, its outcome and the tie-break are own.
    """
    check_nodes(nodes, num_devices, None)
    capacity = float("inf") if capacity_bytes is None else capacity_bytes
    strict = _Walk(nodes, num_devices, window, capacity, is_strict=True)
    raise_without_room(sum(sum(parts) for parts in strict.needs.values()), num_devices, capacity)
    try:
        return strict.run()
    except _GiveUp as reason:
        error = reason.error
    eager = _Walk(nodes, num_devices, window, capacity, is_strict=False)
    passing_on = eager.run()
    repaired = eager.repaired(error, strict.num_relocations)
    if max(passing_on.memory_bytes) <= capacity and passing_on.makespan_s * WORTH_PASSING_ON < repaired.makespan_s:
        return replace(passing_on, num_relocations=strict.num_relocations)
    return repaired


class _GiveUp(Exception):
    """The relocation bound is reached, or a device is overfilled: then ``error`` says by how much."""

    def __init__(self, error: MemoryCapacityError | None = None) -> None:
        super().__init__()
        self.error = error


class _Walk:
    """One walk; a unit is a set of sub-ops that move together (one parameter shard, or one sub-op).

    is_strict: windows and memory hold throughout, or the walk is given up; else each sub-op takes the best there is.
    """

    def __init__(
        self, nodes: Sequence[Node], num_devices: int, window: Window | None, capacity: float, is_strict: bool
    ) -> None:
        self.nodes, self.num_devices, self.window = nodes, num_devices, window
        self.capacity, self.is_strict = capacity, is_strict
        self.free_s = [0.0] * num_devices
        self.memory = [0.0] * num_devices
        self.devices: list[list[int]] = []
        self.ends: list[list[float]] = []
        self.starts: list[tuple[float, ...]] = []
        self.units: list[list[int]] = []
        self.device_of: list[int] = []  # of each unit, -1 if not placed
        self.bytes_of: list[float] = []  # of each unit, all that its sub-ops will ever take
        self.members: list[list[tuple[int, int]]] = []  # of each unit, the sub-ops placed so far
        self.binding = self._binding_reads()
        self.readers: list[list[int]] = [[] for _ in nodes]
        self.shards: dict[tuple[int, int], int] = {}
        self.needs = unit_bytes(nodes)
        self.suspects: list[int] = []  # nodes to verify, a heap
        self.suspected: set[int] = set()
        self.num_relocations = 0
        self.max_relocations = 0
        self.everyone = (1 << num_devices) - 1
        self.outward = window.outward if window is not None else ()
        self.inward = window.inward if window is not None else ()

    def _binding_reads(self) -> list[tuple[Read, ...]]:
        """Return, per node, the reads that ask for devices in range."""
        nodes, window = self.nodes, self.window
        if window is None:
            return [() for _ in nodes]
        return [
            tuple(r for r in node.reads if binds(r, node.num_parts, nodes[r.node].num_parts, window)) for node in nodes
        ]

    def run(self) -> SubOpPlacement:
        for index, node in enumerate(self.nodes):
            self._place(index, node)
        if self.num_relocations:
            self._retime()
        worst = max(range(self.num_devices), key=self.memory.__getitem__)
        if self.is_strict and self.memory[worst] > self.capacity:
            raise _GiveUp(self._out_of_memory(worst, 0.0))
        return self._outcome(self.num_relocations)

    def repaired(self, error: MemoryCapacityError | None, num_relocations: int) -> SubOpPlacement:
        """Move single units until windows and memory hold; return what comes of it.

        Raises: MemoryCapacityError if the memory still does not suffice: ``error``, if there was one before.
        """
        seconds = [sum(self.nodes[index].duration_s for index, _ in found) for found in self.members]
        units = Units(list(self.device_of), self.bytes_of, seconds, self._edges())
        moves = repair(units, self.num_devices, self.window, self.capacity)
        self.device_of = units.devices
        self.memory = [0.0] * self.num_devices
        for unit, device in enumerate(self.device_of):
            self.memory[device] += self.bytes_of[unit]
            for index, part in self.members[unit]:
                self.devices[index][part] = device
        worst = max(range(self.num_devices), key=self.memory.__getitem__)
        if self.memory[worst] > self.capacity:
            raise error or self._out_of_memory(worst, 0.0)
        self._retime()
        return self._outcome(num_relocations + moves)

    def _edges(self) -> set[tuple[int, int]]:
        """Return (unit, unit that reads from it) where that asks for devices in range."""
        found = set()
        for index, node in enumerate(self.nodes):
            for part in range(node.num_parts):
                reader = self.units[index][part]
                found |= {(self.units[s][i], reader) for s, i in self._sources(index, part)}
        return {(a, b) for a, b in found if a != b}

    def _outcome(self, num_relocations: int) -> SubOpPlacement:
        makespan = max((max(ends) for ends in self.ends), default=0.0)
        num_out = 0
        if self.window is not None and not self.is_strict:
            num_out = sum(
                not self.outward[self.devices[s][i]] >> device & 1
                for index, devices in enumerate(self.devices)
                for part, device in enumerate(devices)
                for s, i in self._sources(index, part)
            )
        devices = [tuple(d) for d in self.devices]
        return SubOpPlacement(devices, self.starts, makespan, self.memory, num_relocations, num_out)

    # Walking forwards

    def _place(self, index: int, node: Node) -> None:
        self.devices.append([])
        self.ends.append([])
        self.units.append([])
        starts = []
        for read in self.binding[index]:
            self.readers[read.node].append(index)
        for part in range(node.num_parts):
            unit = self._unit(index, node, part)
            ready = self._ready(node, part)
            device = self._choose(index, node, part, unit, ready)
            start = max(self.free_s[device], ready) if node.duration_s > 0 else ready
            self._put(index, part, unit, device)
            starts.append(start)
            self.ends[index].append(start + node.duration_s)
            if node.duration_s > 0:
                self.free_s[device] = start + node.duration_s
        self.starts.append(tuple(starts))

    def _unit(self, index: int, node: Node, part: int) -> int:
        if node.beside >= 0:
            return self.units[node.beside][part]
        key = (node.shard, part)
        if node.shard >= 0 and key in self.shards:
            return self.shards[key]
        unit = len(self.device_of)
        self.device_of.append(-1)
        self.bytes_of.append(self.needs[node.shard if node.shard >= 0 else -1 - index][part])
        self.members.append([])
        self.max_relocations += _MOVES_PER_UNIT
        if node.shard >= 0:
            self.shards[key] = unit
        return unit

    def _put(self, index: int, part: int, unit: int, device: int) -> None:
        self._settle(unit, device)
        self.members[unit].append((index, part))
        self.units[index].append(unit)
        self.devices[index].append(device)

    def _settle(self, unit: int, device: int) -> None:
        """Give a unit that has no device yet this one, and its memory."""
        if self.device_of[unit] < 0:
            self.device_of[unit] = device
            self.memory[device] += self.bytes_of[unit]

    def _ready(self, node: Node, part: int) -> float:
        ready = 0.0
        for read in node.reads:
            ends = self.ends[read.node]
            if read.relation in ("all", "exchange"):
                ready = max(ready, max(ends))
            else:
                for i in parts_read(read.relation, part, node.num_parts, len(ends)):
                    ready = max(ready, ends[i])
        return ready

    def _choose(self, index: int, node: Node, part: int, unit: int, ready: float) -> int:
        fixed = self.device_of[unit]
        mask = self._mask(index, part) if self.binding[index] else self.everyone
        if fixed >= 0:
            if self.is_strict and not mask >> fixed & 1:
                self._repair(index, part, unit, fixed)
            return self.device_of[unit]
        need = self.bytes_of[unit]
        candidates = self._with_room(mask, need)
        if candidates:
            return self._earliest(node, part, candidates, ready)
        candidates = self._with_room(self.everyone, need)
        if not candidates:
            emptiest = min(range(self.num_devices), key=self.memory.__getitem__)
            if self.is_strict:
                raise _GiveUp(self._out_of_memory(emptiest, need))
            return emptiest
        device = self._most_satisfied(index, part, candidates)
        if self.is_strict:
            self._repair(index, part, unit, device)
            return self.device_of[unit]
        return device

    def _with_room(self, mask: int, need: float) -> list[int]:
        room = self.capacity - need
        if mask == self.everyone:
            return [d for d, used in enumerate(self.memory) if used <= room]
        return [d for d, used in enumerate(self.memory) if mask >> d & 1 and used <= room]

    def _earliest(self, node: Node, part: int, candidates: list[int], ready: float) -> int:
        free = self.free_s
        first = max(ready, min(free[d] for d in candidates))
        beside = self._beside_data(node, part)
        if beside >= 0 and max(ready, free[beside]) <= first + LOCALITY_SLACK_S and beside in candidates:
            return beside
        return next(d for d in candidates if free[d] <= first)

    def _beside_data(self, node: Node, part: int) -> int:
        """Return the device of the part, like this one, of the largest input; -1 without inputs."""
        if not node.reads:
            return part % self.num_devices
        read = max(node.reads, key=lambda r: (r.relation in ("aligned", "same_part"), r.num_bytes))
        devices = self.devices[read.node]
        return devices[part * len(devices) // node.num_parts]

    # Windows

    def _sources(self, index: int, part: int) -> Iterator[tuple[int, int]]:
        """Yield (node, part) of all that a sub-op must be in range of."""
        num_parts = self.nodes[index].num_parts
        for read in self.binding[index]:
            for i in parts_read(read.relation, part, num_parts, self.nodes[read.node].num_parts):
                yield read.node, i

    def _mask(self, index: int, part: int) -> int:
        """Return the devices in the windows of all that a sub-op reads from."""
        mask = self.everyone
        for source, i in self._sources(index, part):
            mask &= self.outward[self.devices[source][i]]
        return mask

    def _most_satisfied(self, index: int, part: int, candidates: list[int]) -> int:
        """Return the device that most windows of the inputs hold, the earliest free of those."""
        votes = [0] * self.num_devices
        for source, i in self._sources(index, part):
            for device in bits(self.outward[self.devices[source][i]]):
                votes[device] += 1
        return min(candidates, key=lambda d: (-votes[d], self.free_s[d], d))

    # Relocation

    def _repair(self, index: int, part: int, unit: int, device: int) -> None:
        """Put a sub-op on ``device``, relocate what it reads from, then verify forwards until nothing is violated."""
        self._settle(unit, device)
        self._relocate_backwards([(i, device) for i in self._violating(index, part, device)])
        self._suspect(index)
        self._verify(index, part, unit)

    def _violating(self, index: int, part: int, device: int) -> list[int]:
        """Return the units that a sub-op on ``device`` reads from out of range."""
        inward = self.inward[device]
        found = [self.units[source][i] for source, i in self._sources(index, part)]
        return [u for u in dict.fromkeys(found) if not inward >> self.device_of[u] & 1]

    def _relocate_backwards(self, wanted: list[tuple[int, int]]) -> None:
        """Move every unit of ``wanted`` into range of the device next to it, then what it reads from, recursively."""
        pending = deque(wanted)
        while pending:
            unit, reader = pending.popleft()
            here = self.device_of[unit]
            if self.inward[reader] >> here & 1:
                continue
            device = self._nearest(unit, here, self.inward[reader])
            self._move(unit, device)
            for index, part in self.members[unit]:
                pending.extend((u, device) for u in self._violating(index, part, device) if u != unit)

    def _nearest(self, unit: int, here: int, allowed: int) -> int:
        """Return the device of ``allowed`` nearest to ``here``, one with room if there is one."""
        room = self.capacity - self.bytes_of[unit]
        k = self.num_devices

        def order(device: int) -> tuple[bool, int, int]:
            gap = (device - here) % k
            return self.memory[device] > room, min(gap, k - gap), device

        return min(bits(allowed), key=order)

    def _move(self, unit: int, device: int) -> None:
        self._count_relocation()
        here = self.device_of[unit]
        self.memory[here] -= self.bytes_of[unit]
        self.memory[device] += self.bytes_of[unit]
        self.device_of[unit] = device
        for index, part in self.members[unit]:
            self.devices[index][part] = device
            self._suspect(index)
            for reader in self.readers[index]:
                if reader < len(self.devices):
                    self._suspect(reader)

    def _count_relocation(self) -> None:
        self.num_relocations += 1
        if self.num_relocations > self.max_relocations:
            raise _GiveUp

    def _suspect(self, index: int) -> None:
        """Note that a node must be verified."""
        if index not in self.suspected:
            self.suspected.add(index)
            heapq.heappush(self.suspects, index)

    def _verify(self, index: int, part: int, unit: int) -> None:
        """Walk forwards over all that moved or reads what moved, and the sub-op being placed; mend until all holds."""
        while self.suspects:
            n = heapq.heappop(self.suspects)
            self.suspected.discard(n)
            for p in range(part + 1 if n == index else self.nodes[n].num_parts):
                own = unit if (n, p) == (index, part) else self.units[n][p]
                if not self._holds(n, p, self.device_of[own]):
                    self._suspect(n)
                    self._mend(n, p, own)
                    break

    def _holds(self, index: int, part: int, device: int) -> bool:
        """Tell whether a sub-op on ``device`` is in range of what it reads."""
        inward = self.inward[device]
        return all(inward >> self.devices[s][i] & 1 for s, i in self._sources(index, part))

    def _mend(self, index: int, part: int, unit: int) -> None:
        """Move one violated sub-op into all windows if they meet, else what it reads from towards it."""
        mask = self.everyone
        members = self.members[unit] if (index, part) in self.members[unit] else [*self.members[unit], (index, part)]
        for n, p in members:
            for source, i in self._sources(n, p):
                if self.units[source][i] != unit:
                    mask &= self.outward[self.devices[source][i]]
        here = self.device_of[unit]
        if mask:
            self._move(unit, self._nearest(unit, here, mask))
            return
        self._relocate_backwards([(u, here) for u in self._violating(index, part, here)])
        self._count_relocation()

    # After relocations

    def _retime(self) -> None:
        """Run the clocks again over the final devices, in the same order."""
        self.free_s = [0.0] * self.num_devices
        self.ends, self.starts = [], []
        for index, node in enumerate(self.nodes):
            self.ends.append([])
            starts = []
            for part in range(node.num_parts):
                device, ready = self.devices[index][part], self._ready(node, part)
                start = max(self.free_s[device], ready) if node.duration_s > 0 else ready
                starts.append(start)
                self.ends[index].append(start + node.duration_s)
                if node.duration_s > 0:
                    self.free_s[device] = start + node.duration_s
            self.starts.append(tuple(starts))

    def _out_of_memory(self, device: int, need: float) -> MemoryCapacityError:
        total = self.memory[device] + need
        return MemoryCapacityError(
            f"device {device} of a model-parallel group of {self.num_devices} would need"
            f" {format_size(round(total))} or more (placing stopped there), but one accelerator has"
            f" {format_size(round(self.capacity))}: {format_size(round(total - self.capacity))}"
            " too much. Raise strategy.mp, lower the global batch, or take a larger accelerator"
        )
