"""Ops that compute in 32 bits in a run of 16: what they read and make is as wide, and kernels convert it at the border.

Model: ops of complex numbers, of which PyTorch has none of 16 bits that its compiler would fuse, and in eager code the
norms that are written out op by op, whose input ATen and models convert to float32 before its square is taken, and
whose quotient back before it is scaled. What such an op reads of others is converted once, by a kernel in front of its
first reader; what others read of it by one behind it. Ignores that autograd keeps the converted input of a norm where
nothing is recomputed, and what does not grow with the batch.
Source: rms_norm in aten/src/ATen/native/layer_norm.cpp of pytorch/pytorch ("upcast is needed for fp16 and bf16");
torchtitan/models/norms.py and apply_rotary_emb in torchtitan/models/llama/model.py of pytorch/torchtitan, 2024.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from rostam_py.graph import Op, OperatorGraph
from rostam_py.software.norms import is_weight, written_norms

COMPLEX = "complex64"
_CONVERTED = ("float32", COMPLEX)


@dataclass(frozen=True)
class WideOps:
    """The wide ops of a graph. norms: of them those of norms; others are complex."""

    graph: OperatorGraph
    norms: frozenset[int]

    @cached_property
    def complex(self) -> frozenset[int]:
        """Ops that read or make complex numbers, views left out."""
        return frozenset(op.id for op in self.graph.ops if not op.is_metadata and self.is_complex(op))

    def is_complex(self, op: Op) -> bool:
        """Tell whether an op reads or makes complex numbers."""
        return any(self.graph.tensors[t].dtype == COMPLEX for t in (*op.inputs, *op.outputs))

    def __contains__(self, op: int) -> bool:
        return op in self.norms or op in self.complex

    def is_wide(self, op: Op, tensor: int) -> bool:
        """Tell whether an op has a tensor of another dtype than it was traced in 32 bits; complex ones have them."""
        return op.id in self.norms and self._is_converted(tensor)

    def keeps_wide(self, tensor: int) -> bool:
        """Tell whether backward reads complex numbers as they are, not the real ones that they were made into."""
        readers = self.graph.readers.get(self.graph.view_roots[tensor], ())
        return any(self.graph.ops[u].phase == "backward" and u in self.complex for u in readers)

    def converted_before(self, op: Op) -> list[int]:
        """Return what is converted for an op to read, which no wide op has read before."""
        found = []
        for t in dict.fromkeys(op.inputs):
            root = self.graph.view_roots[t]
            producer = self.graph.tensors[root].producer
            is_own = producer is not None and producer in self
            if self._is_converted(t) and not is_own and self._first_readers.get(root) == op.id:
                found.append(t)
        return found

    def converted_behind(self, op: Op) -> list[int]:
        """Return what an op makes that others read in 16 bits."""
        return [
            t for t in op.outputs
            if self._is_converted(t) and any(u not in self for u in self.graph.readers.get(t, ()))
        ]  # fmt: skip

    def _is_converted(self, tensor: int) -> bool:
        t = self.graph.tensors[tensor]
        return t.dtype in _CONVERTED and not is_weight(self.graph, tensor) and any(dim.per_sample for dim in t.shape)

    @cached_property
    def _first_readers(self) -> dict[int, int]:
        """Root tensor -> the first wide op that reads it."""
        return {
            root: first
            for root, readers in self.graph.readers.items()
            if (first := next((u for u in readers if u in self), None)) is not None
        }


def wide_ops(graph: OperatorGraph, eager: Collection[int]) -> WideOps:
    """Return the wide ops of a graph. Args: eager: ops that share no kernel."""
    norms = {i for norm in written_norms(graph) for i in (*norm.statistics, norm.op)}
    norms |= {op.id for op in graph.ops if op.phase == "backward" and op.forward_op in norms and not op.is_metadata}
    return WideOps(graph, frozenset(norms.intersection(eager)))


def norm_numbers(graph: OperatorGraph) -> list[int]:
    """Return of every op the written-out norm that it is part of, forward or backward, -1 for none.

    Model: the product with a weight behind the quotient is part of it, and so are the sums of what its backward makes.
    """
    numbers = [-1] * len(graph.ops)
    for number, norm in enumerate(written_norms(graph)):
        for i in (*norm.statistics, norm.op, *_scaling(graph, graph.ops[norm.op])):
            numbers[i] = number
    for op in graph.ops:
        if op.phase != "backward" or op.is_metadata:
            continue
        if op.forward_op is not None:
            numbers[op.id] = numbers[op.forward_op]
        elif op.is_accumulation:  # the later of its summands: the other is the residual's gradient
            numbers[op.id] = numbers[max(_makers(graph, op), default=op.id)]
    return numbers


def _scaling(graph: OperatorGraph, op: Op) -> list[int]:
    """Return the ops that scale a norm's quotient by a weight."""
    users = [graph.ops[u] for u in graph.readers.get(op.outputs[0], ())]
    pairs = (u for u in users if u.phase == "forward" and u.is_elementwise and len(u.inputs) == 2)
    return [u.id for u in pairs if any(is_weight(graph, t) for t in u.inputs)]


def _makers(graph: OperatorGraph, op: Op) -> list[int]:
    producers = (graph.tensors[graph.view_roots[t]].producer for t in op.inputs)
    return [p for p in producers if p is not None and graph.ops[p].phase == "backward"]
