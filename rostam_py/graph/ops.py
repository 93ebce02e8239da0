"""What an operator graph is made of: ops, the tensors between them, and the ways to split an op.

Legend: an ``Affine`` is a quantity that is linear in the batch, ``constant + per_sample * batch``, so one trace serves
every batch; work over all pairs of samples, a contrastive loss's, has a square in addition. Tensor bytes are those of
the traced dtype; precision scales them later.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from rostam_py.graph.vocabulary import DTYPE_BYTES


@dataclass(frozen=True, slots=True)
class Affine:
    """A quantity ``constant + per_sample * batch + per_pair * batch**2``; per_pair is 0 but of FLOPs and bytes."""

    constant: float = 0
    per_sample: float = 0
    per_pair: float = 0

    def at(self, batch: float) -> float:
        """Return the value at a batch of ``batch`` samples."""
        return self.constant + (self.per_sample + self.per_pair * batch) * batch

    def __add__(self, other: "Affine") -> "Affine":
        return Affine(
            self.constant + other.constant, self.per_sample + other.per_sample, self.per_pair + other.per_pair
        )

    def __sub__(self, other: "Affine") -> "Affine":
        return Affine(
            self.constant - other.constant, self.per_sample - other.per_sample, self.per_pair - other.per_pair
        )

    def scaled(self, factor: float) -> "Affine":
        """Return this quantity times ``factor``."""
        return Affine(self.constant * factor, self.per_sample * factor, self.per_pair and self.per_pair * factor)


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
        for dim in self.shape:  # dim.at(batch), asked for a hundred thousand times a placement
            count *= dim.constant + dim.per_sample * batch
        return count

    def num_bytes(self, batch: float) -> float:
        """Return the bytes in the traced dtype at ``batch`` samples."""
        return self.num_elements(batch) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Part:
    """Where a split's axis lies inside one dimension of a tensor that is more than the axis.

    Model: the dimension is ``outer`` x axis[start : start + length] x the rest; length 0: to the axis's end.
    """

    outer: Affine = Affine(1)
    start: Affine = Affine()
    length: Affine = Affine()


@dataclass(frozen=True, slots=True)
class Halo:
    """Slices of an input, along the dimension that is split, that a member reads in addition to its own.

    place: of the input in ``Op.inputs``. before, after: how many of the member before (after) it; the first (last)
        member has padding there. is_kept: the forward op read the same slices and keeps them for backward.
    share: of the op's work that reads them; kernels of their own do the rest: a convolution's weight gradients need no
        halo of the output's gradient, its input gradient does.
    """

    place: int
    before: int
    after: int
    is_kept: bool = False
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Split:
    """One legal way to split an op over the members of a group (one iteration-space axis).

    kind: one of SPLIT_KINDS.
    input_dims: for each tensor input (``Op.inputs`` order) the dimension that is split, or WHOLE.
    output_dims: for each output (``Op.outputs`` order) the split dimension, WHOLE, or PARTIAL.
    size: extent of the axis; a degree is legal if it divides it.
    comm_kind, comm_bytes: what the group exchanges while the op runs: "all_reduce" and its bytes, e.g. the softmax
        statistics of a split vocabulary, or "" for nothing.
    input_parts, output_parts: for each dimension of input_dims and output_dims what part of it the axis is; None, and
        () for all, where the dimension is the axis, or the axis its outermost factor. Heads merged with their sizes
        into one dimension, thirds of a fused product, and what slices and joins cut are such parts: a member holds
        some of every stretch.
    halos: what members read of their neighbours' parts of the inputs (convolutions and pooling split along space).
    """

    kind: str
    input_dims: tuple[int | None, ...]
    output_dims: tuple[int | None, ...]
    size: Affine
    comm_kind: str = ""
    comm_bytes: Affine = Affine()
    input_parts: tuple[Part | None, ...] = ()
    output_parts: tuple[Part | None, ...] = ()
    halos: tuple[Halo, ...] = ()

    @property
    def exchanged_halos(self) -> tuple[Halo, ...]:
        """The halos that neighbours send each other for this op."""
        return tuple(halo for halo in self.halos if not halo.is_kept)

    @property
    def has_parts(self) -> bool:
        """Whether some dimension is more, or less, than the axis: plain slices of it do not fit the split."""
        return bool(self.input_parts or self.output_parts)


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
    is_recomputed: runs a checkpointed forward op again; its FLOPs are the hardware's, not the model's.
    repeated_flops: those of ``flops`` that do a forward op's work again inside this kernel, as fused attention's
        backward makes the scores again; the hardware's too, not the model's.
    role: what the op does, one of ROLES.
    linear_in: sets of places in ``inputs``, ascending: op(sum of parts) = sum of op(part) if exactly the inputs of one
        set are split into summands. ((0, 1),) for a sum, ((0,), (1,)) for a product. A constant term (the bias of a
        product or a convolution) is in none: one member adds it. An empty set: zeros, which read no values.
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
    is_recomputed: bool = False
    repeated_flops: Affine = Affine()

    @property
    def model_flops(self) -> Affine:
        """FLOPs that the model needs: no work that is done again."""
        return Affine() if self.is_recomputed else self.flops - self.repeated_flops


def passes_partial(op: Op, partial: Collection[int]) -> bool:
    """Return whether all outputs are PARTIAL sums if exactly the inputs at places ``partial`` are.

    A placer may delay the all-reduce of a PARTIAL tensor over such ops.
    Args: partial: places in ``op.inputs``, not tensor ids.
    """
    return tuple(sorted(partial)) in op.linear_in
