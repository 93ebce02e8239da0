"""Templates: the task lists of one stage's forward, backward and, where they run apart, weight gradients.

A device with several chunks of layers, each a stage of its own, has templates for each of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rostam_py.placement.kernel_work import NO_WORK, KernelWork
from rostam_py.placement.kernels import Kernel
from rostam_py.placement.megatron.context_parallel import GROUP
from rostam_py.placement.megatron.gradients import Gradient
from rostam_py.placement.megatron.order import input_gradients_first
from rostam_py.placement.megatron.weight_units import WeightUnits, bucket_units
from rostam_py.placement.megatron.writers.buckets import Buckets, Pending
from rostam_py.placement.megatron.writers.crossing import Crossing
from rostam_py.placement.megatron.writers.ring_writer import RingWriter
from rostam_py.placement.megatron.writers.task_log import TaskLog
from rostam_py.placement.megatron.writers.template_context import TemplateContext
from rostam_py.placement.megatron.writers.template_writer import TemplateWriter
from rostam_py.placement.megatron.writers.user_buffers import UserBufferWriter
from rostam_py.placement.megatron.writers.weight_gathers import UnitGathers, gather_order, gather_updated, unit_gathers
from rostam_py.placement.schedule import final_templates
from rostam_py.plan.expert_groups import BETWEEN, EXPERTS, INSIDE
from rostam_py.plan.phases import BACKWARD, BACKWARDS, FORWARD, FULL, WEIGHT, chunk_of, phase_of, template_name
from rostam_py.plan.program import Program
from rostam_py.plan.program_rules import MCORE
from rostam_py.plan.tasks import KernelTime, Task


@dataclass(slots=True)
class StageTemplates:
    """What a device of a pipeline runs: name -> tasks, in which order; the FLOPs of one micro-batch.

    gathered: name -> (kernels that have run, bytes of weights that are whole from then on), where ranks share them.
    """

    tasks: dict[str, tuple[Task, ...]]
    program: Program
    work: KernelWork = NO_WORK
    gathered: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


def write_stage(
    context: TemplateContext,
    device: int,
    program: Program,
    gradients: Mapping[int, list[Gradient]],
    optimizer: tuple[KernelTime, ...],
) -> StageTemplates:
    """Return the templates of a device.

    Model: as in Megatron, gradients of which a tp group's members, or several stages, hold summands are summed over the
        replicas (their bucket) first, then over the members, then over the stages. Buckets start with the last
        micro-batch's gradients, chunk by chunk, or, where ranks share them, with each micro-batch's; the other sums
        come last, and the optimizer, which waits for all. All micro-batches but the last add their gradients to what is
        there: as often as all but the first would; all do where buffers are zeroed. Where ranks share gradients, of
        which each adds up its share, that costs nothing, but kernels of their own may copy them into what is reduced.
    Args:
        device: its place in the pipeline.
        gradients: chunk -> gradients that are final when it has run. optimizer: kernels of
            its step, none for a device without parameters.
    """
    result = StageTemplates({}, program)
    finals, chunks = final_templates(program), context.stages.chunks(device)
    numbers = sorted({chunk_of(name) for name in finals}, key=lambda number: number or 0)
    phases = _phases(context, program)
    final = (WEIGHT, FULL) if context.weight_ops else (BACKWARD,)
    for number in numbers:
        for phase in phases:
            is_reduced = phase in final and context.state.reduces_every_microbatch
            writer = _writer(context, phase, adds_gradients=_adds_gradients(context))
            filled = Buckets(writer.log, gradients[number or 0], is_last=False) if is_reduced else None
            gathered = _fill(writer, chunks[number or 0], filled, is_gathered=not context.state.gathers_once)
            if filled is not None:
                filled.flush()
            writer.log.close()
            result.gathered[template_name(phase, number)] = gathered
            result.tasks[template_name(phase, number)] = tuple(writer.log.tasks)
            result.work += writer.work if phase != FULL else NO_WORK  # its halves count
    buckets = _write_finals(context, chunks, finals, gradients, optimizer, result)
    if buckets and context.state.is_gather_overlapped:
        _write_first(context, chunks, numbers, buckets, result)
    if context.state.gathers_once:
        _write_first(context, chunks, numbers, [], result)
    return result


def _phases(context: TemplateContext, program: Program) -> tuple[str, ...]:
    """Return the phases of a chunk's micro-batch."""
    if not context.weight_ops:
        return FORWARD, BACKWARD
    has_full = any(phase_of(name) == FULL for name in program.counts())
    return (FORWARD, BACKWARD, WEIGHT, FULL) if has_full else (FORWARD, BACKWARD, WEIGHT)


def _adds_gradients(context: TemplateContext) -> bool:
    """Tell whether a micro-batch adds gradients to those before, or copies them into what is reduced."""
    return context.builder.rules.copies_gradients or not context.state.reduces_every_microbatch


def _write_finals(
    context: TemplateContext, chunks: Sequence[int], finals: Sequence[str], gradients: Mapping[int, list[Gradient]],
    optimizer: tuple[KernelTime, ...], result: StageTemplates,
) -> list[list[Gradient]]:  # fmt: skip
    """Write the last micro-batch's templates in which gradients are final; return the buckets."""
    pending, buckets = Pending(), list[list[Gradient]]()
    for place, name in enumerate(finals):
        chunk, later = chunk_of(name) or 0, [gradients[chunk_of(other) or 0] for other in finals[place + 1 :]]
        adds = context.gradient_buffer.is_zeroed or context.state.reduces_every_microbatch
        writer = _writer(context, phase_of(name), adds_gradients=adds and _adds_gradients(context))
        groups = {gradient.data_group for others in later for gradient in others} if later else None
        filled = Buckets(writer.log, gradients[chunk], pending=pending, later=groups)
        result.gathered[name] = _fill(writer, chunks[chunk], filled)
        if later:
            pending = filled.leave()
        else:
            filled.flush()
        buckets += filled.started
        writer.log.close()
        if not later:
            _end(writer, optimizer, buckets)
        result.tasks[name] = tuple(writer.log.tasks)
    return buckets


def _end(writer: TemplateWriter, optimizer: tuple[KernelTime, ...], buckets: Sequence[list[Gradient]]) -> None:
    """Append the optimizer step, which waits for all reductions of gradients, to the template that ends an iteration.

    Where ranks share its state but not the weights, they gather the weights that it has updated.
    """
    context = writer.context
    inner = {
        *context.sharding.groups,
        EXPERTS,
        BETWEEN,
        INSIDE,
        GROUP,
        *(label for state in context.states.values() for label in (state.gathered, state.gathered_again)),
    }
    awaited = {t for task in writer.log.tasks for t in task.deps}
    collectives = ((t, task) for t, task in enumerate(writer.log.tasks) if task.kind == "collective")
    finals = {t for t, task in collectives if task.group not in inner or t not in awaited}
    writer.log.tasks.append(
        Task(kind="compute", name="optimizer", deps=tuple(sorted(finals)), kernels=optimizer, is_optimizer=True)
    )
    if buckets and context.state.gathers_updated and not context.state.is_gather_overlapped:
        gather_updated(writer.log, unit_gathers(context, bucket_units(context.graph, buckets)))


def _write_first(
    context: TemplateContext, chunks: Sequence[int], numbers: Sequence[int | None],
    buckets: Sequence[list[Gradient]], result: StageTemplates,
) -> None:  # fmt: skip
    """Write the first micro-batch's forwards, which gather weights: units that stay, or what was updated.

    Args: buckets: of updated weights; each is gathered in its first chunk's.
    """
    stages, left = context.stages.parameter_stages, list(buckets)
    for number in numbers:
        stage = chunks[number or 0]
        own = [bucket for bucket in left if any(stage in stages[g.name] for g in bucket)]
        left = [bucket for bucket in left if bucket not in own]
        writer = _writer(context, FORWARD)
        _fill(writer, stage, None, bucket_units(context.graph, own) if own else None)
        writer.log.close()
        often, first = (template_name(FORWARD, number, is_first=is_first) for is_first in (False, True))
        result.tasks[first] = tuple(writer.log.tasks)
        result.program = result.program.with_first(often, first)


def _writer(context: TemplateContext, phase: str, adds_gradients: bool = False) -> TemplateWriter:
    kind: type[TemplateWriter] = TemplateWriter
    if context.is_tp_overlapped:
        kind = UserBufferWriter if context.tp_style == MCORE else RingWriter
    return kind(context, phase, adds_gradients)


def _fill(
    writer: TemplateWriter, stage: int, filled: Buckets | None, updated: WeightUnits | None = None,
    *, is_gathered: bool = True,
) -> list[tuple[int, int]]:  # fmt: skip
    """Write the messages and kernels of a phase of a stage, and return when weights that ranks share come and go.

    Args: filled: buckets of its gradients. updated: units that are gathered first. is_gathered: weights are, too.
    """
    context, phase = writer.context, writer.phase
    crossing = Crossing(writer.log, stage)
    crossing.receive_all()
    if phase == WEIGHT:
        late = [t for t in sorted(context.late) if _stage_of(context, t) == stage]
        writer.log.find_ready(late)
        for t in late:
            writer.make_whole(t)
    if (stage, phase) not in context.steps:
        context.steps[stage, phase] = template_steps(context, stage, phase)
    steps = context.steps[stage, phase]
    gathers = _gathers(writer.log, stage, [kernel for kernel, _ in steps], updated) if is_gathered else None
    waits = context.offload.waits(context.graph, [kernel for kernel, _ in steps])
    for position, (kernel, is_replay) in enumerate(steps):
        if gathers is not None:
            gathers.before(position)
        writer.run(kernel, is_replay)
        if position in waits:
            writer.log.add(waits[position])
        if not is_replay:
            crossing.send(kernel.outputs)
        if filled is not None and not is_replay:
            filled.add(kernel.outputs)
        if gathers is not None:
            gathers.behind(position)
    if not context.overlaps_messages:
        crossing.await_sends()
    return [] if gathers is None else gathers.changes


def _stage_of(context: TemplateContext, tensor: int) -> int:
    producer = context.graph.tensors[tensor].producer
    return -1 if producer is None else context.stages.op_stages[producer]


def template_steps(context: TemplateContext, stage: int, phase: str) -> list[tuple[Kernel, bool]]:
    """Return the kernels of a template in execution order, each with whether it replays a forward kernel.

    Replays stay where they are when the kernel behind them moves back: others may read their results.
    """
    kernels = context.kernels
    order = _stage_kernels(context, stage, phase)
    if phase not in BACKWARDS:
        return [(kernels[index], False) for index in order]
    steps: list[tuple[Kernel, bool]] = []
    waiting = iter(order)
    replayed: set[int] = set()
    order = input_gradients_first(
        context.sharding, kernels, order, hides=context.is_tp_asynchronous, is_cut=context.is_tp_overlapped
    )
    for index in order:
        while index not in replayed:
            earlier = next(waiting)
            steps += [(kernels[again], True) for again in context.replays.get(earlier, ())]
            replayed.add(earlier)
        steps.append((kernels[index], False))
    return steps


def _gathers(log: TaskLog, stage: int, kernels: Sequence[Kernel], updated: WeightUnits | None) -> UnitGathers | None:
    """Return what gathers the weights that a template's kernels use, None where all are there."""
    context, state = log.context, log.context.state
    units = updated
    needs_weights = log.phase == FORWARD or (log.phase in BACKWARDS and state.is_resharded)
    if units is None and state.shares_weights and needs_weights:
        units = context.units[stage]
    if units is None:
        return None
    uses = units.used_in(log.phase, kernels)
    order = gather_order(uses, units.lasting, None if updated is not None else state.prefetch)
    return UnitGathers(log, uses, order, unit_gathers(context, units, log.phase), units.staying)


def _stage_kernels(context: TemplateContext, stage: int, phase: str) -> list[int]:
    """Return the kernels of a stage and phase in execution order, and the views that the stage needs."""
    if not context.kernels_by_stage:
        context.kernels_by_stage = _by_stage(context)
    if phase == FULL:
        return sorted(
            {index for half in (BACKWARD, WEIGHT) for index in context.kernels_by_stage.get((stage, half), ())}
        )
    return context.kernels_by_stage.get((stage, phase), [])


def _by_stage(context: TemplateContext) -> dict[tuple[int, str], list[int]]:
    """Return (stage, phase) -> kernels; a view is on every stage that makes or uses it, also through other views."""
    graph, stages = context.graph, context.stages
    where: dict[int, set[int]] = {}  # view op -> stages
    ops = graph.ops if stages.num_stages > 1 else ()
    for op in reversed(ops):
        if op.is_metadata:
            where[op.id] = found = {stages.op_stages[op.id]}
            for user in (u for t in op.outputs for u in graph.consumers[t]):
                found.update(where.get(user) or (stages.op_stages[user],))
    for op in ops:
        for t in op.inputs if op.is_metadata else ():
            producer = graph.tensors[t].producer
            if producer is not None:
                where[op.id].update(where.get(producer) or (stages.op_stages[producer],))
    chosen: dict[tuple[int, str], list[int]] = {}
    for index, kernel in enumerate(context.kernels):
        main = graph.ops[kernel.ops[0]]
        if main.id not in stages.skipped:
            for stage in sorted(where.get(main.id, {stages.op_stages[main.id]})):
                chosen.setdefault((stage, context.phase_of(main)), []).append(index)
    return chosen
