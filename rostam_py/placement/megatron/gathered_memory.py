"""What units that share their weights hold whole at once (ZeRO 3), the most of it."""

from rostam_py.placement.megatron.template_writer import TemplateContext
from rostam_py.placement.megatron.templates import template_steps
from rostam_py.placement.megatron.weight_gathers import gather_order, unit_gathers


def gathered_bytes(context: TemplateContext, stage: int, gradient_bytes: int) -> int:
    """Return the most bytes of whole weights, and of gradients to be reduced, on a device of a stage at once.

    Model: weights from the start of their gather to their last use in forward or backward, all of them from forward to
        backward where none is dropped in between; in backward the gradients of the largest unit as well.
    Args: gradient_bytes: of one parameter.
    Cost: kernels of the stage.
    """
    if not context.state.shares_weights:
        return 0
    units, state = context.units[stage], context.state
    sizes = [sum(size for _, size in gathers) for gathers in unit_gathers(context, units)]
    uses = {
        phase: [units.used_by(kernel) for kernel, _ in template_steps(context, stage, phase)]
        for phase in ("forward", "backward")
    }
    gradients = max(sizes, default=0) // context.weight_bytes * gradient_bytes
    if not state.is_resharded:
        return sum(sizes[unit] for unit in {u for found in uses["forward"] for u in found}) + gradients
    peaks = {phase: gather_order(found, units.lasting, state.prefetch).peak(sizes) for phase, found in uses.items()}
    return max(peaks["forward"], peaks["backward"] + gradients)
