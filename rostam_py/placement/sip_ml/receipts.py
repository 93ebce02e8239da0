"""Receipts: the bytes that every device of a model-parallel group receives, counted without writing the messages.

What a device receives takes its ports some time whatever it computes meanwhile, so that a search leaves out groups that
send too much before their messages are written, which is what costs.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from rostam_py.placement.sip_ml.algorithm1 import SubOpPlacement, parts_read
from rostam_py.placement.sip_ml.layouts import ALIGNED, ALL, EXCHANGE, SAME_PART
from rostam_py.placement.sip_ml.sub_op_templates import runs_in_ring
from rostam_py.placement.sip_ml.sub_ops import GRADIENT, Flow, SubOpGraph, SubOps
from rostam_py.placement.sip_ml.window import Window


def received_bytes(sub_ops: SubOpGraph, placed: SubOpPlacement, num_devices: int, window: Window | None) -> np.ndarray:
    """Return what each device of a group receives in it at least in one iteration [bytes], floats (num_devices,).

    Model: each slice once, however many sub-ops of the device read it, as ``write_templates`` sends it. Not what a
        device receives only to pass it on, nor what comes from other groups.
    Cost: reads x parts x devices in arrays.
    Source: own; equal to the messages that are written where there is no window
        (tests/placement/sip_ml/test_receipts.py).
    """
    return _Receipts(sub_ops.nodes, placed.devices, num_devices, window).count()


class _Receipts:
    def __init__(
        self, nodes: Sequence[SubOps], where: list[tuple[int, ...]], num_devices: int, window: Window | None
    ) -> None:
        self.nodes, self.window = nodes, window
        self.where = [np.array(devices, dtype=np.int64) for devices in where]
        self.bytes = np.zeros(num_devices)
        self.has_parts: dict[tuple[int, str], np.ndarray] = {}  # (source, key) -> (devices, parts): has it by now
        self.has_slices: dict[tuple[int, str, str, int], set[tuple[int, int]]] = {}  # -> (reader's part, device)

    def count(self) -> np.ndarray:
        for index, node in enumerate(self.nodes):
            is_sum = self.window is not None and runs_in_ring(node, self.nodes, self.window)
            if is_sum:
                self._sum_in_ring(index, node)
            else:
                for flow in node.flows:
                    self._read(index, node, flow)
            if node.kind == GRADIENT and node.is_replicated:
                self._copies(index, node)
        return self.bytes

    def _read(self, index: int, node: SubOps, flow: Flow) -> None:
        count = len(self.where[flow.source])
        if flow.relation == EXCHANGE:
            self._exchange(index, node, flow)
        elif flow.relation in (ALL, SAME_PART) or (flow.relation == ALIGNED and count % node.num_parts == 0):
            self._whole_parts(index, node, flow)
        else:
            self._slices(index, node, flow)

    def _whole_parts(self, index: int, node: SubOps, flow: Flow) -> None:
        """Count whole parts, each once a device."""
        here, there = self.where[index], self.where[flow.source]
        wanted = np.zeros((len(self.bytes), len(there)), dtype=bool)
        if flow.relation == ALL:
            wanted[here] = True
        else:
            for part, d in enumerate(here.tolist()):
                wanted[d, list(parts_read(flow.relation, part, node.num_parts, len(there)))] = True
        wanted[there, np.arange(len(there))] = False
        known = self.has_parts.setdefault((flow.source, flow.key), np.zeros_like(wanted))
        self.bytes += (wanted & ~known).sum(axis=1) * flow.pair_bytes(0, node.num_parts, 0, len(there))
        known |= wanted

    def _exchange(self, index: int, node: SubOps, flow: Flow) -> None:
        """Count what every sub-op reads of the parts on other devices."""
        there = self.where[flow.source]
        elsewhere = len(there) - np.bincount(there, minlength=len(self.bytes))
        each = flow.pair_bytes(0, node.num_parts, 0, len(there))
        for _, d in self._new(index, node, flow):
            self.bytes[d] += each * elsewhere[d]

    def _slices(self, index: int, node: SubOps, flow: Flow) -> None:
        """Count halos, and parts that do not align."""
        there = self.where[flow.source]
        for part, d in self._new(index, node, flow):
            for i in parts_read(flow.relation, part, node.num_parts, len(there)):
                if there[i] != d:
                    self.bytes[d] += flow.pair_bytes(part, node.num_parts, i, len(there))

    def _new(self, index: int, node: SubOps, flow: Flow) -> list[tuple[int, int]]:
        """Return the (part, device) of sub-ops whose slices no like sub-op has read there before."""
        known = self.has_slices.setdefault((flow.source, flow.key, flow.relation, node.num_parts), set())
        found = [one for one in enumerate(self.where[index].tolist()) if one not in known]
        known.update(found)
        return found

    def _sum_in_ring(self, index: int, node: SubOps) -> None:
        """Count a reduce-scatter round the ring: all but the first with a summand get what those before added."""
        flow = node.flows[0]
        own = set(self.where[flow.source].tolist())
        chunks = Counter(self.where[index].tolist())
        num_bytes = flow.num_bytes / len(self.where[flow.source])
        if node.kind == GRADIENT:
            num_bytes = node.part_bytes * node.num_parts
        members = sorted({*own, *chunks})
        place = {d: r for r, d in enumerate(members)}
        for d, count in chunks.items():
            order = members[place[d] + 1 :] + members[: place[d] + 1]
            way = [m for m in order if m in own or m == d]
            self.bytes[way[1:]] += num_bytes * count / node.num_parts

    def _copies(self, index: int, node: SubOps) -> None:
        """Count the slices of a gradient that a device's copy of the parameter gets from the other copies."""
        here = self.where[index]
        held = np.bincount(here, minlength=len(self.bytes)) * float(node.part_bytes)
        copies = np.unique(here)
        self.bytes[copies] += node.part_bytes * node.num_parts - held[copies]
