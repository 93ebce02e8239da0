"""Prove that the iterations of a repeat are equal up to a shift, before the trace is grown (tracing/growing.py).

Forward, the template must equal the iteration behind the gap; backward, that one or the one before. Equal means op by
op: the same kind, quantities and arguments (integers may grow evenly), the same tensors of the same and of the
neighbouring iterations, and the same or evenly chosen tensors of the rest.
"""

from dataclasses import fields, is_dataclass
from typing import Any

from rostam_py.graph import Op, Tensor
from rostam_py.tracing.iterations import Iterations, Role, UnevenError, is_constant

_EQUAL_FIELDS = (
    "name", "phase", "op_type", "flops", "bytes_read", "bytes_written", "is_metadata", "is_elementwise",
    "is_accumulation", "is_recomputed",
)  # fmt: skip


def at(a: Any, b: Any, places: tuple[int, int], k: int) -> Any:
    """Return what stands in iteration k where ``a`` and ``b`` stand in those of ``places``. Raises: UnevenError."""
    if a == b and type(a) is type(b):
        return a
    if isinstance(a, (int, float)) and isinstance(b, (int, float)) and not isinstance(a, bool):
        step, rest = divmod(b - a, places[1] - places[0])
        if rest or isinstance(b, bool):
            raise UnevenError(f"arguments {a} and {b} of iterations {places[0]} and {places[1]} do not grow evenly")
        return a + step * (k - places[0])
    if isinstance(a, (list, tuple)) and type(a) is type(b) and len(a) == len(b):
        return type(a)(at(x, y, places, k) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
        return {key: at(a[key], b[key], places, k) for key in a}
    if is_dataclass(a) and not isinstance(a, type) and type(a) is type(b):
        values = {f.name: at(getattr(a, f.name), getattr(b, f.name), places, k) for f in fields(a)}
        return type(a)(**values)
    raise UnevenError(f"arguments {a} and {b} of iterations {places[0]} and {places[1]} differ")


def varied(op: Op) -> Any:
    """Return what of an op may grow evenly from one iteration to the next."""
    return (op.arguments, op.splits)


def find_partners(its: Iterations) -> dict[str, int]:
    """Return for each phase the iteration whose ops the template's equal. Raises: UnevenError."""
    phases = sorted(phase for k, phase in its.ops if k == its.template)
    if not {"forward", "backward"} <= set(phases):
        raise UnevenError("an iteration has no backward")
    return {phase: _partner(its, phase) for phase in phases}


def _partner(its: Iterations, phase: str) -> int:
    if phase != "forward":
        try:
            _check(its, phase, its.behind)
        except UnevenError:
            # The last iteration is the first that runs backward: what comes to it is not from another.
            before = its.repeat.traced[its.place[its.template] - 1]
            _check(its, phase, before)
            return before
    else:
        _check(its, phase, its.behind)
    return its.behind


def _check(its: Iterations, phase: str, partner: int) -> None:
    """Raise UnevenError unless the template equals its partner up to the shift."""
    mine, theirs = its.ops.get((its.template, phase), []), its.ops.get((partner, phase), [])
    if len(mine) != len(theirs) or not mine:
        raise UnevenError(f"iterations {its.template} and {partner} have {len(mine)} and {len(theirs)} ops {phase}")
    others = [k for k in its.repeat.traced if len(its.ops.get((k, phase), ())) == len(mine)]
    for index, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        op, other = its.draft.ops[a], its.draft.ops[b]
        if not _equal_ops(its, op, other, partner):
            raise UnevenError(f"{op.op_type} of {op.module or '(root)'} differs from that of {other.module}, {phase}")
        for k in others:
            third = its.draft.ops[its.ops[k, phase][index]]
            if third.op_type == op.op_type:
                expected = at(varied(op), varied(other), (its.template, partner), k)
                if expected != varied(third):
                    raise UnevenError(f"arguments of {op.op_type} do not grow evenly")


def _equal_ops(its: Iterations, op: Op, other: Op, partner: int) -> bool:
    if any(getattr(op, name) != getattr(other, name) for name in _EQUAL_FIELDS):
        return False
    if len(op.inputs) != len(other.inputs) or len(op.outputs) != len(other.outputs):
        return False
    if its.module(op.module, its.template, partner) != other.module:
        return False
    mine = [its.source(value, its.template) for value in op.inputs]
    if mine != [its.source(value, partner) for value in other.inputs]:
        return False
    if _forward_role(its, op, its.template) != _forward_role(its, other, partner):
        return False
    tensors = its.draft.tensors
    constants = ((a, b) for a, b in zip(op.inputs, other.inputs, strict=True) if tensors[a].kind == "constant")
    made = zip(op.outputs, other.outputs, strict=True)
    return all(_equal_tensors(its, tensors[a], tensors[b], partner) for a, b in (*constants, *made))


def _equal_tensors(its: Iterations, a: Tensor, b: Tensor, partner: int) -> bool:
    if (a.shape, a.dtype, a.kind, a.is_saved) != (b.shape, b.dtype, b.kind, b.is_saved):
        return False
    owners = its.source(its.owners[a.storage], its.template), its.source(its.owners[b.storage], partner)
    if owners[0] != owners[1]:
        return False
    if a.id in its.homes and is_constant(a) and is_constant(b):
        return True  # their numbers are checked when they are named
    return its.name(a.name, its.template, partner) == b.name


def _forward_role(its: Iterations, op: Op, k: int) -> Role | None:
    if op.forward_op is None:
        return None
    home = its.op_roles.get(op.forward_op)
    if home is None:
        return ("outside", op.forward_op)
    if home[0] != k:
        raise UnevenError(f"{op.op_type} of {op.module} belongs to an op of another iteration")
    return home[1]
