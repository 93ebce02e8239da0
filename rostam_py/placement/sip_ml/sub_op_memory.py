"""What devices of a sip_ml group hold beside trained weights: frozen weights, buffers, and inputs kept for backward.

Model: frozen weights, and buffers that act as one, lie in shards as trained ones do. Of another buffer, and of an
input that backward reads, every sub-op that reads it has its slice, or all of it if its op does not split it; a
device holds each region once.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from rostam_py.costs.precision import tensor_bytes_factor
from rostam_py.graph import WHOLE, OperatorGraph
from rostam_py.placement.sip_ml.partition import Partition

if TYPE_CHECKING:
    from rostam_py.placement.sip_ml.algorithm1 import SubOpPlacement
    from rostam_py.placement.sip_ml.sub_ops import SubOpGraph


@dataclass(frozen=True, slots=True)
class SubOpResident:
    """A buffer, or an input kept for backward, that the sub-ops of a node read: each its slice, or all of it.

    num_bytes: of the whole.
    """

    tensor: int
    num_bytes: float
    is_sliced: bool
    is_input: bool


class ResidentFinder:
    """Find what the kernels of a partitioned graph read of buffers and, in backward, of the model's inputs."""

    def __init__(
        self, graph: OperatorGraph, parts: Partition, roots: tuple[int, ...], batch: float, precision: str
    ) -> None:
        self.graph, self.parts, self.roots = graph, parts, roots
        self.batch, self.precision = batch, precision
        self._weights = {t.id for t in graph.weights}
        self._charged: set[tuple[int, int, bool]] = set()

    def read_by(self, kernel: tuple[int, ...]) -> tuple[SubOpResident, ...]:
        """Return what a kernel reads."""
        found: dict[int, SubOpResident] = {}
        for index in kernel:
            op, share = self.graph.ops[index], self.parts.shares[index]
            kinds = ("buffer", "input") if op.phase == "backward" else ("buffer",)
            for place, t in enumerate(op.inputs):
                tensor = self.graph.tensors[self.roots[t]]
                if tensor.kind not in kinds or tensor.id in self._weights:
                    continue
                split = share.split if share is not None else None
                is_sliced = split is not None and split.input_dims[place] is not WHOLE
                if tensor.id not in found or found[tensor.id].is_sliced:
                    size = tensor.num_bytes(self.batch) * tensor_bytes_factor(self.precision, tensor.dtype)
                    found[tensor.id] = SubOpResident(tensor.id, size, is_sliced, tensor.kind == "input")
        return tuple(found.values())

    def charge(self, residents: tuple[SubOpResident, ...], num_parts: int, shard: int) -> float:
        """Return the bytes that one sub-op adds to its device, each tensor once for all nodes of a shard."""
        total = 0.0
        for r in residents:
            key = (r.tensor, shard, r.is_sliced)
            if key not in self._charged:
                total += r.num_bytes / (num_parts if r.is_sliced else 1)
                if shard >= 0:
                    self._charged.add(key)
        return total


@dataclass(slots=True)
class Untrained:
    """Bytes of one device that need no update. placed: what Algorithm 1 took for its buffers and inputs, at least."""

    frozen: int = 0
    buffers: float = 0.0
    inputs: float = 0.0
    placed: float = 0.0


def untrained_memory(sub_ops: "SubOpGraph", placed: "SubOpPlacement", num_devices: int) -> list[Untrained]:
    """Return the frozen weights, buffers and kept inputs of every device; of a tensor each region once."""
    held = [Untrained() for _ in range(num_devices)]
    for size, home in sub_ops.frozen.values():
        for d in placed.devices[home]:
            held[d].frozen += size
    regions: list[dict[SubOpResident, set[tuple[Fraction, Fraction]]]] = [{} for _ in held]
    for node, devices in zip(sub_ops.nodes, placed.devices, strict=True):
        for part, d in enumerate(devices):
            held[d].placed += node.resident_bytes
            for r in node.residents:
                n, j = (node.num_parts, part) if r.is_sliced else (1, 0)
                regions[d].setdefault(replace(r, is_sliced=False), set()).add((Fraction(j, n), Fraction(j + 1, n)))
    for device, found in zip(held, regions, strict=True):
        for r, parts in found.items():
            covered = r.num_bytes * float(_covered(parts))
            if r.is_input:
                device.inputs += covered
            else:
                device.buffers += covered
    return held


def _covered(parts: set[tuple[Fraction, Fraction]]) -> Fraction:
    """Return the length of a union of intervals."""
    total, end = Fraction(0), Fraction(0)
    for low, high in sorted(parts):
        total += max(Fraction(0), high - max(low, end))
        end = max(end, high)
    return total
