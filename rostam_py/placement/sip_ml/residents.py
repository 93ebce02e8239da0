"""Residents: what the sub-ops of a sip_ml group read of buffers and, in backward, of the model's inputs.

Model: every sub-op has its slice of them, or all of it if its op does not split it.
"""

from dataclasses import dataclass

from rostam_py.costs.precision import tensor_bytes_factor
from rostam_py.graph import WHOLE, OperatorGraph
from rostam_py.placement.sip_ml.layouts import Partition


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
