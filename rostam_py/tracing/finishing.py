"""From paired ops to a finished graph: gradients, saved tensors, modules, forward ops, numbering."""

from collections.abc import Sequence
from dataclasses import replace

from rostam_py.graph import WEIGHT_KINDS, Affine, Op, Split, Tensor
from rostam_py.tracing.pairing import Draft
from rostam_py.tracing.raw import RawTrace
from rostam_py.tracing.splits import SplitCall, find_splits

_STORED = (*WEIGHT_KINDS, "input", "constant")


def finish(draft: Draft, raw: RawTrace) -> Draft:
    """Return the draft with modules, forward ops, gradients and saved marks filled in."""
    ops = _place_accumulations(draft.ops, {i for i, op in enumerate(raw.ops) if op.module is None})
    ops = _link_forward(ops, [op.sequence_number for op in raw.ops])
    tensors = dict(draft.tensors)
    _mark_saved(ops, tensors)
    ops = _name_gradients(ops, tensors, raw.gradients)
    return Draft(ops, tensors, draft.notes)


def _place_accumulations(ops: list[Op], homeless: set[int]) -> list[Op]:
    """Give ops that no module ran the module of their latest computed operand.

    A gradient sum is complete when its last part is: it belongs where that part is computed, so that
    a cut behind that module carries one tensor.
    """
    producer = {value: op.id for op in ops for value in op.outputs}
    placed: list[Op] = []
    for op in ops:
        if op.id in homeless:
            made = [producer[v] for v in op.inputs if v in producer]
            if made:
                op = replace(op, module=placed[max(made)].module)
        placed.append(op)
    return placed


def _link_forward(ops: list[Op], numbers: list[int | None]) -> list[Op]:
    """Set ``forward_op`` of backward ops: same autograd sequence number, best matching name."""
    by_number: dict[int, list[Op]] = {}
    for op in ops:
        number = numbers[op.id]
        if op.phase == "forward" and number is not None:
            by_number.setdefault(number, []).append(op)
    linked = []
    for op in ops:
        number = numbers[op.id]
        candidates = by_number.get(number, []) if number is not None else []
        if op.phase == "backward" and candidates and not op.is_accumulation:
            named = [c for c in candidates if op.name.startswith(c.name)]
            computing = [c for c in candidates if not c.is_metadata]
            op = replace(op, forward_op=(named or computing or candidates)[0].id)
        linked.append(op)
    return linked


def _mark_saved(ops: list[Op], tensors: dict[int, Tensor]) -> None:
    """Mark what forward computes and backward reads, and the base of every storage so kept."""
    made = {value for op in ops if op.phase == "forward" for value in op.outputs}
    stored = {t.storage for t in tensors.values() if t.kind in _STORED}
    largest: dict[int, Tensor] = {}
    for value in sorted(made):
        tensor = tensors[value]
        if tensor.storage not in largest or tensor.num_bytes(1) > largest[tensor.storage].num_bytes(1):
            largest[tensor.storage] = tensor
    for op in ops:
        if op.phase == "backward":
            for value in op.inputs:
                if value in made and tensors[value].storage not in stored and tensors[value].kind != "loss":
                    tensors[value] = replace(tensors[value], is_saved=True)
                    base = largest[tensors[value].storage].id
                    tensors[base] = replace(tensors[base], is_saved=True)


def _name_gradients(ops: list[Op], tensors: dict[int, Tensor], gradients: dict[str, list[int]]) -> list[Op]:
    """Mark final gradients; a tied parameter's gradients are summed as soon as the last part exists."""
    producer = {value: op.id for op in ops for value in op.outputs}
    added: dict[int, list[Op]] = {}
    taken: set[int] = set()
    for name, parts in gradients.items():
        total = parts[0]
        for part in parts[1:]:
            after = max(producer[total], producer[part])
            total = _sum(ops[after], total, part, tensors, added.setdefault(after, []))
            producer[total] = after
        if total in taken:
            after = producer[total]
            total = _alias(ops[after], total, tensors, added.setdefault(after, []))
        taken.add(total)
        tensors[total] = replace(tensors[total], kind="gradient", name=name)
    return [item for op in ops for item in (op, *added.get(op.id, []))]


def _new_tensor(like: Tensor, tensors: dict[int, Tensor], shares: bool) -> int:
    value = max(tensors) + 1
    storage = like.storage if shares else -2 - value
    tensors[value] = replace(like, id=value, storage=storage, is_saved=False, kind="activation", name="")
    return value


def _sum(after: Op, left: int, right: int, tensors: dict[int, Tensor], added: list[Op]) -> int:
    """Append the add of two gradients of one tied parameter; return its output."""
    total = _new_tensor(tensors[right], tensors, shares=False)
    shape = tuple(int(d.constant) for d in tensors[right].shape)
    raw = find_splits(SplitCall("add", (), {}, (shape, shape), (shape,), (0,), is_pointwise=True))
    num_bytes = tensors[right].num_bytes(0)
    added.append(
        replace(
            after,
            name="add",
            op_type="aten.add.Tensor",
            inputs=(left, right),
            outputs=(total,),
            arguments={"args": [{"tensor": 0}, {"tensor": 1}], "kwargs": {}},
            flops=Affine(tensors[right].num_elements(0)),
            bytes_read=Affine(2 * num_bytes),
            bytes_written=Affine(num_bytes),
            is_metadata=False,
            is_elementwise=True,
            is_accumulation=True,
            is_recomputed=False,
            forward_op=None,
            splits=tuple(Split(s.kind, s.input_dims, s.output_dims, Affine(s.size)) for s in raw),
        )
    )
    return total


def _alias(after: Op, value: int, tensors: dict[int, Tensor], added: list[Op]) -> int:
    """Append an alias of a gradient that belongs to two parameters; return its output."""
    twin = _new_tensor(tensors[value], tensors, shares=True)
    added.append(
        replace(
            after,
            name="alias",
            op_type="aten.alias.default",
            inputs=(value,),
            outputs=(twin,),
            arguments={"args": [{"tensor": 0}], "kwargs": {}},
            flops=Affine(),
            bytes_read=Affine(),
            bytes_written=Affine(),
            is_metadata=True,
            is_elementwise=False,
            is_accumulation=False,
            splits=(),
        )
    )
    return twin


def assign_blocks(ops: list[Op], groups: Sequence[Sequence[str]]) -> list[Op]:
    """Set ``Op.block`` from module paths; blocks are numbered through all groups in order."""
    index = {path: i for i, path in enumerate(path for group in groups for path in group)}

    def block_of(module: str) -> int:
        while module:
            if module in index:
                return index[module]
            module = module.rpartition(".")[0]
        return -1

    cache: dict[str, int] = {}
    for op in ops:
        if op.module not in cache:
            cache[op.module] = block_of(op.module)
    return [replace(op, block=cache[op.module]) if cache[op.module] >= 0 else op for op in ops]


def number(draft: Draft) -> tuple[tuple[Op, ...], tuple[Tensor, ...]]:
    """Return ops and tensors with final ids: ops by place, tensors and storages by first appearance."""
    op_ids = {id(op): place for place, op in enumerate(draft.ops)}
    by_old = {op.id: place for place, op in enumerate(draft.ops) if op.phase == "forward"}
    unused = (v for v, t in draft.tensors.items() if t.kind in (*WEIGHT_KINDS, "input"))
    order = list(dict.fromkeys((*(v for op in draft.ops for v in (*op.inputs, *op.outputs)), *unused)))
    new = {value: place for place, value in enumerate(order)}
    storages: dict[int, int] = {}
    producers = {value: op_ids[id(op)] for op in draft.ops for value in op.outputs}
    tensors = []
    for value in order:
        tensor = draft.tensors[value]
        storage = storages.setdefault(tensor.storage, len(storages))
        tensors.append(replace(tensor, id=new[value], producer=producers.get(value), storage=storage))
    ops = []
    for place, op in enumerate(draft.ops):
        forward = None if op.forward_op is None else by_old[op.forward_op]
        ops.append(
            replace(
                op,
                id=place,
                name=f"{op.name}_{place}",
                inputs=tuple(new[v] for v in op.inputs),
                outputs=tuple(new[v] for v in op.outputs),
                forward_op=forward,
            )
        )
    return tuple(ops), tuple(tensors)
