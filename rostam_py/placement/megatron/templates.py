"""Templates: the task lists of one stage's forward, backward and last backward."""

import math

from rostam_py.placement.megatron.buckets import Buckets, Gradient
from rostam_py.placement.megatron.template_writer import TemplateContext, TemplateWriter
from rostam_py.plan.tasks import KernelTime, Task


def write_forward(context: TemplateContext, stage: int) -> TemplateWriter:
    """Return the forward template of a stage."""
    return _write(context, stage, "forward")


def write_backward(context: TemplateContext, stage: int) -> TemplateWriter:
    """Return the backward template of a stage for every micro-batch except the last."""
    return _write(context, stage, "backward")


def write_backward_last(
    context: TemplateContext, stage: int, gradients: list[Gradient], optimizer: KernelTime | None
) -> TemplateWriter:
    """Return the last micro-batch's backward: buckets, tied gradients and the optimizer at its end.

    As in Megatron, gradients of which a tp group's members, or several stages, hold summands are summed over the
    replicas (their bucket) first, then over the members, then over the stages; the optimizer waits for all of it.
    """
    writer = _write(context, stage, "backward", gradients)
    tp = context.sharding.groups
    awaited = {t for task in writer.tasks for t in task.deps}
    collectives = ((t, task) for t, task in enumerate(writer.tasks) if task.kind == "collective")
    finals = {t for t, task in collectives if task.group not in tp or t not in awaited}
    kernels = () if optimizer is None else (optimizer,)
    writer.tasks.append(Task("compute", "optimizer", tuple(sorted(finals)), kernels=kernels, is_optimizer=True))
    return writer


def _write(context: TemplateContext, stage: int, phase: str, gradients: list[Gradient] | None = None) -> TemplateWriter:
    writer = TemplateWriter(context, phase)
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
    buckets = Buckets(context, writer, gradients) if gradients is not None else None
    for index in _stage_kernels(context, stage, phase):
        for replayed in context.replays.get(index, ()) if not is_forward else ():
            writer.run(context.kernels[replayed], is_replay=True)
        kernel = context.kernels[index]
        writer.run(kernel)
        for t in kernel.outputs:
            if t in leaving:
                writer.send(t, size[t], offset)
        if buckets is not None:
            buckets.add(kernel.outputs)
    if buckets is not None:
        buckets.flush()
    writer.close()
    return writer


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
    for op in reversed(graph.ops):
        if op.is_metadata:
            users = {u for t in op.outputs for u in graph.consumers[t]}
            where[op.id] = set().union({stages.op_stages[op.id]}, *(where.get(u, {stages.op_stages[u]}) for u in users))
    for op in graph.ops:
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
