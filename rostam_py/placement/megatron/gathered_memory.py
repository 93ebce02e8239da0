"""What units that share their weights hold whole at once (ZeRO 3), the most of it."""

from collections.abc import Sequence

from rostam_py.placement.megatron.template_writer import TemplateContext
from rostam_py.placement.megatron.templates import template_steps
from rostam_py.placement.megatron.weight_gathers import gather_order, unit_gathers
from rostam_py.plan.phases import BACKWARD, FORWARD


def gathered_bytes(context: TemplateContext, chunks: Sequence[int], gradient_bytes: int) -> int:
    """Return the most bytes of whole weights, and of gradients to be reduced, on a device at once.

    Model: weights from the start of their gather to their last use in forward or backward, of one chunk at a time; all
        of them from forward to backward where none is dropped in between; in backward the gradients of the largest
        unit as well.
    Args:
        chunks: stages that the device holds.
        gradient_bytes: of one parameter.
    Cost: kernels of the stages.
    """
    if not context.state.shares_weights:
        return 0
    each = [_of_stage(context, stage, gradient_bytes) for stage in chunks]
    if context.state.is_resharded:
        return max(max(forward, backward + gradients) for forward, backward, gradients in each)
    return sum(forward for forward, _, _ in each) + max(gradients for _, _, gradients in each)


def _of_stage(context: TemplateContext, stage: int, gradient_bytes: int) -> tuple[int, int, int]:
    """Return the most bytes of weights in forward and in backward, and those of a unit's gradients."""
    units, state = context.units[stage], context.state
    sizes = [sum(size for _, size in gathers) for gathers in unit_gathers(context, units)]
    uses = {
        phase: [units.used_by(kernel) for kernel, _ in template_steps(context, stage, phase)]
        for phase in (FORWARD, BACKWARD)
    }
    gradients = max(sizes, default=0) // context.weight_bytes * gradient_bytes
    if not state.is_resharded:
        whole = sum(sizes[unit] for unit in {u for found in uses[FORWARD] for u in found})
        return whole, whole, gradients
    peaks = {phase: gather_order(found, units.lasting, state.prefetch).peak(sizes) for phase, found in uses.items()}
    return peaks[FORWARD], peaks[BACKWARD], gradients
