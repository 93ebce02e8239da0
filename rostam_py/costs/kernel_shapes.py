"""Which measured shape a kernel of a plan is: its kind, and the sizes that one device runs after the split.

Model: sizes come from the traced op's tensors at the batch; a split divides the size that its output dimension is (the
contraction where members hold partial sums); what remains of the kernel's FLOPs is taken from the rows.
* Attention under a causal mask does half of its FLOPs. Parts of a sequence's attention (context parallelism) are as
  long as a square part of their work is: blocks i and 2c - 1 - i of each rank leave every part its half.
* A convolution is the product that computes it without copies: outputs of all samples and positions by channels,
  contracted over input channels and taps (NVIDIA, Convolutional Layers User's Guide, "virtual" GEMM dimensions);
  without groups its own sizes are told as well (``convolutions``).
* Batch norms are asked for by positions and channels, largest values of windows (max pooling) by theirs; what ops fused
  into a norm move beyond it is told apart (``extra``). Activations that share no kernel are a kind of their own.
* Element-wise kernels that reduce rows on their way (mean, rsqrt, product: a norm written out) are norms by rows.
* Casts of what narrow products read are casts by their bytes, whether they read for the largest value as well or not.
* A weight gradient that moves as much as one that adds into fp32 is one; others add into what has the operands' width.
* Look-ups, their gradients, gathers, reductions and optimizer steps stream their bytes as element-wise kernels do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rostam_py.costs.convolutions import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Convolution
from rostam_py.costs.families import CAST, op_family
from rostam_py.costs.kernel_kinds import CAUSAL_SHARE, GROUPED_STAGES, LAYOUTS, OF_GROUP, Columns, kernel_kind
from rostam_py.costs.masks import is_causal
from rostam_py.costs.model import KernelCall
from rostam_py.costs.precision import Precision, get_precision
from rostam_py.graph import Op, OperatorGraph
from rostam_py.graph.vocabulary import PARTIAL

_STREAMED = ("elementwise", "optimizer", "embedding")
_OVER_ROWS = (".mean.", ".var", ".sum.")  # ops whose results a norm scales its rows by, or its gradient
_ACTIVATIONS = (".relu", "leaky_relu", "threshold_backward")  # measured ones, and those that do as little
_SHORTEST_ROW = 16  # entries; below, sums of rows may be as large in bytes as the rows
LAYOUT_OF = dict(zip(GROUPED_STAGES, ("TN", "NN", "NT"), strict=True))  # how operands lie at each stage
_WEIGHT_GRADIENT_BYTES = 2  # times an element's: measured weight gradients are added into what is there
_WIDE_GRADIENT_BYTES = 8.0  # where that is fp32: read and written


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelQuestion:
    """What a table is asked: a kind, sizes by field, useful FLOPs, bytes moved.

    precision: key of the peak, "" where none matters. is_substitute: the kind is the nearest measured one, not its own.
    count: equal kernels that run one after the other. moves_sums: see Precision. convolution: what a product computes.
    extra: bytes that ops fused into the kernel move, beyond ``traffic``. is_bf16: it reads and writes bf16.
    """

    kind: str
    sizes: tuple[float, ...]
    precision: str
    flops: float
    traffic: float
    is_substitute: bool = False
    count: int = 1
    moves_sums: bool = False
    convolution: Convolution | None = None
    extra: float = 0.0
    is_bf16: bool = False

    @property
    def columns(self) -> Columns:
        """The sizes as columns of one row."""
        fields = kernel_kind(self.kind).fields
        return {name: np.array([size], dtype=float) for name, size in zip(fields, self.sizes, strict=True)}


def question_of(
    call: KernelCall, op: Op | None, graph: OperatorGraph, others: Sequence[Op] = ()
) -> KernelQuestion | None:
    """Return what to ask the tables, None for kernels of no measured kind.

    Args:
        op: the call's main op as ``graph`` has it, None for the optimizer's and unknown ones.
        others: the ops fused into it, as ``graph`` has them.
    """
    moved = call.bytes_read + call.bytes_written
    family = op_family(call.ops[0].op_type, call.ops[0].role)
    if call.ops[0].op_type == CAST:
        return _streamed(moved, is_substitute=False, kind="cast")
    if op is not None and others and family in ("elementwise", "reduction"):
        norm = _written_out_norm(call, (op, *others), graph)
        if norm is not None:
            return norm
    image = _of_images(call, op, graph)
    if image is not None:
        return image
    if family in _STREAMED or (family == "reduction" and "softmax" not in call.ops[0].op_type):
        return _streamed(moved, is_substitute=family != "elementwise")
    if op is None or not op.outputs:
        return None
    if family == "matmul":
        weights = _stacked_weights(op, graph)
        joint = [one for one in others if one.role == "product"]
        return _product(call, op, graph, joint) if weights is None else _grouped(call, op, graph, weights, joint)
    if family == "attention":
        return _attention(call, op, graph)
    if family == "convolution":
        return _convolution(call, op, graph)
    if family == "reduction":
        return _rows("softmax", call, op, graph)
    if family == "normalization" and _is_by_rows(op):
        return _rows("normalization", call, op, graph)
    return _streamed(moved, is_substitute=True) if family == "normalization" else None


def _streamed(moved: float, is_substitute: bool, kind: str = "elementwise") -> KernelQuestion | None:
    if moved <= 0:
        return None
    return KernelQuestion(
        kind=kind, sizes=(moved,), precision="", flops=0.0, traffic=moved, is_substitute=is_substitute
    )


def _shape(graph: OperatorGraph, tensor: int, batch: float) -> list[float]:
    return [dim.at(batch) for dim in graph.tensors[tensor].shape]


def _split_dim(call: KernelCall, op: Op) -> int | None:
    """Return the dimension of the first output that the call's split divides, PARTIAL, or None for none known."""
    for split in op.splits:
        if split.kind == call.split_kind:
            return split.output_dims[0]
    return None


def makes_weight_gradient(op: Op, graph: OperatorGraph) -> bool:
    """Tell whether a product of backward makes the gradient of a weight: of no sample by itself."""
    return op.phase == "backward" and all(not dim.per_sample for dim in graph.tensors[op.outputs[0]].shape)


def _times_as_wide(op: Op, joint: Sequence[Op], batch: float) -> float:
    """Return how many times a product's columns those of it and of others, that are one product, are."""
    return sum(one.flops.at(batch) for one in (op, *joint)) / op.flops.at(batch)


def _product(call: KernelCall, op: Op, graph: OperatorGraph, joint: Sequence[Op] = ()) -> KernelQuestion | None:
    """A product of matrices, or a stack of them: output (..., m, n), contraction from the FLOPs.

    Model: several that are one have all their columns, n forward and k of their inputs' gradient; of their weights'
        gradients those that the input, which all read, has not.
    Args: joint: the others that are one product with the op.
    """
    sizes = _shape(graph, op.outputs[0], call.batch)
    whole = op.flops.at(call.batch)
    if not sizes or whole <= 0 or call.flops <= 0 or min(sizes) <= 0:
        return None
    n = sizes[-1]
    m = sizes[-2] if len(sizes) > 1 else 1.0
    batch = math.prod(sizes[:-2])
    k = whole / (2 * batch * m * n)
    if op.role != "batched_product":
        m, batch = m * batch, 1.0
    if call.degree > 1:
        place = _split_dim(call, op)
        if place == PARTIAL:
            k /= call.degree
        elif place == len(sizes) - 1:
            n /= call.degree
        elif place is not None and op.role == "batched_product" and place < len(sizes) - 2:
            batch /= call.degree
    n /= call.columns
    is_gradient = makes_weight_gradient(op, graph)
    if joint:
        wide = _times_as_wide(op, joint, call.batch)
        if is_gradient:  # the rows are those of what is not read by all, unless the first input is
            n *= wide if graph.view_roots[op.inputs[0]] == graph.view_roots[joint[0].inputs[0]] else 1.0
        elif _is_forward(op):
            n *= wide
        else:
            k *= wide
    m = max(call.flops / (2 * batch * n * k), 1.0)
    precision = get_precision(call.precision)
    element = float(precision.tensor_bytes)
    out_bytes = element * (_WEIGHT_GRADIENT_BYTES if is_gradient else 1)
    operands, outputs = batch * (m + n) * k * precision.product_bytes, batch * m * n
    moved = call.bytes_read + call.bytes_written
    if is_gradient and (moved - operands) / outputs > (_WIDE_GRADIENT_BYTES + out_bytes) / 2:
        out_bytes = _WIDE_GRADIENT_BYTES
    stage = _stage(op, is_gradient)
    return KernelQuestion(
        kind="product",
        sizes=(max(batch, 1.0), m, n, k, LAYOUTS.index(LAYOUT_OF[stage]), out_bytes),
        precision=precision.matrix_peak,
        flops=call.flops,
        traffic=moved,
        moves_sums=stage in precision.moves_sums,
    )


def _is_forward(op: Op) -> bool:
    return op.phase == "forward" or op.is_recomputed


def _stage(op: Op, is_weight_gradient: bool) -> str:
    if _is_forward(op):
        return "forward"
    return "weight_gradient" if is_weight_gradient else "input_gradient"


def _convolution(call: KernelCall, op: Op, graph: OperatorGraph) -> KernelQuestion | None:
    """A convolution as its product; a backward op is two of them, for the gradients of its input and its weight."""
    tensors = [t for t in (*op.inputs, *op.outputs) if len(graph.tensors[t].shape) >= 3]
    is_forward = op.phase == "forward" or op.is_recomputed
    result = op.outputs[0] if is_forward else op.inputs[0]
    weight = next((t for t in tensors if not any(dim.per_sample for dim in graph.tensors[t].shape)), None)
    whole = op.flops.at(call.batch)
    if weight is None or whole <= 0 or call.flops <= 0:
        return None
    sizes, filters = _shape(graph, result, call.batch), _shape(graph, weight, call.batch)
    if len(sizes) < 3 or min(*sizes, *filters) <= 0:
        return None
    n, k = sizes[1], math.prod(filters[1:])
    count = max(round(whole / (2 * math.prod(sizes) * k)), 1)
    place = _split_dim(call, op) if call.degree > 1 else None
    if place == PARTIAL:
        k /= call.degree
    elif place == 1:
        n /= call.degree
    precision = get_precision(call.precision)
    m = max(call.flops / (2 * count * n * k), 1.0)
    sizes_asked = (1.0, m, n, k, float(LAYOUTS.index("TN")), float(precision.tensor_bytes))
    moved = (call.bytes_read - call.beside + call.bytes_written) / count
    read = next((t for t in tensors if t not in (result, weight) and t in op.inputs), None)
    taps, convolution = math.prod(filters[2:]), None
    if read is not None:
        before = _shape(graph, read, call.batch)
        if (before[1], sizes[1]) == (filters[1], filters[0]):  # neither in groups nor transposed
            stages = (FORWARD,) if is_forward else (WEIGHT_GRADIENT, INPUT_GRADIENT)[:count]
            inputs = m * math.prod((before[0], *before[2:])) / math.prod((sizes[0], *sizes[2:]))
            convolution = Convolution(m, inputs, n, k / taps, taps, stages, float(precision.tensor_bytes))
    return KernelQuestion(
        kind="product",
        sizes=sizes_asked,
        precision=precision.matrix_peak,
        flops=call.flops / count,
        traffic=moved,
        is_substitute=True,
        count=count,
        extra=call.beside / count,
        convolution=convolution,
    )


def stage_of(asked: KernelQuestion, one: Convolution, stage: str) -> KernelQuestion:
    """Return the question for a stage of a convolution, by the bytes that it moves itself."""
    kind = kernel_kind(f"convolution_{stage}")
    sizes = one.positions, one.inputs, one.outputs, one.channels, one.taps
    columns = {name: np.array([size]) for name, size in zip(kind.fields, sizes, strict=True)}
    flops, moved = float(kind.flops(columns)[0]), float(kind.traffic(columns, one.element_bytes)[0])
    return KernelQuestion(kind=kind.name, sizes=sizes, precision=asked.precision, flops=flops, traffic=moved)


def products_of_groups(asked: KernelQuestion) -> KernelQuestion | None:
    """Return a grouped product as products of its groups, one after another; None for other kinds."""
    if asked.kind != "grouped_product":
        return None
    return _plain(asked, 1.0, max(round(asked.sizes[0]), 1))


def as_one_product(asked: KernelQuestion) -> KernelQuestion:
    """Return the product of all the rows of a grouped product, as if they had the same weights."""
    return _plain(asked, asked.sizes[0], 1)


def _plain(asked: KernelQuestion, rows: float, count: int) -> KernelQuestion:
    """Return ``count`` products of so many times one group's rows that do the work of a grouped product."""
    _, m, n, k, stage, out_bytes = asked.sizes
    of_stage = GROUPED_STAGES[int(stage)]
    named = {"m": m * rows, "n": n, "k": k}
    sizes = (1.0, *(named[size] for size in OF_GROUP[of_stage]), float(LAYOUTS.index(LAYOUT_OF[of_stage])), out_bytes)
    return KernelQuestion(
        kind="product",
        sizes=sizes,
        precision=asked.precision,
        flops=asked.flops / count,
        traffic=asked.traffic / count,
        is_substitute=True,
        count=count,
        moves_sums=asked.moves_sums,
    )


def _stacked_weights(op: Op, graph: OperatorGraph) -> int | None:
    """Return the tensor (experts, k, n) of a grouped product, None for other products."""
    if "grouped_mm" not in op.op_type:
        return None
    return next((t for t in (*op.inputs, *op.outputs) if len(graph.tensors[t].shape) == 3), None)


def num_groups(call: KernelCall, op: Op, graph: OperatorGraph) -> float:
    """Return the products, of an expert each, that a device runs for a grouped product; 1 for other ops."""
    weights = _stacked_weights(op, graph)
    if weights is None:
        return 1.0
    groups = max(_shape(graph, weights, call.batch)[0] / call.spread, 1.0)
    return max(groups / call.degree, 1.0) if call.degree > 1 and call.split_kind == "expert" else groups


def _grouped(
    call: KernelCall, op: Op, graph: OperatorGraph, weights: int, joint: Sequence[Op] = ()
) -> KernelQuestion | None:
    groups, (_, k, n) = num_groups(call, op, graph), _shape(graph, weights, call.batch)
    stage = _stage(op, weights in op.outputs)
    if call.degree > 1 and call.split_kind == "expert":
        pass
    elif call.degree > 1 and call.split_kind == "row":
        k /= call.degree
    elif call.degree > 1 and call.split_kind == "column":
        n /= call.degree
    if stage == "input_gradient":  # it reads weights the other way round, (n, k) of them
        n, k = k, n
    n *= _times_as_wide(op, joint, call.batch)
    m = call.flops / (2 * groups * n * k)
    if m <= 0:
        return None
    precision = get_precision(call.precision)
    out_bytes = float(precision.tensor_bytes) * (_WEIGHT_GRADIENT_BYTES if stage == "weight_gradient" else 1)
    return KernelQuestion(
        kind="grouped_product",
        sizes=(groups, max(m, 1.0), n, k, GROUPED_STAGES.index(stage), out_bytes),
        precision=precision.matrix_peak,
        flops=call.flops,
        traffic=call.bytes_read + call.bytes_written,
        moves_sums=stage in precision.moves_sums,
    )


def _attention(call: KernelCall, op: Op, graph: OperatorGraph) -> KernelQuestion | None:
    """Fused attention: queries (batch, heads, sequence, size), keys and values; a backward op's follow its gradient."""
    tensors = [t for t in op.inputs if len(graph.tensors[t].shape) == 4]
    if op.phase != "forward" and not op.is_recomputed:
        tensors = tensors[1:]
    if len(tensors) < 3 or call.flops <= 0:
        return None
    query, key, value = (_shape(graph, t, call.batch) for t in tensors[:3])
    heads, kv_heads = query[1], key[1]
    if call.degree > call.pieces and call.split_kind == "head":
        members = call.degree / call.pieces
        heads, kv_heads = max(heads / members, 1.0), max(kv_heads / members, 1.0)
    sequence = max(math.sqrt(query[2] * key[2] / call.pieces), 1.0)
    kind = "attention_backward" if op.phase != "forward" and not op.is_recomputed else "attention_forward"
    useful = call.flops * (CAUSAL_SHARE if is_causal(op) else 1.0)
    sizes = (1.0, sequence, heads, kv_heads, query[3], value[3])
    columns = {name: np.array([size]) for name, size in zip(kernel_kind(kind).fields, sizes, strict=True)}
    batch = call.flops * CAUSAL_SHARE / float(kernel_kind(kind).flops(columns)[0])
    return KernelQuestion(
        kind=kind,
        sizes=(max(batch, 1e-3), *sizes[1:]),
        precision=get_precision(call.precision).matrix_peak,
        flops=useful,
        traffic=call.bytes_read + call.bytes_written,
    )


def _of_images(call: KernelCall, op: Op | None, graph: OperatorGraph) -> KernelQuestion | None:
    """Return an activation that is a kernel of its own, largest values of windows or a batch norm; None for others."""
    if len(call.ops) == 1 and any(part in call.ops[0].op_type for part in _ACTIVATIONS):
        return _streamed(call.bytes_read + call.bytes_written, is_substitute=False, kind="activation")
    if op is not None and "max_pool" in op.op_type:
        return _pool(call, op, graph)
    return _batch_norm(call, op, graph) if op is not None and "batch_norm" in op.op_type else None


def _batch_norm(call: KernelCall, op: Op, graph: OperatorGraph) -> KernelQuestion | None:
    """A norm over the positions of each channel: the largest tensor is its input, (batch, channels, ...)."""
    is_forward = op.phase == "forward" or op.is_recomputed
    sizes = max((_shape(graph, t, call.batch) for t in op.inputs), key=math.prod, default=[])
    if len(sizes) < 2 or min(sizes) <= 0:
        return None
    channels, positions = sizes[1], math.prod(sizes) / sizes[1]
    if call.degree > 1 and _split_dim(call, op) == 1:
        channels = max(channels / call.degree, 1.0)
    else:
        positions = max(positions / call.degree, 1.0)
    return _of_kind(
        f"batch_norm_{'forward' if is_forward else 'backward'}", (positions, channels), call,
        get_precision(call.precision),
    )  # fmt: skip


def _pool(call: KernelCall, op: Op, graph: OperatorGraph) -> KernelQuestion | None:
    """Largest values of windows, or their gradients."""
    is_forward = op.phase == "forward" or op.is_recomputed
    shapes = [_shape(graph, t, call.batch) for t in (*op.inputs[:2], *op.outputs[:1])]
    window = next((one for one in (op.arguments or {}).get("args", ()) if isinstance(one, list)), None)
    if len(shapes) < 2 or window is None or not all(isinstance(size, int) for size in window):
        return None
    inputs, outputs = (shapes[0], shapes[-1]) if is_forward else (shapes[-1], shapes[0])
    dims = len(window)
    if len(inputs) != dims + 2 or len(outputs) != dims + 2 or min(*inputs, *outputs) <= 0:
        return None
    channels = inputs[1]
    positions = [max(math.prod(one) / one[1] / call.degree, 1.0) for one in (inputs, outputs)]
    kind = f"pool_{'forward' if is_forward else 'backward'}"
    return _of_kind(
        kind, (*positions, channels, float(math.prod(window)), float(dims)), call, get_precision(call.precision)
    )


def _of_kind(kind: str, sizes: tuple[float, ...], call: KernelCall, precision: Precision) -> KernelQuestion:
    """Return a kernel without arithmetic by its own bytes; what the call moves beyond them is extra."""
    fields = kernel_kind(kind).fields
    columns = {name: np.array([size]) for name, size in zip(fields, sizes, strict=True)}
    own = float(kernel_kind(kind).traffic(columns, precision.tensor_bytes)[0])
    extra = max(call.bytes_read + call.bytes_written - own, 0.0) if len(call.ops) > 1 else 0.0
    return KernelQuestion(
        kind=kind,
        sizes=sizes,
        precision="",
        flops=0.0,
        traffic=own,
        extra=extra,
        is_bf16=(precision.others or precision.name) == "bf16_mixed",
    )


def _is_by_rows(op: Op) -> bool:
    """Say whether a norm reduces over the last dimension, as the measured ones do; batch and group norms do not."""
    return "layer_norm" in op.op_type or "rms_norm" in op.op_type


def _written_out_norm(call: KernelCall, ops: Sequence[Op], graph: OperatorGraph) -> KernelQuestion | None:
    """Return a norm for ops of one kernel that reduce each row and write results as large as what they reduce."""
    for op in ops:
        if op_family(op.op_type, op.role) != "reduction" or not any(part in op.op_type for part in _OVER_ROWS):
            continue
        sizes, result = (_shape(graph, t, call.batch) for t in (op.inputs[0], op.outputs[0]))
        columns = sizes[-1] if sizes else 1.0
        if columns < _SHORTEST_ROW or result not in (sizes[:-1], [*sizes[:-1], 1.0]):
            continue
        rows = max(math.prod(sizes[:-1]) / call.degree, 1.0)
        if call.bytes_written >= rows * columns:  # at least a byte for each entry: not the sums alone
            moved = call.bytes_read + call.bytes_written
            return KernelQuestion(
                kind="normalization",
                sizes=(rows, columns),
                precision="",
                flops=0.0,
                traffic=moved,
                is_substitute=op.phase != "forward",
            )
    return None


def _rows(kind: str, call: KernelCall, op: Op, graph: OperatorGraph) -> KernelQuestion | None:
    sizes = _shape(graph, op.outputs[0], call.batch)
    if len(sizes) < 2 or min(sizes) <= 0:
        return None
    rows = max(math.prod(sizes[:-1]) / call.degree, 1.0)
    moved = call.bytes_read + call.bytes_written
    return KernelQuestion(
        kind=kind, sizes=(rows, sizes[-1]), precision="", flops=0.0, traffic=moved, is_substitute=op.phase != "forward"
    )
