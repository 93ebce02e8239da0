"""Embedding tables spread over ranks: which rank holds which table, what it looks up, and what is exchanged.

Legend: d ranks, B samples of a rank's micro-batch, a table of V rows of D entries of which a sample looks up h.

Model: a rank looks its tables up for the samples of all d ranks and sends every rank its samples' pooled vectors in one
all-to-all, and backward receives their gradients in another. ``sharded``: tables whole on one rank, the heaviest first
to the rank with least bytes, lookups and vectors; one that exceeds a rank's memory in parts by rows, whose pooled
summands are sent like vectors of tables of their own. ``balanced``: the same, but the table with most lookups on one
rank is cut into twice as many parts by rows, again and again, and the spread whose busiest rank has least is kept.
``columns``: D/d columns of every table on each rank.
``hierarchical``: as balanced, over servers; on a server a table's rows lie by their ids on all of its g ranks. They
reduce-scatter what they add up of all samples' vectors, and ranks of equal number on all servers exchange the sums
all-to-all; gradients go all-to-all, then are all-gathered inside servers. A rank
holds its tables' weights and state; of their gradients, which no other rank has, only the rows that were looked up are
written, kept and updated, each once, whatever the number of samples that looked it up: of V rows that n ids draw
uniformly V (1 - (1 - 1/V)^n), a bound, since ids that are not uniform draw fewer; of measured frequencies what
plan/table_ids.py expects. For that their ids are sorted, by radix sort of 8 bits a pass (kernel rule sorted_ids), and
the gradient of a vector is read for each id that it pools. Tables of at most ``strategy.placing.replicated_tables``
lie on every rank and are data-parallel. All ranks compute, exchange and hold what the busiest does. Ids are where the
tables are (the data loader puts them there), and a row is read for each id.
Ignores that ranks filter the ids of all samples, and that narrow columns read whole sectors.
Source: Naumov et al. 2019 (arXiv 1906.00091), section 4; Mudigere et al. 2022 (arXiv 2104.05158), section 4.2;
``balanced``, ``hierarchical``, replicated ones: HugeCTR's samples/dlrm/sharding/planner.py (plans "auto", "hier_auto";
dp_threshold), without the costs that it takes as arguments, and embedding/hier_model_parallel_embedding.cpp; torchrec's
table-row-wise sharding (Mudigere et al., 4.2.3, over servers);
distinct rows: HugeCTR's embedding collections and torchrec's fused optimizers sum the gradients of equal ids first.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from rostam_py.errors import ConfigError, DegreeError
from rostam_py.graph import Op, OperatorGraph
from rostam_py.placement.experts import SpreadExperts
from rostam_py.placement.tables.loads import ALONE, Load, load_on_servers, spread_by_load
from rostam_py.placement.tables.table import Table, find_tables
from rostam_py.plan.table_groups import BETWEEN, HIERARCHICAL, INSIDE, TABLES
from rostam_py.plan.table_ids import UNIFORM, frequencies

VECTORS, GRADIENTS = "vectors", "vector gradients"


@dataclass(frozen=True, kw_only=True)
class SpreadTables(SpreadExperts):
    """The tables of a model, spread over ``degree`` ranks. divided: tables and their gradients.

    every: all tables, in the order of ``load``. tables: by the ops that read them, or make their gradients. load: the
    busiest rank's. batch: samples of a rank.
    """

    every: tuple[Table, ...] = ()
    tables: dict[int, Table] = field(default_factory=dict)
    load: Load = ALONE
    batch: float = 1.0
    words: str = ""
    ids: str = UNIFORM
    server_size: int = 0  # ranks of a server, where tables lie on servers
    gradients: frozenset[int] = frozenset()  # ops that make those of tables
    are_columns: bool = False
    entries: dict[int, float] = field(default_factory=dict)  # exchanged tensor -> its elements of one sample
    group: str = TABLES

    def share(self, tensor: int) -> float:
        """Return the part of all tables that the busiest rank holds."""
        return self.load.held if tensor in self.divided else 1.0

    def work(self, op: Op) -> float:
        """Return the busiest rank's lookups over those of all tables for a rank's own samples."""
        return self.degree * self.load.lookups if op.id in self.tables else 1.0

    def rows_of(self, op: Op, tensor: int) -> float:
        """Return what an op moves over the rank's own: of a table's gradient, the rows that were looked up."""
        if op.id not in self.tables or tensor not in self.divided:
            return self.work(op)
        table = self.tables[op.id]
        rows = table.distinct_rows(self.degree * self.batch)
        return min(1.0, self._updated_share * rows / (table.num_rows * self.load.held))

    @cached_property
    def _updated_share(self) -> float:
        """The busiest rank's entries of rows that were looked up, of all ranks'."""
        samples = self.degree * self.batch
        total = sum(t.distinct_rows(samples) * t.dimension for t in self.every)
        return self.load.updated(self.every, samples) / total

    def gathered(self, op: Op) -> float:
        """Return the busiest rank's rows that an op reads of its table over those of the rank's own samples."""
        return self.work(op)

    def kept_rows(self, tensor: int) -> float:
        """Return 1: what is kept for backward is the rank's own."""
        return 1.0

    def bundle(self, tensor: int) -> tuple[int, ...]:
        """Return the tensors of the same all-to-all."""
        return tuple(t for t, kind in self.exchanged.items() if kind == self.exchanged[tensor])

    def steps(self, tensor: int) -> tuple[tuple[str, str, float], ...]:
        """Return (group, collective, share of the bytes) of what takes an all-to-all's place, one behind the other.

        Model: shares are of the vectors of all samples.
        """
        if not self.server_size:
            return ()
        between = (BETWEEN, "all_to_all", 1 / self.server_size)
        if self.exchanged[tensor] == VECTORS:
            chain = ((INSIDE, "reduce_scatter", 1.0), between)
        else:
            chain = (between, (INSIDE, "all_gather", 1.0))
        return tuple(one for one in chain if one[0] == INSIDE or self.degree > self.server_size)

    def ids_per_gradient(self, op: Op) -> float:
        """Return for how many ids an op adds up each gradient that it reads first; 0 of ops that are of no table."""
        return self.tables[op.id].lookups / self.tables[op.id].vectors if op.id in self.gradients else 0.0

    def sorted_ids(self, op: Op) -> tuple[float, int]:
        """Return the busiest rank's ids, in front of the first gradient of a table, and the rows of its tables.

        Model: by columns all ranks have all ids.
        """
        if op.id != min(self.gradients, default=-1):
            return 0.0, 0
        ids = [
            sum(self.every[index].lookups * (1.0 if self.are_columns else part) for index, part in rank)
            for rank in self.load.ranks
        ]
        num_rows = sum(t.num_rows for t in self.every) * (1.0 if self.are_columns else self.load.held)
        return max(ids) * self.degree * self.batch, math.ceil(num_rows)

    def sent(self, tensor: int) -> float:
        """Return the elements that the busiest rank exchanges over those of the tensor."""
        return self.degree * self.load.vectors / self.entries[tensor]

    def updated(self, num_samples: float) -> dict[str, int]:
        """Return the parameters of every table that the busiest rank updates: its part of all ranks', of each alike."""
        samples = self.degree * num_samples
        entries = {t.name: t.distinct_rows(samples) * t.dimension for t in self.every}
        share = self.load.updated(self.every, samples) / sum(entries.values())
        return {name: math.ceil(share * count) for name, count in entries.items()}

    def untouched(self, num_samples: float) -> int:
        """Return the parameters of the busiest rank that an iteration of so many samples on a rank does not look up."""
        held = math.ceil(sum(t.num_rows * t.dimension for t in self.every) * self.load.held)
        return max(0, held - math.ceil(self.load.updated(self.every, self.degree * num_samples)))

    def notes(self) -> list[str]:
        """Return what a reader of the plan should know."""
        count, even, total = len(self.every), 1 / self.degree, sum(t.vectors * t.dimension for t in self.every)
        senders = self.degree // (self.server_size or 1)  # ranks of a server all send sums of its vectors
        return [
            f"{count} embedding tables {self.words} over {self.degree} ranks: the busiest rank holds"
            f" {self.load.held / even:.3g} times, looks up {self.load.lookups / even:.3g} times and sends"
            f" {self.load.vectors * senders / total:.3g} times the mean, and every rank counts as the busiest;"
            f" the gradient of a table has only its distinct looked-up rows (strategy.placing.table_ids={self.ids})"
        ]


_WORDS = {"columns": "by columns", HIERARCHICAL: "over servers, and by rows over the ranks of each,"}


def spread_tables(
    graph: OperatorGraph, where: str, degree: int, batch: float, entry_bytes: int, rank_bytes: float,
    ids: str = UNIFORM, server_size: int = 1, replicated_bytes: int = 0,
) -> SpreadTables:  # fmt: skip
    """Return how a model's tables are spread over ``degree`` ranks. Args: where: of TABLE_PLACES.

    Args:
        entry_bytes: of one entry of a table, state included.
        rank_bytes: that a rank may hold of tables.
        ids: profile of the ids that are looked up.
        server_size: ranks of a server, for hierarchical ones.
        replicated_bytes: of a table, state included, up to which every rank holds it.
    Raises: ConfigError for a model without tables; DegreeError for columns that the degree does not divide.
    Cost: linear in ops; tables x ranks.
    """
    forward = find_tables(graph)
    if not forward:
        raise ConfigError(
            f"strategy.tables is {where!r}, but {graph.name} has no embedding table from which one op makes one pooled"
            " vector per sample (torch.nn.EmbeddingBag). Tables of tokens and positions, which are not pooled, are"
            " always replicated; set strategy.tables=replicated"
        )
    known = frequencies(ids, [t.num_rows for t in forward.values()], graph.name, degree * batch)
    forward = {
        op: replace(t, ids=one) for (op, t), one in zip(forward.items(), known, strict=True)
        if t.num_rows * t.dimension * entry_bytes > replicated_bytes
    }  # fmt: skip
    if not forward:
        raise ConfigError(
            f"strategy.placing.replicated_tables is {replicated_bytes:,} B, and no table of {graph.name} is larger, so"
            " all would be replicated; lower it, or set strategy.tables=replicated"
        )
    tables = {op.id: forward[op.forward_op] for op in graph.ops if op.phase == "backward" and op.forward_op in forward
              and not op.is_metadata} | forward  # fmt: skip
    every = list(forward.values())
    if where == "columns":
        for table in every:
            if table.dimension % degree:
                raise DegreeError(
                    f"strategy.tables is 'columns'; strategy.dp = {degree} must divide the {table.dimension} columns of"
                    f" {table.name}"
                )
        columns = tuple((index, 1 / degree) for index in range(len(every)))
        load = Load(1 / degree, 1 / degree, sum(t.vectors * t.dimension for t in every) / degree, (columns,))
    elif where == HIERARCHICAL:
        load = load_on_servers(every, degree // server_size, server_size, entry_bytes, rank_bytes)
    else:
        load = spread_by_load(every, degree, entry_bytes, rank_bytes, where == "balanced")
    exchanged = {graph.ops[index].outputs[0]: VECTORS for index in forward}
    backward = (graph.ops[index] for index in tables if index not in forward)
    exchanged |= {graph.view_roots[op.inputs[0]]: GRADIENTS for op in backward}
    names = {t.name for t in every}
    divided = {t.id for t in graph.tensors if t.name in names and t.kind in ("parameter", "gradient")}
    return SpreadTables(
        degree=degree, divided=frozenset(divided), ops=frozenset(tables), exchanged=exchanged, every=tuple(every),
        tables=tables, load=load, batch=batch, ids=ids,
        words=_WORDS.get(where, "whole, or in parts by rows,"), server_size=server_size if where == HIERARCHICAL else 0,
        gradients=frozenset(tables.keys() - forward.keys()), are_columns=where == "columns",
        entries={t: graph.tensors[t].num_elements(1) for t in exchanged},
    )  # fmt: skip
