"""Where queries, keys and values, and what goes with them, lie among the tensors of a fused attention op.

Model: queries, keys and values are (..., rows, size). Forward reads them first, then perhaps a mask (..., query rows,
key rows), and writes the output and one number a query row; backward reads the output's gradient before them and writes
their gradients in the same order.
"""

from dataclasses import dataclass
from typing import NamedTuple

from rostam_py.errors import ConfigError
from rostam_py.graph import Op, OperatorGraph

Shape = tuple[int, ...]


class RowsOf(NamedTuple):
    """A tensor of an attention op and the dimension of its rows, those of the queries or of the keys."""

    tensor: int
    dim: int


@dataclass(frozen=True, slots=True)
class Attention:
    """The tensors of one fused attention op.

    query, key, value: what it multiplies. made: output and statistics, or the gradients of query, key and value.
    others: further inputs with rows of their own: the mask, and in backward output, gradient and statistics.
    """

    op: int
    is_backward: bool
    query: RowsOf
    key: RowsOf
    value: RowsOf
    made: tuple[RowsOf, ...]
    others: tuple[RowsOf, ...]
    mask: int | None

    @property
    def rows(self) -> tuple[RowsOf, ...]:
        """All tensors whose rows are split with the sequence."""
        return (self.query, self.key, self.value, *self.made, *self.others)


def find_attentions(graph: OperatorGraph, shapes: list[Shape]) -> dict[int, Attention]:
    """Return op id -> what is known of it, for every fused attention op. Args: shapes: of all tensors."""
    return {op.id: _attention(op, shapes) for op in graph.ops if op.role == "attention"}


def _attention(op: Op, shapes: list[Shape]) -> Attention:
    is_backward = op.phase == "backward" and not op.is_recomputed
    first = 1 if is_backward else 0
    operands = op.inputs[first : first + 3]
    ranks = {len(shapes[t]) for t in operands}
    if len(operands) < 3 or len(ranks) != 1 or ranks.pop() < 3:
        raise ConfigError(
            f"op {op.name!r} ({op.op_type}) does not read query, key and value of (..., rows, size) as attention does;"
            " strategy.cp must be 1 for this model"
        )
    query, key, value = (RowsOf(t, len(shapes[t]) - 2) for t in operands)
    others = [t for place, t in enumerate(op.inputs) if not first <= place < first + 3]
    made = op.outputs[:3] if is_backward else op.outputs
    found = [rows for t in others if (rows := _rows(shapes, t, query)) is not None]
    mask = next((t for t in others if not _is_like(shapes, t, query)), None)
    results = [RowsOf(t, len(shapes[t]) - 2) for t in made] if is_backward else []
    if not is_backward:
        results = [rows for t in made if (rows := _rows(shapes, t, query)) is not None]
    else:
        found += [rows for t in op.outputs[3:] if (rows := _rows(shapes, t, query)) is not None]
    return Attention(op.id, is_backward, query, key, value, tuple(results), tuple(found), mask)


def _is_like(shapes: list[Shape], tensor: int, query: RowsOf) -> bool:
    """Tell whether a tensor is an output, its gradient or a statistic: it has the query's leading dimensions."""
    shape, like = shapes[tensor], shapes[query.tensor]
    return shape[:-1] == like[:-1] or shape == like[:-1]


def _rows(shapes: list[Shape], tensor: int, query: RowsOf) -> RowsOf | None:
    """Return where the query's rows lie in another tensor, None where it has none (a mask alike for all rows)."""
    shape, rows = shapes[tensor], shapes[query.tensor][query.dim]
    if shape == shapes[query.tensor][:-1]:
        return RowsOf(tensor, len(shape) - 1)
    dim = len(shape) - 2
    return RowsOf(tensor, dim) if dim >= 0 and shape[dim] == rows and rows > 1 else None
