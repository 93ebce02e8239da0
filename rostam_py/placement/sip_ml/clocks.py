"""Clocks: when each sub-op starts and ends on its device, communication being free.

Example:
    clocks = Clocks(nodes, num_devices=8)
    clocks.retime([[0, 1], [0, 1]])            # the device of each part of each node
    clocks.makespan_s
"""

from collections.abc import Sequence

from rostam_py.placement.sip_ml.sub_op_nodes import Node, parts_read


class Clocks:
    """The clocks of a group's devices. free_s: per device. starts, ends: per node, per part [s]."""

    def __init__(self, nodes: Sequence[Node], num_devices: int) -> None:
        self.nodes = nodes
        self.free_s = [0.0] * num_devices
        self.starts: list[list[float]] = []
        self.ends: list[list[float]] = []

    @property
    def makespan_s(self) -> float:
        """The end of the last sub-op."""
        return max((max(ends) for ends in self.ends), default=0.0)

    def begin(self) -> None:
        """Go on to the next node."""
        self.starts.append([])
        self.ends.append([])

    def run(self, node: Node, device: int, ready: float) -> None:
        """Run the node's next part on a device once what it reads is ready."""
        start = max(self.free_s[device], ready) if node.duration_s > 0 else ready
        self.starts[-1].append(start)
        self.ends[-1].append(start + node.duration_s)
        if node.duration_s > 0:
            self.free_s[device] = start + node.duration_s

    def ready(self, node: Node, part: int) -> float:
        """Return when all that a part reads has been made."""
        ready = 0.0
        for read in node.reads:
            ends = self.ends[read.node]
            if read.relation in ("all", "exchange"):
                ready = max(ready, max(ends))
            else:
                for i in parts_read(read.relation, part, node.num_parts, len(ends)):
                    ready = max(ready, ends[i])
        return ready

    def retime(self, devices: Sequence[Sequence[int]]) -> None:
        """Run the clocks again over the final devices, in the same order."""
        self.free_s = [0.0] * len(self.free_s)
        self.starts, self.ends = [], []
        for index, node in enumerate(self.nodes):
            self.begin()
            for part in range(node.num_parts):
                self.run(node, devices[index][part], self.ready(node, part))
