"""Loads: what the busiest rank holds, looks up and sends once tables lie whole, or in parts by rows, on ranks.

Example:
    load = spread_by_load(tables, 8, row_bytes=8, rank_bytes=2e9, is_balanced=True)
    load.lookups                               # the busiest rank's, of all ranks' sum
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rostam_py.placement.tables.table import Table

_ALL, _TIMED = (0, 1, 2), (1, 2)  # shares of bytes, lookups, vectors: all that are spread evenly, those that take time
_MAX_CUTS = 20  # that a balanced spread tries; HugeCTR's planner: max_search_iter


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


ALONE = Load(1.0, 1.0, 0.0)  # of a rank that has all


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


def load_on_servers(
    tables: Sequence[Table], num_servers: int, server_size: int, row_bytes: int, rank_bytes: float
) -> Load:
    """Return the load of a rank of the busiest server: an even part of it, but partial sums of all of its vectors."""
    load = spread_by_load(tables, num_servers, row_bytes, rank_bytes * server_size, is_balanced=True)
    ranks = tuple(tuple((index, part / server_size) for index, part in rank) for rank in load.ranks)
    return Load(load.held / server_size, load.lookups / server_size, load.vectors, ranks)
