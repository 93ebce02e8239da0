"""What the devices of a stage hold besides trained weights: frozen weights, buffers, and inputs kept for backward.

Model: frozen weights, and buffers that act as one, lie as trained weights do, split over tp where their op splits
them. Of another buffer, and of an input that backward reads, a member holds what the ops that read it take: a slice
if they split it, else all of it. Every stage that reads them has its own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rostam_py.graph import Op, OperatorGraph
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.megatron.pipeline import StageAssignment


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes of one device. weights: frozen ones and buffers. inputs: of one micro-batch."""

    weights: int = 0
    inputs: float = 0.0


def resident_memory(
    graph: OperatorGraph, builder: KernelBuilder, stages: StageAssignment, is_recomputed: bool,
    widths: Mapping[int, float],
) -> list[Resident]:  # fmt: skip
    """Return what every stage holds.

    Args:
        is_recomputed: blocks are replayed in full, so that inputs they read in forward are kept as well.
        widths: of weights in the products' width, over that of activations.
    Cost: linear in ops.
    """
    return _Residents(graph, builder, stages, is_recomputed, widths).run()


class _Residents:
    def __init__(
        self, graph: OperatorGraph, builder: KernelBuilder, stages: StageAssignment, is_recomputed: bool,
        widths: Mapping[int, float],
    ) -> None:  # fmt: skip
        self.graph, self.builder, self.stages, self.is_recomputed = graph, builder, stages, is_recomputed
        self.widths = widths
        self.kinds = {t.id: t.kind for t in graph.tensors if t.kind in ("frozen", "buffer", "input")}
        self.weights = {t.id for t in graph.weights}
        self.shares: dict[tuple[int, int], float] = {}  # (stage, tensor) -> part of it that a member reads there
        self.behind: dict[int, dict[int, float]] = {}  # tensor that each stage derives for itself -> what from

    def run(self) -> list[Resident]:
        roots = self.graph.view_roots
        for op in self.graph.ops:
            if not op.is_metadata:
                self._visit(op, roots)
        read = {tensor for _, tensor in self.shares}
        unread = [t for t, kind in self.kinds.items() if kind != "input" and t not in read]
        self.shares.update(((0, t), 1.0) for t in unread)
        weights, inputs = [0] * self.stages.num_stages, [0.0] * self.stages.num_stages
        for (stage, tensor), share in self.shares.items():
            if self.kinds[tensor] == "input":
                inputs[stage] += self.builder.tensor_bytes(tensor, whole=True) * share
            else:
                weights[stage] += math.ceil(self._weight_bytes(tensor, share) - 1e-6)
        return [Resident(w, i) for w, i in zip(weights, inputs, strict=True)]

    def _visit(self, op: Op, roots: tuple[int, ...]) -> None:
        reads: dict[int, float] = {}
        for t in op.inputs:
            root = roots[t]
            if root in self.kinds and self._counts(op, root):
                reads[root] = max(reads.get(root, 0.0), self.builder.read_share(op, t))
            for source, share in self.behind.get(root, {}).items():
                reads[source] = max(reads.get(source, 0.0), share)
        if not reads:
            return
        if op.phase == "forward" and all(self.stages.is_local[t] for t in op.outputs):
            self.behind.update(dict.fromkeys(op.outputs, reads))
            return
        stage = self.stages.op_stages[op.id]
        for tensor, share in reads.items():
            self.shares[stage, tensor] = max(self.shares.get((stage, tensor), 0.0), share)

    def _counts(self, op: Op, tensor: int) -> bool:
        """Tell whether a device must hold the tensor for this op: inputs only for what runs in backward."""
        if self.kinds[tensor] != "input" or op.phase == "backward":
            return True
        return self.is_recomputed and op.block >= 0

    def _weight_bytes(self, tensor: int, share: float) -> float:
        if tensor in self.weights:
            return self.builder.tensor_bytes(tensor) * self.widths.get(tensor, 1.0)
        return self.builder.tensor_bytes(tensor, whole=True) * share
