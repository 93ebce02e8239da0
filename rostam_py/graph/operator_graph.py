"""OperatorGraph: the immutable graph of operators that everything behind the tracer works on.

Legend: an ``Affine`` is a quantity that is linear in the batch, ``constant + per_sample * batch``, so
one trace serves every batch. Tensor bytes are those of the traced dtype; precision scales them later.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.graph.checks import check_graph
from rostam_py.graph.vocabulary import DTYPE_BYTES, WEIGHT_KINDS, WEIGHT_ROLES
from rostam_py.html import html_pairs
from rostam_py.units import format_count, format_size


@dataclass(frozen=True, slots=True)
class Affine:
    """A quantity ``constant + per_sample * batch``."""

    constant: float = 0
    per_sample: float = 0

    def at(self, batch: float) -> float:
        """Return the value at a batch of ``batch`` samples."""
        return self.constant + self.per_sample * batch

    def __add__(self, other: "Affine") -> "Affine":
        return Affine(self.constant + other.constant, self.per_sample + other.per_sample)

    def scaled(self, factor: float) -> "Affine":
        """Return this quantity times ``factor``."""
        return Affine(self.constant * factor, self.per_sample * factor)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value that flows along the graph's edges.

    shape: one Affine a dimension. dtype: torch's name without the prefix, e.g. "float32".
    kind: one of TENSOR_KINDS; "parameter" is a trained weight, "frozen" one that takes no gradient, "gradient" the
        final gradient of the parameter named ``name``.
    name: the parameter's or buffer's (first) fully qualified name, the input's name, else "".
    producer: id of the op that writes it; None for inputs, weights, buffers and constants.
    is_saved: produced in forward, kept for backward (MODEL D15's activation memory); see also
        ``OperatorGraph.kept_inputs``.
    storage: tensors with the same id share memory (views); counted once.
    """

    id: int
    shape: tuple[Affine, ...]
    dtype: str
    kind: str
    name: str = ""
    producer: int | None = None
    is_saved: bool = False
    storage: int = -1

    def num_elements(self, batch: float) -> float:
        """Return the number of elements at ``batch`` samples."""
        count = 1.0
        for dim in self.shape:
            count *= dim.at(batch)
        return count

    def num_bytes(self, batch: float) -> float:
        """Return the bytes in the traced dtype at ``batch`` samples."""
        return self.num_elements(batch) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Split:
    """One legal way to split an op over the members of a group (one iteration-space axis).

    kind: one of SPLIT_KINDS.
    input_dims: for each tensor input (``Op.inputs`` order) the dimension that is split, or WHOLE.
    output_dims: for each output (``Op.outputs`` order) the split dimension, WHOLE, or PARTIAL.
    size: extent of the axis; a degree is legal if it divides it.
    comm_bytes: extra bytes all-reduced ("all_reduce") or exchanged with neighbours ("halo") inside
        the group while the op runs, e.g. the softmax statistics of a split vocabulary.
    """

    kind: str
    input_dims: tuple[int | None, ...]
    output_dims: tuple[int | None, ...]
    size: Affine
    comm_kind: str = ""
    comm_bytes: Affine = Affine()


@dataclass(frozen=True, slots=True)
class Op:
    """One operator call.

    op_type: canonical ATen name, e.g. "aten.mm.default"; optimizer kernels are "optimizer.adam". To time the op and
        to name it in reports: whoever asks what an op does reads the properties below.
    inputs / outputs: tensor ids. Every tensor argument appears in ``inputs`` in call order.
    arguments: JSON value that rebuilds the call, ``{"args": [...], "kwargs": {...}}``, in which
        {"tensor": k} stands for input k, {"affine": [constant, per_sample]} for a batch-dependent
        integer, {"dtype": "float32"} for a dtype; other values stand for themselves.
    is_metadata: only changes how a tensor is seen (view, transpose, ...): costs nothing.
    is_elementwise: may be fused into the kernel that produces its input (MODEL B7).
    forward_op: for a backward op, the id of the forward op it differentiates, if known.
    is_accumulation: a backward add that sums gradients of one tensor from several users.
    role: what the op does, one of ROLES.
    linear_in: sets of places in ``inputs``, ascending: op(sum of parts) = sum of op(part) if exactly the inputs of one
        set are split into summands. ((0, 1),) for a sum, ((0,), (1,)) for a product. A constant term (the bias of a
        product or a convolution) is in none: one member adds it.
    block: index of the repeated block this op belongs to, or -1. Blocks are structurally equal.
    """

    id: int
    name: str
    module: str
    phase: str
    op_type: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    arguments: Any = None
    flops: Affine = Affine()
    bytes_read: Affine = Affine()
    bytes_written: Affine = Affine()
    is_metadata: bool = False
    is_elementwise: bool = False
    forward_op: int | None = None
    is_accumulation: bool = False
    block: int = -1
    splits: tuple[Split, ...] = ()
    role: str = ""
    linear_in: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class OperatorGraph:
    """A traced model: ops in a valid execution order (forward, then backward) over tensors.

    The optimizer step is not traced: costs add it from ``parameters`` and the chosen optimizer.

    name: model name. route: how it was traced, "joint" or "dispatch".
    default_optimizer / default_precision / sequence_length: what the model declares, may be "" / 0.
    block_names: module paths of the repeated blocks, in order (``Op.block`` indexes it).
    notes: what a reader should know (ops without FLOP formula, clean-up counts, fallbacks).
    """

    name: str
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    route: str = "joint"
    default_optimizer: str = "sgd"
    default_precision: str = "fp32"
    sequence_length: int = 0
    block_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_graph(self)

    @cached_property
    def parameters(self) -> tuple[Tensor, ...]:
        """The trained parameter tensors, each once (tied weights count once)."""
        return tuple(t for t in self.tensors if t.kind == "parameter")

    @cached_property
    def frozen(self) -> tuple[Tensor, ...]:
        """The weights without a gradient (``requires_grad`` False), each once."""
        return tuple(t for t in self.tensors if t.kind == "frozen")

    @cached_property
    def weights(self) -> tuple[Tensor, ...]:
        """Trained and frozen weights, and buffers that act as one: what parallelism splits as its ops ask."""
        roots = resolve_views(self)
        operands = {roots[t] for op in self.ops if op.role in WEIGHT_ROLES and op.phase == "forward" for t in op.inputs}
        kinds = ("parameter", "frozen")
        return tuple(t for t in self.tensors if t.kind in kinds or (t.kind == "buffer" and t.id in operands))

    @cached_property
    def kept_inputs(self) -> tuple[Tensor, ...]:
        """The model's inputs that backward reads, themselves or through views: kept as activations are."""
        roots = resolve_views(self)
        read = {roots[t] for op in self.ops if op.phase == "backward" and not op.is_metadata for t in op.inputs}
        return tuple(t for t in self.tensors if t.kind == "input" and t.id in read)

    @property
    def num_parameters(self) -> int:
        """Number of trainable scalars."""
        return round(sum(t.num_elements(1) for t in self.parameters))

    @property
    def num_frozen_parameters(self) -> int:
        """Number of scalars of the weights that are not trained; buffers are not among them."""
        return round(sum(t.num_elements(1) for t in self.frozen))

    def flops(self, phase: str, batch: float = 1) -> float:
        """Return the FLOPs of a phase (a multiply-add counts as two) at ``batch`` samples.

        Raises: ConfigError for a batch that is not > 0.
        """
        _check_batch(batch)
        return sum(op.flops.at(batch) for op in self.ops if op.phase == phase)

    def forward_flops(self, batch: float = 1) -> float:
        """Return the FLOPs of the forward pass at ``batch`` samples."""
        return self.flops("forward", batch)

    def backward_flops(self, batch: float = 1) -> float:
        """Return the FLOPs of the backward pass at ``batch`` samples."""
        return self.flops("backward", batch)

    def saved_bytes(self, batch: float = 1) -> float:
        """Return the bytes of activations and inputs kept for backward, shared storage counted once.

        Raises: ConfigError for a batch that is not > 0.
        """
        _check_batch(batch)
        seen: dict[int, float] = {}
        for t in (*(t for t in self.tensors if t.is_saved and t.kind not in WEIGHT_KINDS), *self.kept_inputs):
            key = t.storage if t.storage >= 0 else -2 - t.id
            seen[key] = max(seen.get(key, 0.0), t.num_bytes(batch))
        return sum(seen.values())

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """For each tensor the ids of the ops that read it, in order."""
        users: list[list[int]] = [[] for _ in self.tensors]
        for op in self.ops:
            for tensor in dict.fromkeys(op.inputs):
                users[tensor].append(op.id)
        return tuple(tuple(u) for u in users)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: sizes and work of one sample."""
        pairs = {
            "parameters": format_count(self.num_parameters),
            "frozen parameters": format_count(self.num_frozen_parameters) if self.frozen else None,
            "forward": f"{format_count(self.forward_flops())}FLOP a sample",
            "backward": f"{format_count(self.backward_flops())}FLOP a sample",
            "activations": f"{format_size(self.saved_bytes())} kept for backward, one sample",
            "ops": f"{len(self.ops):,} ({self.route} route)",
            "repeated blocks": f"{len(self.block_names):,}" if self.block_names else None,
            "sequence length": f"{self.sequence_length:,} tokens" if self.sequence_length else None,
        }
        return html_pairs(self.name, pairs)

    def save(self, path: str) -> None:
        """Write the graph as JSON (gzip if the path ends in .gz); readable without torch."""
        from rostam_py.graph.storage import save_graph

        save_graph(self, path)

    @staticmethod
    def load(path: str) -> "OperatorGraph":
        """Read a graph that ``save`` wrote. Raises: ConfigError for another format or version."""
        from rostam_py.graph.storage import load_graph

        return load_graph(path)


def resolve_views(graph: OperatorGraph) -> tuple[int, ...]:
    """Return, for each tensor, the tensor a computing op made that it is a view of (or itself)."""
    roots = list(range(len(graph.tensors)))
    for op in graph.ops:
        if op.is_metadata and op.inputs:
            for output in op.outputs:
                roots[output] = roots[op.inputs[0]]
    return tuple(roots)


def passes_partial(op: Op, partial: Collection[int]) -> bool:
    """Return whether all outputs are PARTIAL sums if exactly the inputs at places ``partial`` are.

    A placer may delay the all-reduce of a PARTIAL tensor over such ops.
    Args: partial: places in ``op.inputs``, not tensor ids.
    """
    return tuple(sorted(partial)) in op.linear_in


def _check_batch(batch: float) -> None:
    if not 0 < batch < math.inf:
        raise ConfigError(f"batch is {batch!r}; it must be a number of samples > 0")
