"""Algorithm 1 of SiP-ML, step 2: sub-ops onto the k devices of a group so that no device talks to too many.

A ``Node`` is one op as ``num_parts`` sub-ops. Devices i and j may exchange data only if j lies in i's window,
which keeps every device's circuits within the degree (MODEL D14). Usable on its own:

    nodes = [Node(1e-5, 4), Node(1e-5, 4, reads=(Read(0, "all"),))]
    place_sub_ops(nodes, num_devices=8, degree=4).devices
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rostam_py.errors import MemoryCapacityError
from rostam_py.placement.sip_ml.assignment import Assignment
from rostam_py.placement.sip_ml.clocks import Clocks
from rostam_py.placement.sip_ml.kept import raise_without_room
from rostam_py.placement.sip_ml.relocation import GiveUp, Relocation
from rostam_py.placement.sip_ml.repair import Units, repair
from rostam_py.placement.sip_ml.sub_op_nodes import Node, Read, check_nodes, parts_read
from rostam_py.placement.sip_ml.window import Window, bits, make_window

__all__ = ["Node", "Read", "SubOpPlacement", "parts_read", "place_in_window", "place_sub_ops"]

# A sub-op stays with its data if another device could start it no earlier than a message would take:
# one launch and one hop of 1 us each (SiP-ML 4.2; Elect-Flat's latency).
LOCALITY_SLACK_S = 2e-6
# Devices pass on the data of sub-ops out of range where sub-ops in range would take so many times as long.
WORTH_PASSING_ON = 2.0


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
    raise_without_room(sum(sum(parts) for parts in strict.placed.needs.values()), num_devices, capacity)
    try:
        return strict.run()
    except GiveUp as reason:
        error = reason.error
    eager = _Walk(nodes, num_devices, window, capacity, is_strict=False)
    passing_on = eager.run()
    repaired = eager.repaired(error, strict.relocation.num_relocations)
    if max(passing_on.memory_bytes) <= capacity and passing_on.makespan_s * WORTH_PASSING_ON < repaired.makespan_s:
        return replace(passing_on, num_relocations=strict.relocation.num_relocations)
    return repaired


class _Walk:
    """One walk over all nodes.

    is_strict: windows and memory hold throughout, or the walk is given up; else each sub-op takes the best there is.
    """

    def __init__(
        self, nodes: Sequence[Node], num_devices: int, window: Window | None, capacity: float, is_strict: bool
    ) -> None:
        self.nodes, self.is_strict = nodes, is_strict
        self.placed = Assignment(nodes, num_devices, window, capacity)
        self.clocks, self.relocation = Clocks(nodes, num_devices), Relocation(self.placed)

    def run(self) -> SubOpPlacement:
        """Place all nodes. Raises: GiveUp, if strict."""
        for index, node in enumerate(self.nodes):
            self._place(index, node)
        if self.relocation.num_relocations:
            self.clocks.retime(self.placed.devices)
        worst = self.placed.fullest()
        if self.is_strict and self.placed.memory[worst] > self.placed.capacity:
            raise GiveUp(self.placed.out_of_memory(worst, 0.0))
        return self._outcome(self.relocation.num_relocations)

    def repaired(self, error: MemoryCapacityError | None, num_relocations: int) -> SubOpPlacement:
        """Move single units until windows and memory hold; return what comes of it.

        Raises: MemoryCapacityError if the memory still does not suffice: ``error``, if there was one before.
        """
        placed = self.placed
        seconds = [sum(self.nodes[index].duration_s for index, _ in found) for found in placed.members]
        units = Units(list(placed.device_of), placed.bytes_of, seconds, placed.edges())
        moves = repair(units, placed.num_devices, placed.window, placed.capacity)
        placed.rearrange(units.devices)
        worst = placed.fullest()
        if placed.memory[worst] > placed.capacity:
            raise error or placed.out_of_memory(worst, 0.0)
        self.clocks.retime(placed.devices)
        return self._outcome(num_relocations + moves)

    def _outcome(self, num_relocations: int) -> SubOpPlacement:
        placed = self.placed
        return SubOpPlacement(
            devices=[tuple(devices) for devices in placed.devices],
            starts_s=[tuple(starts) for starts in self.clocks.starts],
            makespan_s=self.clocks.makespan_s,
            memory_bytes=placed.memory,
            num_relocations=num_relocations,
            num_out_of_range=0 if placed.window is None or self.is_strict else placed.num_out_of_range(),
        )

    def _place(self, index: int, node: Node) -> None:
        self.placed.begin()
        self.clocks.begin()
        self.relocation.add(index)
        for part in range(node.num_parts):
            unit = self.placed.unit(index, node, part)
            ready = self.clocks.ready(node, part)
            device = self._choose(index, node, part, unit, ready)
            self.placed.put(index, part, unit, device)
            self.clocks.run(node, device, ready)

    def _choose(self, index: int, node: Node, part: int, unit: int, ready: float) -> int:
        fixed = self.placed.device_of[unit]
        mask = self.placed.mask(index, part) if self.placed.binding[index] else self.placed.everyone
        if fixed >= 0:
            if self.is_strict and not mask >> fixed & 1:
                self.relocation.put_in_range(index, part, unit, fixed)
            return self.placed.device_of[unit]
        need = self.placed.bytes_of[unit]
        candidates = self.placed.with_room(mask, need)
        if candidates:
            return self._earliest(node, part, candidates, ready)
        candidates = self.placed.with_room(self.placed.everyone, need)
        if not candidates:
            emptiest = min(range(self.placed.num_devices), key=self.placed.memory.__getitem__)
            if self.is_strict:
                raise GiveUp(self.placed.out_of_memory(emptiest, need))
            return emptiest
        device = self._most_satisfied(index, part, candidates)
        if self.is_strict:
            self.relocation.put_in_range(index, part, unit, device)
            return self.placed.device_of[unit]
        return device

    def _earliest(self, node: Node, part: int, candidates: list[int], ready: float) -> int:
        free = self.clocks.free_s
        first = max(ready, min(free[d] for d in candidates))
        beside = self._beside_data(node, part)
        if beside >= 0 and max(ready, free[beside]) <= first + LOCALITY_SLACK_S and beside in candidates:
            return beside
        return next(d for d in candidates if free[d] <= first)

    def _beside_data(self, node: Node, part: int) -> int:
        """Return the device of the part, like this one, of the largest input; -1 without inputs."""
        if not node.reads:
            return part % self.placed.num_devices
        read = max(node.reads, key=lambda r: (r.relation in ("aligned", "same_part"), r.num_bytes))
        devices = self.placed.devices[read.node]
        return devices[part * len(devices) // node.num_parts]

    def _most_satisfied(self, index: int, part: int, candidates: list[int]) -> int:
        """Return the device that most windows of the inputs hold, the earliest free of those."""
        votes = [0] * self.placed.num_devices
        for source, i in self.placed.sources(index, part):
            for device in bits(self.placed.outward[self.placed.devices[source][i]]):
                votes[device] += 1
        return min(candidates, key=lambda d: (-votes[d], self.clocks.free_s[d], d))
