"""Which ops work on rows of experts, and which weights they read a part of with each row.

Model: an op with an expert split has rows of experts along one dimension: rows sorted by expert, or a stack of as many
as there are experts. Every op that carries this dimension from such an op to another one works on rows of experts, too.
So does, in front of an op that adds (or multiplies by) one entry of a table for each row, what looks the entries up by
the row's expert: biases of experts go where their weights are, not with the rows. An op behind the last product that
reads such entries, or a weight along the experts, belongs to them as well: only what it makes is combined.

Example: y = grouped_mm(rows, weights) + bias[expert of each row]: all three ops are the experts'.
"""

from collections.abc import Iterable, Mapping

from rostam_py.graph import Affine, Op, OperatorGraph, Part, Split
from rostam_py.graph.vocabulary import FLOATING_DTYPES, TABLE_ROLES

_PASSING_ROLES = ("sum", "copy", "join", "scale")


class ExpertRows:
    """The ops and weights; complete after construction.

    Args: splits: op -> its expert split.
    Attributes: ops: that work on rows of experts. weights: they read along the experts, by ids of the weights.
    """

    def __init__(self, graph: OperatorGraph, splits: Mapping[int, Split]) -> None:
        self.graph, self.splits = graph, splits
        self.counts = {round(split.size.at(1)) for split in splits.values()}
        self.tables = self._looked_up()
        self.below: dict[int, int] = {}  # tensor of rows that come from experts -> dimension of the rows
        self.ops, self.weights = set(splits), set[int]()
        self._go()

    def is_rows(self, tensor: int) -> bool:
        """Tell whether a tensor has numbers for every sample."""
        one = self.graph.tensors[tensor]
        return one.dtype in FLOATING_DTYPES and any(dim.per_sample for dim in one.shape)

    def weight(self, tensor: int) -> int | None:
        """Return the weight that a tensor is a view or a cast of."""
        roots, graph = self.graph.view_roots, self.graph
        root = roots[tensor]
        while (maker := graph.tensors[root].producer) is not None and graph.ops[maker].role == "copy":
            root = roots[graph.ops[maker].inputs[0]]
        return root if graph.tensors[root].kind in ("parameter", "frozen") else None

    def _go(self) -> None:
        ends = self._forward()
        self.ops |= {op for op in self._backward(ends) if not self.graph.ops[op].is_metadata}
        self._add_sums()
        self._add_weights()
        self._add_lookups()
        for op in self.graph.ops:
            if op.phase == "backward" and op.forward_op in self.ops and not op.is_metadata:
                self.ops.add(op.id)

    # Which entries of tables rows read

    def _looked_up(self) -> set[int]:
        """Return the rows that are looked up in tables of experts alone, and what is made of nothing else."""
        found: set[int] = set()
        for op in self.graph.ops:
            if op.phase != "forward":
                continue
            rows = [t for t in op.inputs if self.is_rows(t)]
            is_lookup = op.role in TABLE_ROLES and not rows and any(self._is_table(t) for t in op.inputs)
            is_derived = bool(rows) and all(t in found for t in rows) and (op.is_metadata or _may_pass(op))
            if is_lookup or is_derived:
                found.update(op.outputs)
        return found

    def _is_table(self, tensor: int) -> bool:
        weight = self.weight(tensor)
        return weight is not None and round(self.graph.tensors[weight].shape[0].at(1)) in self.counts

    # Along the rows

    def _forward(self) -> dict[int, dict[int, int]]:
        """Follow rows of experts down; return op -> {input: dimension} of forward ops that read tables or weights."""
        ends: dict[int, dict[int, int]] = {}
        for op in self.graph.ops:
            if op.id in self.splits:
                self._note(op, self.splits[op.id].output_dims)
                continue
            given = {p: self.below[t] for p, t in enumerate(op.inputs) if t in self.below and self._is_made_in(t, op)}
            split = self._carrying(op, given) if given else None
            if split is None:
                continue
            self._note(op, split.output_dims)
            others = {p: d for p, d in enumerate(split.input_dims) if d is not None and p not in given}
            looked_up = {p: d for p, d in others.items() if op.inputs[p] in self.tables}
            if op.phase == "forward" and (looked_up or any(self.weight(op.inputs[p]) is not None for p in others)):
                ends[op.id] = given | looked_up
        return ends

    def _note(self, op: Op, dims: Iterable[int | None]) -> None:
        for t, dim in zip(op.outputs, dims, strict=True):
            if dim is not None and dim >= 0 and self.is_rows(t):
                self.below[t] = dim

    def _backward(self, ends: Mapping[int, Mapping[int, int]]) -> set[int]:
        """Follow rows that experts read up, through what comes from experts; return the ops on the way."""
        wanted: dict[int, int] = {}
        found: set[int] = set()
        for op in reversed(self.graph.ops):
            if op.id in self.splits:
                read = {p: d for p, d in enumerate(self.splits[op.id].input_dims) if d is not None}
            elif op.id in ends:
                read = dict(ends[op.id])
            elif any(t in wanted and t in self.below for t in op.outputs):
                made = {len(op.inputs) + p: wanted[t] for p, t in enumerate(op.outputs) if t in wanted}
                split = self._carrying(op, made)
                if split is None:
                    continue
                read = {p: d for p, d in enumerate(split.input_dims) if d is not None}
            else:
                continue
            if op.id not in self.splits:
                found.add(op.id)
            for p, dim in read.items():
                t = op.inputs[p]
                if self.is_rows(t) and self._is_made_in(t, op):
                    wanted[t] = dim
        return found

    def _is_made_in(self, tensor: int, op: Op) -> bool:
        maker = self.graph.tensors[tensor].producer
        return maker is not None and self.graph.ops[maker].phase == op.phase

    def _carrying(self, op: Op, given: Mapping[int, int]) -> Split | None:
        """Return a split of an op along these dimensions of its inputs and, counted on, outputs; None if none is.

        Every result that is rows has them along one of its dimensions, too.
        """
        num = len(op.inputs)
        for split in op.splits:
            dims = (*split.input_dims, *split.output_dims)
            parts = (*(split.input_parts or (None,) * num), *(split.output_parts or (None,) * len(op.outputs)))
            is_carried = all(
                d is not None and d >= 0 for t, d in zip(op.outputs, dims[num:], strict=True) if self.is_rows(t)
            )
            if is_carried and all(dims[p] == dim and _is_outermost(parts[p]) for p, dim in given.items()):
                return split
        return None if op.splits or not _may_pass(op) else self._as_they_lie(op, next(iter(given.values())))

    def _as_they_lie(self, op: Op, dim: int) -> Split:
        """Return the split of an op whose rows lie alike in all tensors, and which has none of its own."""
        dims = [dim if self.is_rows(t) else None for t in (*op.inputs, *op.outputs)]
        return Split("feature", tuple(dims[: len(op.inputs)]), tuple(dims[len(op.inputs) :]), Affine(1))

    # What goes with them

    def _add_sums(self) -> None:
        """Add sums of gradients of rows that several of their ops read."""
        for op in self.graph.ops:
            parts = [t for t in op.inputs if self.is_rows(t)]
            if op.role == "sum" and parts and all(self._maker(t) in self.ops for t in parts):
                self.ops.add(op.id)

    def _add_weights(self) -> None:
        for index in list(self.ops):
            op = self.graph.ops[index]
            given = {p: self.below[t] for p, t in enumerate(op.inputs) if t in self.below and self._is_made_in(t, op)}
            split = self.splits.get(index) or (self._carrying(op, given) if given else None)
            for t, dim in zip(op.inputs, split.input_dims if split else (), strict=False):
                weight = self.weight(t)
                if dim is not None and weight is not None:
                    self.weights.add(weight)

    def _add_lookups(self) -> None:
        """Add what looks up entries for rows of experts, and all that is made of those in between."""
        roots = self.graph.view_roots
        read = {roots[t] for user in self.ops for t in self.graph.ops[user].inputs}
        for op in reversed(self.graph.ops):
            is_table = not op.is_metadata and any(t in self.tables and roots[t] in read for t in op.outputs)
            if op.id in self.ops or not is_table:
                continue
            self.ops.add(op.id)
            read.update(roots[t] for t in op.inputs)
            weights = (self.weight(t) for t in op.inputs if self._is_table(t))
            self.weights.update(weight for weight in weights if weight is not None)

    def _maker(self, tensor: int) -> int | None:
        return self.graph.tensors[self.graph.view_roots[tensor]].producer


def _may_pass(op: Op) -> bool:
    """Tell whether an op without splits of its own works on entry by entry."""
    return op.is_elementwise or op.role in _PASSING_ROLES


def _is_outermost(part: Part | None) -> bool:
    return part is None or (part.outer == Affine(1) and part.start == Affine() and part.length == Affine())
