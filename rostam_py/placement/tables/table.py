"""Tables of a graph: which embeddings are tables that may lie on one rank alone.

Example:
    find_tables(graph)                         # op that looks it up in forward -> Table
"""

from dataclasses import dataclass

from rostam_py.graph import OperatorGraph
from rostam_py.plan.table_ids import IdFrequencies, uniform_rows


@dataclass(frozen=True, slots=True)
class Table:
    """An embedding table. lookups, vectors: rows that a sample looks up, and pooled vectors that it gets.

    ids: how often each is looked up, None if all are alike.
    """

    parameter: int
    name: str
    num_rows: int
    dimension: int
    lookups: float
    vectors: float
    ids: IdFrequencies | None = None

    def distinct_rows(self, num_samples: float) -> float:
        """Return the expected distinct rows that so many samples look up."""
        if self.ids is None:
            return uniform_rows(self.num_rows, num_samples * self.lookups)
        return self.ids.distinct_rows(num_samples, self.lookups)


def find_tables(graph: OperatorGraph) -> dict[int, Table]:
    """Return, by the op that looks it up in forward, every table that no other op reads.

    Model: tables are those of which a sample gets one vector, whatever it looks up: a bag's sum, or one row. Tokens and
        positions get a vector each, and are none.
    """
    roots, found = graph.view_roots, {}
    readers: dict[int, int] = {}
    for op in graph.ops:
        if not op.is_metadata:
            for t in {roots[t] for t in op.inputs}:
                readers[t] = readers.get(t, 0) + 1
    for op in graph.ops:
        weight = graph.tensors[roots[op.inputs[0]]] if op.role == "embedding" and op.inputs else None
        if op.phase == "forward" and weight is not None and weight.kind == "parameter" and readers[weight.id] == 1:
            rows, dimension = (round(dim.at(1)) for dim in weight.shape)
            pooled = graph.tensors[op.outputs[0]]
            if any(dim.per_sample for dim in pooled.shape) and pooled.num_elements(1) == dimension:
                ids = graph.tensors[op.inputs[1]].num_elements(1)
                found[op.id] = Table(weight.id, weight.name, rows, dimension, ids, 1.0)
    return found
