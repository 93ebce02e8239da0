"""Rows that every rank makes of its own tokens: what routers decide, and the rows of experts that go with it.

Legend: T tokens, k experts for each of them; rows: k T, sorted by expert.

Model: a router decides for each token apart, so ranks that hold parts of the tokens each route their own. What
arranges decisions (a sort, the places of a mask, counts) mixes tokens, yet any order of rows serves: a rank arranges
those of its own tokens alone, and gathers, scatters and adds up rows among them. Its rows are as large a part as its
tokens are, as loads are even. Decisions are indices, masks and counts that depend on what the model computes. A number
per expert is a rank's own count; what is summed over rows into a tensor without any is a summand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rostam_py.graph import PARTIAL, WHOLE, Affine, Op, OperatorGraph, Split
from rostam_py.graph.vocabulary import FLOATING_DTYPES
from rostam_py.placement.sharding.layouts import Place, Shard, SplitAxis, State, Stretches, plain


@dataclass(frozen=True)
class OwnRows:
    """What members of a tp group do with their own tokens' rows (sequence parallelism with experts spread over ranks).

    ops: those that work on a member's own tokens or rows: the search runs them whole. exchanged: rows between them and
    the experts. decisions: see ``decisions_of``.
    """

    ops: frozenset[int] = frozenset()
    exchanged: frozenset[int] = frozenset()
    decisions: frozenset[int] = frozenset()


def decisions_of(graph: OperatorGraph) -> frozenset[int]:
    """Return the tensors that are no numbers with gradients and depend on what the model computes. Cost: linear."""
    tensors, found = graph.tensors, set[int]()
    computed = [t.dtype in FLOATING_DTYPES and any(dim.per_sample for dim in t.shape) for t in tensors]
    for op in graph.ops:
        if any(t in found or computed[t] for t in op.inputs):
            found.update(t for t in op.outputs if tensors[t].dtype not in FLOATING_DTYPES)
    return frozenset(found)


@dataclass(slots=True)
class RowLayouts:
    """How dimensions of tokens and rows are split; filled while ops are visited in order.

    degree: of the ranks. by_extent: extent -> its stretches.
    """

    graph: OperatorGraph
    degree: int
    by_extent: dict[int, Stretches] = field(default_factory=dict)

    def axis(
        self, op: Op, held: Sequence[State], extents: Sequence[tuple[int, ...]]
    ) -> tuple[SplitAxis, Stretches] | None:
        """Return the split of an op by which each rank works on its own rows, None if an extent does not divide.

        Args: held: the states of its inputs, one of them a Shard. extents: of its inputs, then of its outputs.
        """
        num, places, split_dims = len(op.inputs), list[Place | int | None](), list[tuple[int, ...]]()
        for state, shape in zip(held, extents[:num], strict=True):
            if isinstance(state, Shard) and len(state.sizes) > 1:
                return None
            places.append(self._place(state) if isinstance(state, Shard) else WHOLE)
            if isinstance(state, Shard):
                self.by_extent.setdefault(shape[state.dim], state.stretches)
                split_dims.append(shape[: state.dim + 1])
        for t, shape in zip(op.outputs, extents[num:], strict=True):
            dim = next((len(lead) - 1 for lead in split_dims if shape[: len(lead)] == lead), self._rows(t))
            if dim is None:
                is_number = self.graph.tensors[t].dtype in FLOATING_DTYPES
                places.append(PARTIAL if is_number else WHOLE)
                continue
            stretches = self.by_extent.setdefault(shape[dim], plain(shape[dim]))
            if any(size % self.degree for size in stretches.sizes):
                return None
            places.append(self._place(Shard(dim, *stretches)))
        dims = tuple(p.dim if isinstance(p, Place) else p for p in places)
        split = Split("sample", dims[:num], dims[num:], Affine(self.degree))
        return SplitAxis(split, self.degree, tuple(places[:num]), tuple(places[num:])), plain(self.degree)  # type: ignore[arg-type]

    def part(self, tensor: int, shape: tuple[int, ...]) -> Shard | None:
        """Return a member's part of rows, None if they do not divide. Args: shape: of the tensor."""
        dim = self._rows(tensor)
        stretches = None if dim is None else self.by_extent.setdefault(shape[dim], plain(shape[dim]))
        if dim is None or stretches is None or any(size % self.degree for size in stretches.sizes):
            return None
        return Shard(dim, *stretches)

    def _rows(self, tensor: int) -> int | None:
        """Return the dimension of a tensor's tokens or rows."""
        shape = self.graph.tensors[tensor].shape
        return next((place for place, dim in enumerate(shape) if dim.per_sample), None)

    def _place(self, state: Shard) -> Place:
        """Return where an axis of one entry per rank lies in a dimension."""
        return Place(state.dim, state.repeat, 0, self.degree, state.sizes[0] // self.degree)
