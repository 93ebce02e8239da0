"""Assignment: which device each sub-op lies on, what of it moves together, and what that leaves of the memory.

A unit is a set of sub-ops that move together: one parameter shard, or one sub-op.

Example:
    placed = Assignment(nodes, 8, make_window(8, 4), capacity=8e10)
    placed.begin()                               # a node's sub-ops, one after another
    placed.put(0, 0, placed.unit(0, nodes[0], 0), device=3)
"""

from collections.abc import Iterator, Sequence

from rostam_py.errors import MemoryCapacityError
from rostam_py.placement.sip_ml.sub_op_nodes import Node, Read, binds, parts_read, unit_bytes
from rostam_py.placement.sip_ml.window import Window
from rostam_py.units import format_size


class Assignment:
    """The sub-ops of nodes that have been placed so far.

    Attributes:
        devices, units: per node, per part.
        device_of: of each unit, -1 if not placed.
        bytes_of: of each unit, all that its sub-ops will ever take.
        members: of each unit, the sub-ops placed so far.
        binding: per node, the reads that ask for devices in range.
        needs: shard, or -1 - node without one -> bytes of each part.
        memory: per device, bytes.
    """

    def __init__(self, nodes: Sequence[Node], num_devices: int, window: Window | None, capacity: float) -> None:
        self.nodes, self.num_devices, self.window, self.capacity = nodes, num_devices, window, capacity
        self.memory = [0.0] * num_devices
        self.devices: list[list[int]] = []
        self.units: list[list[int]] = []
        self.device_of: list[int] = []
        self.bytes_of: list[float] = []
        self.members: list[list[tuple[int, int]]] = []
        self.binding = self._binding_reads()
        self.needs = unit_bytes(nodes)
        self.everyone = (1 << num_devices) - 1
        self.outward = window.outward if window is not None else ()
        self.inward = window.inward if window is not None else ()
        self._shards: dict[tuple[int, int], int] = {}

    def _binding_reads(self) -> list[tuple[Read, ...]]:
        """Return, per node, the reads that ask for devices in range."""
        nodes, window = self.nodes, self.window
        if window is None:
            return [() for _ in nodes]
        return [
            tuple(r for r in node.reads if binds(r, node.num_parts, nodes[r.node].num_parts, window)) for node in nodes
        ]

    def begin(self) -> None:
        """Go on to the next node."""
        self.devices.append([])
        self.units.append([])

    def unit(self, index: int, node: Node, part: int) -> int:
        """Return the unit of a sub-op that is placed next."""
        if node.beside >= 0:
            return self.units[node.beside][part]
        key = (node.shard, part)
        if node.shard >= 0 and key in self._shards:
            return self._shards[key]
        unit = len(self.device_of)
        self.device_of.append(-1)
        self.bytes_of.append(self.needs[node.shard if node.shard >= 0 else -1 - index][part])
        self.members.append([])
        if node.shard >= 0:
            self._shards[key] = unit
        return unit

    def put(self, index: int, part: int, unit: int, device: int) -> None:
        """Note that a sub-op of a unit lies on a device."""
        self.settle(unit, device)
        self.members[unit].append((index, part))
        self.units[index].append(unit)
        self.devices[index].append(device)

    def settle(self, unit: int, device: int) -> None:
        """Give a unit that has no device yet this one, and its memory."""
        if self.device_of[unit] < 0:
            self.device_of[unit] = device
            self.memory[device] += self.bytes_of[unit]

    def shift(self, unit: int, device: int) -> None:
        """Put a unit, with its sub-ops, on another device."""
        self.memory[self.device_of[unit]] -= self.bytes_of[unit]
        self.memory[device] += self.bytes_of[unit]
        self.device_of[unit] = device
        for index, part in self.members[unit]:
            self.devices[index][part] = device

    def rearrange(self, devices: list[int]) -> None:
        """Put every unit on the device that is given for it."""
        self.device_of = devices
        self.memory = [0.0] * self.num_devices
        for unit, device in enumerate(self.device_of):
            self.memory[device] += self.bytes_of[unit]
            for index, part in self.members[unit]:
                self.devices[index][part] = device

    def sources(self, index: int, part: int) -> Iterator[tuple[int, int]]:
        """Yield (node, part) of all that a sub-op must be in range of."""
        num_parts = self.nodes[index].num_parts
        for read in self.binding[index]:
            for i in parts_read(read.relation, part, num_parts, self.nodes[read.node].num_parts):
                yield read.node, i

    def mask(self, index: int, part: int) -> int:
        """Return the devices in the windows of all that a sub-op reads from."""
        mask = self.everyone
        for source, i in self.sources(index, part):
            mask &= self.outward[self.devices[source][i]]
        return mask

    def with_room(self, mask: int, need: float) -> list[int]:
        """Return the devices of a mask that have room for so many bytes."""
        room = self.capacity - need
        if mask == self.everyone:
            return [d for d, used in enumerate(self.memory) if used <= room]
        return [d for d, used in enumerate(self.memory) if mask >> d & 1 and used <= room]

    def fullest(self) -> int:
        """Return the device that holds most."""
        return max(range(self.num_devices), key=self.memory.__getitem__)

    def edges(self) -> set[tuple[int, int]]:
        """Return (unit, unit that reads from it) where that asks for devices in range."""
        found = set()
        for index, node in enumerate(self.nodes):
            for part in range(node.num_parts):
                reader = self.units[index][part]
                found |= {(self.units[s][i], reader) for s, i in self.sources(index, part)}
        return {(a, b) for a, b in found if a != b}

    def num_out_of_range(self) -> int:
        """Return the pairs of sub-ops, one reading the other, that are out of range."""
        return sum(
            not self.outward[self.devices[s][i]] >> device & 1
            for index, devices in enumerate(self.devices)
            for part, device in enumerate(devices)
            for s, i in self.sources(index, part)
        )

    def out_of_memory(self, device: int, need: float) -> MemoryCapacityError:
        """Return the error of a device that has no room for so many more bytes."""
        total = self.memory[device] + need
        return MemoryCapacityError(
            f"device {device} of a model-parallel group of {self.num_devices} would need"
            f" {format_size(round(total))} or more (placing stopped there), but one accelerator has"
            f" {format_size(round(self.capacity))}: {format_size(round(total - self.capacity))}"
            " too much. Raise strategy.mp, lower the global batch, or take a larger accelerator"
        )
