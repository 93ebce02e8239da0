"""Relays of a ring: the hops within reach that carry what is beyond it."""

from typing import Any

import numpy as np

from rostam_py.errors import ConfigError
from rostam_py.fabrics.traffic import Traffic


def pair_keys(traffic: Traffic) -> np.ndarray:
    """Return src x accelerators + dst of each pair, int64, ascending."""
    keys: np.ndarray = traffic.src.astype(np.int64) * traffic.num_accelerators + traffic.dst
    return keys


def over_hops(traffic: Traffic, reach: int, failures: Any) -> Traffic:
    """Return the demand on circuits, each within reach, that relayed data takes.

    Model: a pair beyond reach goes round the way that takes fewer circuits (clockwise, if both take as many), each as
        long as reach, cut segments and accelerators that work let it be.
    Raises: ConfigError naming a pair that no chain of hops joins.
    Cost: O(pairs x hops), in arrays.
    """
    n = traffic.num_accelerators
    src, dst, num_bytes = traffic.src.astype(np.int64), traffic.dst.astype(np.int64), traffic.num_bytes
    spans = [_longest_hops(n, fibre, reach, failures) for fibre in (0, 1)]
    gaps = [(dst - src) % n, (src - dst) % n]
    is_near = (gaps[0] <= spans[0].light[src]) | (gaps[1] <= spans[1].light[src])
    begins, ends, sizes = [src[is_near]], [dst[is_near]], [num_bytes[is_near]]
    far = np.flatnonzero(~is_near)
    if len(far):
        counts = np.stack([_num_circuits(spans[f], src[far], gaps[f][far], n, f) for f in (0, 1)])
        if (stuck := np.flatnonzero(counts.min(axis=0) >= _NO_WAY)).size:
            a, b = (int(side[far[stuck[0]]]) for side in (src, dst))
            raise ConfigError(
                f"fabric.relay finds no chain of hops of at most {reach} segments (fabric.reach) from accelerator {a}"
                f" to accelerator {b}: cut fibres or failed accelerators leave none"
            )
        for fibre in (0, 1):
            own = far[counts.argmin(axis=0) == fibre]
            for begin, end, which in _walk(spans[fibre], src[own], gaps[fibre][own], n, fibre):
                begins.append(begin)
                ends.append(end)
                sizes.append(num_bytes[own[which]])
    return Traffic.from_messages(n, np.concatenate(begins), np.concatenate(ends), np.concatenate(sizes))


def with_neighbours(traffic: Traffic, reach: int, failures: Any) -> Traffic:
    """Return a demand in which all that send or receive send as much as anybody to their neighbours among these.

    Model: both ways round, as far as light goes: circuits for the largest demands then join all.
    """
    n = traffic.num_accelerators
    ends = np.union1d(traffic.src, traffic.dst).astype(np.int64)
    spans = [_longest_hops(n, fibre, reach, failures) for fibre in (0, 1)]
    a = np.concatenate([ends, np.roll(ends, -1)])
    b = np.concatenate([np.roll(ends, -1), ends])
    is_lit = (a != b) & (((b - a) % n <= spans[0].light[a]) | ((a - b) % n <= spans[1].light[a]))
    near, before = np.unique(a[is_lit] * n + b[is_lit]), pair_keys(traffic)
    keys = np.union1d(before, near)
    num_bytes = np.zeros(len(keys))
    num_bytes[np.searchsorted(keys, before)] = traffic.num_bytes
    num_bytes[np.searchsorted(keys, near)] = traffic.num_bytes.max(initial=1.0)
    return Traffic.from_messages(n, keys // n, keys % n, num_bytes)


def check_relays(demand: Traffic, src: np.ndarray, dst: np.ndarray) -> None:
    """Raise ConfigError unless chains of these circuits join every pair of a demand."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = demand.num_accelerators
    graph = csr_array((np.ones(len(src)), (src, dst)), shape=(n, n))
    _, label = connected_components(graph, directed=True, connection="strong")
    # Between strong components the few pairs left are searched one by one.
    for a, b in zip(demand.src.tolist(), demand.dst.tolist(), strict=True):
        if label[a] != label[b] and not _leads(graph, a, b):
            raise ConfigError(
                f"no chain of circuits joins accelerator {a} to accelerator {b} (fabric.relay): the ring has too few"
                " wavelengths; raise fabric.accelerator_bandwidth"
            )


def _leads(graph: Any, a: int, b: int) -> bool:
    from scipy.sparse.csgraph import breadth_first_order

    return b in breadth_first_order(graph, a, return_predecessors=False)


_NO_WAY = 1 << 30


class _Spans:
    """Of every accelerator on one fibre: how far its light goes, and its longest hop to one that works [segments]."""

    def __init__(self, light: np.ndarray, hop: np.ndarray) -> None:
        self.light = light
        self.hop = hop


def _longest_hops(n: int, fibre: int, reach: int, failures: Any) -> _Spans:
    """Return the spans of a fibre; cable 2s + fibre joins positions s and s + 1."""
    step = 1 if fibre == 0 else -1
    is_cut = np.zeros(n, dtype=bool)
    is_cut[[link // 2 for link in failures.links if link % 2 == fibre]] = True
    works = np.ones(n, dtype=bool)
    works[list(failures.accelerators)] = False
    here = np.arange(n)
    light, hop, is_lit = np.zeros(n, np.int64), np.zeros(n, np.int64), np.ones(n, dtype=bool)
    for length in range(1, min(reach, n - 1) + 1):
        last = (here + step * (length - 1)) % n
        is_lit &= ~is_cut[last if fibre == 0 else (last - 1) % n]
        light[is_lit] = length
        hop[is_lit & works[(here + step * length) % n]] = length
    return _Spans(light, hop)


def _walk(
    spans: _Spans, src: np.ndarray, gap: np.ndarray, n: int, fibre: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return (begin, end, number of the pair) of the hops, as arrays, step by step; stops where none leads on."""
    step, which, here, left = (1 if fibre == 0 else -1), np.arange(len(src)), src, gap
    hops = []
    while len(which):
        length = np.where(left <= spans.light[here], left, spans.hop[here])
        length = np.minimum(length, left)
        goes = length > 0
        which, here, left, length = which[goes], here[goes], left[goes], length[goes]
        there = (here + step * length) % n
        hops.append((here, there, which))
        left = left - length
        more = left > 0
        which, here, left = which[more], there[more], left[more]
    return hops


def _num_circuits(spans: _Spans, src: np.ndarray, gap: np.ndarray, n: int, fibre: int) -> np.ndarray:
    """Return how many hops each pair takes; _NO_WAY where they lead nowhere."""
    step = 1 if fibre == 0 else -1
    counts, reached = np.zeros(len(src), np.int64), src.copy()
    for _, there, which in _walk(spans, src, gap, n, fibre):
        counts[which] += 1
        reached[which] = there
    counts[reached != (src + step * gap) % n] = _NO_WAY
    return counts
