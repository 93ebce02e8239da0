"""What units that share their weights hold whole at once (ZeRO 3), the most of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rostam_py.placement.megatron.templates import template_steps
from rostam_py.placement.megatron.writers.template_context import TemplateContext
from rostam_py.placement.megatron.writers.weight_gathers import gather_order, unit_gathers
from rostam_py.plan.phases import BACKWARD, BACKWARDS, FORWARD, chunk_of, phase_of
from rostam_py.plan.program import Program
from rostam_py.plan.state_sharding import StateSharding
from rostam_py.plan.tasks import Task


@dataclass(frozen=True, slots=True)
class GatheredMemory:
    """Bytes on a device. kept: all the time. of_phases: of each chunk, the most in a phase besides.

    gradients: of each chunk's largest unit, while its backward runs; of_phases counts them.
    """

    kept: int = 0
    of_phases: Sequence[Mapping[str, int]] = ()
    gradients: Sequence[int] = ()

    def peak(self, program: Program, activations: Mapping[str, tuple[float, float]]) -> float:
        """Return the most bytes of these and of activations at once. Args: activations: what templates add."""
        changes = {}
        for name, (begin, end) in activations.items():
            chunk = self.of_phases[chunk_of(name) or 0] if self.of_phases else {}
            phase = phase_of(name)
            held = chunk.get(BACKWARD if phase in BACKWARDS else phase, 0)
            changes[name] = begin + held, end - held
        return self.kept + program.peak(changes)

    def changes(
        self, gathered: Mapping[str, Sequence[tuple[int, int]]], templates: Mapping[str, Sequence[Task]]
    ) -> dict[str, tuple[tuple[int, int], ...]]:
        """Return what comes and goes in every template: its gathered weights, and in backward gradients.

        Args: gathered: of templates, as StageTemplates has it; weights that are kept are dropped behind backward.
        """
        if not self.of_phases:
            return {}
        forwards = {chunk_of(name): found for name, found in gathered.items() if phase_of(name) == FORWARD}
        found = {}
        for name, tasks in templates.items():
            changes = list(gathered.get(name, ()))
            if phase_of(name) in BACKWARDS:
                size = self.gradients[chunk_of(name) or 0]
                left = sum(size for _, size in forwards[chunk_of(name)])
                end = sum(len(task.kernels) for task in tasks if not task.is_optimizer)
                changes = [(0, size), *changes, (end, -size - left)]
            found[name] = tuple(changes)
        return found


def gathered_memory(
    context: TemplateContext, chunks: Sequence[int], gradient_bytes: tuple[int, int], slack: Sequence[float]
) -> GatheredMemory:
    """Return the most bytes of whole weights, and of gradients to be reduced, on a device at once.

    Model: weights from the start of their gather to their last use in forward or backward, of one chunk at a time; all
        of them from forward to backward where none is dropped in between; in backward the gradients of the largest
        unit as well, but for what the loss took before there were any.
    Args:
        chunks: stages that the device holds.
        gradient_bytes: of one parameter, of the largest unit (unit_gradient_bytes) and of those that outlast it.
        slack: of every stage, bytes by which the turn from forward to backward takes more before there are gradients
            than what follows.
    Cost: kernels of the stages.
    """
    if not context.state.shares_weights:
        return GatheredMemory()
    each = [_of_stage(context, stage, gradient_bytes) for stage in chunks]
    gradients = [max(0, size - max(0, int(slack[stage]))) for (_, _, size), stage in zip(each, chunks, strict=True)]
    if context.state.is_resharded:
        phases = [
            {FORWARD: forward, BACKWARD: backward + size}
            for (forward, backward, _), size in zip(each, gradients, strict=True)
        ]
        return GatheredMemory(0, phases, gradients)
    return GatheredMemory(sum(forward for forward, _, _ in each), [{BACKWARD: size} for size in gradients], gradients)


def unit_gradient_bytes(state: StateSharding, made: int, reduced: int) -> tuple[int, int]:
    """Return the bytes of a gradient in the largest unit, and in units that outlast a block's backward.

    Model: as wide as it is reduced, or as it is made where whole ones are added up. Of units that are copied into what
        is reduced those of one are there as they are made, and what is reduced of the one before; the root's as made.
    Source: foreach_reduce and post_backward in pytorch/pytorch, torch/distributed/_composable/fsdp.
    """
    if state.copies_units:
        return made + reduced, made
    return (reduced if state.reduces_every_microbatch else made), 0


def _of_stage(context: TemplateContext, stage: int, gradient_bytes: tuple[int, int]) -> tuple[int, int, int]:
    """Return the most bytes of weights in forward and in backward, and those of a unit's gradients."""
    units, state = context.units[stage], context.state
    sizes = [sum(size for _, size in gathers) for gathers in unit_gathers(context, units)]
    sizes = [0 if unit in units.staying else size for unit, size in enumerate(sizes)]
    uses = {
        phase: units.used_in(phase, [kernel for kernel, _ in template_steps(context, stage, phase)])
        for phase in (FORWARD, BACKWARD)
    }
    counts = [sum(n for replicas, n in parts.items() if context.shares_state(replicas)) for parts in units.parts]
    in_turn = [n for unit, n in enumerate(counts) if not state.copies_units or unit not in units.lasting]
    gradients = max(in_turn, default=0) * gradient_bytes[0]
    gradients += sum(counts[unit] for unit in units.lasting) * gradient_bytes[1]
    if not state.is_resharded:
        whole = sum(sizes[unit] for unit in {u for found in uses[FORWARD] for u in found})
        return whole, whole, gradients
    peaks = {phase: gather_order(found, units.lasting, state.prefetch).peak(sizes) for phase, found in uses.items()}
    return peaks[FORWARD], peaks[BACKWARD], gradients
