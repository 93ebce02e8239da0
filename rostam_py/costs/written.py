"""Ops that a person writes down: their FLOPs, bytes and shapes, without torch; each is a function and a line in OPS.

Example:
    op = written_op("matmul", ((4096, 4096), (4096, 12288)), "bfloat16")
    times = price_written({"qkv": op}, "calibrated", get_accelerator("h100_80gb"))

Model: every tensor is read or written once; FLOPs of products 2 m n k, of attention 4 b h s t d (half of it is run
under a causal mask); element-wise kernels one for each entry that they read. Products are those of a forward pass,
which overwrite their result.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rostam_py.costs.accelerators import Accelerator
from rostam_py.costs.model import CostModel, KernelCall
from rostam_py.costs.optimizers import OPTIMIZERS, optimizer_call
from rostam_py.costs.programs import NORM_PROGRAMS
from rostam_py.errors import ConfigError
from rostam_py.graph import OperatorGraph
from rostam_py.graph.ops import Affine, Op, Tensor

# dtype -> bytes of an entry, precision.
DTYPES = {
    "bfloat16": (2, "bf16_mixed"), "float16": (2, "fp16_mixed"), "float32": (4, "fp32"), "tf32": (4, "tf32"),
    "float8_e4m3fn": (1, "fp8_mixed"), "float8_e5m2": (1, "fp8_mixed"),
}  # fmt: skip
# Of tensors that kernels bound by memory alone may have as well.
_OTHER_DTYPES = {
    "float64": (8, "fp32"), "complex64": (8, "fp32"), "int64": (8, "fp32"), "int32": (4, "fp32"), "int16": (2, "fp32"),
    "int8": (1, "fp32"), "uint8": (1, "fp32"), "bool": (1, "fp32"),
}  # fmt: skip
_MOST_ENTRIES = 2**48  # of a tensor: a thousand times what an accelerator holds
_Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenOp:
    """An op as a cost model is asked for it.

    op_type, role: see graph.Op. reads, writes: shapes of tensors. flops: [FLOPs]. read_entries: of those that are read,
    where not all are. is_causal: attention under a causal mask. is_backward: the op is one of a backward pass.
    dtype: a key of DTYPES. write_dtype: of what it writes, "": ``dtype``. calls: whose kernel it is: a key of
    costs.programs' ATTENTION_PROGRAMS or NORM_PROGRAMS, "": as the cost model's settings say.
    """

    op_type: str
    role: str
    reads: tuple[_Shape, ...]
    writes: tuple[_Shape, ...]
    flops: float
    dtype: str = "bfloat16"
    read_entries: int | None = None
    is_causal: bool = False
    is_backward: bool = False
    write_dtype: str = ""
    calls: str = ""


def written_op(name: str, shapes: Sequence[Sequence[int]], dtype: str) -> WrittenOp:
    """Return an op of given shapes.

    Args:
        name: a key of OPS.
        shapes: of the tensors that it reads, in the order that OPS says.
        dtype: of their entries, a key of DTYPES.
    Raises: ConfigError for a name, shapes or a dtype that there are not.
    """
    if name not in OPS:
        raise ConfigError(f"op is {name!r}; an op without a time must be one of: {', '.join(OPS)}")
    if dtype not in DTYPES:
        raise ConfigError(f"dtype is {dtype!r}; it must be one of: {', '.join(DTYPES)}")
    given = tuple(tuple(shape) for shape in shapes)
    _check_shapes(name, given)
    known = OPS[name]
    found = known.make(given) if known.num_shapes in (0, len(given)) and given else None
    if found is None:
        raise ConfigError(f"shapes of {name} are {[list(one) for one in given]}; they must be {known.shapes}")
    return replace(found, dtype=dtype)


def moved_op(
    name: str, reads: Sequence[Sequence[int]], writes: Sequence[Sequence[int]], dtype: str, *, write_dtype: str = "",
    is_backward: bool = False,
) -> WrittenOp:  # fmt: skip
    """Return an op that takes what its bytes take, with a FLOP for each entry that it reads.

    Args:
        name: its type, by which it is listed, and whose family has an efficiency.
        reads, writes: shapes of tensors.
        dtype: of their entries.
        write_dtype: of the entries that it writes, "": ``dtype``.
    Raises: ConfigError for no shapes, and for shapes or a dtype that there are not.
    """
    known = (*DTYPES, *_OTHER_DTYPES)
    for key, given in (("dtype", dtype), ("write_dtype", write_dtype or dtype)):
        if given not in known:
            raise ConfigError(f"{key} is {given!r}; of {name} it must be one of: {', '.join(known)}")
    read, written = (tuple(tuple(shape) for shape in shapes) for shapes in (reads, writes))
    if not read and not written:
        raise ConfigError(f"shapes of {name} are empty; give those of the tensors that it reads")
    _check_shapes(name, (*read, *written))
    flops = float(sum(map(math.prod, read)))
    return WrittenOp(
        op_type=name, role="", reads=read, writes=written, flops=flops, dtype=dtype, is_backward=is_backward,
        write_dtype=write_dtype,
    )  # fmt: skip


def _check_shapes(name: str, shapes: Sequence[_Shape]) -> None:
    for shape in shapes:
        if not shape or min(shape) < 1 or math.prod(shape) > _MOST_ENTRIES:
            raise ConfigError(
                f"shapes of {name} hold {list(shape)}; a shape is a list of integers >= 1 whose product is at most 2^48"
            )


def price_written(
    ops: Mapping[str, WrittenOp], cost: str, accelerator: Accelerator, min_kernel_time: str | float,
    config: Mapping[str, Any] | None = None,
) -> tuple[dict[str, tuple[Any, KernelCall]], list[str]]:  # fmt: skip
    """Return for each kernel, by name, its cost model and call, and what a reader should know of the times.

    Args:
        cost: a name of COST_MODELS.
        min_kernel_time: of the machine, where the cost model has such a setting.
        config: of the cost model; its ``attention`` and ``norms`` stand before what an op's name says.
    Raises: ConfigError if the accelerator has no peak for a precision, or the cost model times models alone.
    """
    from rostam_py.costs import COST_MODELS, make_cost_model

    graph, calls = _graph_of(ops)
    known = {entry.name for entry in dataclasses.fields(COST_MODELS.get(cost).Config)}
    settings = {"min_kernel_time": min_kernel_time} if "min_kernel_time" in known else {}
    models: dict[str, CostModel] = {}
    for one in dict.fromkeys(op.calls for op in ops.values()):
        choice = {key: value for key, value in _choice_of(one).items() if key in known}
        models[one] = make_cost_model(cost, accelerator, graph=graph, **{**settings, **choice, **(config or {})})
    notes = dict.fromkeys(note for model in models.values() for note in model.notes())
    return {name: (models[ops[name].calls], call) for name, call in calls.items()}, list(notes)


def _choice_of(calls: str) -> dict[str, str]:
    """Return the setting of a cost model that names whose kernel it is asked for."""
    if calls in NORM_PROGRAMS:
        return {"norms": calls}
    return {"attention": calls} if calls else {}


def _graph_of(ops: Mapping[str, WrittenOp]) -> tuple[OperatorGraph, dict[str, KernelCall]]:
    """Return a graph of the ops, none of which reads what another one writes, and their calls."""
    tensors: list[Tensor] = []
    listed: list[Op] = []
    calls: dict[str, KernelCall] = {}
    for name, one in ops.items():
        index = len(listed)
        inputs = tuple(_add(tensors, shape, "input", None) for shape in one.reads)
        outputs = tuple(_add(tensors, shape, "activation", index) for shape in one.writes)
        width, precision = (DTYPES | _OTHER_DTYPES)[one.dtype]
        read = sum(map(math.prod, one.reads)) if one.read_entries is None else one.read_entries
        written_width, _ = (DTYPES | _OTHER_DTYPES)[one.write_dtype or one.dtype]
        read, written = read * width, sum(map(math.prod, one.writes)) * written_width
        op = Op(
            id=index, name=name, module="", phase="backward" if one.is_backward else "forward", op_type=one.op_type,
            inputs=inputs, outputs=outputs, flops=Affine(one.flops), bytes_read=Affine(read),
            bytes_written=Affine(written), role=one.role, is_elementwise=one.role == "sum",
            arguments={"args": [True], "kwargs": {}} if one.is_causal else None,
        )  # fmt: skip
        listed.append(op)
        calls[name] = _call(one, op, float(read), float(written), precision)
    return OperatorGraph("program", tuple(listed), tuple(tensors)), calls


def _call(one: WrittenOp, op: Op, read: float, written: float, precision: str) -> KernelCall:
    if one.op_type.startswith("optimizer."):
        return optimizer_call(one.op_type.partition(".")[2], math.prod(one.reads[0]), precision)
    return KernelCall(
        ops=(op,), flops=one.flops, bytes_read=read, bytes_written=written, batch=1, precision=precision
    )  # fmt: skip


def _add(tensors: list[Tensor], shape: _Shape, kind: str, producer: int | None) -> int:
    sizes = tuple(Affine(size) for size in shape)
    tensors.append(Tensor(len(tensors), sizes, "float32", kind, producer=producer, storage=len(tensors)))
    return len(tensors) - 1


def _matmul(shapes: tuple[_Shape, ...]) -> WrittenOp | None:
    left, right = shapes
    if len(left) < 2 or len(right) != 2 or left[-1] != right[0]:
        return None
    result = (*left[:-1], right[1])
    flops = 2.0 * math.prod(result) * left[-1]
    return WrittenOp(op_type="aten.mm.default", role="product", reads=shapes, writes=(result,), flops=flops)


def _batched_matmul(shapes: tuple[_Shape, ...]) -> WrittenOp | None:
    left, right = shapes
    if len(left) < 3 or len(right) != len(left) or left[:-2] != right[:-2] or left[-1] != right[-2]:
        return None
    result = (*left[:-1], right[-1])
    return WrittenOp(
        op_type="aten.bmm.default",
        role="batched_product",
        reads=shapes,
        writes=(result,),
        flops=2.0 * math.prod(result) * left[-1],
    )


def _attends(shapes: tuple[_Shape, ...]) -> bool:
    if any(len(one) != 4 for one in shapes):
        return False
    query, key, value = shapes
    are_alike = key[:3] == value[:3] and query[0] == key[0] and query[3] == key[3]
    return are_alike and query[1] % key[1] == 0


def _attention(is_causal: bool) -> Callable[[tuple[_Shape, ...]], WrittenOp | None]:
    def make(shapes: tuple[_Shape, ...]) -> WrittenOp | None:
        if not _attends(shapes):
            return None
        query, key, value = shapes
        result = (*query[:3], value[3])
        flops = 2.0 * math.prod(query[:3]) * key[2] * (query[3] + value[3])
        name = "rostam.scaled_dot_product_attention.default"
        return WrittenOp(
            op_type=name, role="attention", reads=shapes, writes=(result,), flops=flops, is_causal=is_causal
        )

    return make


def _attention_backward(is_causal: bool) -> Callable[[tuple[_Shape, ...]], WrittenOp | None]:
    """Five products where forward has two: the scores once more, and gradients of values, weights, queries, keys."""

    def make(shapes: tuple[_Shape, ...]) -> WrittenOp | None:
        if not _attends(shapes):
            return None
        query, key, value = shapes
        gradient = (*query[:3], value[3])
        flops = 2.0 * math.prod(query[:3]) * key[2] * (3 * query[3] + 2 * value[3])
        name = "rostam.scaled_dot_product_attention_backward.default"
        reads = (gradient, query, key, value)
        return WrittenOp(
            op_type=name,
            role="attention",
            reads=reads,
            writes=shapes,
            flops=flops,
            is_causal=is_causal,
            is_backward=True,
        )

    return make


def _over_rows(op_type: str, role: str = "") -> Callable[[tuple[_Shape, ...]], WrittenOp | None]:
    def make(shapes: tuple[_Shape, ...]) -> WrittenOp | None:
        if len(shapes[0]) < 2:
            return None
        return WrittenOp(op_type=op_type, role=role, reads=shapes, writes=shapes, flops=5.0 * math.prod(shapes[0]))

    return make


def _elementwise(shapes: tuple[_Shape, ...]) -> WrittenOp | None:
    if any(one != shapes[0] for one in shapes):
        return None
    return WrittenOp(
        op_type="aten.add.Tensor",
        role="sum",
        reads=shapes,
        writes=shapes[:1],
        flops=float(len(shapes) * math.prod(shapes[0])),
    )


def _copy(shapes: tuple[_Shape, ...]) -> WrittenOp:
    return WrittenOp(op_type="aten.clone.default", role="copy", reads=shapes, writes=shapes, flops=0.0)


def _embedding(shapes: tuple[_Shape, ...]) -> WrittenOp | None:
    table, tokens = shapes
    if len(table) != 2:
        return None
    result = (*tokens, table[1])
    name, read = "aten.embedding.default", math.prod(result) + math.prod(tokens)
    return WrittenOp(op_type=name, role="embedding", reads=shapes, writes=(result,), flops=0.0, read_entries=read)


def _optimizer(name: str) -> Callable[[tuple[_Shape, ...]], WrittenOp | None]:
    def make(shapes: tuple[_Shape, ...]) -> WrittenOp:
        flops = float(OPTIMIZERS[name].flops * math.prod(shapes[0]))
        return WrittenOp(op_type=f"optimizer.{name}", role="", reads=shapes, writes=shapes, flops=flops)

    return make


@dataclass(frozen=True, slots=True)
class _Known:
    """An op that can be written. shapes: in words, which it reads. num_shapes: how many, 0: any number."""

    shapes: str
    num_shapes: int
    make: Callable[[tuple[_Shape, ...]], WrittenOp | None]


_QKV = "[b, h, s, d], [b, g, t, d], [b, g, t, e], with h a multiple of g: queries, keys, values"
_ROWS = "[..., n]: rows of n entries"
OPS = {
    "matmul": _Known("[..., m, k], [k, n]", 2, _matmul),
    "batched_matmul": _Known("[..., m, k], [..., k, n], with equal first sides", 2, _batched_matmul),
    "attention": _Known(_QKV, 3, _attention(is_causal=False)),
    "causal_attention": _Known(_QKV, 3, _attention(is_causal=True)),
    "attention_backward": _Known(_QKV, 3, _attention_backward(is_causal=False)),
    "causal_attention_backward": _Known(_QKV, 3, _attention_backward(is_causal=True)),
    "layer_norm": _Known(_ROWS, 1, _over_rows("aten.native_layer_norm.default")),
    "rms_norm": _Known(_ROWS, 1, _over_rows("aten._fused_rms_norm.default")),
    "softmax": _Known(_ROWS, 1, _over_rows("aten._softmax.default", "softmax")),
    "elementwise": _Known("equal shapes, of every tensor that is read; one such is written", 0, _elementwise),
    "copy": _Known("[...]: the tensor", 1, _copy),
    "embedding": _Known("[rows, n], [...]: the table, and indices", 2, _embedding),
    **{name: _Known("[parameters]: that the rank updates", 1, _optimizer(name)) for name in OPTIMIZERS},
}
