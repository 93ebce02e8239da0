"""What the turn from forward to backward takes besides what is kept: the loss's gradients, as wide as a vocabulary.

Model: of kernels' results in backward those are counted that another kernel reads, from the kernel that writes them to
the last one that reads them, less what was kept and is read no more by then; gradients of weights count elsewhere. The
walk ends where the first repeated block's backward begins. Ignores what forward makes there for a moment, which is
less; what blocks' own kernels hand to one another is in blocks.py.
Source: PyTorch's cross_entropy, as torchtitan calls it: log-probabilities, and their gradient and that of the logits at
once, in fp32 (Korthikanti et al. 2022, section 4.3, keep logits in 4 bytes, too).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rostam_py.graph import Derived, OperatorGraph
from rostam_py.placement.kernel import Kernel
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.megatron.pipeline import StageAssignment


@dataclass(frozen=True, slots=True)
class Turn:
    """Bytes of a turn beyond what is kept, at their most and at its end.

    before, with_weights: before, and from the first kernel on that makes a gradient of a weight. freed: by which less
    than what was kept is there when the first block's backward begins.
    """

    before: float
    with_weights: float
    freed: float


def turn_bytes(
    graph: OperatorGraph,
    kernels: Sequence[Kernel],
    builder: KernelBuilder,
    assignment: StageAssignment,
    kept: Sequence[Collection[int]],
    derived: Derived,
) -> list["Turn"]:
    """Return the passing bytes of every stage's turn from forward to backward.

    Args:
        kept: of every stage, what it keeps for backward.
        derived: what kernels compute again, and out of what.
    Cost: linear in kernels.
    """
    stages = backward_by_stage(graph, kernels, assignment)
    return [_Turn(graph, builder, found, own, derived).most() for found, own in zip(stages, kept, strict=True)]


def backward_by_stage(
    graph: OperatorGraph, kernels: Sequence[Kernel], assignment: StageAssignment
) -> list[list[Kernel]]:
    """Return the kernels of every stage's backward in their order, without views."""
    found: list[list[Kernel]] = [[] for _ in range(assignment.num_stages)]
    for kernel in kernels:
        first = kernel.ops[0]
        if graph.ops[first].phase == "backward" and not kernel.is_view:
            found[assignment.op_stages[first]].append(kernel)
    return found


class Passing:
    """What kernels of a stage's backward hand to one another. freed: kernel -> kept bytes that it is the last to read.

    last_read: memory -> the last kernel that reads it.
    """

    def __init__(
        self,
        graph: OperatorGraph,
        builder: KernelBuilder,
        kernels: list[Kernel],
        kept: Collection[int],
        derived: Derived,
    ) -> None:
        self.graph, self.builder, self.kernels = graph, builder, kernels
        self.last_read = {
            self.memory(source): place
            for place, kernel in enumerate(kernels)
            for t in kernel.inputs
            for source in derived.get(graph.view_roots[t], (t,))
        }
        self.kept: dict[int, float] = {}
        for t in kept:
            memory = self.memory(t)
            self.kept[memory] = max(self.kept.get(memory, 0.0), builder.stored_bytes(t))
        self.freed: dict[int, float] = {}
        for memory, size in self.kept.items():
            place = self.last_read.get(memory, len(kernels))
            self.freed[place] = self.freed.get(place, 0.0) + size

    def made(self, kernel: Kernel) -> dict[int, float]:
        """Return what other kernels read of a kernel's results."""
        graph = self.graph
        own = {self.memory(t): t for t in kernel.outputs if t not in graph.gradient_tensors}
        return {
            memory: self.builder.passing_bytes(t)
            for memory, t in own.items()
            if memory in self.last_read and memory not in self.kept
        }

    def memory(self, tensor: int) -> int:
        """Return what tells tensors that lie in the same memory."""
        storage = self.graph.tensors[tensor].storage
        return storage if storage >= 0 else -2 - self.graph.view_roots[tensor]


class _Turn(Passing):
    def most(self) -> Turn:
        """Return the most bytes that are there and were not when the backward began, and how many are gone."""
        passing: dict[int, float] = {}
        most = [0.0, 0.0]
        freed = 0.0
        is_behind = False
        for place, kernel in enumerate(self.kernels):
            if self.graph.ops[kernel.ops[0]].block >= 0:
                break
            passing.update(self.made(kernel))
            inside = max(self.builder.bytes_inside(self.graph.ops[op]) for op in kernel.ops)
            is_behind = is_behind or any(t in self.graph.gradient_tensors for t in kernel.outputs)
            most[is_behind] = max(most[is_behind], sum(passing.values()) + inside - freed)
            freed += self.freed.get(place, 0.0)
            passing = {memory: size for memory, size in passing.items() if self.last_read[memory] > place}
        return Turn(most[0], most[1], max(0.0, freed - sum(passing.values())))
