"""Edge-disjoint directed rings, and paths, over the accelerators of a server that are joined by direct links.

Legend: n = accelerators that take part.

Example:
    links = np.array([[0, 1, 1], [1, 0, 2], [1, 2, 0]])     # links from row to column
    disjoint_rings(links)                                   # ((0, 1, 2), (0, 2, 1)): either way round
    disjoint_paths(links, ports=(0, 0, 1), most=2)          # in and out of the server by two ports
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

# A route of one step: the links that it takes, as (from, to).
_Route = tuple[tuple[int, int], ...]
_Links = tuple[tuple[int, ...], ...]


def disjoint_rings(
    links: np.ndarray, *, enable_relays: bool = True, most_branches: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return as many directed Hamiltonian cycles as share no link, each from accelerator 0 on.

    Model: every link carries one ring in its direction, two parallel ones two. Where direct links make no ring, a step
        between accelerators without a link may go through one that takes part, over a link of its own on either side,
        as NCCL's paths through an intermediate GPU. Exhaustive without ``most_branches``: no larger set exists.
    Args: links: from each accelerator to each, int array (n, n). enable_relays: steps may go through accelerators.
        most_branches: of the search for each number of rings; what is not found by then counts as none.
    Returns: the rings; none where there is no ring even so.
    Cost: exponential in n; milliseconds for 8 accelerators of 4 neighbours.
    Source: own, tests/fabrics/test_disjoint_rings.py compares with networkx and with integer programming.
    """
    return _rings(tuple(tuple(int(count) for count in row) for row in links), enable_relays, most_branches)


def disjoint_paths(links: np.ndarray, ports: Sequence[int], most: int) -> tuple[tuple[int, ...], ...]:
    """Return as many directed Hamiltonian paths as share no link and start, and end, at ports of their own.

    Args: links: as of ``disjoint_rings``. ports: of each accelerator, which several may share. most: paths wanted.
    Returns: up to ``most`` paths; none where there is none even through intermediate accelerators.
    Cost: as ``disjoint_rings``.
    """
    return _paths(tuple(tuple(int(count) for count in row) for row in links), tuple(ports), most)


@lru_cache(maxsize=512)
def _rings(links: _Links, enable_relays: bool, most_branches: int | None) -> tuple[tuple[int, ...], ...]:
    if len(links) < 2:
        return ()
    most = min(sum(one) for one in [*links, *zip(*links, strict=True)])
    return _largest(links, most, None, (False, True) if enable_relays else (False,), most_branches)


@lru_cache(maxsize=512)
def _paths(links: _Links, ports: tuple[int, ...], most: int) -> tuple[tuple[int, ...], ...]:
    return _largest(links, min(most, len(set(ports))), ports)


def _largest(
    links: _Links, most: int, ports: tuple[int, ...] | None, relays: tuple[bool, ...] = (False, True),
    most_branches: int | None = None,
) -> tuple[tuple[int, ...], ...]:  # fmt: skip
    for enable_relays in relays:
        for count in range(most, 0, -1):
            search = _Search([list(row) for row in links], _routes(links, enable_relays), ports, most_branches)
            found = search.pack(count, ())
            if found is not None:
                return tuple(found)
    return ()


def _routes(links: _Links, enable_relays: bool) -> list[list[list[_Route]]]:
    """Return the ways of a step from each accelerator to each: the direct link, or over one accelerator between."""
    places = range(len(links))

    def ways(src: int, dst: int) -> list[_Route]:
        if links[src][dst]:
            return [((src, dst),)]
        between = [via for via in places if links[src][via] and links[via][dst]] if enable_relays else []
        return [((src, via), (via, dst)) for via in between if src != dst]

    return [[ways(src, dst) for dst in places] for src in places]


@dataclass
class _Search:
    """A depth-first search. free: links not taken yet (n, n). ports: of paths; rings have none. branches: left."""

    free: list[list[int]]
    routes: list[list[list[_Route]]]
    ports: tuple[int, ...] | None
    branches: int | None = None
    entered: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)

    def pack(self, count: int, least: tuple[int, ...]) -> list[tuple[int, ...]] | None:
        """Return ``count`` rings or paths, each no less than the one before and the first than ``least``, or None."""
        if count == 0:
            return []
        # Every ring enters and leaves every accelerator.
        if self.ports is None and any(sum(one) < count for one in [*self.free, *zip(*self.free, strict=True)]):
            return None
        for order in self._orders(least):
            rest = self.pack(count - 1, order)
            if rest is not None:
                return [order, *rest]
        return None

    def _orders(self, least: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield every ring or path that is still free; its links and ports are taken while it is out."""
        if self.ports is None:
            yield from self._extend((0,), least)
            return
        for start, port in enumerate(self.ports):
            if port not in self.entered:
                self.entered.add(port)
                yield from self._extend((start,), least)
                self.entered.discard(port)

    def _extend(self, order: tuple[int, ...], least: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if order < least[: len(order)] or self.branches == 0:
            return
        if self.branches is not None:
            self.branches -= 1
        if len(order) < len(self.free):
            for target in range(len(self.free)):
                if target not in order:
                    for _ in self._take(order[-1], target):
                        yield from self._extend((*order, target), least)
        elif self.ports is None:
            for _ in self._take(order[-1], order[0]):
                yield order
        elif self.ports[order[-1]] not in self.left:
            self.left.add(self.ports[order[-1]])
            yield order
            self.left.discard(self.ports[order[-1]])

    def _take(self, src: int, dst: int) -> Iterator[None]:
        """Yield once for each free way of a step, whose links are taken meanwhile."""
        for route in self.routes[src][dst]:
            if all(self.free[a][b] > 0 for a, b in route):
                for a, b in route:
                    self.free[a][b] -= 1
                yield
                for a, b in route:
                    self.free[a][b] += 1
