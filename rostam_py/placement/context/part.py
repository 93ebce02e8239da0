"""SequencePart: the model as one of c ranks sees it that share a sequence.

Model: every tensor that the sequence reaches holds 1/c of its rows and every op split along it does 1/c of its work, so
that what places a whole model (tensor parallelism, stages, kernels, memory) places the part as well. Attention keeps
its own queries and works through all keys, 1/c of its work too: with a causal mask each rank takes blocks i and
2c - 1 - i of the 2c that the sequence makes (Llama 3, 3.3.2), so that all have as much. What ranks exchange for it is
the placer's part. Gradients of weights are summands, reduced with those of the replicas.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rostam_py.graph import Affine, Op, OperatorGraph, Part, Split, Tensor
from rostam_py.graph.vocabulary import ROW_PLACES, TABLE_ROLES
from rostam_py.placement.context.attention import Attention
from rostam_py.placement.context.walk import BATCH, Chosen, Walk, follow_sequence
from rostam_py.placement.sharding.layouts import Place, Shard, SplitAxis, resolve


@dataclass(frozen=True)
class SequencePart:
    """One rank's part.

    graph: the part; ops and tensors keep their ids. whole: the model. degree: ranks that share a sequence.
    attentions: op -> the tensors of a fused attention. shared: ops whose work the ranks share.
    unsplit: types of ops with work that every rank runs whole, and how many.
    """

    graph: OperatorGraph
    whole: OperatorGraph
    degree: int
    attentions: dict[int, Attention]
    shared: frozenset[int]
    unsplit: Counter[str]


def split_sequences(graph: OperatorGraph, degree: int, blocks: int = 1) -> SequencePart:
    """Return the part of a model that each of ``degree`` ranks runs.

    Args: blocks: of the sequence that each rank takes.
    Raises: DegreeError for rows that the degree does not divide; ConfigError for a model that cannot be split.
    """
    return _Splitter(graph, degree, follow_sequence(graph, degree, blocks)).run()


class _Splitter:
    """Write the part; equal shapes, splits and quantities stay equal objects."""

    def __init__(self, graph: OperatorGraph, degree: int, walk: Walk) -> None:
        self.graph, self.degree, self.walk = graph, degree, walk
        self._shapes: dict[tuple[int, int], tuple[Affine, ...]] = {}
        self._splits: dict[object, tuple[Split, ...]] = {}
        self._scaled: dict[Affine, Affine] = {}
        self._kept: list[object] = []  # whose ids are keys above

    def run(self) -> SequencePart:
        walk, graph = self.walk, self.graph
        shared = frozenset(walk.axes) | frozenset(walk.attentions)
        tensors = tuple(self._tensor(t) for t in graph.tensors)
        ops = tuple(self._op(op) if op.id in shared else op for op in graph.ops)
        part = replace(graph, ops=ops, tensors=tensors)
        reached = {op.id for op in graph.ops if op.flops.at(BATCH) > 0 and not op.is_elementwise} - shared
        unsplit = Counter(graph.ops[i].op_type for i in reached)
        return SequencePart(part, graph, self.degree, walk.attentions, shared, unsplit)

    def _tensor(self, tensor: Tensor) -> Tensor:
        state = self.walk.states[tensor.id]
        if not isinstance(state, Shard):
            return tensor
        key = (id(tensor.shape), state.dim)
        if key not in self._shapes:
            self._kept.append(tensor.shape)
            shape = list(tensor.shape)
            shape[state.dim] = self._share(shape[state.dim])
            self._shapes[key] = tuple(shape)
        return replace(tensor, shape=self._shapes[key])

    def _share(self, quantity: Affine) -> Affine:
        if quantity not in self._scaled:
            self._scaled[quantity] = quantity.scaled(1 / self.degree)
        return self._scaled[quantity]

    def _op(self, op: Op) -> Op:
        is_lookup = op.role in (*TABLE_ROLES, "pick")  # reads of a table as much as it makes
        read_in_full = [t for place, t in enumerate(op.inputs) if place != ROW_PLACES.get(op.role)]
        read = self._share(op.bytes_read) if is_lookup else self._bytes(op.bytes_read, read_in_full)
        written = self._bytes(op.bytes_written, op.outputs)
        splits = op.splits
        if op.id in self.walk.axes:
            splits = self._local_splits(op, self.walk.axes[op.id])
        flops, repeated = self._share(op.flops), self._share(op.repeated_flops)
        return replace(op, flops=flops, repeated_flops=repeated, bytes_read=read, bytes_written=written, splits=splits)

    def _bytes(self, whole: Affine, tensors: Iterable[int]) -> Affine:
        """Return what an op moves of tensors: less what other ranks move of those that are split."""
        if whole.per_pair:
            return self._share(whole)
        constant = per_sample = 0.0
        for t in dict.fromkeys(tensors):
            if isinstance(self.walk.states[t], Shard):
                tensor = self.graph.tensors[t]
                base = tensor.num_bytes(0)
                constant, per_sample = constant + base, per_sample + tensor.num_bytes(1) - base
        gone = 1 - 1 / self.degree
        left = Affine(whole.constant - gone * constant, whole.per_sample - gone * per_sample)
        return left if min(left.constant, left.per_sample) >= 0 else self._share(whole)

    def _local_splits(self, op: Op, chosen: Chosen) -> tuple[Split, ...]:
        shapes = [self.walk.space.shapes[t] for t in (*op.inputs, *op.outputs)]
        key = (id(op.splits), chosen[0].split, chosen[1], *shapes)
        if key not in self._splits:
            self._kept.append(op.splits)
            found = (self._local_split(split, shapes, len(op.inputs), chosen) for split in op.splits)
            self._splits[key] = tuple(split for split in found if split is not None)
        return self._splits[key]

    def _local_split(
        self, split: Split, shapes: list[tuple[int, ...]], num_inputs: int, chosen: Chosen
    ) -> Split | None:
        """Return a split of the part, None where the sequence leaves nothing of its axis to divide evenly."""
        if split.kind == "expert":  # a rank's own rows are of all experts
            return split
        axis, (taken, stretches) = resolve(split, shapes, num_inputs, BATCH), chosen
        pairs = list(zip((*axis.inputs, *axis.outputs), (*taken.inputs, *taken.outputs), strict=True))
        written = (
            *(split.input_parts or (None,) * num_inputs),
            *(split.output_parts or (None,) * (len(pairs) - num_inputs)),
        )
        parts: list[Part | None] = []
        is_shared = False
        for (place, other), part in zip(pairs, written, strict=True):
            parts.append(part)
            if not isinstance(place, Place) or not isinstance(other, Place) or place.dim != other.dim:
                continue
            count = _num_stretches(other, stretches, taken)
            if count is None:
                return None
            if count < place.outer:
                if place.outer % self.degree or part is None:
                    return None
                parts[-1] = replace(part, outer=self._share(part.outer))
            elif count < place.outer * place.length:
                if place.length % self.degree or place.start % self.degree:
                    return None
                is_shared = True
                if part is not None:
                    parts[-1] = replace(part, start=self._share(part.start), length=self._share(part.length))
        return replace(
            split,
            size=self._share(split.size) if is_shared else split.size,
            comm_bytes=Affine(split.comm_bytes.constant, split.comm_bytes.per_sample / self.degree),
            input_parts=tuple(parts[:num_inputs]) if split.input_parts else (),
            output_parts=tuple(parts[num_inputs:]) if split.output_parts else (),
        )


def _num_stretches(place: Place, stretches: object, axis: SplitAxis) -> int | None:
    state = place.state(stretches, axis.size)  # type: ignore[arg-type]
    return state.stretches.num_stretches if isinstance(state, Shard) else None
