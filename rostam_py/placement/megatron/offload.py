"""Activations of blocks that lie in the host's memory between forward and backward (strategy.offload_blocks).

Model: as Megatron-Core's cpu_offloading_num_layers (Transformer Engine's pytorch/cpu_offload.py). What each of the
first n blocks keeps for backward is copied to the host behind its forward and back in front of its backward, at the
accelerator's ``host_bandwidth_bytes_per_s``, while the block behind it computes, which does not end before the copy
does. So block b + 1 lasts max(its kernels, the copy of block b) in both phases; what it lacks is a kernel without work
at its end, of the family ``host_copy``. On the device are the blocks that are not copied and, while block b <= n
computes, block b - 1: where two blocks or more stay, the last forward needs no more than those that stay.
Ignores that copies share the memory's and the host's bandwidth, and communication during kernels, which hides copies,
too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rostam_py.graph import OperatorGraph
from rostam_py.placement.kernel import Kernel
from rostam_py.placement.kernels import KernelBuilder
from rostam_py.placement.memory.device_memory import stored_bytes
from rostam_py.plan.tasks import KernelTime

OFFLOAD = "rostam.offload"


@dataclass(frozen=True, slots=True)
class Offload:
    """What is copied to the host.

    block_bytes: copied block -> what it keeps, in the order of blocks. kept_bytes: likewise of the blocks that stay.
    bytes_per_s: of copies, one way.
    """

    block_bytes: Mapping[int, float] = field(default_factory=dict)
    kept_bytes: Mapping[int, float] = field(default_factory=dict)
    bytes_per_s: float = 0.0

    @property
    def freed_bytes(self) -> float:
        """By how much the most that blocks take on the device at once is less than all of them [bytes]."""
        copied, kept = list(self.block_bytes.values()), list(self.kept_bytes.values())
        pairs = pairwise([*copied, *kept[:1]])  # a block and the one before it, which is on its way
        return sum(copied) - max(0.0, max(map(sum, pairs), default=0.0) - sum(kept))

    def waits(self, graph: OperatorGraph, kernels: Sequence[Kernel]) -> dict[int, KernelTime]:
        """Return, by position, what runs behind kernels of a template until their concurrent copies have ended."""
        seconds: dict[int, float] = {}
        last: dict[int, int] = {}
        for position, kernel in enumerate(kernels):
            block = graph.ops[kernel.ops[0]].block
            if block >= 0:
                seconds[block] = seconds.get(block, 0.0) + kernel.time.duration_s
                last[block] = position
        blocks, found = sorted(seconds), dict[int, KernelTime]()
        for before, block in pairwise(blocks):
            lacking = self.block_bytes.get(before, 0.0) / (self.bytes_per_s or 1.0) - seconds[block]
            if lacking > 0:
                found[last[block]] = KernelTime(
                    name="copies to and from the host", module="", op_type=OFFLOAD, duration_s=lacking
                )
        return found


def offload(
    graph: OperatorGraph, builder: KernelBuilder, saved: set[int], blocks: Sequence[int], count: int, bytes_per_s: float
) -> Offload:
    """Return what is copied of the first ``count`` blocks.

    Args:
        saved: what the device keeps for backward.
        blocks: all of the model, in order.
    Cost: linear in saved.
    """
    of_block: dict[int, set[int]] = {block: set() for block in blocks}
    for t in saved:
        maker = graph.tensors[t].producer
        if maker is not None and graph.ops[maker].block in of_block:
            of_block[graph.ops[maker].block].add(t)
    held = {block: stored_bytes(graph, builder, kept) for block, kept in of_block.items()}
    copied, kept = ({block: held[block] for block in part} for part in (blocks[:count], blocks[count:]))
    return Offload(copied, kept, bytes_per_s)
