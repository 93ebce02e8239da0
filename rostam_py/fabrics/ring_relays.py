"""Relays of a ring: the hops within reach that carry messages beyond it."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from rostam_py import _core
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
    near, before = np.unique(np.concatenate(_neighbours(traffic, reach, failures))), pair_keys(traffic)
    keys = np.union1d(before, near)
    num_bytes = np.zeros(len(keys))
    num_bytes[np.searchsorted(keys, before)] = traffic.num_bytes
    num_bytes[np.searchsorted(keys, near)] = traffic.num_bytes.max(initial=1.0)
    return Traffic.from_messages(n, keys // n, keys % n, num_bytes)


def _neighbours(traffic: Traffic, reach: int, failures: Any) -> list[np.ndarray]:
    """Return the pairs of neighbours among all that send or receive that light joins, as keys, of each fibre."""
    n = traffic.num_accelerators
    ends = np.union1d(traffic.src, traffic.dst).astype(np.int64)
    found = []
    for fibre in (0, 1):
        spans, there = _longest_hops(n, fibre, reach, failures), np.roll(ends, 1 if fibre else -1)
        gap = (ends - there if fibre else there - ends) % n
        is_lit = (gap > 0) & (gap <= spans.light[ends])
        found.append(ends[is_lit] * n + there[is_lit])
    return found


def neighbours_first(
    joined: Traffic, hops: Traffic, num_reserved: int, rest: dict[str, Any] | None, reach: int, failures: Any
) -> dict[str, Any]:
    """Return wavelengths as the core does, of which the first ones are the neighbours' alone.

    Model: turn by turn a wavelength is of all neighbours on one fibre and of all on the other (an accelerator sends a
        wavelength on one of them), beginning with that which joins more.
    Args:
        joined: ``with_neighbours`` of ``hops``; whose pairs the result is of.
        num_reserved: wavelengths that are the neighbours'.
        rest: the core's wavelengths for ``hops``, numbered from 0 on, behind these; None for none.
    """
    n, keys = joined.num_accelerators, pair_keys(joined)
    near = _neighbours(hops, reach, failures)
    first = int(len(near[1]) > len(near[0]))
    pairs, fibres, wavelengths = [], [], []
    num_hops = np.zeros(len(keys), dtype=np.int64)
    for fibre in (0, 1):
        pair = np.searchsorted(keys, near[fibre])
        gap = (near[fibre] % n - near[fibre] // n) % n
        own = np.arange(0 if fibre == first else 1, num_reserved, 2)
        if len(own):
            num_hops[pair] = np.maximum(num_hops[pair], n - gap if fibre else gap)
        pairs.append(np.repeat(pair, len(own)))
        fibres.append(np.full(len(pair) * len(own), fibre))
        wavelengths.append(np.tile(own, len(pair)))
    if rest is not None:
        pair = np.searchsorted(keys, pair_keys(hops))
        num_hops[pair] = np.maximum(num_hops[pair], rest["num_hops"])
        pairs.append(pair[rest["circuit_pair"]])
        fibres.append(rest["circuit_fibre"])
        wavelengths.append(rest["circuit_wavelength"] + num_reserved)
    pair, fibre_of, wavelength = (np.concatenate(of).astype(np.int64) for of in (pairs, fibres, wavelengths))
    order = np.lexsort((wavelength, fibre_of, pair))
    return {
        "num_hops": num_hops, "count": np.bincount(pair, minlength=len(keys)), "circuit_pair": pair[order],
        "circuit_fibre": fibre_of[order], "circuit_wavelength": wavelength[order],
    }  # fmt: skip


def shorter_hops(demand: Traffic, reach: int, failures: Any) -> Iterator[Traffic]:
    """Yield the demand over hops of at most 1, 2, 4 ... segments, less than ``reach``.

    Shorter hops load circuits with more that is relayed, but leave fewer pairs that need wavelengths.
    """
    limit = 1
    while limit < reach:
        if len(demand.src) * demand.num_accelerators // (2 * limit) <= _MOST_HOPS:
            try:
                hops = over_hops(demand, limit, failures)
            except ConfigError:  # a failed accelerator is in the way
                hops = None
            if hops is not None:
                yield hops
        limit *= 2


def busiest_circuit(demand: Traffic, src: np.ndarray, dst: np.ndarray, count: np.ndarray) -> float:
    """Return the most bytes over one of these circuits, relays included; infinity where a demand finds no chain.

    Model: the fewest circuits, in equal parts where several chains have as few. Cost: O(accelerators x pairs).
    """
    is_lit = count > 0
    loads = _core.relay_loads(demand.num_accelerators, demand.src, demand.dst, demand.num_bytes,
                              src[is_lit], dst[is_lit])  # fmt: skip
    return float((loads / count[is_lit]).max()) if len(loads) else math.inf


def check_relays(demand: Traffic, src: np.ndarray, dst: np.ndarray, bandwidth: str) -> None:
    """Raise ConfigError unless chains of these circuits join every pair of a demand.

    Args: bandwidth: what fabric.accelerator_bandwidth is, for the error.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = demand.num_accelerators
    graph = csr_array((np.ones(len(src)), (src, dst)), shape=(n, n))
    _, label = connected_components(graph, directed=True, connection="strong")
    # Between strong components the few pairs left are searched one by one.
    for a, b in zip(demand.src.tolist(), demand.dst.tolist(), strict=True):
        if label[a] != label[b] and not _leads(graph, a, b):
            raise ConfigError(
                f"no chain of circuits joins accelerator {a} to accelerator {b} (fabric.relay):"
                f" fabric.accelerator_bandwidth is {bandwidth}; it must be two wavelengths"
                " (fabric.wavelength_bandwidth) or more, one for neighbours each way round, unless one fibre joins all"
            )


def _leads(graph: Any, a: int, b: int) -> bool:
    from scipy.sparse.csgraph import breadth_first_order

    return b in breadth_first_order(graph, a, return_predecessors=False)


_NO_WAY = 1 << 30
# Of demands over shorter hops, so that their arrays stay below 1 GB; own choice.
_MOST_HOPS = 1 << 24


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
