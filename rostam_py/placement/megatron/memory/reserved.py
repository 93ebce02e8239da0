"""What PyTorch's caching allocator holds besides what lives at once (software.rules.allocator=torch).

Model: memory that was taken on a stream serves that stream alone, so that the most of each adds up: what FSDP2's units
are gathered into, two that follow each other in forward, the root first, and where each rank adds up whole gradients
its shares of them, which come while the whole ones go. What is freed serves what fits into it: the place of 16-bit
logits none of the fp32 tensors that an eager loss makes of them. What blocks hand on is in blocks.py. Ignores
all other fragmentation, and what libraries take themselves.
Source: get_pool and get_free_block in c10/cuda/CUDACachingAllocator.cpp of pytorch/pytorch; AllGatherState ("the next
FSDP parameter group free it after its copy-in"), get_all_gather_streams and foreach_reduce in its
torch/distributed/_composable/fsdp; expandable segments, as torchtitan runs, leave no more than that.
"""

from collections.abc import Sequence

from rostam_py.placement.megatron.writers.template_context import TemplateContext
from rostam_py.placement.megatron.writers.weight_gathers import unit_gathers


def reserved_in_turn(logits: float, slack: float, gradients: int) -> float:
    """Return what the place of 16-bit logits adds to the most that lives at once.

    Args:
        logits: their bytes.
        slack: by how much the turn from forward to backward takes more before there are weights' gradients than what
            follows takes without them.
        gradients: by how much what follows takes more with them.
    """
    return max(0.0, logits + min(0.0, slack) - gradients)


def reserved_for_gathers(context: TemplateContext, chunks: Sequence[int], num_ahead: int) -> int:
    """Return the bytes of what units are gathered into, but for those that are counted as gathered ahead of their use.

    Args: chunks: stages that the device holds. num_ahead: units.
    """
    most = 0
    for stage in chunks if context.state.copies_units else ():
        units = context.units[stage]
        sizes = [sum(size for _, size in gathers) for gathers in unit_gathers(context, units)]
        others = [size for unit, size in enumerate(sizes) if unit not in units.lasting]
        row = [sum(sizes[unit] for unit in units.lasting), *others]
        two = max(a + b for a, b in zip(row, [*row[1:], 0], strict=True))
        most = max(most, two - num_ahead * max(others, default=0))
    return most
