"""Algorithm 1 of SiP-ML, step 2: sub-ops onto the k devices of a group so that no device talks to too many.

A ``Node`` is one op as ``num_parts`` sub-ops. Devices i and j may exchange data only if j lies in i's window,
which keeps every device's circuits within the degree (MODEL D14). Usable on its own:

    nodes = [Node(1e-5, 4), Node(1e-5, 4, reads=(Read(0, "all"),))]
    place_sub_ops(nodes, num_devices=8, degree=4).devices
"""

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rostam_py.errors import MemoryCapacityError
from rostam_py.placement.sip_ml.sub_op_nodes import Node, Read, check_nodes, parts_read, unit_bytes, window_reach
from rostam_py.units import format_size

__all__ = ["Node", "Read", "SubOpPlacement", "parts_read", "place_sub_ops", "window_reach"]

# A sub-op stays beside its data if another device could start it no earlier than a message would take:
# one launch and one hop of 1 us each (SiP-ML 4.2; Elect-Flat's latency).
LOCALITY_SLACK_S = 2e-6
_MOVES_PER_UNIT = 4  # relocations allowed, times the sub-ops that can move


@dataclass(frozen=True, slots=True)
class SubOpPlacement:
    """Where and when every sub-op runs.

    devices, starts_s: per node, per part. makespan_s: end of the last sub-op, communication free.
    memory_bytes: per device. num_relocations: sub-ops moved to satisfy the windows. has_given_up: relocation
    did not end, so that only devices within one another's windows are used.
    """

    devices: list[tuple[int, ...]]
    starts_s: list[tuple[float, ...]]
    makespan_s: float
    memory_bytes: list[float]
    num_relocations: int = 0
    has_given_up: bool = False


def place_sub_ops(
    nodes: Sequence[Node],
    num_devices: int,
    *,
    degree: int | None = None,
    window: str = "symmetric",
    capacity_bytes: float | None = None,
) -> SubOpPlacement:
    """Place sub-ops in the order of ``nodes``, a topological one.

    Model: candidates are the devices in the windows of all that a sub-op reads from, with enough memory for it
        and all that will be co-located with it; the one that can start it first, max(device free, inputs made),
        is taken, communication being free. Among those within LOCALITY_SLACK_S it stays beside its largest
        input, else the smallest number wins. Without a candidate it goes where most windows hold, and what it
        reads from is relocated to the nearest device in range, backwards recursively; then all is verified
        forwards, until nothing is violated. After 4 relocations a sub-op, or if they overfill a device, the
        placement starts anew on devices that are all in range of one another.
    Args: degree: circuits a device may hold; None without a limit. capacity_bytes: of one device.
    Raises: MemoryCapacityError if no device in range has room; ConfigError for nodes that make no sense, e.g. reads
        that point forwards.
    Cost: sub-ops x devices, plus reads x parts^2 where a window applies, and a relocation's neighbourhood each.
    Source: Khani et al. 2021, Algorithm 1; the bound, its outcome and the tie-break are own.
    """
    check_nodes(nodes, num_devices, degree)
    reach = window_reach(degree, num_devices, window)
    capacity = float("inf") if capacity_bytes is None else capacity_bytes
    if reach is None:
        return _Placer(nodes, num_devices, None, window, capacity).run()
    placer = _Placer(nodes, num_devices, reach, window, capacity)
    try:
        return placer.run()
    except _GiveUp:
        moves = placer.num_relocations
    clique = reach + 1 if window == "symmetric" else 1
    fallback = _Placer(nodes, min(clique, num_devices), None, window, capacity)
    fallback.note = f" (only {fallback.num_devices} of {num_devices} used: relocation did not end)"
    placed = fallback.run()
    memory = placed.memory_bytes + [0.0] * (num_devices - len(placed.memory_bytes))
    return SubOpPlacement(placed.devices, placed.starts_s, placed.makespan_s, memory, moves, has_given_up=True)


class _GiveUp(Exception):
    """The relocation bound is reached, or relocations have overfilled a device."""


class _Placer:
    """One walk; a unit is a set of sub-ops that move together (one parameter shard, or one sub-op)."""

    def __init__(
        self, nodes: Sequence[Node], num_devices: int, reach: int | None, window: str, capacity: float
    ) -> None:
        self.nodes, self.num_devices, self.reach = nodes, num_devices, reach
        self.is_symmetric = window == "symmetric"
        self.capacity = capacity
        self.free_s = [0.0] * num_devices
        self.memory = [0.0] * num_devices
        self.devices: list[list[int]] = []
        self.ends: list[list[float]] = []
        self.starts: list[tuple[float, ...]] = []
        self.units: list[list[int]] = []
        self.device_of: list[int] = []  # of each unit, -1 if not placed
        self.bytes_of: list[float] = []  # of each unit, all that its sub-ops will ever take
        self.members: list[list[tuple[int, int]]] = []  # of each unit, the sub-ops placed so far
        self.readers: list[list[int]] = [[] for _ in nodes]
        self.shards: dict[tuple[int, int], int] = {}
        self.needs = unit_bytes(nodes)
        self.suspects: list[int] = []  # nodes to verify, a heap
        self.suspected: set[int] = set()
        self.num_relocations = 0
        self.max_relocations = 0
        self.outward = self._masks(1) if reach is not None else []
        self.inward = self._masks(-1) if reach is not None else []
        self.everyone = (1 << num_devices) - 1
        self.note = ""  # on the devices, for errors

    def _masks(self, direction: int) -> list[int]:
        """Return, per device, the devices it may send to (1) or receive from (-1), as bits."""
        k, masks = self.num_devices, []
        for device in range(k):
            mask = 0
            for step in range(-self.reach if self.is_symmetric else 0, self.reach + 1):  # type: ignore[operator]
                mask |= 1 << ((device + direction * step) % k)
            masks.append(mask)
        return masks

    def run(self) -> SubOpPlacement:
        for index, node in enumerate(self.nodes):
            self._place(index, node)
        if self.num_relocations:
            self._retime()
        worst = max(range(self.num_devices), key=self.memory.__getitem__)
        if self.memory[worst] > self.capacity:
            if self.num_relocations:
                raise _GiveUp
            raise self._out_of_memory(worst, 0.0)
        makespan = max((max(ends) for ends in self.ends), default=0.0)
        devices = [tuple(d) for d in self.devices]
        return SubOpPlacement(devices, self.starts, makespan, self.memory, self.num_relocations)

    # Walking forwards

    def _place(self, index: int, node: Node) -> None:
        self.devices.append([])
        self.ends.append([])
        self.units.append([])
        starts = []
        for read in node.reads:
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
        mask = self.everyone if self.reach is None else self._mask(index, node, part)
        if fixed >= 0:
            if not mask >> fixed & 1:
                self._repair(index, node, part, unit, fixed)
            return self.device_of[unit]
        need = self.bytes_of[unit]
        if mask:
            candidates = self._with_room(mask, need)
            if candidates:
                return self._earliest(node, part, candidates, ready)
            if self.reach is None:
                raise self._out_of_memory(min(range(self.num_devices), key=self.memory.__getitem__), need)
        start = self._most_satisfied(index, node, part, need)
        self._repair(index, node, part, unit, start)
        return self.device_of[unit]

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
        node = self.nodes[index]
        for read in node.reads:
            for i in parts_read(read.relation, part, node.num_parts, self.nodes[read.node].num_parts):
                yield read.node, i

    def _mask(self, index: int, node: Node, part: int) -> int:
        """Return the devices in the windows of all that a sub-op reads from, and of its op's parts so far."""
        mask = self.everyone
        for source, i in self._sources(index, part):
            mask &= self.outward[self.devices[source][i]]
        for device in self.devices[index]:
            mask &= self.outward[device] & self.inward[device]
        return mask

    def _most_satisfied(self, index: int, node: Node, part: int, need: float) -> int:
        """Return the device with room that most windows of the inputs hold, the earliest free of those."""
        votes = [0] * self.num_devices
        for source, i in self._sources(index, part):
            for device in _bits(self.outward[self.devices[source][i]]):
                votes[device] += 1
        candidates = self._with_room(self.everyone, need)
        if not candidates:
            raise self._out_of_memory(min(range(self.num_devices), key=self.memory.__getitem__), need)
        return min(candidates, key=lambda d: (-votes[d], self.free_s[d], d))

    # Relocation

    def _repair(self, index: int, node: Node, part: int, unit: int, device: int) -> None:
        """Put a sub-op on ``device``, relocate what it reads from, then verify forwards until nothing is violated."""
        self._settle(unit, device)
        self._relocate_backwards([(i, device) for i in self._violating(index, part, device)])
        mates = [self.units[index][i] for i in range(len(self.devices[index]))]
        both = self.outward[device] & self.inward[device]
        self._relocate_backwards([(m, device) for m in mates if not both >> self.device_of[m] & 1])
        self._suspect(index)
        self._verify(index, part, unit)

    def _violating(self, index: int, part: int, device: int) -> list[int]:
        """Return the units that a sub-op on ``device`` reads from out of range."""
        inward = self.inward[device]
        found = [self.units[source][i] for source, i in self._sources(index, part)]
        return [u for u in dict.fromkeys(found) if not inward >> self.device_of[u] & 1]

    def _relocate_backwards(self, wanted: list[tuple[int, int]]) -> None:
        """Move every unit of ``wanted`` into range of the device beside it, then what it reads from, recursively."""
        pending = deque(wanted)
        while pending:
            unit, reader = pending.popleft()
            here = self.device_of[unit]
            allowed = self.inward[reader] & self.outward[reader] if self.is_symmetric else self.inward[reader]
            if allowed >> here & 1:
                continue
            device = self._nearest(unit, here, allowed)
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

        return min(_bits(allowed), key=order)

    def _move(self, unit: int, device: int) -> None:
        self.num_relocations += 1
        if self.num_relocations > self.max_relocations:
            raise _GiveUp
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
        """Tell whether a sub-op on ``device`` is in range of what it reads and of its op's parts before it."""
        inward, both = self.inward[device], self.inward[device] & self.outward[device]
        return all(inward >> self.devices[s][i] & 1 for s, i in self._sources(index, part)) and all(
            both >> mate & 1 for mate in self.devices[index][:part]
        )

    def _mend(self, index: int, part: int, unit: int) -> None:
        """Move one violated sub-op into all windows if they meet, else what it reads from towards it."""
        mask = self.everyone
        members = self.members[unit] if (index, part) in self.members[unit] else [*self.members[unit], (index, part)]
        for n, p in members:
            for source, i in self._sources(n, p):
                if self.units[source][i] != unit:
                    mask &= self.outward[self.devices[source][i]]
            for i in range(p):
                if self.units[n][i] != unit:
                    mate = self.devices[n][i]
                    mask &= self.outward[mate] & self.inward[mate]
        here = self.device_of[unit]
        if mask:
            self._move(unit, self._nearest(unit, here, mask))
            return
        self._relocate_backwards([(u, here) for u in self._violating(index, part, here)])
        mates = [self.units[index][i] for i in range(part)]
        self._relocate_backwards([(u, here) for u in mates])
        self.num_relocations += 1
        if self.num_relocations > self.max_relocations:
            raise _GiveUp

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
            f"device {device} of a model-parallel group of {self.num_devices}{self.note} would need"
            f" {format_size(round(total))} or more (placing stopped there), but one accelerator has"
            f" {format_size(round(self.capacity))}: {format_size(round(total - self.capacity))}"
            " too much. Raise strategy.mp, lower the global batch, or take a larger accelerator"
        )


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
