"""Inputs that have no batch by a guess: those that a model works on as on samples are refused, not counted once.

A mask, positions or class weights may well be all samples'. Images that a tower of weights works through rarely are,
and would cost what the example's do at every batch.
"""

from rostam_py.errors import TracingError
from rostam_py.graph import WEIGHT_KINDS, Op, OperatorGraph
from rostam_py.tracing.subject import InputSlot, Subject

_WORKING = ("product", "batched_product", "convolution")


class SharedInputError(TracingError):
    """An input without a batch that weights are multiplied by."""


def check_shared_inputs(subject: Subject, graph: OperatorGraph) -> None:
    """Raise SharedInputError if weights meet an input of which nobody said whether it grows with the batch."""
    for place, slot in enumerate(subject.slots):
        if slot.is_open:
            op = _first_work(graph, f"input_{place}")
            if op is not None:
                raise SharedInputError(_words(subject, slot, op))


def _first_work(graph: OperatorGraph, name: str) -> Op | None:
    """Return the first op that multiplies an input, or what is made of it, by weights, as much at every batch."""
    weights = {t.id for t in graph.tensors if t.kind in WEIGHT_KINDS}
    reached = {t.id for t in graph.tensors if t.kind == "input" and t.name == name}
    for op in graph.ops:
        if op.phase != "forward":
            continue
        meets = reached.intersection(op.inputs)
        if meets and op.role in _WORKING and op.flops.constant > 0 and weights.intersection(op.inputs):
            return op
        if meets:
            reached.update(op.outputs)
        elif op.inputs and weights.issuperset(op.inputs):
            weights.update(op.outputs)
    return None


def _words(subject: Subject, slot: InputSlot, op: Op) -> str:
    batch = next(one.shape[one.batch_dim] // one.rows for one in subject.slots if one.batch_dim is not None)
    rows, rest = divmod(slot.shape[0], batch)
    where = f"module {op.module!r}" if op.module else "the module"
    key = slot.label.removeprefix("input ")
    of_all = f"batch_dims={{{key}: None}}" if key != slot.label else "its batch"
    if rest or not rows:
        grows = f"for one that does, example inputs of a multiple of {batch} there"
    else:
        each = f", {rows} for each sample" if rows > 1 else ""
        grows = f"batch_dims={{{key}: 0}} if it does{each}"
    return (
        f"{subject.name}: the batch is {batch}, and {slot.label} has shape {slot.shape}: {where} works on it, and"
        f" whether it grows with the batch is not known. Pass {of_all} if all samples share it, {grows}"
    )
