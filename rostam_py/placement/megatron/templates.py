"""Templates: the task lists of one stage's forward, backward and last backward."""

import math
from collections.abc import Sequence

from rostam_py.placement.kernels import Kernel
from rostam_py.placement.megatron.buckets import Buckets
from rostam_py.placement.megatron.context_parallel import GROUP
from rostam_py.placement.megatron.gradients import Gradient
from rostam_py.placement.megatron.order import input_gradients_first
from rostam_py.placement.megatron.ring_writer import RingWriter
from rostam_py.placement.megatron.template_writer import TemplateContext, TemplateWriter
from rostam_py.placement.megatron.weight_gathers import UnitGathers, gather_order, gather_updated, unit_gathers
from rostam_py.placement.megatron.weight_units import WeightUnits, bucket_units
from rostam_py.plan.expert_groups import EXPERTS
from rostam_py.plan.tasks import KernelTime, Task

FORWARD_FIRST = "forward_first"  # template of the first micro-batch's forward where it gathers updated weights


def write_forward(context: TemplateContext, stage: int) -> TemplateWriter:
    """Return the forward template of a stage."""
    return _write(context, stage, "forward")


def write_forward_first(context: TemplateContext, stage: int, buckets: Sequence[list[Gradient]]) -> TemplateWriter:
    """Return the forward template of the first micro-batch where it gathers updated weights, bucket by bucket."""
    return _write(context, stage, "forward", updated=bucket_units(context.graph, buckets))


def write_backward(context: TemplateContext, stage: int, gradients: list[Gradient]) -> TemplateWriter:
    """Return the backward template of a stage for every micro-batch except the last.

    Args: gradients: reduced behind each micro-batch where ranks share them.
    """
    if not context.state.reduces_every_microbatch:
        return _write(context, stage, "backward")
    return _write(context, stage, "backward", gradients, is_last=False)


def write_backward_last(
    context: TemplateContext, stage: int, gradients: list[Gradient], optimizer: KernelTime | None
) -> tuple[TemplateWriter, list[list[Gradient]]]:
    """Return the last micro-batch's backward, with the optimizer at its end, and the gradient buckets.

    As in Megatron, gradients of which a tp group's members, or several stages, hold summands are summed over the
    replicas (their bucket) first, then over the members, then over the stages; the optimizer waits for all of it.
    Where ranks share its state but not the weights, they gather the weights that it has updated.
    """
    buckets: list[list[Gradient]] = []
    writer = _write(context, stage, "backward", gradients, buckets=buckets)
    inner = {*context.sharding.groups, EXPERTS, GROUP, *(state.gathered for state in context.states.values())}
    awaited = {t for task in writer.tasks for t in task.deps}
    collectives = ((t, task) for t, task in enumerate(writer.tasks) if task.kind == "collective")
    finals = {t for t, task in collectives if task.group not in inner or t not in awaited}
    kernels = () if optimizer is None else (optimizer,)
    writer.tasks.append(Task("compute", "optimizer", tuple(sorted(finals)), kernels=kernels, is_optimizer=True))
    if buckets and context.state.gathers_updated and not context.state.is_gather_overlapped:
        gather_updated(writer, unit_gathers(context, bucket_units(context.graph, buckets)))
    return writer, buckets


def _write(
    context: TemplateContext, stage: int, phase: str, gradients: list[Gradient] | None = None, *,
    is_last: bool = True, buckets: list[list[Gradient]] | None = None, updated: WeightUnits | None = None,
) -> TemplateWriter:  # fmt: skip
    """Return a template. Args: buckets: filled with those of the gradients. updated: units that are gathered first."""
    writer = RingWriter(context, phase) if context.is_tp_overlapped else TemplateWriter(context, phase)
    is_forward = phase == "forward"
    flow = context.stages.up if is_forward else context.stages.down
    offset = 1 if is_forward else -1
    before, after = stage - offset, stage
    arriving = flow[before] if 0 <= before < context.stages.num_stages else []
    leaving = set(flow[after])
    size = {t: _message_bytes(context, t) for t in set(arriving) | leaving}
    for t in arriving:
        writer.receive(t, size[t], -offset)
        if t in leaving:
            writer.send(t, size[t], offset)
    leaving -= set(arriving)
    filled = Buckets(context, writer, gradients, is_last) if gradients is not None else None
    steps = template_steps(context, stage, phase)
    gathers = _gathers(context, writer, stage, [kernel for kernel, _ in steps], updated)
    for position, (kernel, is_replay) in enumerate(steps):
        if gathers is not None:
            gathers.before(position)
        writer.run(kernel, is_replay)
        for t in kernel.outputs if not is_replay else ():
            if t in leaving:
                writer.send(t, size[t], offset)
        if filled is not None and not is_replay:
            filled.add(kernel.outputs)
        if gathers is not None:
            gathers.behind(position)
    if filled is not None:
        filled.flush()
        if buckets is not None:
            buckets += filled.started
    writer.close()
    return writer


def template_steps(context: TemplateContext, stage: int, phase: str) -> list[tuple[Kernel, bool]]:
    """Return the kernels of a template in execution order, each with whether it replays a forward kernel."""
    steps = []
    order = _stage_kernels(context, stage, phase)
    if phase == "backward" and context.is_tp_asynchronous:
        order = input_gradients_first(context.sharding, context.kernels, order)
    for index in order:
        if phase == "backward":
            steps += [(context.kernels[replayed], True) for replayed in context.replays.get(index, ())]
        steps.append((context.kernels[index], False))
    return steps


def _gathers(
    context: TemplateContext, writer: TemplateWriter, stage: int, kernels: Sequence[Kernel], updated: WeightUnits | None
) -> UnitGathers | None:
    """Return what gathers the weights that a template's kernels use, None where all are there."""
    state = context.state
    units = updated
    if units is None and state.shares_weights and (writer.phase == "forward" or state.is_resharded):
        units = context.units[stage]
    if units is None:
        return None
    uses = [units.used_by(kernel) for kernel in kernels]
    order = gather_order(uses, units.lasting, None if updated is not None else state.prefetch)
    return UnitGathers(writer, uses, order, unit_gathers(context, units))


def _message_bytes(context: TemplateContext, tensor: int) -> int:
    return math.ceil(context.builder.tensor_bytes(tensor, tensor in context.sharding.comms))


def _stage_kernels(context: TemplateContext, stage: int, phase: str) -> list[int]:
    """Return the kernels of a stage and phase in execution order, and the views that the stage needs."""
    if not context.kernels_by_stage:
        context.kernels_by_stage = _by_stage(context)
    return context.kernels_by_stage.get((stage, phase), [])


def _by_stage(context: TemplateContext) -> dict[tuple[int, str], list[int]]:
    """Return (stage, phase) -> kernels; a view is on every stage that makes or uses it, also through other views."""
    graph, stages = context.graph, context.stages
    where: dict[int, set[int]] = {}  # view op -> stages
    ops = graph.ops if stages.num_stages > 1 else ()
    for op in reversed(ops):
        if op.is_metadata:
            users = {u for t in op.outputs for u in graph.consumers[t]}
            where[op.id] = set().union({stages.op_stages[op.id]}, *(where.get(u, {stages.op_stages[u]}) for u in users))
    for op in ops:
        for t in op.inputs if op.is_metadata else ():
            producer = graph.tensors[t].producer
            if producer is not None:
                where[op.id] |= where.get(producer, {stages.op_stages[producer]})
    chosen: dict[tuple[int, str], list[int]] = {}
    for index, kernel in enumerate(context.kernels):
        main = graph.ops[kernel.ops[0]]
        if main.id not in stages.skipped:
            for stage in sorted(where.get(main.id, {stages.op_stages[main.id]})):
                chosen.setdefault((stage, main.phase), []).append(index)
    return chosen
