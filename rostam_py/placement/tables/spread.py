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
the gradient of a vector is read for each id that it pools. Tables of at most ``strategy.replicated_tables`` lie on
every rank and are data-parallel. All ranks compute, exchange and hold what the busiest does. Ids are where the tables
are (the data loader puts them there), and a row is read for each id.
Ignores that ranks filter the ids of all samples, and that narrow columns read whole sectors.
Source: Naumov et al. 2019 (arXiv 1906.00091), section 4; Mudigere et al. 2022 (arXiv 2104.05158), section 4.2;
``balanced``, ``hierarchical``, replicated ones: HugeCTR's samples/dlrm/sharding/planner.py (plans "auto", "hier_auto";
dp_threshold), without the costs that it takes as arguments, and embedding/hier_model_parallel_embedding.cpp; torchrec's
table-row-wise sharding (Mudigere et al., 4.2.3, over servers);
distinct rows: HugeCTR's embedding collections and torchrec's fused optimizers sum the gradients of equal ids first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from rostam_py.errors import ConfigError, DegreeError
from rostam_py.graph import Op, OperatorGraph
from rostam_py.placement.experts import SpreadExperts
from rostam_py.plan.machine import Machine
from rostam_py.plan.strategy import Strategy
from rostam_py.plan.table_groups import BETWEEN, HIERARCHICAL, INSIDE, TABLES
from rostam_py.plan.table_ids import UNIFORM, IdFrequencies, frequencies, uniform_rows

VECTORS, GRADIENTS = "vectors", "vector gradients"
_ALL, _TIMED = (0, 1, 2), (1, 2)  # shares of bytes, lookups, vectors: all that are spread evenly, those that take time
_MAX_CUTS = 20  # that a balanced spread tries; HugeCTR's planner: max_search_iter


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


@dataclass(frozen=True, slots=True)
class Load:
    """What the busiest rank has, of all ranks' sum.

    vectors: entries of pooled vectors that it sends of one sample. ranks: of every distinct rank, the tables, by their
    place among all, and which part of each it has.
    """

    held: float
    lookups: float
    vectors: float
    ranks: tuple[tuple[tuple[int, float], ...], ...] = ()

    def updated(self, tables: Sequence[Table], num_samples: float) -> float:
        """Return the entries that the busiest rank updates, of the rows which so many samples look up."""
        entries = [t.distinct_rows(num_samples) * t.dimension for t in tables]
        return max(sum(entries[table] * part for table, part in rank) for rank in self.ranks)


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


def spread_by_load(
    tables: Sequence[Table], degree: int, row_bytes: int, rank_bytes: float, is_balanced: bool = False
) -> Load:
    """Return the busiest rank's load with tables whole on one rank.

    Model: greedy, the heaviest table first, to the rank of which the largest share, of bytes, lookups or vectors, grows
        least. A table that exceeds ``rank_bytes`` is cut by rows into the fewest equal parts that do not.
        Balanced: by lookups and vectors alone, bytes only have to fit; the table with most lookups in a part is cut
        into twice as many, at most one for each rank, as often as _MAX_CUTS, and the spread counts of which the busiest
        rank's largest share of lookups or vectors is least.
    Args: row_bytes: of one entry of a row, state included.
    """
    counts = [math.ceil(t.num_rows * t.dimension * row_bytes / rank_bytes) for t in tables]
    entries = sum(t.vectors * t.dimension for t in tables)
    if not is_balanced:
        return _greedy(tables, counts, degree, _ALL, math.inf)
    room = rank_bytes / (row_bytes * sum(t.num_rows * t.dimension for t in tables))
    loads = [_greedy(tables, counts, degree, _TIMED, room)]
    for _ in range(_MAX_CUTS):
        cuttable = [i for i, count in enumerate(counts) if 2 * count <= min(degree, tables[i].num_rows)]
        if not cuttable:
            break
        counts[max(cuttable, key=lambda i: tables[i].lookups * tables[i].dimension / counts[i])] *= 2
        loads.append(_greedy(tables, counts, degree, _TIMED, room))
    return min(loads, key=lambda load: _order(load, room, entries))


def _order(load: Load, room: float, entries: float) -> tuple[bool, float, float]:
    """Return by what the better of two balanced spreads is told: it fits, its largest share, its sum of shares."""
    shares = load.lookups, load.vectors / entries
    return load.held > room, max(shares), sum(shares)


def _greedy(tables: Sequence[Table], counts: Sequence[int], degree: int, axes: Sequence[int], room: float) -> Load:
    """Return the busiest rank's load with tables in so many equal parts by rows, the heaviest part placed first.

    Args: axes: of shares of bytes, lookups, vectors: which are to be even. room: share of bytes that a rank has room
        for, where some rank does.
    """
    total = sum(t.num_rows * t.dimension for t in tables)
    looked = sum(t.lookups * t.dimension for t in tables)
    entries = sum(t.vectors * t.dimension for t in tables)
    parts: list[tuple[tuple[float, float, float], int]] = []
    for index, (table, count) in enumerate(zip(tables, counts, strict=True)):
        held, lookups = table.num_rows * table.dimension / total, table.lookups * table.dimension / looked
        parts += [((held / count, lookups / count, table.vectors * table.dimension / entries), index)] * count
    ranks = [[0.0, 0.0, 0.0] for _ in range(degree)]
    own: list[list[tuple[int, float]]] = [[] for _ in range(degree)]
    for part, index in sorted(parts, key=lambda one: -max(one[0][axis] for axis in axes)):
        place = min(range(degree), key=lambda r: _grown(ranks[r], part, axes, room))
        own[place].append((index, 1 / counts[index]))
        for axis, amount in enumerate(part):
            ranks[place][axis] += amount
    held, lookups, vectors = (max(rank[axis] for rank in ranks) for axis in range(3))
    return Load(held, lookups, vectors * entries, tuple(dict.fromkeys(map(tuple, own))))


def _grown(rank: Sequence[float], part: Sequence[float], axes: Sequence[int], room: float) -> tuple[bool, float, float]:
    """Return by what the best rank for a part is told: it has room, its largest share with the part, what it has."""
    return rank[0] + part[0] > room, max(rank[axis] + part[axis] for axis in axes), sum(rank)


@dataclass(frozen=True, kw_only=True)
class SpreadTables(SpreadExperts):
    """The tables of a model, spread over ``degree`` ranks. divided: tables and their gradients.

    every: all tables, in the order of ``load``. tables: by the ops that read them, or make their gradients. load: the
    busiest rank's. batch: samples of a rank.
    """

    every: tuple[Table, ...] = ()
    tables: dict[int, Table] = field(default_factory=dict)
    load: Load = Load(1.0, 1.0, 0.0)
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
            f" the gradient of a table has only its distinct looked-up rows (strategy.table_ids={self.ids})"
        ]


_WORDS = {"columns": "by columns", HIERARCHICAL: "over servers, and by rows over the ranks of each,"}


def _on_servers(tables: Sequence[Table], num_servers: int, server_size: int, row_bytes: int, rank_bytes: float) -> Load:
    """Return the load of a rank of the busiest server: an even part of it, but partial sums of all of its vectors."""
    load = spread_by_load(tables, num_servers, row_bytes, rank_bytes * server_size, is_balanced=True)
    ranks = tuple(tuple((index, part / server_size) for index, part in rank) for rank in load.ranks)
    return Load(load.held / server_size, load.lookups / server_size, load.vectors, ranks)


def table_server_size(strategy: Strategy, machine: Machine) -> int:
    """Return the ranks of a server that hold a table's rows together; 1 but for hierarchical tables.

    Raises: ConfigError for a machine without servers, or ranks that do not fill them.
    """
    if strategy.tables != HIERARCHICAL:
        return 1
    degree, size = strategy.num_data_ranks, min(strategy.num_data_ranks, machine.fabric.config.accelerators_per_server)
    if size == 1:
        raise ConfigError(
            f"strategy.tables is 'hierarchical', which needs servers of several accelerators; {machine.fabric.name} has"
            " none: take another fabric, for example machine=dgx_h100, or set strategy.tables=balanced"
        )
    if degree % size:
        raise ConfigError(
            f"strategy.tables is 'hierarchical', but {degree} data-parallel ranks do not fill servers of"
            f" {machine.fabric.config.accelerators_per_server}; choose dp so that they do, or set"
            " strategy.tables=balanced"
        )
    return size


def check_servers(ranks: np.ndarray, server_size: int, per_server: int) -> None:
    """Raise ConfigError where ranks that hold a table's rows together are not on one server.

    Args: ranks: accelerators in the order of data-parallel ranks, int array. server_size: ranks of a server.
        per_server: accelerators of one.
    """
    servers = (ranks // per_server).reshape(-1, server_size)
    if (servers != servers[:, :1]).any():
        raise ConfigError(
            f"strategy.tables is 'hierarchical', but some {server_size} consecutive data-parallel ranks are not on one"
            " server; set strategy.mapping=linear, leave out the servers of failed accelerators, or set"
            " strategy.tables=balanced"
        )


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
            f"strategy.replicated_tables is {replicated_bytes:,} B, and no table of {graph.name} is larger, so all"
            " would be replicated; lower it, or set strategy.tables=replicated"
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
        load = _on_servers(every, degree // server_size, server_size, entry_bytes, rank_bytes)
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
