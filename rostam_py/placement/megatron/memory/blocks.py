"""What kernels of a block's backward hand to one another, the most of it at once (software.rules.allocator=torch).

Model: as the turn from forward to backward (turn.py), over every block: a kernel's results from when it runs to
their last reader, what is gathered over tp from then to its last reader, what is summed whole until it is scattered,
the casts of a kernel's inputs while it runs, and what attention over cp hands on inside; less what was kept for the
block, or made again for it, and is read no more. Compiled element-wise kernels write into what they are the last to
read (inplace_buffers of torch/_inductor/config.py). DTensor joins what it gathers, and cuts what it scatters, by
copies. Ignores gradients of weights, which count elsewhere, rows of experts while they are sent, what a stage receives
for its backward, and what forward makes for a moment, which has no gradients next to it.
"""

from collections.abc import Callable, Collection, Sequence

from rostam_py.graph import Derived, OperatorGraph
from rostam_py.placement.kernel import Kernel
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.megatron.memory.turn import Passing, backward_by_stage
from rostam_py.placement.megatron.pipeline import StageAssignment
from rostam_py.placement.sharding import Gather


def block_bytes(
    graph: OperatorGraph,
    kernels: Sequence[Kernel],
    builder: KernelBuilder,
    assignment: StageAssignment,
    kept: Sequence[Collection[int]],
    derived: Derived,
    *,
    kept_whole: Collection[int],
    copies: bool,
    is_replayed: bool,
    inside: Callable[[Kernel], float] | None,
) -> list[float]:
    """Return of every stage the most bytes that are there in a block's backward, beyond what was when it began.

    Args:
        kept: of every stage, what it keeps for backward.
        derived: what kernels compute again, and out of what.
        kept_whole: tensors that lie there as they were gathered.
        copies: what is gathered is joined, and what is scattered cut, by copies (tp_style=dtensor).
        is_replayed: each block has what backward reads of it made again when its backward begins.
        inside: returns the bytes that a kernel's steps hand on.
    Cost: linear in kernels.
    """
    stages = backward_by_stage(graph, kernels, assignment)
    return [
        _Blocks(graph, builder, found, own, derived).most(kept_whole, copies, is_replayed, inside)
        for found, own in zip(stages, kept, strict=True)
    ]


class _Blocks(Passing):
    def most(
        self, kept_whole: Collection[int], copies: bool, is_replayed: bool, inside: Callable[[Kernel], float] | None
    ) -> float:
        """Return the most bytes, 0 where there never are more than when a block's backward begins."""
        sharding, builder = self.builder.sharding, self.builder
        last_gathered = {
            gather: place
            for place, kernel in enumerate(self.kernels)
            for op in kernel.ops
            for gather in sharding.gathers.get(op, ())
            if gather.tensor not in kept_whole
        }
        most, freed, block = 0.0, 0.0, -1
        passing: dict[int, float] = {}
        gathered: dict[Gather, float] = {}
        for place, kernel in enumerate(self.kernels):
            ops = [self.graph.ops[op] for op in kernel.ops]
            if is_replayed and ops[0].block != block:
                freed = 0.0
            block = ops[0].block
            before = sum(passing.values()) - freed
            for gather in (g for op in kernel.ops for g in sharding.gathers.get(op, ()) if g in last_gathered):
                if gather not in gathered:
                    gathered[gather] = builder.gathered_bytes(gather, sharding.gathered_fraction(gather))
                    if block >= 0:  # what the loss gathers counts in the turn
                        copied = gathered[gather] if copies else 0.0
                        most = max(most, before + sum(gathered.values()) + copied)
            made = self.made(kernel)
            size = sum(made.values())
            if all(op.is_elementwise and builder.rules.is_fused(op) for op in ops):
                size -= min(size, sum(held for memory, held in passing.items() if self.last_read[memory] == place))
            size += 0.0 if inside is None else inside(kernel)
            size += sum(cast.call.bytes_written for cast in kernel.casts if cast.call is not None)
            if block >= 0:
                most = max(most, before + sum(gathered.values()) + size)
            passing.update(made)
            for t in kernel.outputs:
                memory = self.memory(t)
                if memory in made and any(comm.kind == "reduce_scatter" for comm in sharding.comms.get(t, ())):
                    if copies and block >= 0:
                        most = max(most, sum(passing.values()) + sum(gathered.values()) + made[memory] - freed)
                    passing[memory] = builder.tensor_bytes(t, whole=True)
            freed += self.freed.get(place, 0.0)
            passing = {memory: held for memory, held in passing.items() if self.last_read[memory] > place}
            gathered = {gather: held for gather, held in gathered.items() if last_gathered[gather] > place}
        return most
