"""What NCCL's tuning model takes for an all-reduce over servers with NVSwitches, and what the depth of NVLSTree costs.

Example:
    tuned_between(Servers(32, 8), nic_bytes_per_s=50e9, num_bytes=2**24)[0]    # ("nvls_tree", "Simple")

The model chooses; times are always predicted and simulated on links as they are.
"""

import math
from dataclasses import dataclass

from rostam_py.fabrics.link_classes import tuned_latencies

# Rates in GB/s. Source: NCCL 2.27 src/graph/search.cc (speeds of NICs that its search tries), src/graph/tuning.cc: for
# compute capability 9.0, of one channel of ring LL128, of tree Simple and LL128 over two servers and over more; LL of
# all channels over two servers and over more, by an Intel host; latencies of a host between messages, of which a
# Simple one has three; shares of trees.
_NIC_SPEEDS = (48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0, 2.4, 1.2, 0.24, 0.12)
_RING_LL128 = 36.7
_TREE_SIMPLE, _TREE_LL128_CHANNEL, _LL = (41.4, 36.0), (36.7, 29.0), (39.0, 20.4)
_HOST_US = {"LL": 1.0, "LL128": 1.0, "Simple": 3.0}
_RING_LL_SHARE, _RING_LL128_SHARE = 0.5, 0.92
_TREE_SHARE, _TREE_PATTERN, _TREE_LL, _TREE_LL128 = 0.92, 0.85, 1 / 3.8, 120 / 128
# Channels of LL128 and of trees: two for each rank of a server, eight at most. NVLSTree's NICs: 40 where rings' have
# 48, and no tree of fewer than four ranks a server. Source: NCCL 2.27.5's tuning log of H100 (shared data
# nccl_h100_between_servers.csv), whose rows these are derived from; the code states them in its search alone.
_MOST_CHANNELS = 8
_NVLS_SPEED = 40 / 48
MIN_SWITCH_RANKS = 4


@dataclass(frozen=True, slots=True)
class Servers:
    """Of a group: how many servers, and its ranks in each, which have a NIC each."""

    count: int
    ranks: int


def tuned_between(servers: Servers, nic_bytes_per_s: float, num_bytes: float) -> list[tuple[str, str]]:
    """Return algorithms and protocols of an all_reduce over servers, the one that NCCL takes first.

    Model: NCCL's own, base + steps x hop + bytes / algorithm bandwidth, whatever the links really take: rings, trees,
        and in-switch reduction inside with trees between servers; without its corrections for the size, which its
        tuning log leaves out as well.
    Args: servers: two or more. nic_bytes_per_s: data sheet's. num_bytes: of the whole buffer.
    Source: NCCL src/graph/tuning.cc, ncclTopoTuneModel (2.27); tests/collectives/test_between_servers.py compares the
        choice with the log's.
    """
    nic = next((speed for speed in _NIC_SPEEDS if speed * 1e9 <= nic_bytes_per_s), _NIC_SPEEDS[-1])
    times = {}
    for protocol in ("LL", "LL128", "Simple"):
        for algorithm, rate in (
            ("ring", _ring_rate(servers, nic, protocol)),
            ("tree", _tree_rate(servers, nic, protocol)),
        ):
            latency_us = _latency_us(servers, algorithm, protocol)
            times[algorithm, protocol] = latency_us * 1e-6 + num_bytes / (rate * 1e9)
    if servers.ranks >= MIN_SWITCH_RANKS:
        rate = nic * _NVLS_SPEED * servers.ranks / (1 if servers.count == 2 else 2)
        latency_us = _latency_us(servers, "nvls_tree", "Simple")
        times["nvls_tree", "Simple"] = latency_us * 1e-6 + num_bytes / (rate * 1e9)
    return sorted(times, key=lambda one: times[one])


def _latency_us(servers: Servers, algorithm: str, protocol: str) -> float:
    base, inside, between = tuned_latencies(algorithm, protocol)
    levels = math.ceil(math.log2(servers.count))
    if algorithm == "nvls_tree":
        return base + inside + 2 * levels * between
    if algorithm == "tree":
        return base + 2 * ((servers.ranks - 1) * inside + levels * between)
    steps, between_steps = 2 * (servers.count * servers.ranks - 1), 2 * (servers.count - 1)
    if servers.ranks == 1:  # rings of one rank a server have the trees' hops
        between = tuned_latencies("tree", protocol)[2]
    return base + (steps - between_steps) * max(inside, _HOST_US[protocol]) + between_steps * between


def _ring_rate(servers: Servers, nic: float, protocol: str) -> float:
    """Return the algorithm bandwidth of rings [GB/s]."""
    rate = nic * servers.ranks
    if protocol == "LL":
        rate = min(rate * _RING_LL_SHARE, _LL[servers.count > 2])
    elif protocol == "LL128":
        rate = min(rate * _RING_LL128_SHARE, _RING_LL128 * _channels(servers))
    num_ranks = servers.count * servers.ranks
    return rate * num_ranks / (2 * (num_ranks - 1))


def _tree_rate(servers: Servers, nic: float, protocol: str) -> float:
    """Return the algorithm bandwidth of trees [GB/s]. Over two servers the links inside them count, not their NICs."""
    is_more, channels = servers.count > 2, _channels(servers)
    rate = channels * _TREE_SIMPLE[is_more]
    if is_more:
        rate = min(rate, nic * servers.ranks * _TREE_SHARE)
    if protocol == "LL":
        rate = min(rate * _TREE_LL, _LL[is_more])
    elif protocol == "LL128":
        rate = min(rate * _TREE_LL128, channels * _TREE_LL128_CHANNEL[is_more])
    return rate * _TREE_PATTERN / 2


def _channels(servers: Servers) -> int:
    return min(2 * servers.ranks, _MOST_CHANNELS)


def switch_tree_depth_s(num_servers: int, hops: tuple[float, float], between_s: float) -> float:
    """Return what NVLSTree takes up and down beyond one route's latency [s].

    Model: the switches' hop once, and the levels of a tree of servers up and down, each a hop and a route's latency.
    Args: hops: of the protocol, inside servers and between. between_s: latency of a route between servers.
    """
    levels = math.ceil(math.log2(num_servers))
    return hops[0] + 2 * levels * (hops[1] + between_s) - between_s
